"""The page of fault tolerance: restarts of the engine, recoveries of its HA unit, and estimates of the schemes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.backend import Backend
from penstock.dashboard.estimates import estimate_chart, estimate_table, scheme_origin
from penstock.dashboard.frame import Tile, card, html, page_frame, refresh, run, update_chart, update_html
from penstock.dashboard.markup import Column, chip, clock, duration, table
from penstock.formatting import size
from penstock.ha.history import FIGURES
from penstock.server.response_bodies import RecoveryFacts

_RESTARTS = (
    Column("last result before"),
    Column("restarted at"),
    Column("first result after"),
    Column("without results", number=True),
    Column("epochs", wide=True),
)
_LOST = (
    Column("job"),
    Column("recovery"),
    Column("epochs lost", number=True),
    Column("of these not emitted", number=True, wide=True),
    Column("rows lost", number=True, wide=True),
    Column("rows repeated", number=True),
)
_ENGINES = (
    Column("engine"),
    Column("role"),
    Column("phase", wide=True),
    Column("epoch", number=True),
    Column("lag", number=True),
    Column("cached", number=True, wide=True),
    Column("process", wide=True),
)
_RECOVERIES = (
    Column("lost"),
    Column("new leader"),
    Column("scheme", wide=True),
    Column("detected after", number=True, wide=True),
    Column("first result after", number=True),
    Column("estimate", number=True),
    Column("semantics", wide=True),
)
_MEASUREMENTS = (
    Column("value"),
    Column("last", number=True),
    Column("worst", number=True),
    Column("times", number=True),
    Column("meaning", wide=True),
)
#: jobs in the table of losses
_MAX_JOBS = 50
_ONE_ENGINE = (
    "One engine, no follower. After a crash the next start continues after the last committed epoch: nothing is lost "
    "or counted twice, except by jobs whose recovery semantics allow it. An HA unit (serve --ha) recovers faster; "
    "serve --unit DIR shows another one here."
)


def recovery(backend: Backend, request: Request) -> None:
    """Show the page."""
    with page_frame(backend, request, "recovery"):
        with ui.element("div").classes("pen-tiles"):
            tiles = {name: Tile(name) for name in ("scheme", "recoveries", "last recovery", "starts")}
        with card("This engine"):
            ui.label(_ONE_ENGINE).classes("pen-note")
            restarts = html().classes("at-restarts")
            lost = html().classes("at-lost")
        unit = ui.element("div")
        with unit, card("HA unit"), ui.element("div").classes("pen-stack"):
            engines = html().classes("at-engines")
            recoveries = html().classes("at-recoveries")
            measured = html()
        assessment = ui.element("div")
        with assessment, card("Estimates", "the duration of a recovery with each scheme"):
            bars = ui.echart({"series": []}).classes("pen-chart").classes("at-bars")
            schemes = html().classes("at-estimates")

        async def show() -> None:
            facts = await run(backend.recovery)
            _show_values(tiles, facts)
            update_html(restarts, _restarts(facts))
            update_html(lost, _lost(facts))
            unit.set_visibility(facts.unit is not None)
            assessment.set_visibility(facts.unit is not None)
            if facts.unit is not None:
                update_html(engines, _engines(facts.unit))
                update_html(recoveries, _recoveries(facts.unit))
                update_html(measured, _measurements(facts.unit))
                update_html(schemes, estimate_table(facts.unit))
                _draw(bars, estimate_chart(facts.unit))

        refresh(show)


def _draw(bars: ui.echart, options: dict[str, Any] | None) -> None:
    if options is not None:
        bars.style(f"height:{90 + 30 * len(options['yAxis']['data'])}px")
    update_chart(bars, options)


def _show_values(tiles: dict[str, Tile], facts: RecoveryFacts) -> None:
    if facts.unit is None:
        tiles["scheme"].set("none", facts.scheme)
    else:
        tiles["scheme"].set(facts.scheme, scheme_origin(facts.unit))
    in_unit = [] if facts.unit is None else facts.unit["recoveries"]
    done = [one for one in facts.restarts if one.first_result_at is not None]
    waiting = len(facts.restarts) - len(done)
    tiles["recoveries"].set(f"{len(facts.restarts) + len(in_unit):,}", "one in progress" if waiting else "")
    if in_unit:
        tiles["last recovery"].set(_since(in_unit[-1], "first_result_after"), "to the first result")
    elif done:
        tiles["last recovery"].set(duration(done[-1].gap_seconds), "without results")
    else:
        tiles["last recovery"].set("-", "nothing has failed")
    tiles["starts"].set(f"{facts.starts:,}", f"this one {clock(facts.started_at)}")


def _restarts(facts: RecoveryFacts) -> Markup:
    rows = [
        (
            clock(one.last_result_at),
            clock(one.started_at),
            clock(one.first_result_at) if one.first_result_at else chip("under way"),
            duration(one.gap_seconds),
            f"{one.last_epoch:,} → {'…' if one.first_epoch is None else f'{one.first_epoch:,}'}",
        )
        for one in reversed(facts.restarts)
    ]
    return table(_RESTARTS, rows, "No restart after a crash.")


def _lost(facts: RecoveryFacts) -> Markup:
    """What jobs lost or repeated in the last recovery of this engine."""
    jobs: dict[str, Any] = (facts.last or {}).get("jobs", {})
    counts = ("lost_epochs", "untold_epochs", "lost_rows", "repeated_rows")
    rows = [
        (name, chip(one["semantics"]), *(one.get(count, 0) for count in counts))
        for name, one in list(jobs.items())[:_MAX_JOBS]
    ]
    return table(_LOST, rows, "") if rows else Markup()


def _engines(unit: dict[str, Any]) -> Markup:
    head = Markup('<div class="pen-note">{} {} scheme {}, generation {}, last epoch {}</div>').format(
        unit["unit"],
        chip(unit["phase"]),
        unit["scheme"],
        unit["generation"],
        "-" if unit["last_epoch"] is None else unit["last_epoch"],
    )
    rows = [
        (
            name,
            chip(one["role"]),
            one["phase"],
            None if one["epoch"] < 0 else one["epoch"],
            None if one["role"] == "primary" else one["lag"],
            size(one["cached_bytes"]),
            f"{one['pid']} on {one['host']}",
        )
        for name, one in unit["engines"].items()
    ]
    return head + table(_ENGINES, rows, "No engine is running.")


def _since(one: dict[str, Any], name: str) -> str:
    """The time since a failure, or since the last result before it if the failure itself was not seen."""
    is_unseen = one.get("failed_at") is None and one[name] is not None
    return f"{'at most ' if is_unseen else ''}{duration(one[name])}"


def _recoveries(unit: dict[str, Any]) -> Markup:
    rows = [
        (
            one["lost"],
            one["leader"],
            one["scheme"],
            _since(one, "detected_after"),
            _since(one, "first_result_after"),
            duration(one["estimated_seconds"]),
            one["semantics"],
        )
        for one in reversed(unit["recoveries"])
    ]
    return table(_RECOVERIES, rows, "No engine was lost yet.")


def _measurements(unit: dict[str, Any]) -> Markup:
    rows = [_measurement(name, values) for name, values in unit["measured"].items() if values]
    return table(_MEASUREMENTS, rows, "Nothing is measured yet.")


def _measurement(name: str, values: Sequence[float]) -> Sequence[Any]:
    known = FIGURES.get(name)
    if known is None:
        return name, values[-1], max(values), len(values), ""
    worst = max(values) if known.large_is_bad else min(values)
    return name, _with_unit(values[-1], known.unit), _with_unit(worst, known.unit), len(values), known.meaning


def _with_unit(value: float, unit: str) -> str:
    return f"{size(value)}/s" if unit == "bytes/s" else duration(value)
