"""What all programs of the comparison share: arguments, the clock, the form of answers. Standard library only.

    python PROGRAM.py WORKLOAD INPUT OUT.json [--jobs 100] [--cores 2] [--seconds 20]

Receives a workload's name and a folder of input; hands a JSON object to OUT.json: the engine with versions and
settings, seconds by its own clock, and its answer. Input is `parts/*.log`, a file for each reader, in order of event
time, all lines of a key in one of them; `pieces/`, the same lines as rotated files for engines that take whole files
only (with one line of a far later time at the very end); and `facts.json`.

Answers. A program's rows become texts; an answer is how many there are and a number that depends on all of them in
whatever order, and the rows themselves where they are few. Times are seconds since 1970.

- patterns: rank, pattern, count of the ten most frequent at the end
- windows: window, rank, path, count
- clients: window, host, count, first, last
- join: src, start, start_right; beside it the sum of the distances in km
- taxi: pickup, dropoff, the ten best routes, whenever they change
- jobs: job, window, count, sum of bytes
- latency: window, when its rows were at hand (by the clock)
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

TOP = 10
WINDOW = 30
JOB_WINDOW = 10
#: seconds by which events may come later than others
LATENESS = 2
CALL_LATENESS = 5
JOIN_SECONDS = 60
EARTH_KM = 6371.0
LATENCY_WINDOW = 1
#: of a line, in their order; where they are separated by blanks, with quotes
LOG_FIELDS = (
    "host",
    "ident",
    "user",
    "stamp",
    "zone",
    "request",
    "status",
    "bytes",
    "referer",
    "agent",
    "cookie",
)
#: an answer of at most so many rows is told whole
_FEW = 400
_MASK = (1 << 64) - 1

Rows = Iterable[Iterable[Any]]


@dataclass
class Task:
    """One run: what to do, where the input is, a folder for whatever the engine writes."""

    workload: str
    input: Path
    place: Path
    jobs: int = 1
    cores: int = 2
    #: of a live input: how long to follow it
    live_seconds: float = 0.0
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> list[Path]:
        """The files that readers follow, in order."""
        return sorted((self.input / "parts").glob("*.log"))

    @property
    def facts(self) -> dict[str, Any]:
        """What is known about the input."""
        return dict(json.loads((self.input / "facts.json").read_text()))

    @property
    def pages(self) -> list[str]:
        """The page that each job asks for, in order."""
        pages = self.facts["pages"]
        return [pages[number % len(pages)] for number in range(self.jobs)]

    @contextmanager
    def clock(self) -> Iterator[None]:
        """The time that counts: from the first line read to the last row written."""
        began = time.perf_counter()
        yield
        self.seconds = time.perf_counter() - began


Workload = Callable[[Task], Rows]


def main(
    engine: str,
    workloads: dict[str, Workload],
    packages: Iterable[str],
    settings: dict[str, Any],
    arguments: list[str] | None = None,
) -> None:
    """Run the workload the command line names and write what came of it."""
    parser = argparse.ArgumentParser(description=f"{engine}: {', '.join(workloads)}")
    parser.add_argument("workload", choices=sorted(workloads))
    parser.add_argument("input", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long to follow a live input")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="peer-", dir=given.out.parent) as place:
        task = Task(
            given.workload, given.input.resolve(), Path(place), given.jobs, given.cores, given.seconds
        )
        rows = workloads[given.workload](task)
        told = answer(rows)
    facts = {
        "engine": engine,
        "workload": given.workload,
        "versions": {"python": platform.python_version(), **versions(packages)},
        "settings": {"cores": given.cores, **settings},
        "seconds": task.seconds,
        "answer": told | task.extra.pop("answer", {}),
        **task.extra,
    }
    draft = given.out.with_suffix(".draft")
    draft.write_text(json.dumps(facts, indent=1) + "\n")
    draft.replace(given.out)
    sys.stdout.flush()


def answer(rows: Rows) -> dict[str, Any]:
    """Rows in short, the same for the same rows in whatever order."""
    count, total, kept = 0, 0, []
    for row in rows:
        text = "|".join(str(value) for value in row)
        count += 1
        total += int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
        if count <= _FEW:
            kept.append(text)
    told: dict[str, Any] = {"rows": count, "digest": f"{total & _MASK:016x}"}
    if count <= _FEW:
        told["few"] = sorted(kept)
    return told


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of installed packages."""
    return {name: metadata.version(name) for name in packages}


def best(counts: Iterable[tuple[Any, int]]) -> list[tuple[int, Any, int]]:
    """Rank, key and count of the most frequent; equal ones in order of their keys."""
    ordered = sorted(counts, key=lambda item: (-item[1], item[0]))[:TOP]
    return [(rank, key, count) for rank, (key, count) in enumerate(ordered, 1)]
