"""Reduces an agent's lines to partial results before it ships them.

Receives a spool of lines and a function that reduces them; appends their partial results to a second spool, which is
shipped as any. The function comes from outside: this module loads nothing that queries need.

    SPOOL/NAME.reduced/step.json    the last step: its lines, the event time before it, the range of its result

Invariant: every line is reduced once, in order, also across kill -9. A step is recorded before its result is
appended; a step that was cut off is repeated, and since the function is pure its bytes are the same, so
what is missing of them is appended.
Does not guarantee: after the machine lost power, up to a second of lines may be lost, or reduced twice.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from penstock.ingest.event_log import log_event
from penstock.ingest.spool import Spool

#: bytes of lines that are reduced at once
STEP_BYTES = 4 << 20


class Reduce(Protocol):
    """Makes partial results of lines. `plan` is the id of the plan."""

    plan: str

    def __call__(self, lines: bytes, highest: int | None, clock: int) -> tuple[bytes, int | None]:
        """Return the lines' partial results, and the newest event time so far."""


@dataclass(frozen=True)
class Step:
    """Lines from `begin` to `end`, with the newest event time before them, and the range of their result.

    The names of the fields are those in `step.json`.
    """

    begin: int = 0
    end: int = 0
    highest: int | None = None
    clock: int = 0
    made_begin: int = 0
    made_end: int = 0
    highest_after: int | None = None
    plan: str = ""


class Reducing:
    """Reduces one spool into another."""

    def __init__(
        self,
        lines: Spool,
        made: Spool,
        reduce: Reduce,
        *,
        most_bytes: int,
        linger_seconds: float,
        finished: Callable[[], bool],
        stop: threading.Event,
    ) -> None:
        self._lines, self._made, self._reduce = lines, made, reduce
        self._most_bytes, self._linger_seconds = most_bytes, linger_seconds
        self._finished, self._stop = finished, stop
        self._place: Path = made.directory / "step.json"
        self.done = threading.Event()
        #: lines reduced
        self.taken = 0
        self._last = self._recover_step()

    def run(self) -> None:
        """Reduce until the input has ended and nothing is left, or `stop` is set."""
        while not self._stop.is_set():
            ended = self._finished()
            if self._made.disk_bytes >= self._most_bytes or not self.step():
                if ended and self._lines.lines(self._last.end) is None:
                    break
                self._stop.wait(self._linger_seconds)
            elif not ended:
                self._stop.wait(self._linger_seconds)  # the longer the wait, the fewer partial results
        self.done.set()

    def step(self) -> bool:
        """Reduce the lines that wait, up to some megabytes; False if there are none."""
        first, lines = self._gather_lines(self._last.end, STEP_BYTES)
        if not lines:
            return False
        clock = time.time_ns() // 1000
        made, highest = self._reduce(lines, self._last.highest_after, clock)
        start = self._made.end
        step = Step(
            first,
            first + len(lines),
            self._last.highest_after,
            clock,
            start,
            start + len(made),
            highest,
            self._reduce.plan,
        )
        _write_step(self._place, step)
        self._made.append(made)
        self._last = step
        self.taken += lines.count(b"\n")
        self._lines.release(step.end)
        return True

    def _gather_lines(self, position: int, most: int) -> tuple[int, bytes]:
        """Gather consecutive lines from a position on, or from the next that exists."""
        pieces: list[bytes] = []
        first = at = position
        while at - first < most:
            found = self._lines.lines(at)
            if found is None or (pieces and found[0] != at):
                break
            if not pieces:
                first = found[0]
            pieces.append(found[1])
            at = found[0] + len(found[1])
        return first, b"".join(pieces)

    def _recover_step(self) -> Step:
        """Recover the last step; finish it if it was cut off."""
        try:
            step = Step(**json.loads(self._place.read_bytes()))
        except FileNotFoundError:
            return Step()
        if self._lines.end < step.end:
            self._lines.skip_to(step.end)  # the machine lost power: these numbers were used before
        missing = step.made_end - self._made.end
        if 0 < missing <= step.made_end - step.made_begin:
            first, lines = self._gather_lines(step.begin, step.end - step.begin)
            lines = lines[: step.end - step.begin]
            repeated = b""
            if first == step.begin and len(lines) == step.end - step.begin and step.plan == self._reduce.plan:
                repeated, _ = self._reduce(lines, step.highest, step.clock)
            if len(repeated) == step.made_end - step.made_begin:
                self._made.append(repeated[len(repeated) - missing :])
            else:
                log_event("step lost", begin=step.begin, end=step.end, producer=self._made.producer)
                if self._made.ends_inside_a_line:
                    self._made.append(b"\n")
        self._lines.release(step.end)
        return step


def _write_step(place: Path, step: Step) -> None:
    """Write a step atomically, but without forcing it to disk: a kill loses nothing."""
    beside = place.with_suffix(".new")
    beside.write_bytes(json.dumps(asdict(step)).encode())
    os.replace(beside, place)
