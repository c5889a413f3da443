"""What a case is given: the events that its archive holds, as streams, and a directory for its outputs.

Only the public API is used, here and in `cases/`: a later version opens the archives with these modules.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import penstock as ps
from penstock.testing import ListLog

#: the lines of a stream, by partition
Lines = Mapping[str, Sequence[str]]
TIME = ps.Datetime("us", "UTC")
COLUMNS = {
    "time": TIME,
    "user": ps.String(),
    "page": ps.String(),
    "n": ps.Int64(),
    "amount": ps.Float64(),
    "tags": ps.String(),
}
#: where files of Python were read, as stored code says; nothing is there when an archive is opened
CODE_PLACE = "/srv/penstock-golden"
BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Given:
    """The lines of every stream, and where the rows go."""

    lines: Mapping[str, Lines]
    out: Path
    #: the logs of the streams that are no lists of lines
    logs: Mapping[str, Any] = field(default_factory=dict)

    def stream(self, name: str, *, lateness: str = "4s", idle_after: str | None = "5s") -> ps.Stream:
        """The events of one stream."""
        decoder = ps.json_lines(COLUMNS, times={"time": "us"})
        log = self.logs[name] if name in self.logs else ListLog(self.lines[name])
        return ps.stream(name, log, decoder, time="time", lateness=lateness, idle_after=idle_after)

    def output(self, name: str, rows: ps.Stream) -> Any:
        """An output that goes to files named after it."""
        return ps.output(name, rows, ps.jsonl(self.out / name))

    def after(self, offsets: Mapping[str, Mapping[str, int]]) -> Given:
        """The events from these offsets on, as if there had been none before."""
        rest = {
            name: {part: lines[offsets.get(name, {}).get(part, 0) :] for part, lines in stream.items()}
            for name, stream in self.lines.items()
        }
        return replace(self, lines=rest)


@dataclass(frozen=True)
class Named:
    """Statements sent as a request with a name: sent again, they get the same replies and change nothing."""

    name: str
    text: str


@dataclass(frozen=True)
class FromFile:
    """A request that comes with code: create or alter a job from a file of Python, or deploy the file and drop what it
    no longer has. `files`: the texts of the file and of the modules it imports, by name, the file first."""

    do: Literal["create", "alter", "deploy"]
    files: Mapping[str, str]
    #: the job, and which attribute of the file it is; not for a deploy
    job: str = ""
    attribute: str = ""


#: what changes jobs: statements, or a request
Change = str | Named | FromFile


def made_lines() -> dict[str, Lines]:
    """Two streams, out of order, with late events, nulls, lines that are no events, and a pause."""
    return {"events": _drawn(11, 2, 110, 2), "other": _drawn(12, 3, 75, 3)}


def _drawn(seed: int, partitions: int, count: int, half_steps: int) -> Lines:
    """Some lines for each partition. Streams of which an epoch takes equally much come equally far in time."""
    draw = random.Random(seed)
    found: dict[str, list[str]] = {}
    for partition in range(partitions):
        at = BEGIN + timedelta(milliseconds=137 * partition)
        part = found.setdefault(f"p{partition}", [])
        for number in range(count):
            at += timedelta(milliseconds=draw.choice([0, 100, 400, 700, 1_100]) * half_steps // 2)
            early = draw.choice([0] * 8 + [1, 2, 30 if number > 10 else 0])
            part.append(
                f"broken {partition} {number}"
                if number % 37 == 30
                else _line(draw, at - timedelta(seconds=early), number)
            )
    return found


def _line(draw: random.Random, at: datetime, number: int) -> str:
    fields = {
        "time": round(at.timestamp() * 1_000_000),
        "user": draw.choice(["ada", "ada", "ada", "bob", "bob", "cyd", "dot", None]),
        "page": draw.choice(["/a", "/a", "/b", "/b", "/c", "/d"]),
        "n": draw.choice([None, -3, 0, 1, 2, 3, 5, 8, number]),
        "amount": draw.choice([None, -2.5, 0.1, 0.25, 1e-3, 1000.0, number / 8]),
        "tags": draw.choice(["", "x", "x,y", "x,y,z"]),
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None})
