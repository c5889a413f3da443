"""Pathway: its own operators wherever there are any, as many threads as cores.

    python pathway_program.py windows INPUT OUT.json

Windows of a bounded input are told once, at its end. Patterns need the place of a line in its file, which Pathway's
reader of lines does not give: files are read whole and cut by a Python function, a file at a time.
"""

from __future__ import annotations

import calendar
import json
import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

if "--cores" in sys.argv:
    os.environ["PATHWAY_THREADS"] = sys.argv[sys.argv.index("--cores") + 1]
os.environ.setdefault("PATHWAY_MONITORING_SERVER", "")

import pathway as pw
from program import (
    EARTH_KM,
    JOB_WINDOW,
    JOIN_SECONDS,
    LATENCY_WINDOW,
    LATENESS,
    WINDOW,
    Rows,
    Task,
    best,
    main,
)

SETTINGS = {
    "threads": "as many as cores",
    "mode": "static; live: streaming, commits every 100 ms",
    "persistence": "off",
}


def written(task: Task, table: pw.Table) -> list[dict[str, Any]]:
    """The rows of a table by way of a file of JSON lines."""
    target = task.place / "told.jsonl"
    pw.io.jsonlines.write(table, str(target))
    with task.clock():
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    held: dict[str, tuple[int, dict[str, Any]]] = {}
    for text in target.read_text().splitlines():
        row = json.loads(text)
        change = row.pop("diff")
        row.pop("time")
        name = json.dumps(row, sort_keys=True)
        held[name] = (held.get(name, (0, row))[0] + change, row)
    return [row for times, row in held.values() if times]


# begin windows clients jobs latency
@pw.udf(deterministic=True)
def click(line: str) -> tuple[int, str, str, int]:
    quoted = line.split('"')
    stamp = quoted[0].partition("[")[2]
    at = time.strptime(stamp[:20], "%d/%b/%Y:%H:%M:%S")
    size = quoted[2].split(" ")[2]
    return (
        calendar.timegm(at),
        line.partition(" ")[0],
        quoted[1].split(" ")[1],
        int(size) if size.isdigit() else 0,
    )


def clicks(task: Task) -> pw.Table:
    mode, folder = ("streaming", "pieces") if task.live_seconds else ("static", "parts")
    lines = pw.io.fs.read(f"{task.input}/{folder}", format="plaintext", mode=mode, autocommit_duration_ms=100)
    cut = lines.select(e=click(pw.this.data))
    return cut.select(at=pw.this.e[0], host=pw.this.e[1], path=pw.this.e[2], size=pw.this.e[3])


# end windows clients jobs latency
# begin patterns
class Best(pw.BaseCustomAccumulator):
    """The ten most frequent of some patterns."""

    def __init__(self, held: list[tuple[Any, int]]) -> None:
        self.held = held

    @classmethod
    def from_row(cls, row: list[Any]) -> Best:
        return cls([(row[0], row[1])])

    def update(self, other: Best) -> None:
        self.held = [(pattern, count) for _, pattern, count in best(self.held + other.held)]

    def compute_result(self) -> str:
        return json.dumps(best(self.held))


top_ten = pw.reducers.udf_reducer(Best)


@pw.udf(deterministic=True)
def steps(text: str, path: str) -> list[tuple[str, int, str]]:
    found = []
    for place, line in enumerate(text.splitlines()):
        quoted = line.split('"')
        found.append((quoted[7], place, quoted[1].split(" ")[1]))
    return found


def patterns(task: Task) -> Rows:
    files = pw.io.fs.read(f"{task.input}/parts", format="plaintext_by_file", mode="static")
    cut = files.select(e=steps(pw.this.data, "")).flatten(pw.this.e)
    events = cut.select(session=pw.this.e[0], place=pw.this.e[1], path=pw.this.e[2])
    events += events.sort(key=pw.this.place, instance=pw.this.session)
    events += events.select(one=events.ix(events.prev, optional=True).path)
    walks = events.select(pw.this.path, pw.this.one, two=events.ix(events.prev, optional=True).one)
    walks = walks.filter(pw.this.two.is_not_none())
    walks = walks.select(
        pattern=pw.unwrap(pw.this.two) + " > " + pw.unwrap(pw.this.one) + " > " + pw.this.path
    )
    counts = walks.groupby(pw.this.pattern).reduce(pw.this.pattern, n=pw.reducers.count())
    (told,) = written(task, counts.reduce(top=top_ten(pw.this.pattern, pw.this.n)))
    return json.loads(told["top"])


# end patterns
# begin windows latency
def top_pages(task: Task, seconds: int, behavior: Any = None) -> pw.Table:
    events = clicks(task)
    window = pw.temporal.tumbling(duration=seconds)
    counts = events.windowby(pw.this.at, window=window, instance=pw.this.path, behavior=behavior).reduce(
        start=pw.this._pw_window_start, path=pw.this._pw_instance, n=pw.reducers.count()
    )
    ordered = counts.select(pw.this.start, item=pw.make_tuple(-pw.this.n, pw.this.path))
    return ordered.groupby(pw.this.start).reduce(pw.this.start, items=pw.reducers.sorted_tuple(pw.this.item))


# end windows latency
# begin windows
@pw.udf(deterministic=True)
def first_ten(items: pw.Json | tuple) -> str:
    return json.dumps([(rank, path, -n) for rank, (n, path) in enumerate(items[:10], 1)])


def windows(task: Task) -> Rows:
    told = written(task, top_pages(task, WINDOW).select(pw.this.start, top=first_ten(pw.this.items)))
    return [(row["start"], *item) for row in told for item in json.loads(row["top"])]


# end windows
# begin clients
def clients(task: Task) -> Rows:
    window = pw.temporal.tumbling(duration=WINDOW)
    told = (
        clicks(task)
        .windowby(pw.this.at, window=window, instance=pw.this.host)
        .reduce(
            start=pw.this._pw_window_start,
            host=pw.this._pw_instance,
            n=pw.reducers.count(),
            first=pw.reducers.min(pw.this.at),
            last=pw.reducers.max(pw.this.at),
        )
    )
    rows = written(task, told)
    # end clients
    return [(row["start"], row["host"], row["n"], row["first"], row["last"]) for row in rows]


# begin join
class Call(pw.Schema):
    src: str
    dst: str
    start: int
    end: int
    district: int
    lat: float
    lon: float
    ts: int


@pw.udf(deterministic=True)
def kilometres(lat: float, lon: float, to_lat: float, to_lon: float) -> float:
    lat, lon, to_lat, to_lon = map(math.radians, (lat, lon, to_lat, to_lon))
    north, east = math.sin((to_lat - lat) / 2), math.sin((to_lon - lon) / 2)
    return 2 * EARTH_KM * math.asin(math.sqrt(north * north + math.cos(lat) * math.cos(to_lat) * east * east))


def join(task: Task) -> Rows:
    calls = pw.io.csv.read(str(headed(task)), schema=Call, mode="static")
    left, right = calls, calls.copy()
    reach = JOIN_SECONDS * 1_000_000
    near = pw.temporal.interval(-reach, reach)
    pairs = left.interval_join(right, left.ts, right.ts, near, left.src == right.src).select(
        left.src,
        left.start,
        start_right=right.start,
        km=kilometres(left.lat, left.lon, right.lat, right.lon),
    )
    order = (pw.this.start < pw.this.start_right) & (pw.this.start_right <= pw.this.start + reach)
    rows = written(task, pairs.filter(order))
    # end join
    task.extra["answer"] = {"km": round(sum(row["km"] for row in rows))}
    return [(row["src"], row["start"], row["start_right"]) for row in rows]


def headed(task: Task) -> Path:
    """The same files with the header that Pathway's reader of separated values asks for; not timed."""
    folder = task.place / "headed"
    folder.mkdir()
    for part in task.parts:
        (folder / part.name).write_bytes(b"src,dst,start,end,district,lat,lon,ts\n" + part.read_bytes())
    return folder


# begin jobs
def jobs(task: Task) -> Rows:
    events = clicks(task)
    asked = [
        events.filter(pw.this.path == page)
        .windowby(pw.this.at, window=pw.temporal.tumbling(duration=JOB_WINDOW))
        .reduce(
            job=number, start=pw.this._pw_window_start, n=pw.reducers.count(), b=pw.reducers.sum(pw.this.size)
        )
        for number, page in enumerate(task.pages)
    ]
    rows = written(task, asked[0].concat_reindex(*asked[1:]) if len(asked) > 1 else asked[0])
    return [(row["job"], row["start"], row["n"], row["b"]) for row in rows]


# end jobs
# begin latency
def latency(task: Task) -> Rows:
    told = top_pages(task, LATENCY_WINDOW, pw.temporal.exactly_once_behavior(shift=LATENESS))
    # end latency
    arrived: dict[int, float] = {}

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            arrived[row["start"]] = now()  # the last change counts: before it the ten best were not all there

    now = time.time
    pw.io.subscribe(told, on_change=on_change)
    threading.Thread(target=lambda: pw.run(monitoring_level=pw.MonitoringLevel.NONE), daemon=True).start()
    time.sleep(task.live_seconds)
    task.seconds = task.live_seconds
    return sorted(arrived.items())


WORKLOADS = {name.__name__: name for name in (patterns, windows, clients, join, jobs, latency)}

if __name__ == "__main__":
    main("pathway", WORKLOADS, ["pathway"], SETTINGS)
    sys.stdout.flush()
    os._exit(0)  # a live reader never ends by itself
