"""A live input: lines of a prepared click stream written as time goes by, with the time of writing in them.

    python -m bench.peers.feeder SOURCE FOLDER RATE SECONDS

Receives an input and a rate; writes to FOLDER what follows the clock: `parts/*.log` grow, and every tenth of a second
the same lines are a new file in `pieces/`, for engines that take whole files. `facts.json` is there from the beginning.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

STEP_SECONDS = 0.1
_STAMP_AT, _STAMP_BYTES = b"[", len("01/Jan/2026:00:00:00")


def prepared(folder: Path) -> None:
    """The empty folder that engines may start to follow."""
    for name in ("parts", "pieces"):
        (folder / name).mkdir(parents=True)
    for part in range(2):
        (folder / "parts" / f"p{part}.log").touch()
    facts = {"events": 0, "parts": 2, "closing": 0, "rotation_events": 1, "pages": []}
    (folder / "facts.json").write_text(json.dumps(facts))


def blocks(source: Path, part: int, lines: int) -> list[bytes]:
    """Some blocks of so many lines with one and the same stamp, so that it can be replaced at once."""
    with open(source / "parts" / f"p{part}.log", "rb") as file:
        found = list(itertools.islice(file, lines * 20))
    same = found[0].partition(_STAMP_AT)[2][:_STAMP_BYTES]
    at = [line.index(_STAMP_AT) + 1 for line in found]
    stamped = [line[:a] + same + line[a + _STAMP_BYTES :] for line, a in zip(found, at, strict=True)]
    return [b"".join(stamped[first : first + lines]) for first in range(0, len(stamped) - lines + 1, lines)]


def feed(source: Path, folder: Path, rate: float, seconds: float) -> None:
    """Write for so long. What is behind the clock is caught up with at once, so the rate holds."""
    lines = max(1, round(rate * STEP_SECONDS / 2))
    made = [blocks(source, part, lines) for part in range(2)]
    old = [one[0].partition(_STAMP_AT)[2][:_STAMP_BYTES] for one in made]
    files = [open(folder / "parts" / f"p{part}.log", "ab", buffering=0) for part in range(2)]  # noqa: SIM115
    began = time.time()
    for step in range(round(seconds / STEP_SECONDS)):
        time.sleep(max(0.0, began + step * STEP_SECONDS - time.time()))
        stamp = datetime.now(UTC).strftime("%d/%b/%Y:%H:%M:%S").encode()
        for part, file in enumerate(files):
            text = made[part][step % len(made[part])].replace(old[part], stamp)
            file.write(text)
            staging = folder / f".{step}-{part}"
            staging.write_bytes(text)
            os.rename(staging, folder / "pieces" / f"{step:06d}-p{part}.log")
    for file in files:
        file.close()


if __name__ == "__main__":
    feed(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
