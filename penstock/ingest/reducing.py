"""Between what an agent reads and what it ships: lines are reduced to partial answers.

Receives a journal of lines and a function that reduces them; hands their partial answers to a second journal, which is
shipped as any. What the function does is not known here: this module loads nothing that queries need.

    SPOOL/NAME.reduced/step.json    the last step: which lines, how far time had come, where its result begins and ends

Invariant: every line is reduced once, in order, also across kill -9. A step is written down before its result is
appended; a step that was cut off is done again, and since the function is pure its bytes are the same, so
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

from penstock.ingest.journal import Journal
from penstock.ingest.tell import tell

#: bytes of lines that are reduced at once
STEP_BYTES = 4 << 20


class Reduce(Protocol):
    """Makes partial answers of lines. `plan` names what it does."""

    plan: str

    def __call__(self, lines: bytes, highest: int | None, clock: int) -> tuple[bytes, int | None]:
        """The lines' partial answers, and the newest event time with them."""


@dataclass(frozen=True)
class Step:
    """Lines from `begin` to `end`, with the newest event time before them, and where their result is put."""

    begin: int = 0
    end: int = 0
    highest: int | None = None
    clock: int = 0
    made_begin: int = 0
    made_end: int = 0
    highest_after: int | None = None
    plan: str = ""


class Reducing:
    """Reduces one journal into another."""

    def __init__(
        self,
        lines: Journal,
        made: Journal,
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
        #: lines taken in
        self.taken = 0
        self._last = self._mended()

    def run(self) -> None:
        """Reduce until there is nothing left and nothing will come, or `stop` is set."""
        while not self._stop.is_set():
            ended = self._finished()
            if self._made.disk_bytes >= self._most_bytes or not self.step():
                if ended and self._lines.lines(self._last.end) is None:
                    break
                self._stop.wait(self._linger_seconds)
            elif not ended:
                self._stop.wait(self._linger_seconds)  # the longer the wait, the fewer partial answers
        self.done.set()

    def step(self) -> bool:
        """Reduce what there is, up to some megabytes; False if there is nothing."""
        first, lines = self._gathered(self._last.end, STEP_BYTES)
        if not lines:
            return False
        clock = time.time_ns() // 1000
        made, highest = self._reduce(lines, self._last.highest_after, clock)
        begin = self._made.end
        step = Step(
            first,
            first + len(lines),
            self._last.highest_after,
            clock,
            begin,
            begin + len(made),
            highest,
            self._reduce.plan,
        )
        _write(self._place, step)
        self._made.append(made)
        self._last = step
        self.taken += lines.count(b"\n")
        self._lines.release(step.end)
        return True

    def _gathered(self, position: int, most: int) -> tuple[int, bytes]:
        """Lines that follow each other from a position on, or from the next that there is."""
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

    def _mended(self) -> Step:
        """The last step, finished if it was cut off."""
        try:
            step = Step(**json.loads(self._place.read_bytes()))
        except FileNotFoundError:
            return Step()
        if self._lines.end < step.end:
            self._lines.skip_to(step.end)  # the machine lost power: these numbers were given away
        missing = step.made_end - self._made.end
        if 0 < missing <= step.made_end - step.made_begin:
            first, lines = self._gathered(step.begin, step.end - step.begin)
            lines = lines[: step.end - step.begin]
            again = b""
            if first == step.begin and len(lines) == step.end - step.begin and step.plan == self._reduce.plan:
                again, _ = self._reduce(lines, step.highest, step.clock)
            if len(again) == step.made_end - step.made_begin:
                self._made.append(again[len(again) - missing :])
            else:
                tell("step lost", begin=step.begin, end=step.end, producer=self._made.producer)
                if self._made.ends_inside_a_line:
                    self._made.append(b"\n")
        self._lines.release(step.end)
        return step


def _write(place: Path, step: Step) -> None:
    """In one step, but not forced to disk: a kill takes nothing back."""
    beside = place.with_suffix(".new")
    beside.write_bytes(json.dumps(asdict(step)).encode())
    os.replace(beside, place)
