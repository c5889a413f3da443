"""Fault tolerance: how the engine is protected, what came of failures, and the HA unit that is watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.board import Board
from penstock.dashboard.estimates import chart, estimates, picked_by
from penstock.dashboard.frame import Tile, card, every, framed, put, read, shown
from penstock.dashboard.markup import Column, chip, clock, lasting, table
from penstock.formatting import size
from penstock.ha.history import FIGURES
from penstock.server.response_bodies import RecoveryFacts

_RESTARTS = (
    Column("last result before"),
    Column("back at"),
    Column("first result after"),
    Column("without results", number=True),
    Column("epochs", wide=True),
)
_LOST = (
    Column("job"),
    Column("recovery"),
    Column("epochs lost", number=True),
    Column("of these not told", number=True, wide=True),
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
    Column("leads"),
    Column("scheme", wide=True),
    Column("detected after", number=True, wide=True),
    Column("first result after", number=True),
    Column("estimate", number=True),
    Column("semantics", wide=True),
)
_MEASURED = (
    Column("measured"),
    Column("last", number=True),
    Column("worst", number=True),
    Column("times", number=True),
    Column("what it is", wide=True),
)
#: jobs of which it is shown what they lost
_SHOWN_JOBS = 50
_ONE_ENGINE = (
    "One engine, no secondary. After a crash the next start goes on from the last committed epoch: nothing is lost and "
    "nothing counted twice, but by jobs that may. A unit of engines (run --ha) is back sooner; serve --unit DIR shows "
    "one here."
)


def recovery(board: Board, request: Request) -> None:
    """The page."""
    with framed(board, request, "recovery"):
        with ui.element("div").classes("pen-tiles"):
            tiles = {name: Tile(name) for name in ("scheme", "recoveries", "last recovery", "starts")}
        with card("This engine") as _:
            ui.label(_ONE_ENGINE).classes("pen-note")
            restarts = shown().classes("at-restarts")
            lost = shown().classes("at-lost")
        unit = ui.element("div")
        with unit, card("HA unit"), ui.element("div").classes("pen-stack"):
            engines = shown().classes("at-engines")
            recoveries = shown().classes("at-recoveries")
            measured = shown()
        thought = ui.element("div")
        with thought, card("Estimates", "how long a recovery would take, scheme by scheme"):
            bars = ui.echart({"series": []}).classes("pen-chart").classes("at-bars")
            schemes = shown().classes("at-estimates")

        async def show() -> None:
            facts = await read(board.recovery)
            _figures(tiles, facts)
            put(restarts, _restarts(facts))
            put(lost, _lost(facts))
            unit.set_visibility(facts.unit is not None)
            thought.set_visibility(facts.unit is not None)
            if facts.unit is not None:
                put(engines, _engines(facts.unit))
                put(recoveries, _recoveries(facts.unit))
                put(measured, _measured(facts.unit))
                put(schemes, estimates(facts.unit))
                _draw(bars, chart(facts.unit))

        every(show)


def _draw(bars: ui.echart, options: dict[str, Any] | None) -> None:
    bars.set_visibility(options is not None)
    if options is None or options == bars.options:
        return
    bars.style(f"height:{90 + 30 * len(options['yAxis']['data'])}px")
    bars.options.clear()
    bars.options.update(options)
    bars.update()


def _figures(tiles: dict[str, Tile], facts: RecoveryFacts) -> None:
    if facts.unit is None:
        tiles["scheme"].put("none", facts.scheme)
    else:
        tiles["scheme"].put(facts.scheme, picked_by(facts.unit))
    in_unit = [] if facts.unit is None else facts.unit["recoveries"]
    done = [one for one in facts.restarts if one.first_result_at is not None]
    waiting = len(facts.restarts) - len(done)
    tiles["recoveries"].put(f"{len(facts.restarts) + len(in_unit):,}", "one under way" if waiting else "")
    if in_unit:
        tiles["last recovery"].put(_since(in_unit[-1], "first_result_after"), "to the first result")
    elif done:
        tiles["last recovery"].put(lasting(done[-1].gap_seconds), "without results")
    else:
        tiles["last recovery"].put("-", "nothing has failed")
    tiles["starts"].put(f"{facts.starts:,}", f"this one {clock(facts.started_at)}")


def _restarts(facts: RecoveryFacts) -> Markup:
    rows = [
        (
            clock(one.last_result_at),
            clock(one.started_at),
            clock(one.first_result_at) if one.first_result_at else chip("under way"),
            Markup("{}").format(lasting(one.gap_seconds)),
            f"{one.last_epoch:,} → {'…' if one.first_epoch is None else f'{one.first_epoch:,}'}",
        )
        for one in reversed(facts.restarts)
    ]
    return table(_RESTARTS, rows, "It has never died.")


def _lost(facts: RecoveryFacts) -> Markup:
    """What jobs lost or repeated when this engine came back."""
    found: dict[str, Any] = (facts.last or {}).get("jobs", {})
    counts = ("lost_epochs", "untold_epochs", "lost_rows", "repeated_rows")
    rows = [
        (name, chip(one["semantics"]), *(one.get(count, 0) for count in counts))
        for name, one in list(found.items())[:_SHOWN_JOBS]
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
            Markup("{}").format(size(one["cached_bytes"])),
            f"{one['pid']} on {one['host']}",
        )
        for name, one in unit["engines"].items()
    ]
    return head + table(_ENGINES, rows, "No engine of it is up.")


def _since(one: dict[str, Any], name: str) -> str:
    """How long something took after a failure: counted from the last result where the failure itself was not seen."""
    unseen = one.get("failed_at") is None and one[name] is not None
    return f"{'at most ' if unseen else ''}{lasting(one[name])}"


def _recoveries(unit: dict[str, Any]) -> Markup:
    rows = [
        (
            one["lost"],
            one["leader"],
            one["scheme"],
            Markup("{}").format(_since(one, "detected_after")),
            Markup("{}").format(_since(one, "first_result_after")),
            Markup("{}").format(lasting(one["estimated_seconds"])),
            one["semantics"],
        )
        for one in reversed(unit["recoveries"])
    ]
    return table(_RECOVERIES, rows, "No engine of it was lost yet.")


def _measured(unit: dict[str, Any]) -> Markup:
    rows = [_figure(name, values) for name, values in unit["measured"].items() if values]
    return table(_MEASURED, rows, "Nothing was measured yet.")


def _figure(name: str, values: Sequence[float]) -> Sequence[Any]:
    known = FIGURES.get(name)
    if known is None:
        return name, values[-1], max(values), len(values), ""
    worst = max(values) if known.large_is_bad else min(values)
    return name, _with_unit(values[-1], known.unit), _with_unit(worst, known.unit), len(values), known.meaning


def _with_unit(value: float, unit: str) -> str:
    return f"{size(value)}/s" if unit == "bytes/s" else lasting(value)
