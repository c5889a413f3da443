"""The overview: the engine, its rates and latency, all jobs and streams."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.backend import Backend
from penstock.dashboard.charts import time_chart
from penstock.dashboard.editor import create_dialog
from penstock.dashboard.frame import (
    Tile,
    button,
    card,
    html,
    page_frame,
    refresh,
    run,
    update_chart,
    update_html,
)
from penstock.dashboard.markup import Column, chip, code, duration, link, rate, table
from penstock.formatting import amount, clock, size
from penstock.server.middleware import PAGES
from penstock.server.response_bodies import EngineFacts

#: jobs that are shown; failed ones come first
_MAX_JOBS = 200
#: a sink that lacks rows for so long is shown as behind
_LAG_SECONDS = 1.0
_JOBS = (
    Column("job"),
    Column(""),
    Column("rows/s", number=True),
    Column("last result", number=True),
    Column("version", number=True, wide=True),
    Column("query", wide=True),
)
_STREAMS = (
    Column("stream"),
    Column("backlog", number=True),
    Column("allowed lateness", number=True),
    Column("watermark"),
    Column("log", wide=True),
)
#: events older than this are a replay: their age is no latency
_REPLAY_SECONDS = 3600.0
_ORDER = {"failed": 0, "running": 1, "paused": 2}


def overview(backend: Backend, request: Request) -> None:
    """Show the page."""
    with page_frame(backend, request, "") as theme:
        with ui.element("div").classes("pen-tiles"):
            tiles = {
                name: Tile(name) for name in ("events/s", "latency", "backlog", "epoch", "state", "jobs")
            }
        with ui.element("div").classes("pen-cols"):
            with card("Events", "a second, by epoch"):
                rates = ui.echart(time_chart({})).classes("pen-chart").classes("at-rates")
            with card("Latency", "seconds"):
                latencies = ui.echart(time_chart({})).classes("pen-chart")
        with card("Jobs") as head:
            with head:
                name_filter = (
                    ui.input(placeholder="filter").props("dense borderless clearable").classes("w-32")
                )
                ui.element("div").classes("pen-grow")
                if backend.takes_commands:

                    async def create() -> None:
                        create_dialog(backend, await theme.is_dark()).open()

                    button("New job", create, kind="unelevated color=primary", icon="add").classes("at-new")
            jobs = html().classes("at-jobs")
        with ui.element("div").classes("pen-cols"):
            with card("Engine"):
                engine = html()
            with card("Streams"):
                streams = html()

        async def show() -> None:
            status, epochs = await run(backend.status), await run(backend.epochs)
            _show_status(tiles, status)
            update_chart(rates, _rates(epochs))
            update_chart(latencies, _latencies(epochs))
            update_html(jobs, _jobs(await run(backend.jobs), name_filter.value or ""))
            update_html(streams, _streams(await run(backend.streams), status["watermarks"]))
            update_html(engine, _engine(status, await run(backend.engine)))

        refresh(show)


def _show_status(tiles: dict[str, Tile], status: dict[str, Any]) -> None:
    latency, lives = status["latency_seconds"], status["jobs"]
    tiles["events/s"].set(rate(status["events_per_second"]), f"{status['events']:,} events so far")
    if latency is None:
        tiles["latency"].set("-", "no live events")
    else:
        tiles["latency"].set(f"{latency['p50']:.2f} s", f"p99 {latency['p99']:.2f} s")
    backlog = sum(status["backlog"].values())
    side_outputs = f"{status['late']:,} late, {status['dead']:,} dead"
    tiles["backlog"].set(f"{backlog:,}" if backlog < 1e6 else f"{backlog / 1e6:,.1f} M", "in the logs")
    tiles["epoch"].set(
        f"{status['epoch']:,}" if status["epoch"] >= 0 else "-",
        f"took {duration(status['last_epoch_seconds'])}",
    )
    tiles["state"].set(size(status["state_bytes"]), side_outputs)
    others = [f"{count} {life}" for life, count in lives.items() if life != "running"]
    tiles["jobs"].set(f"{lives.get('running', 0):,} running", ", ".join(others) or "none paused or failed")


def _rates(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    by_second: dict[int, int] = {}
    for point in epochs:
        by_second[int(point["at"])] = by_second.get(int(point["at"]), 0) + point["events"]
    if not by_second:
        return time_chart({})
    # the first second and the current one are incomplete
    seconds = range(min(by_second) + 1, max(by_second))
    return time_chart({"events/s": [(second, by_second.get(second, 0)) for second in seconds]}, area=True)


def _latencies(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    oldest: dict[int, float] = {}
    longest: dict[int, float] = {}
    for point in epochs:
        second, age = int(point["at"]), point["oldest_age_seconds"]
        longest[second] = max(longest.get(second, 0.0), point["seconds"])
        if age is not None and age < _REPLAY_SECONDS:
            oldest[second] = max(oldest.get(second, 0.0), age)
    return time_chart(
        {
            "oldest event": [(second, round(age, 3)) for second, age in oldest.items()],
            "longest epoch": [(second, round(length, 3)) for second, length in longest.items()],
        }
    )


def _jobs(jobs: list[dict[str, Any]], name_filter: str) -> Markup:
    matches = [job for job in jobs if name_filter.lower() in job["name"].lower()]
    matches.sort(key=lambda job: (_ORDER.get(job["life"], 3), job["name"]))
    rows = [
        (
            link(f"{PAGES}/jobs/{job['name']}", job["name"]),
            chip(job["life"]) + _describe_lag(job["behind"]),
            rate(job["rows_per_second"]),
            None if job["epoch"] is None else Markup("epoch {}").format(f"{job['epoch']:,}"),
            job["version"],
            code(" ".join(job["query"].split())[:140]),
        )
        for job in matches[:_MAX_JOBS]
    ]
    jobs_table = table(_JOBS, rows, "No job yet." if not jobs else "No job of that name.")
    more = len(matches) - _MAX_JOBS
    note = Markup('<div class="pen-note">and {} more</div>').format(f"{more:,}")
    return jobs_table + note if more > 0 else jobs_table


def _describe_lag(sinks: list[dict[str, Any]]) -> Markup:
    """How far the sinks of a job are behind; nothing for a moment."""
    waited = max((one["seconds"] for one in sinks), default=0.0)
    return Markup(" ") + chip(f"{duration(waited)} behind", "warn") if waited >= _LAG_SECONDS else Markup()


def _streams(streams: list[dict[str, Any]], watermarks: dict[str, str | None]) -> Markup:
    rows = [
        (
            stream["name"],
            None if stream["backlog"] is None else amount(stream["backlog"], stream["backlog_unit"]),
            duration(stream["lateness_seconds"]),
            _instant(watermarks.get(stream["name"])),
            stream["log"],
        )
        for stream in streams
    ]
    return table(_STREAMS, rows, "No stream yet: create one with CREATE STREAM.")


def _instant(watermark: str | None) -> str:
    return (watermark or "-").replace("+00:00", "Z")


def _engine(status: dict[str, Any], engine: EngineFacts) -> Markup:
    facts = {
        "name": status["name"],
        "phase": chip(status["phase"]),
        "up": clock(status["up_seconds"]),
        "lowest watermark": _instant(status["watermark"]),
        "version": status["version"],
        "subscribers": f"{status['subscribers']:,}",
        "results kept": size(engine.result_log_bytes),
    }
    if engine.measured:
        facts |= {
            "master": engine.master,
            "process": str(engine.pid),
            "executors": f"{len(engine.executors):,}",
        }
    return Markup('<dl class="pen-facts">{}</dl>').format(
        Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(name, fact) for name, fact in facts.items())
    )
