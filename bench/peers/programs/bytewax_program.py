"""Bytewax: as many processes as cores, each reading one of the files.

    python bytewax_program.py windows INPUT OUT.json

Bytewax has a watermark for each key and none for the stream, and it goes on with the clock while no event comes. While
the program catches up, the two files are not read at the same pace, and a pause would close windows whose events are
still to be read; so windows wait an hour of event time and close at the end of the input. Live they wait two seconds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from program import JOB_WINDOW, LATENCY_WINDOW, LATENESS, WINDOW, Rows, Task, best, main
from taxi_routes import Routes, trip_of

SETTINGS = {"processes": "as many as cores", "source batch": "1000 lines", "recovery": "off"}
_ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SHARDS = 2


def run(task: Task) -> list[list[Any]]:
    """Run this file's flow in as many processes as cores; the rows they have written."""
    (task.place / "told").mkdir()
    ports = []
    for _ in range(task.cores):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    given = {"workload": task.workload, "input": str(task.input), "place": str(task.place)}
    given |= {"jobs": task.jobs, "cores": task.cores, "live_seconds": task.live_seconds}
    here = Path(__file__).resolve()
    addresses = ";".join(f"127.0.0.1:{port}" for port in ports)
    with task.clock():
        processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bytewax.run",
                    "bytewax_program:flow",
                    "-i",
                    str(number),
                    "-a",
                    addresses,
                ],
                cwd=here.parent,
                env={**os.environ, "PEER_TASK": json.dumps(given)},
            )
            for number in range(task.cores)
        ]
        codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"bytewax ended with {codes}")
    began = min(float(path.read_text()) for path in task.place.glob("began-*"))
    ended = max(float(path.read_text()) for path in task.place.glob("ended-*"))
    task.seconds = ended - began
    found = sorted((task.place / "told").glob("*"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


class Clocked(DirSource):
    """Bytewax's own source of files, which notes when it begins to read."""

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Any:
        (Path(_TASK.place) / f"began-{os.getpid()}").write_text(str(time.time()))
        return super().build_part(step_id, for_part, resume_state)


class ClockedSink(DirSink):
    """Bytewax's own sink of files, which notes when it is closed."""

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Any:
        part = super().build_part(step_id, for_part, resume_state)
        close = part.close

        def closed() -> None:
            close()
            (Path(_TASK.place) / f"ended-{os.getpid()}-{for_part}").write_text(str(time.time()))

        part.close = closed
        return part


# begin patterns windows clients jobs latency
def click(line: str) -> tuple[datetime, str, str, str, str]:
    quoted = line.split('"')
    stamp = datetime.strptime(quoted[0].partition("[")[2][:20], "%d/%b/%Y:%H:%M:%S").replace(tzinfo=UTC)
    size = quoted[2].split(" ")[2]
    return stamp, line.partition(" ")[0], quoted[1].split(" ")[1], quoted[7][len("session=") :], size


def tumbling(seconds: int, wait: timedelta) -> tuple[Any, Any]:
    clock = win.EventClock(lambda event: event[0], wait_for_system_duration=wait)
    return clock, win.TumblingWindower(length=timedelta(seconds=seconds), align_to=_ORIGIN)


def start_of(window: int, seconds: int) -> int:
    return int(_ORIGIN.timestamp()) + window * seconds


# end patterns windows clients jobs latency
# begin patterns
def walked(last: list[str] | None, event: Any) -> tuple[list[str], str | None]:
    pages = [*(last or []), event[2]]
    return pages[-2:], " > ".join(pages) if len(pages) == 3 else None


class Counts(StatefulBatchLogic):
    """The counts of a share of all patterns; its ten best at the end."""

    def __init__(self, resumed: Any) -> None:
        self.counts: Counter[str] = resumed or Counter()

    def on_batch(self, values: list[str]) -> tuple[list[Any], bool]:
        self.counts.update(values)
        return [], False

    def on_eof(self) -> tuple[list[Any], bool]:
        return [[(pattern, count) for _, pattern, count in best(self.counts.items())]], True

    def snapshot(self) -> Any:
        return self.counts.copy()


def patterns(lines: Any) -> Any:
    by_session = op.key_on("session", op.map("click", lines, click), lambda event: event[3])
    walks = op.stateful_map("walk", by_session, walked)
    found = op.filter_map("pattern", walks, lambda item: item[1])
    shares = op.key_on("share", found, lambda pattern: str(crc32(pattern.encode()) % _SHARDS))
    tops = op.stateful_batch("count", shares, Counts)
    together = op.key_on("all", op.map("top", tops, lambda item: item[1]), lambda _: "all")
    merged = op.fold_final("merge", together, list, lambda held, top: held + top)
    return op.flat_map("rank", merged, lambda item: best(item[1]))


# end patterns
# begin windows latency
def counted(counts: Counter[str], event: Any) -> Counter[str]:
    counts[event[2]] += 1
    return counts


def merged(held: list[Any] | None, counts: Counter[str]) -> tuple[list[Any] | None, Any]:
    parts = [*(held or []), counts]
    return (None, sum(parts, Counter())) if len(parts) == _SHARDS else (parts, None)


def top_pages(lines: Any, seconds: int, wait: timedelta) -> Any:
    """Each share of the pages has its own windows, so that both processes count."""
    clicks = op.map("click", lines, click)
    shares = op.key_on("share", clicks, lambda event: str(crc32(event[2].encode()) % _SHARDS))
    clock, windower = tumbling(seconds, wait)
    counts = win.fold_window("count", shares, clock, windower, Counter, counted, Counter.__add__)
    by_window = op.map("window", counts.down, lambda item: (str(item[1][0]), item[1][1]))
    whole = op.stateful_map("both", by_window, merged)
    told = op.filter("done", whole, lambda item: item[1] is not None)
    return op.flat_map(
        "rank", told, lambda item: [(start_of(int(item[0]), seconds), *row) for row in best(item[1].items())]
    )


# end windows latency
# begin windows
def windows(lines: Any) -> Any:
    return top_pages(lines, WINDOW, timedelta(hours=1))


# end windows
# begin clients
def spanned(spans: dict[str, Any], event: Any) -> dict[str, Any]:
    at, host = int(event[0].timestamp()), event[1]
    count, first, last = spans.get(host, (0, at, at))
    spans[host] = (count + 1, min(first, at), max(last, at))
    return spans


def clients(lines: Any) -> Any:
    """A window of each share of the hosts: windows of single hosts took a hundred times as long."""
    clicks = op.map("click", lines, click)
    shares = op.key_on("share", clicks, lambda event: str(crc32(event[1].encode()) % _SHARDS))
    clock, windower = tumbling(WINDOW, timedelta(hours=1))
    spans = win.fold_window("span", shares, clock, windower, dict, spanned, dict.__or__)
    return op.flat_map(
        "rows",
        spans.down,
        lambda item: [(start_of(item[1][0], WINDOW), host, *span) for host, span in item[1][1].items()],
    )


# end clients
# begin taxi
def routed(routes: Routes | None, line: str) -> tuple[Routes, Any]:
    routes = routes or Routes()
    trip = trip_of(line)
    return routes, None if trip is None else routes.took(trip)


def taxi(lines: Any) -> Any:
    told = op.stateful_map("routes", op.key_on("all", lines, lambda _: "all"), routed)
    return op.filter_map("changed", told, lambda item: item[1])


# end taxi
# begin jobs
def summed(held: Any, event: Any) -> tuple[int, int]:
    size = int(event[4]) if event[4].isdigit() else 0
    return (held[0] + 1, held[1] + size) if held else (1, size)


def jobs(lines: Any) -> Any:
    clicks = op.map("click", lines, click)
    told = []
    for number, page in enumerate(_TASK.pages):
        mine = op.filter(f"filter-{number}", clicks, lambda event, page=page: event[2] == page)
        keyed = op.key_on(f"key-{number}", mine, lambda _, number=number: str(number))
        clock, windower = tumbling(JOB_WINDOW, timedelta(hours=1))
        added = lambda one, other: (one[0] + other[0], one[1] + other[1])  # noqa: E731
        sums = win.fold_window(f"sum-{number}", keyed, clock, windower, lambda: None, summed, added)
        told.append(sums.down)
    return op.map(
        "row",
        op.merge("all", *told),
        lambda item: (int(item[0]), start_of(item[1][0], JOB_WINDOW), *item[1][1]),
    )


# end jobs
def latency(lines: Any) -> Any:
    told = top_pages(lines, LATENCY_WINDOW, timedelta(seconds=LATENESS))
    return op.map("arrived", told, lambda row: (row[0], time.time()))


class Followed(StatefulSourcePartition):
    """A file that grows, read until the time is up."""

    def __init__(self, path: str, seconds: float) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._ends, self._rest = time.time() + seconds, b""

    def next_batch(self) -> list[str]:
        if time.time() > self._ends:
            raise StopIteration
        *whole, self._rest = (self._rest + self._file.read(1 << 18)).split(b"\n")
        return [line.decode() for line in whole]

    def next_awake(self) -> datetime | None:
        return None if self._rest else datetime.now(UTC) + timedelta(milliseconds=10)

    def snapshot(self) -> None:
        return None


class Following(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return [str(part) for part in _TASK.parts]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Followed:
        (Path(_TASK.place) / f"began-{os.getpid()}").write_text(str(time.time()))
        return Followed(for_part, _TASK.live_seconds)


def _flow() -> Dataflow:
    made = Dataflow(_TASK.workload)
    source = Following() if _TASK.live_seconds else Clocked(_TASK.input / "parts", batch_size=1000)
    rows = FLOWS[_TASK.workload](op.input("lines", made, source))
    texts = op.map("text", rows, lambda row: (str(crc32(json.dumps(row).encode()) % 8), json.dumps(row)))
    op.output("told", texts, ClockedSink(_TASK.place / "told", _TASK.cores, assign_file=int))
    return made


def written(task: Task) -> Rows:
    rows = run(task)
    if task.workload != "latency":
        return rows
    task.seconds = task.live_seconds
    first: dict[int, float] = {}
    for start, at in rows:
        first[start] = min(at, first.get(start, at))
    return sorted(first.items())


FLOWS = {name.__name__: name for name in (patterns, windows, clients, taxi, jobs, latency)}

if "PEER_TASK" in os.environ:
    _given = json.loads(os.environ["PEER_TASK"])
    _TASK = Task(**_given | {"input": Path(_given["input"]), "place": Path(_given["place"])})
    flow = _flow()

if __name__ == "__main__":
    main("bytewax", dict.fromkeys(FLOWS, written), ["bytewax"], SETTINGS)
