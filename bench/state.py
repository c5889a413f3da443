"""The state benchmark: Penstock's compressed, buffered state beside plain dictionaries of the same aggregates.

It yields findings once all sides agree on the aggregates.

It is the experiment by which ELF shows its compressed buffer trees beside a hash table: a word count with more and more
different keys, bytes a key and inserts a second. Each side runs in a process of its own on one core,
Penstock's with the allocators set as in the engine's workers. Its state outlives a crash; a dictionary does not.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from bench.benchmark import ShowProgress
from bench.findings import Finding, Target, ratio
from bench.key_stream import KeyStream
from bench.state_sides import Side, Taken
from bench.worker import run_module
from penstock.errors import InternalError
from penstock.spark.session import WORKER_MEMORY
from penstock.state.cache import default_cache_root

BENCH = "jobs"
SIDES: tuple[Side, ...] = get_args(Side)
_ONE_THREAD = {"POLARS_MAX_THREADS": "1"}
#: what is measured of a side: its name, its unit and its figure
_METRICS: dict[str, tuple[str, Callable[[Taken], float]]] = {
    "inserts": ("events/s", lambda taken: taken.events / taken.insert_seconds),
    "inserts of a CPU second": ("events/s", lambda taken: taken.events / taken.insert_cpu_seconds),
    "memory and disk at rest": ("bytes/key", lambda taken: (taken.held + taken.disk) / taken.keys),
    "memory at rest": ("bytes/key", lambda taken: taken.held / taken.keys),
    "memory at most": ("bytes/key", lambda taken: taken.most / taken.keys),
    "flush": ("s", lambda taken: taken.flush_seconds),
}
#: targets of Penstock over the plain dictionary, from so many keys on: with fewer a process's fixed needs dominate
_TARGETS = {"inserts": Target(1), "memory and disk at rest": Target(1, "at most")}
_ENOUGH_KEYS = 900_000


def states(keys: Sequence[int], runs: int, show_progress: ShowProgress) -> Iterator[Finding]:
    """The findings for each number of keys."""
    for number in keys:
        stream = KeyStream(number)
        taken: dict[Side, list[Taken]] = {side: [] for side in SIDES}
        for run in range(runs):
            for side in SIDES:
                show_progress(f"state of {number:,} keys: {side}, run {run + 1} of {runs}")
                taken[side].append(run_side(side, stream))
        yield from findings(f"state, {number:,} keys", taken)


def findings(case: str, taken: dict[Side, list[Taken]]) -> Iterator[Finding]:
    """Return the findings of the sides; raise if they disagree."""
    digests = {(one.digest, one.keys) for all_ in taken.values() for one in all_}
    if len(digests) > 1:
        answers = {side: [(one.keys, one.digest) for one in all_] for side, all_ in taken.items()}
        raise InternalError(
            "BENCH_DISAGREES", f"the sides of {case} disagree on the aggregates", detail=str(answers)
        )
    found = {
        (side, metric): Finding(BENCH, case, side, metric, unit, tuple(map(figure, all_)))
        for metric, (unit, figure) in _METRICS.items()
        for side, all_ in taken.items()
    }
    yield from found.values()
    enough = all(one.keys >= _ENOUGH_KEYS for all_ in taken.values() for one in all_)
    for metric in (
        "inserts",
        "inserts of a CPU second",
        "memory and disk at rest",
        "memory at most",
        "flush",
    ):
        target = _TARGETS.get(metric) if enough else None
        yield ratio(metric, found["penstock", metric], found["dictionary", metric], target)
        yield ratio(metric, found["penstock, told", metric], found["dictionary", metric], target)
    yield ratio("inserts", found["penstock", "inserts"], found["dictionary, reduced", "inserts"])


def run_side(side: Side, stream: KeyStream, rest_seconds: float | None = None) -> Taken:
    """One side in a process of its own; its state is gone afterwards."""
    shared = default_cache_root().parent
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=shared) as cache,
    ):
        settings = WORKER_MEMORY if side.startswith("penstock") else _ONE_THREAD
        place, task = Path(folder), {"side": side, "stream": asdict(stream), "rest_seconds": rest_seconds}
        run_module("bench.state_sides", [json.dumps(task), folder, cache], side, place, settings)
        return Taken(**json.loads((place / "taken.json").read_text()))
