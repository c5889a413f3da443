"""The page of dead letters, late events and the log of the service."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from markupsafe import Markup

from penstock.dashboard.backend import Backend
from penstock.dashboard.frame import card, html, page_frame, refresh, run, update_html
from penstock.dashboard.markup import Column, chip, table

_LINES = (Column("time"), Column("", wide=True), Column("event"), Column("facts", code=True))
_SIDE_OUTPUT = (
    Column("stream"),
    Column("epoch", number=True),
    Column("where", wide=True),
    Column("why", wide=True),
    Column("record", code=True),
)


def logs(backend: Backend, request: Request) -> None:
    """Show the page."""
    with page_frame(backend, request, "logs"):
        with card("Dead letters", "records that could not be decoded, the latest first"):
            dead = html().classes("at-dead")
        with card("Late events", "if the engine keeps them"):
            late = html()
        with card("Log", "the latest lines of this service"):
            lines = html().classes("at-log")

        async def show() -> None:
            streams = await run(backend.streams)
            update_html(
                dead, await run(_side_output, backend, streams, "dead", "All records could be decoded.")
            )
            update_html(late, await run(_side_output, backend, streams, "late", "None."))
            update_html(lines, _lines(await run(backend.logs)))

        refresh(show)


def _side_output(backend: Backend, streams: list[dict[str, Any]], kind: str, empty: str) -> Markup:
    rows = []
    for stream in streams[:20]:
        for row in backend.side_output(stream["name"], kind):
            where = f"{row.get('partition', '')} {row.get('offset', '')}".strip()
            text = row.get("raw")
            if text is None:
                shown = ("epoch", "partition", "offset", "reason")
                text = json.dumps({key: value for key, value in row.items() if key not in shown}, default=str)
            rows.append((stream["name"], row["epoch"], where, row.get("reason"), text))
    rows.sort(key=lambda row: -int(row[1]))
    return table(_SIDE_OUTPUT, rows[:100], empty)


def _lines(lines: list[dict[str, Any]]) -> Markup:
    rows = [
        (
            line["at"][11:19] + "Z",
            chip(line["level"]) if line["level"] != "info" else Markup(),
            line["event"],
            ", ".join(f"{key} {value}" for key, value in line["facts"].items()),
        )
        for line in lines[:100]
    ]
    return table(_LINES, rows, "Nothing is logged yet.")
