"""How cost grows: one thing after the other made larger, processor time an event or an epoch.

Receives what grows and how far; hands points, a JSON file each. A point is measured in a process of its own on one core
(`python -m bench.peers.growth AXIS AT OUT.json`), by the engine's own tasks without Spark.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

import penstock as ps
from bench.benchmark import ShowProgress
from bench.dataset import Parameters
from bench.peers.watched import busy_seconds
from bench.worker import run_module
from penstock.catalogue.program import Program
from penstock.logs.draw import Ints, below, draws
from penstock.logs.generated import ORIGIN, MadeLog
from penstock.logs.rates import Rate
from penstock.spark.session import WORKER_MEMORY
from penstock.testing.inline import InlineEngine
from penstock.testing.list_sink import ListSink

AXES: dict[str, tuple[int, ...]] = {
    "epoch": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000),
    "keys": (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    "window": (1, 10, 60, 300),
    "jobs": (1, 10, 100, 1_000),
    "slices": (1, 2, 4, 8, 16, 32),
    "state": (1_000, 10_000, 100_000, 1_000_000),
}
#: what a quick look takes of each
QUICK_POINTS = 2
_ONE_CORE = {"POLARS_MAX_THREADS": "1"}
_EPOCH = 100_000
_SMALL = 10_000
_RATE = 10_000.0


@dataclass(frozen=True)
class KeyLines:
    """Lines of an instant and a key, keys drawn evenly: the worst a state can meet."""

    kind: ClassVar[str] = "keys"
    file_name: ClassVar[str] = "keys"
    line_bytes: ClassVar[int] = 32

    keys: int

    def lines(self, partition: int, first: int, instants: Ints) -> bytes:
        drawn = below(draws(1, partition, first, len(instants)), self.keys)
        keys = pl.format("key-{}", pl.Series("key", np.asarray(drawn, dtype=np.int64)))
        frame = pl.DataFrame({"time": instants}).with_columns(keys.alias("key"))
        return frame.write_csv(include_header=False).encode()


class Nowhere(ListSink):
    """Takes rows and forgets them: what is measured is how they are made."""

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        return True


def points(axis: str, quick: bool) -> tuple[int, ...]:
    """How far a thing grows."""
    return AXES[axis][:QUICK_POINTS] if quick else AXES[axis]


def measure(
    axes: Sequence[str], quick: bool, folder: Path, show_progress: ShowProgress
) -> Iterator[dict[str, Any]]:
    """Measure what is not in the folder yet; yield all points of these axes."""
    folder.mkdir(parents=True, exist_ok=True)
    for axis in axes:
        for at in points(axis, quick):
            out = folder / f"{axis}-{at}.json"
            if not out.exists():
                show_progress(f"growth: {axis}, {at:,}")
                with tempfile.TemporaryDirectory(prefix="penstock-growth-") as place:
                    given = (axis, str(at), str(out.resolve()))
                    settings = WORKER_MEMORY | _ONE_CORE
                    run_module("bench.peers.growth", given, f"growth of {axis}", Path(place), settings)
            yield json.loads(out.read_text())


def read(folder: Path) -> list[dict[str, Any]]:
    """All points of a folder, along each axis."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")] if folder.exists() else []
    return sorted(found, key=lambda point: (list(AXES).index(point["axis"]), point["at"]))


# -- in the process of a point -------------------------------------------------------------------


def clicks(events: int, rate: float = _RATE) -> ps.Stream:
    log = Parameters(events, servers=1, rate=rate).log()
    decoder = ps.combined_log(extra=[ps.Cookie("session")])
    return ps.stream("clicks", log, decoder, time="time", lateness="2s")


def keyed(keys: int, events: int) -> ps.Stream:
    log = MadeLog(
        KeyLines(keys),
        Rate(_RATE, "constant"),
        partitions=1,
        total=events,
        live=False,
        start_time=ORIGIN,
        clock=time.time,
    )
    decoder = ps.Delimited({"time": ps.Datetime("us", "UTC"), "key": ps.String()}, times={"time": "us"})
    return ps.stream("keys", log, decoder, time="time", lateness="2s")


def stepped(
    program: Any, state: Path, units: int, epochs: int | None = None, slices: int = 1
) -> list[tuple[int, float, int]]:
    """Run epochs of so many events: of each the events, the processor seconds and the bytes of state after it."""
    engine = InlineEngine(program, state, epoch_units=units, slices=slices)
    found: list[tuple[int, float, int]] = []
    try:
        while epochs is None or len(found) < epochs:
            started_at = time.process_time()
            report = engine.step()
            if report is None:
                break
            found.append((report.events, time.process_time() - started_at, report.state_bytes))
            if len(found) % 20 == 0:
                engine.remove_old_state(2)
    finally:
        engine.close()
    return found


def per_event(steps: Sequence[tuple[int, float, int]], first: int = 1) -> float:
    """Microseconds an event, without the first epochs, which load things, and the last, which closes all."""
    counted = steps[first:-1] or steps
    return sum(cpu for _, cpu, _ in counted) / sum(events for events, _, _ in counted) * 1e6


def windows(stream: ps.Stream, size: str = "30s", every: str | None = None) -> ps.App:
    window = (
        stream.key_by("path").window(size)
        if every is None
        else stream.key_by("path").window(size, every=every)
    )
    return ps.app("growth", ps.output("rows", window.count(), Nowhere()))


def totals(stream: ps.Stream) -> ps.App:
    counts = stream.key_by("key").running("10s").count()
    return ps.app("growth", ps.output("rows", counts, Nowhere()))


def _by_epoch(at: int, state: Path) -> tuple[int, float]:
    steps = stepped(windows(clicks(max(12 * at, 60_000))), state, at)
    return at, per_event(steps, len(steps) // 4)


def _by_slices(at: int, state: Path) -> tuple[int, float]:
    return at, per_event(stepped(windows(clicks(10 * _EPOCH)), state, _EPOCH, slices=at))


def _by_window(at: int, state: Path) -> tuple[int, float]:
    return at, per_event(stepped(windows(clicks(10 * _EPOCH, 1_000.0), f"{at}s", "1s"), state, _EPOCH))


def _by_jobs(at: int, state: Path) -> tuple[int, float]:
    pages = [f"/products/{number}" for number in range(1, at + 1)]
    script = ";\n".join(
        f"CREATE JOB job_{number} AS SELECT window_start, path, COUNT(*) AS n, SUM(bytes) AS b FROM clicks "
        f"WHERE path == '{page}' GROUP BY path WINDOWING 10 SECONDS"
        for number, page in enumerate(pages)
    )
    many = Program("growth", state, streams={"clicks": clicks(6 * _EPOCH)}, begin=script)
    return at, per_event(stepped(many, state, _EPOCH))


def _by_keys(at: int, state: Path) -> tuple[int, float]:
    steps = stepped(totals(keyed(at, max(10 * _EPOCH, 2 * at))), state, _EPOCH)
    return at, per_event(steps, max(1, len(steps) - 12))


def _by_state(at: int, state: Path) -> tuple[int, float]:
    """Milliseconds a small epoch, by bytes of state."""
    program = totals(keyed(at, max(2 * _EPOCH, 2 * at) + 40 * _SMALL))
    stepped(program, state, _EPOCH, max(2, 2 * at // _EPOCH))
    steps = stepped(program, state, _SMALL, 21)[1:]
    return max(1, steps[-1][2]), statistics.median(cpu for _, cpu, _ in steps) * 1000


#: what measures a point of each axis: where it lies on it, and what it costs
COSTS: dict[str, Callable[[int, Path], tuple[int, float]]] = {
    "epoch": _by_epoch,
    "keys": _by_keys,
    "window": _by_window,
    "jobs": _by_jobs,
    "slices": _by_slices,
    "state": _by_state,
}


def main(axis: str, at: int, out: Path) -> None:
    """Measure one point and write it."""
    started_at, busy = time.perf_counter(), busy_seconds() - time.process_time()
    with tempfile.TemporaryDirectory(prefix="penstock-growth-") as place:
        found = dict(zip(("at", "cost"), COSTS[axis](at, Path(place) / "state"), strict=True))
    others = max(0.0, busy_seconds() - time.process_time() - busy) / (time.perf_counter() - started_at)
    out.write_text(json.dumps({"axis": axis, "asked": at, "others": others, **found}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
