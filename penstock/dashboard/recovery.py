"""Fault tolerance: how the engine is protected, what came of failures, and the HA unit that is watched."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.board import Board
from penstock.dashboard.frame import Tile, card, every, framed, put, read, shown
from penstock.dashboard.markup import Column, chip, clock, lasting, nothing, table
from penstock.http.schemas import RecoveryFacts
from penstock.words.figures import size

_RESTARTS = (
    Column("last result before"),
    Column("back at"),
    Column("first result after"),
    Column("without results", number=True),
    Column("epochs", wide=True),
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
    Column("detected after", number=True),
    Column("first result after", number=True),
)
_ESTIMATES = (Column("scheme"), Column("estimate", number=True), Column("threshold", number=True), Column(""))
_MEASURED = (
    Column("figure"),
    Column("last", number=True),
    Column("most", number=True),
    Column("times", number=True),
)
_ONE_ENGINE = (
    "One engine, no secondary. After a crash the next start goes on from the last committed epoch: nothing is lost and "
    "nothing counted twice. A unit of engines (run --ha) is back sooner; serve --unit DIR shows one here."
)


def recovery(board: Board, request: Request) -> None:
    """The page."""
    with framed(board, request, "recovery"):
        with ui.element("div").classes("pen-tiles"):
            tiles = {name: Tile(name) for name in ("scheme", "recoveries", "last recovery", "starts")}
        with card("This engine") as _:
            ui.label(_ONE_ENGINE).classes("pen-note")
            restarts = shown().classes("at-restarts")
        unit = ui.element("div")
        with unit, card("HA unit"):
            engines = shown()
            recoveries = shown()
        estimates_place = ui.element("div").classes("pen-cols")
        with estimates_place:
            with card("Estimates against the threshold"):
                estimates = shown()
            with card("Measured"):
                measured = shown()

        async def show() -> None:
            facts = await read(board.recovery)
            _figures(tiles, facts)
            put(restarts, _restarts(facts))
            unit.set_visibility(facts.unit is not None)
            estimates_place.set_visibility(facts.unit is not None)
            if facts.unit is not None:
                put(engines, _engines(facts.unit))
                put(recoveries, _recoveries(facts.unit))
                put(estimates, _estimates(facts.unit))
                put(measured, _measured(facts.unit))

        every(show)


def _figures(tiles: dict[str, Tile], facts: RecoveryFacts) -> None:
    tiles["scheme"].put(
        "none" if facts.unit is None else facts.scheme, facts.scheme if facts.unit is None else ""
    )
    in_unit = [] if facts.unit is None else facts.unit.get("recoveries", [])
    done = [one for one in facts.restarts if one.first_result_at is not None]
    waiting = len(facts.restarts) - len(done)
    tiles["recoveries"].put(f"{len(facts.restarts) + len(in_unit):,}", "one under way" if waiting else "")
    if in_unit:
        tiles["last recovery"].put(lasting(in_unit[-1]["first_result_after"]), "to the first result")
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


def _engines(unit: dict[str, Any]) -> Markup:
    head = Markup('<div class="pen-note">{} {} scheme {}, generation {}, last epoch {}</div>').format(
        unit["unit"], chip(unit["phase"]), unit["scheme"], unit["generation"], unit["last_epoch"]
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


def _recoveries(unit: dict[str, Any]) -> Markup:
    rows = [
        (
            one["lost"],
            one["leader"],
            one["scheme"],
            Markup("{}").format(lasting(one["detected_after"])),
            Markup("{}").format(lasting(one["first_result_after"])),
        )
        for one in reversed(unit["recoveries"])
    ]
    return table(_RECOVERIES, rows, "No engine of it was lost yet.")


def _estimates(unit: dict[str, Any]) -> Markup:
    """Where the unit has a controller that estimates; units without one have their figures only."""
    found, threshold = unit.get("estimates") or {}, unit.get("threshold_seconds")
    rows = [
        (
            name,
            Markup("{}").format(lasting(estimate)),
            Markup("{}").format(lasting(threshold)),
            Markup() if threshold is None else chip("ok" if estimate <= threshold else "too slow"),
        )
        for name, estimate in found.items()
        if isinstance(estimate, int | float)
    ]
    return table(_ESTIMATES, rows, "Its scheme was chosen by hand: there is no controller that estimates.")


def _measured(unit: dict[str, Any]) -> Markup:
    rows = [
        (name, values[-1], max(values), len(values)) for name, values in unit["measured"].items() if values
    ]
    return (
        table(_MEASURED, rows, "Nothing was measured yet.") if rows else nothing("Nothing was measured yet.")
    )
