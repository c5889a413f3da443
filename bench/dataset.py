"""A benchmark's input: the same generated lines for every engine, made once and cached between runs.

A data set has two folders with the same lines:

- `whole`: one growing file for each server that writes, as Penstock's file log follows them;
- `rotated`: those files cut by log rotation, because Spark's file source admits whole files only.

Invariants:
- A smaller data set with the same parameters is a prefix of a larger one in event time.
- All servers rotate at the same instants, so files of one rotation never hold events older than those before
  (but for the disorder that the log is configured with).
- The last rotated file of the first server ends with one line of a far later time: it moves Spark's
  watermark past the last window. Its own key has no second event and its own window never closes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from penstock.logs.contract import Span
from penstock.logs.generated import GeneratedLog, MadeLog

#: how the files look; part of the name under which they are cached
_LAYOUT = 1


class Recipe(Protocol):
    """What a data set is made from: a dataclass, since its fields are part of the name under which it is cached.

    `rotate_seconds` is in event time. `closing_line` ends the rotated files.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    closing_line: ClassVar[bytes]

    @property
    def events(self) -> int: ...

    @property
    def servers(self) -> int: ...

    @property
    def rotate_seconds(self) -> int: ...

    def log(self) -> MadeLog:
        """The log that generates the lines."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of click-stream events. `rate` and `rotate_seconds` are in event time."""

    name: ClassVar[str] = "clicks"
    closing_line: ClassVar[bytes] = (
        b'10.255.255.255 - - [01/Jan/2027:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-" "session=closing"\n'
    )

    events: int
    servers: int = 4
    rate: float = 10_000
    users: int = 100_000
    pages: int = 1_000
    seed: int = 1
    rotate_seconds: int = 10

    def log(self) -> GeneratedLog:
        """The log that generates the lines."""
        return GeneratedLog(
            partitions=self.servers,
            seed=self.seed,
            users=self.users,
            pages=self.pages,
            rate=self.rate,
            total=self.events,
            live=False,
        )


@dataclass(frozen=True)
class Dataset:
    """Files of generated lines."""

    events: int
    servers: int
    whole: Path
    rotated: Path

    @property
    def files(self) -> list[Path]:
        """The servers' files, in the order of the servers."""
        return sorted(self.whole.glob("*.log"))


def cache_root() -> Path:
    """Return the folder where benchmarks cache their input."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache") / "penstock" / "bench"


def make_dataset(parameters: Recipe, root: Path) -> Dataset:
    """Return the files for these parameters; make them unless an earlier run has."""
    facts = json.dumps([_LAYOUT, asdict(parameters)], sort_keys=True)
    name = f"{parameters.name}-{parameters.events}-{hashlib.sha256(facts.encode()).hexdigest()[:10]}"
    folder = root / name
    if not folder.exists():
        root.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
        try:
            _write(parameters, staging)
            (staging / "parameters.json").write_text(facts + "\n")
            os.rename(staging, folder)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    return Dataset(parameters.events, parameters.servers, folder / "whole", folder / "rotated")


def _write(parameters: Recipe, folder: Path) -> None:
    whole, rotated = folder / "whole", folder / "rotated"
    whole.mkdir()
    rotated.mkdir()
    log = parameters.log()
    rotation_micros = parameters.rotate_seconds * 1_000_000
    first = last = int(log.event_times(0, 0, 1)[0]) // rotation_micros
    for server, partition in enumerate(log.partitions({})):
        times = log.event_times(server, 0, partition.latest)
        rotations = times // rotation_micros
        starts = np.flatnonzero(np.diff(rotations, prepend=-1))
        with open(whole / f"{parameters.name}-p{server}.log", "wb") as everything:
            for start, end in itertools.pairwise((*starts.tolist(), len(times))):
                last = max(last, int(rotations[start]))
                with open(rotated / _piece(int(rotations[start]) - first, server), "wb") as piece:
                    for chunk in log.read(Span(partition.id, start, end)):
                        everything.write(chunk.data)
                        piece.write(chunk.data)
    with open(rotated / _piece(last - first, 0), "ab") as piece:
        piece.write(parameters.closing_line)
    # Spark takes files in the order in which they were last changed
    for path in rotated.iterdir():
        changed_at = 1_700_000_000 + int(path.name[:5])
        os.utime(path, (changed_at, changed_at))


def _piece(rotation: int, server: int) -> str:
    return f"{rotation:05d}-p{server}.log"
