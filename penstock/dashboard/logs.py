"""Logs and dead letters: what the service said, what could not be read, what came too late."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from markupsafe import Markup

from penstock.dashboard.board import Board
from penstock.dashboard.frame import card, every, framed, put, read, shown
from penstock.dashboard.markup import Column, chip, table

_LINES = (Column("time"), Column("", wide=True), Column("event"), Column("facts", code=True))
_ASIDE = (
    Column("stream"),
    Column("epoch", number=True),
    Column("where", wide=True),
    Column("why", wide=True),
    Column("record", code=True),
)


def logs(board: Board, request: Request) -> None:
    """The page."""
    with framed(board, request, "logs"):
        with card("Dead letters", "records that could not be read, the latest first"):
            dead = shown().classes("at-dead")
        with card("Late events", "where the state keeps them"):
            late = shown()
        with card("Log", "the latest lines of this service"):
            lines = shown().classes("at-log")

        async def show() -> None:
            streams = await read(board.streams)
            put(dead, await read(_aside, board, streams, "dead", "Everything could be read."))
            put(late, await read(_aside, board, streams, "late", "None is kept."))
            put(lines, _lines(await read(board.logs)))

        every(show)


def _aside(board: Board, streams: list[dict[str, Any]], why: str, empty: str) -> Markup:
    rows = []
    for stream in streams[:20]:
        for row in board.aside(stream["name"], why):
            where = f"{row.get('partition', '')} {row.get('offset', '')}".strip()
            text = row.get("raw")
            if text is None:
                known = ("epoch", "partition", "offset", "reason")
                text = json.dumps({key: value for key, value in row.items() if key not in known}, default=str)
            rows.append((stream["name"], row["epoch"], where, row.get("reason"), text))
    rows.sort(key=lambda row: -int(row[1]))
    return table(_ASIDE, rows[:100], empty)


def _lines(found: list[dict[str, Any]]) -> Markup:
    rows = [
        (
            line["at"][11:19] + "Z",
            chip(line["level"]) if line["level"] != "info" else Markup(),
            line["event"],
            ", ".join(f"{key} {value}" for key, value in line["facts"].items()),
        )
        for line in found[:100]
    ]
    return table(_LINES, rows, "Nothing was logged yet.")
