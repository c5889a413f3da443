"""Elasticity: the load and who carries it, what was decided and why, and how hot the buckets are."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.board import Board
from penstock.dashboard.charts import heat, over_time
from penstock.dashboard.frame import Tile, card, every, framed, put, read, shown
from penstock.dashboard.markup import Column, bar, chip, lasting, nothing, rate, table
from penstock.formatting import size
from penstock.server.response_bodies import EngineFacts

_SUB_QUERIES = (
    Column("sub-query"),
    Column("used"),
    Column("rows/s", number=True),
    Column("exchange/s", number=True, wide=True),
    Column("state", number=True),
    Column("imbalance", number=True, wide=True),
)
_EXECUTORS = (Column("executor"), Column("cores", number=True), Column("processor"), Column(""))
_DECISIONS = (Column("decided"), Column("why"), Column("outcome"))
_HEATS = {"work": "work", "state": "state", "slice": "slice"}


def elasticity(board: Board, request: Request) -> None:
    """The page."""
    with framed(board, request, "elasticity"):
        with ui.element("div").classes("pen-tiles"):
            names = ("load", "executors", "epoch", "backlog", "bucket map")
            tiles = {name: Tile(name) for name in names}
        with card("Cores", "busy and there, while a page was open"):
            strain = ui.echart(over_time({})).classes("pen-chart")
        with card("Buckets") as head:
            with head:
                ui.element("div").classes("pen-grow")
                by = ui.toggle(_HEATS, value="work").props("dense no-caps unelevated size=sm")
            cold = shown()
            heats = ui.echart({"series": []}).classes("pen-chart").style("height:260px").classes("at-heat")
        with ui.element("div").classes("pen-cols"):
            with card("Sub-queries"):
                subs = shown()
            with card("Executors"):
                executors = shown()
        with card("Decisions"):
            decisions = shown().classes("at-decisions")

        async def show() -> None:
            engine = await read(board.engine)
            put(decisions, _decisions(engine))
            if not engine.measured:
                says = "Nothing is measured yet: the first epochs are under way."
                for place in (subs, executors, cold):
                    put(place, nothing(says))
                heats.set_visibility(False)
                return
            _figures(tiles, engine, await read(board.status))
            strain.options.update(
                over_time(
                    {
                        "busy": [(one.at, round(one.busy, 2)) for one in board.strain],
                        "cores": [(one.at, one.cores) for one in board.strain],
                    },
                    area=True,
                )
            )
            strain.update()
            options = heat(engine, by.value)
            heats.set_visibility(options is not None)
            put(cold, Markup() if options else nothing("No job here keeps state in buckets."))
            if options is not None:
                heats.style(f"height:{110 + 30 * len(options['yAxis']['data'])}px")
                heats.options.clear()
                heats.options.update(options)
                heats.update()
            put(subs, _sub_queries(engine))
            put(executors, _executors(engine))

        every(show)


def _figures(tiles: dict[str, Tile], engine: EngineFacts, status: dict[str, Any]) -> None:
    cores = sum(one.cores for one in engine.executors.values())
    busy = sum(one.cores * (one.cpu or 0.0) for one in engine.executors.values())
    tiles["load"].put(f"{busy:.2f}", f"cores busy of {cores}")
    spare = f"{len(engine.spare)} spare" if engine.spare else f"{cores} cores"
    tiles["executors"].put(f"{len(engine.executors):,}", spare)
    tiles["epoch"].put(lasting(engine.epoch_seconds), f"{lasting(engine.epoch_target_seconds)} wanted")
    work = "-" if engine.backlog_seconds is None else lasting(engine.backlog_seconds)
    tiles["backlog"].put(work, f"{rate(status['events_per_second'])} events/s")
    version = "-" if engine.maps_version is None else f"version {engine.maps_version}"
    tiles["bucket map"].put(version, engine.master)


def _sub_queries(engine: EngineFacts) -> Markup:
    rows = [
        (
            name,
            bar(one.utilisation),
            Markup("{}").format(rate(one.rows_per_second)),
            Markup("{}").format(size(one.exchange_bytes)),
            Markup("{}").format(size(one.state_bytes)),
            Markup("{}").format(f"{one.imbalance:.0%}" if one.bucket_map else "-"),
        )
        for name, one in engine.sub_queries.items()
    ]
    return table(_SUB_QUERIES, rows[:50], "No sub-query yet.")


def _executors(engine: EngineFacts) -> Markup:
    rows: list[tuple[Any, ...]] = [
        (name, one.cores, None if one.cpu is None else bar(one.cpu), Markup())
        for name, one in engine.executors.items()
    ]
    rows += [(name, None, None, chip("spare")) for name in engine.spare]
    return table(_EXECUTORS, rows[:100], "No executor yet.")


def _decisions(engine: EngineFacts) -> Markup:
    elastic = engine.elastic
    if elastic is None:
        local = engine.master.startswith(("local", "inline", "-"))
        why = "This engine has no executors that could come and go" if local else "The executors are fixed"
        return nothing(f"{why}. On a cluster, --elastic on has them follow the load.")
    said = Markup("").join(
        Markup('<div class="pen-said">{} {}</div>').format(chip("under way"), line) for line in elastic.orders
    )
    for line in elastic.deaths:
        said += Markup('<div class="pen-note">{}</div>').format(line)
    if elastic.resting:
        said += Markup('<div class="pen-note">nothing is changed: {}</div>').format(elastic.resting)
    rows = [
        (one.decision, one.reason, Markup("{} {}").format(chip(one.outcome), one.why or ""))
        for one in reversed(elastic.decisions)
    ]
    return said + table(_DECISIONS, rows, "Nothing was decided yet.")
