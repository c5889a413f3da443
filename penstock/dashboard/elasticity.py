"""The page of elasticity: load and executors, decisions with their reasons, the heat of the buckets."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.backend import Backend
from penstock.dashboard.charts import heat_map, time_chart
from penstock.dashboard.frame import Tile, card, html, page_frame, refresh, run, update_chart, update_html
from penstock.dashboard.markup import Column, bar, chip, duration, empty_note, rate, table
from penstock.formatting import size
from penstock.server.response_bodies import EngineFacts

_STAGES = (
    Column("stage"),
    Column("utilisation"),
    Column("rows/s", number=True),
    Column("exchange/s", number=True, wide=True),
    Column("state", number=True),
    Column("imbalance", number=True, wide=True),
)
_EXECUTORS = (Column("executor"), Column("cores", number=True), Column("processor"), Column(""))
_DECISIONS = (Column("decision"), Column("why"), Column("outcome"))
_HEATS = {"work": "work", "state": "state", "slice": "slice"}


def elasticity(backend: Backend, request: Request) -> None:
    """Show the page."""
    with page_frame(backend, request, "elasticity"):
        with ui.element("div").classes("pen-tiles"):
            names = ("load", "executors", "epoch", "backlog", "bucket map")
            tiles = {name: Tile(name) for name in names}
        with card("Cores", "busy and available, since a page was opened"):
            core_usage = ui.echart(time_chart({})).classes("pen-chart")
        with card("Buckets") as head:
            with head:
                ui.element("div").classes("pen-grow")
                by = ui.toggle(_HEATS, value="work").props("dense no-caps unelevated size=sm")
            heat_note = html()
            heat = ui.echart({"series": []}).classes("pen-chart").style("height:260px").classes("at-heat")
        with ui.element("div").classes("pen-cols"):
            with card("Stages"):
                stages = html()
            with card("Executors"):
                executors = html()
        with card("Decisions"):
            decisions = html().classes("at-decisions")

        async def show() -> None:
            engine = await run(backend.engine)
            update_html(decisions, _decision_table(engine))
            if not engine.measured:
                note = empty_note("Nothing is measured yet: the first epochs are running.")
                for place in (stages, executors, heat_note):
                    update_html(place, note)
                heat.set_visibility(False)
                return
            _show_values(tiles, engine, await run(backend.status))
            usage: dict[str, list[tuple[float, float]]] = {
                "busy": [(one.at, round(one.busy, 2)) for one in backend.core_usage],
                "cores": [(one.at, one.cores) for one in backend.core_usage],
            }
            update_chart(core_usage, time_chart(usage, area=True))
            options = heat_map(engine, by.value)
            update_html(heat_note, Markup() if options else empty_note("No job has state in buckets."))
            if options is not None:
                heat.style(f"height:{110 + 30 * len(options['yAxis']['data'])}px")
            update_chart(heat, options)
            update_html(stages, _stage_table(engine))
            update_html(executors, _executor_table(engine))

        refresh(show)


def _show_values(tiles: dict[str, Tile], engine: EngineFacts, status: dict[str, Any]) -> None:
    cores = sum(one.cores for one in engine.executors.values())
    busy = sum(one.cores * (one.cpu or 0.0) for one in engine.executors.values())
    tiles["load"].set(f"{busy:.2f}", f"cores busy of {cores}")
    spare = f"{len(engine.spare)} spare" if engine.spare else f"{cores} cores"
    tiles["executors"].set(f"{len(engine.executors):,}", spare)
    tiles["epoch"].set(duration(engine.epoch_seconds), f"{duration(engine.epoch_target_seconds)} target")
    work = "-" if engine.backlog_seconds is None else duration(engine.backlog_seconds)
    tiles["backlog"].set(work, f"{rate(status['events_per_second'])} events/s")
    version = "-" if engine.maps_version is None else f"version {engine.maps_version}"
    tiles["bucket map"].set(version, engine.master)


def _stage_table(engine: EngineFacts) -> Markup:
    rows = [
        (
            name,
            bar(one.utilisation),
            rate(one.rows_per_second),
            size(one.exchange_bytes),
            size(one.state_bytes),
            f"{one.imbalance:.0%}" if one.bucket_map else "-",
        )
        for name, one in engine.sub_queries.items()
    ]
    return table(_STAGES, rows[:50], "No stage yet.")


def _executor_table(engine: EngineFacts) -> Markup:
    rows: list[tuple[Any, ...]] = [
        (name, one.cores, None if one.cpu is None else bar(one.cpu), Markup())
        for name, one in engine.executors.items()
    ]
    rows += [(name, None, None, chip("spare")) for name in engine.spare]
    return table(_EXECUTORS, rows[:100], "No executor yet.")


def _decision_table(engine: EngineFacts) -> Markup:
    elastic = engine.elastic
    if elastic is None:
        local = engine.master.startswith(("local", "inline", "-"))
        why = "This engine cannot scale its executors" if local else "The number of executors is fixed"
        return empty_note(f"{why}. On a cluster, --elastic on scales them with the load.")
    notes = Markup("").join(
        Markup('<div class="pen-message">{} {}</div>').format(chip("under way"), line)
        for line in elastic.orders
    )
    for line in elastic.deaths:
        notes += Markup('<div class="pen-note">{}</div>').format(line)
    if elastic.resting:
        notes += Markup('<div class="pen-note">no change: {}</div>').format(elastic.resting)
    rows = [
        (one.decision, one.reason, Markup("{} {}").format(chip(one.outcome), one.why or ""))
        for one in reversed(elastic.decisions)
    ]
    return notes + table(_DECISIONS, rows, "No decision yet.")
