"""The overview: the engine, its rates and delays, all jobs and streams."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.board import Board
from penstock.dashboard.charts import over_time
from penstock.dashboard.editor import creating
from penstock.dashboard.frame import Tile, button, card, every, framed, put, read, shown
from penstock.dashboard.markup import Column, chip, code, lasting, link, rate, table
from penstock.formatting import amount, clock, size
from penstock.server.middleware import PAGES
from penstock.server.response_bodies import EngineFacts

#: jobs that are shown at once; those that failed come first
_MOST_JOBS = 200
_JOBS = (
    Column("job"),
    Column(""),
    Column("rows/s", number=True),
    Column("last told", number=True),
    Column("version", number=True, wide=True),
    Column("query", wide=True),
)
_STREAMS = (
    Column("stream"),
    Column("waiting", number=True),
    Column("lateness", number=True),
    Column("watermark"),
    Column("log", wide=True),
)
#: events older than this are a replay: their age is no delay
_REPLAY_SECONDS = 3600.0
_ORDER = {"failed": 0, "running": 1, "paused": 2}


def overview(board: Board, request: Request) -> None:
    """The page."""
    with framed(board, request, "") as shade:
        with ui.element("div").classes("pen-tiles"):
            tiles = {
                name: Tile(name) for name in ("events/s", "latency", "backlog", "epoch", "state", "jobs")
            }
        with ui.element("div").classes("pen-cols"):
            with card("Events", "a second, by epoch"):
                rates = ui.echart(over_time({})).classes("pen-chart").classes("at-rates")
            with card("Delay", "seconds"):
                delays = ui.echart(over_time({})).classes("pen-chart")
        with card("Jobs") as head:
            with head:
                wanted = ui.input(placeholder="filter").props("dense borderless clearable").classes("w-32")
                ui.element("div").classes("pen-grow")
                if board.changeable:

                    async def create() -> None:
                        creating(board, await shade.dark()).open()

                    button("New job", create, kind="unelevated color=primary", icon="add").classes("at-new")
            jobs = shown().classes("at-jobs")
        with ui.element("div").classes("pen-cols"):
            with card("Engine"):
                engine = shown()
            with card("Streams"):
                streams = shown()

        async def show() -> None:
            status, epochs = await read(board.status), await read(board.epochs)
            _figures(tiles, status)
            for chart, options in ((rates, _rates(epochs)), (delays, _delays(epochs))):
                chart.options.update(options)
                chart.update()
            put(jobs, _jobs(await read(board.jobs), wanted.value or ""))
            put(streams, _streams(await read(board.streams), status["watermarks"]))
            put(engine, _engine(status, await read(board.engine)))

        every(show)


def _figures(tiles: dict[str, Tile], status: dict[str, Any]) -> None:
    latency, lives = status["latency_seconds"], status["jobs"]
    tiles["events/s"].put(rate(status["events_per_second"]), f"{status['events']:,} events so far")
    if latency is None:
        tiles["latency"].put("-", "no live events")
    else:
        tiles["latency"].put(f"{latency['p50']:.2f} s", f"p99 {latency['p99']:.2f} s")
    waiting = sum(status["backlog"].values())
    aside = f"{status['late']:,} late, {status['dead']:,} dead"
    tiles["backlog"].put(
        f"{waiting:,}" if waiting < 1e6 else f"{waiting / 1e6:,.1f} M", "waiting in the logs"
    )
    tiles["epoch"].put(
        f"{status['epoch']:,}" if status["epoch"] >= 0 else "-",
        f"took {lasting(status['last_epoch_seconds'])}",
    )
    tiles["state"].put(size(status["state_bytes"]), aside)
    others = [f"{count} {life}" for life, count in lives.items() if life != "running"]
    tiles["jobs"].put(f"{lives.get('running', 0):,} running", ", ".join(others) or "none paused or failed")


def _rates(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    by_second: dict[int, int] = {}
    for point in epochs:
        by_second[int(point["at"])] = by_second.get(int(point["at"]), 0) + point["events"]
    if not by_second:
        return over_time({})
    # the first second and the one under way are known in part
    known = range(min(by_second) + 1, max(by_second))
    return over_time({"events/s": [(second, by_second.get(second, 0)) for second in known]}, area=True)


def _delays(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    oldest: dict[int, float] = {}
    longest: dict[int, float] = {}
    for point in epochs:
        second, age = int(point["at"]), point["oldest_age_seconds"]
        longest[second] = max(longest.get(second, 0.0), point["seconds"])
        if age is not None and age < _REPLAY_SECONDS:
            oldest[second] = max(oldest.get(second, 0.0), age)
    return over_time(
        {
            "oldest event": [(second, round(age, 3)) for second, age in oldest.items()],
            "longest epoch": [(second, round(length, 3)) for second, length in longest.items()],
        }
    )


def _jobs(jobs: list[dict[str, Any]], wanted: str) -> Markup:
    found = [job for job in jobs if wanted.lower() in job["name"].lower()]
    found.sort(key=lambda job: (_ORDER.get(job["life"], 3), job["name"]))
    rows = [
        (
            link(f"{PAGES}/jobs/{job['name']}", job["name"]),
            chip(job["life"]),
            Markup("{}").format(rate(job["rows_per_second"])),
            None if job["epoch"] is None else Markup("epoch {}").format(f"{job['epoch']:,}"),
            job["version"],
            code(" ".join(job["query"].split())[:140]),
        )
        for job in found[:_MOST_JOBS]
    ]
    told = table(_JOBS, rows, "No job here yet." if not jobs else "No job of that name.")
    more = len(found) - _MOST_JOBS
    return told + Markup('<div class="pen-note">and {} more</div>').format(f"{more:,}") if more > 0 else told


def _streams(streams: list[dict[str, Any]], watermarks: dict[str, str | None]) -> Markup:
    rows = [
        (
            stream["name"],
            None
            if stream["backlog"] is None
            else Markup("{}").format(amount(stream["backlog"], stream["backlog_unit"])),
            Markup("{}").format(lasting(stream["lateness_seconds"])),
            _instant(watermarks.get(stream["name"])),
            stream["log"],
        )
        for stream in streams
    ]
    return table(_STREAMS, rows, "No stream yet: CREATE STREAM makes one.")


def _instant(told: str | None) -> str:
    return (told or "-").replace("+00:00", "Z")


def _engine(status: dict[str, Any], engine: EngineFacts) -> Markup:
    facts = {
        "name": status["name"],
        "phase": chip(status["phase"]),
        "up": clock(status["up_seconds"]),
        "least watermark": _instant(status["watermark"]),
        "version": status["version"],
        "subscribers": f"{status['subscribers']:,}",
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
