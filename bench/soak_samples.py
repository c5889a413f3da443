"""Samples of what must not grow in a soak, and the verdict over them.

A sample has a value of each series: memory, objects, descriptors, threads, what the state directory holds, and what an
epoch takes on the driver.
"""

from __future__ import annotations

import gc
import json
import math
import os
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import descendants, memory_bytes

#: a series may grow by so much of its value from the second quarter to the last
_MOST_GROWTH = 0.05


@dataclass(frozen=True)
class Series:
    """What is sampled under a name; `slack`: by how much more it may grow, in its unit, than by a few percent. Without
    a limit it is not judged."""

    name: str
    unit: str
    slack: float

    @property
    def is_judged(self) -> bool:
        """Whether it must not grow."""
        return math.isfinite(self.slack)


SERIES = (
    Series("memory", "MB", 4.0),
    Series("memory of workers", "MB", 40.0),
    Series("heap objects", "objects", 3_000),
    Series("descriptors", "descriptors", 4),
    Series("threads", "threads", 3),
    Series("driver CPU an epoch", "ms", 1.0),
    # shown and not judged: other work on the machine makes them longer
    Series("epoch, median", "ms", math.inf),
    Series("epoch, p99", "ms", math.inf),
    Series("state files and folders", "files", 30),
    Series("state bytes", "KB", 100.0),
    Series("manifests", "KB", 20.0),
    Series("runs", "KB", 60.0),
    Series("epoch records", "KB", 20.0),
    Series("result log", "KB", 60.0),
    Series("commands", "KB", 60.0),
    Series("dead letters, late events", "KB", 60.0),
    Series("other state", "KB", 20.0),
    Series("newest epoch record", "bytes", 200),
    Series("newest manifest", "bytes", 1_000),
)
#: the series of the folders of a state directory
_KINDS = {
    "manifests": "manifests",
    "runs": "runs",
    "epochs": "epoch records",
    "results": "result log",
    "commands": "commands",
    "dead": "dead letters, late events",
    "late": "dead letters, late events",
}


@dataclass(frozen=True)
class Sample:
    """The values of the series, by name, after so many epochs."""

    epochs: int
    values: Mapping[str, float]

    def to_json(self) -> str:
        """The sample as one line."""
        return json.dumps({"epochs": self.epochs} | {name: round(v, 3) for name, v in self.values.items()})


def take_sample(
    epochs: int, state: Path, epoch_seconds: Sequence[float], cpu_seconds: float, receiver: int | None
) -> Sample:
    """Sample this process, those that it has started but for the receiver, and a state directory; `epoch_seconds`: of
    the epochs since the last sample, which took so many `cpu_seconds` here."""
    gc.collect()
    times = sorted(epoch_seconds) or [0.0]
    values: dict[str, float] = {
        "memory": memory_bytes() / 1e6,
        "memory of workers": sum(_memory_of(pid) for pid in descendants(os.getpid()) if pid != receiver)
        / 1e6,
        "heap objects": len(gc.get_objects()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "driver CPU an epoch": cpu_seconds / max(len(epoch_seconds), 1) * 1e3,
        "epoch, median": statistics.median(times) * 1e3,
        "epoch, p99": times[int(0.99 * (len(times) - 1))] * 1e3,
        "newest epoch record": _newest_bytes(state / "epochs"),
        "newest manifest": _newest_bytes(state / "manifests"),
    }
    return Sample(epochs, values | _measure_state(state))


def _memory_of(pid: int) -> int:
    try:
        return memory_bytes(pid)
    except Exception:  # it has ended
        return 0


def _newest_bytes(folder: Path) -> int:
    sizes = {}
    for path in folder.glob("[!.]*"):
        try:
            sizes[path.name] = path.stat().st_size
        except OSError:
            continue
    return sizes[max(sizes)] if sizes else 0


def _measure_state(state: Path) -> dict[str, float]:
    """The files and bytes of a state directory, by kind."""
    sizes = dict.fromkeys([*_KINDS.values(), "other state"], 0.0)
    files = 0
    for folder, folders, names in os.walk(state):
        top = Path(folder).relative_to(state).parts
        kind = _KINDS.get(top[0], "other state") if top else "other state"
        for name in names:
            try:
                sizes[kind] += os.stat(os.path.join(folder, name)).st_size / 1e3
            except OSError:  # removed this moment
                continue
            files += 1
        files += len(folders)
    return {**sizes, "state files and folders": files, "state bytes": sum(sizes.values())}


@dataclass(frozen=True)
class Growth:
    """How much of a series there is in the second and in the last quarter of a run."""

    series: Series
    second: float
    last: float

    @property
    def ratio(self) -> float:
        """The last quarter in relation to the second."""
        return self.last / self.second if self.second else 1.0

    @property
    def most_ratio(self) -> float:
        """The ratio from which on it is growth."""
        return 1 + _MOST_GROWTH + (self.series.slack / self.second if self.second else 0.0)

    @property
    def grows(self) -> bool:
        """Whether there is more than there may be."""
        return self.last > self.second * (1 + _MOST_GROWTH) + self.series.slack


def judge(samples: Sequence[Sample]) -> list[Growth]:
    """Compare the median of the second quarter of the samples with that of the last, for each series."""
    quarter = max(len(samples) // 4, 1)
    second, last = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    return [
        Growth(
            series,
            statistics.median(sample.values[series.name] for sample in second),
            statistics.median(sample.values[series.name] for sample in last),
        )
        for series in SERIES
    ]
