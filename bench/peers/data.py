"""The input of the comparison: generated lines, made once, kept between runs, the same for every engine.

Receives a kind and how many events; hands a folder with `parts/` (a file for each of two readers, in order of event
time, all lines of a key in one of them, as in a log that is partitioned by key), `pieces/` (the same lines cut by log
rotation, for engines that take whole files; the last one ends with a line of a far later time, which closes the last
windows of engines that need one) and `facts.json`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np

from bench.call_data import CallParameters
from bench.dataset import Parameters
from penstock.logs.contract import Span
from penstock.logs.generated import MadeLog

Kind = Literal["clicks", "calls", "trips"]
#: how the files look; part of the name under which they are cached
_LAYOUT = 1
_ROTATION_SECONDS = 10
_ROTATION = _ROTATION_SECONDS * 1_000_000


@dataclass(frozen=True)
class Recipe:
    """What is in an input: its log, the key of a line, into how many parts, and the line that closes windows."""

    log: MadeLog
    key: Callable[[bytes], bytes]
    parts: int
    closing: bytes


def recipe(kind: Kind, events: int) -> Recipe:
    """How an input is made; a small one has fewer events a second, so that it still has some windows."""
    rate = max(20.0, min(10_000.0, events / 100))
    if kind == "clicks":
        log: MadeLog = Parameters(events, servers=1, rate=rate).log()
        return Recipe(log, lambda line: line.rpartition(b"=")[2], 2, Parameters.closing_line)
    if kind == "calls":
        log = CallParameters(events, servers=1, rate=rate, callers=round(rate) * 100).log()
        return Recipe(log, lambda line: line.partition(b",")[0], 2, CallParameters.closing_line)
    from penstock.demos import taxi
    from penstock.demos.generator import generate_log

    # the order of all trips decides: they are one part
    made = generate_log(
        taxi.trip, rate=max(1.0, min(100.0, events / 3600)), total=events, live=False, partitions=1
    )
    return Recipe(made, lambda line: b"", 1, b"")


def made(kind: Kind, events: int, root: Path) -> Path:
    """The folder of an input, made now unless it is there from an earlier run."""
    place = root / f"peers-{kind}-{events}-{_LAYOUT}"
    if not place.exists():
        root.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=root))
        try:
            _write(recipe(kind, events), staging)
            os.rename(staging, place)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    return place


def _write(wanted: Recipe, place: Path) -> None:
    (place / "parts").mkdir()
    (place / "pieces").mkdir()
    (partition,) = wanted.log.partitions({})
    rotations = wanted.log.event_times(0, 0, partition.latest) // _ROTATION
    bounds = [*np.flatnonzero(np.diff(rotations, prepend=-1)).tolist(), len(rotations)]
    pages: Counter[bytes] = Counter()
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        text = b"".join(chunk.data for chunk in wanted.log.read(Span(partition.id, start, end)))
        found: list[list[bytes]] = [[] for _ in range(wanted.parts)]
        for line in text.splitlines(keepends=True):
            found[crc32(wanted.key(line)) % wanted.parts].append(line)
        if number == 0 and b'"' in text:
            pages.update(line.split(b" ", 7)[6] for line in text.splitlines())
        for part, lines in enumerate(found):
            together = b"".join(lines)
            with open(place / "parts" / f"p{part}.log", "ab") as whole:
                whole.write(together)
            last = wanted.closing if part == 0 and end == bounds[-1] else b""
            piece = place / "pieces" / f"{number:05d}-p{part}.log"
            piece.write_bytes(together + last)
            # Spark takes files in the order in which they were last changed
            os.utime(piece, (1_700_000_000 + number, 1_700_000_000 + number))
    ordered = sorted(pages.items(), key=lambda item: (-item[1], item[0]))
    facts = {
        "events": len(rotations),
        "parts": wanted.parts,
        "closing": int(bool(wanted.closing)),
        "rotation_events": max(1, len(rotations) // max(1, len(bounds) - 1)),
        "pages": [page.decode() for page, _ in ordered],
    }
    (place / "facts.json").write_text(json.dumps(facts) + "\n")
