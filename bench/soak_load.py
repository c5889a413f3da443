"""The input of a soak: numbered events in two log files that rotate, with late and undecodable lines between them.

Everything follows from the number of a tick, so the oracle needs no memory of what was written.

    IN/first.log    renamed at a rotation, then compressed, then removed
    IN/second.log   copied and truncated at a rotation, the copy compressed, then removed
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

#: events of a tick, which is a second of event time
TICK_EVENTS = 8
#: ticks from one rotation to the next
ROTATION_TICKS = 100
KEYS = 50
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(seconds=1) / TICK_EVENTS
#: events are at most so many steps out of order; the stream allows 2 s
_JITTER = 5
#: one late line and one undecodable line in so many events
_LATE, _UNDECODABLE = 97, 101


class Event(NamedTuple):
    """An event that every job gets."""

    number: int
    at: datetime
    key: str
    bytes: int


def make_event(number: int) -> Event:
    """The event of a number."""
    at = BEGIN + (number - number * 31 % _JITTER) * _STEP
    return Event(number, at, f"k{number * 7919 % KEYS}", number * 104_729 % 1_000)


def make_events(count: int) -> Iterator[Event]:
    """The first so many events."""
    return map(make_event, range(count))


def _make_lines(number: int) -> list[str]:
    """The lines of an event, and what is written after it that no job gets."""
    event = make_event(number)
    lines = [_make_line(event)]
    if number > 2_000 and number % _LATE == 0:
        lines.append(_make_line(event._replace(number=-number, at=event.at - timedelta(minutes=2))))
    if number % _UNDECODABLE == 100:
        lines.append(f"no JSON {number}")
    return lines


def _make_line(event: Event) -> str:
    return json.dumps(event._asdict(), default=datetime.isoformat)


class LogFiles:
    """The two log files in a folder, written by one thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        #: how many events are written
        self.written = 0

    def write_tick(self) -> None:
        """Append the events of a tick to the files."""
        lines: dict[str, list[str]] = {"first": [], "second": []}
        for number in range(self.written, self.written + TICK_EVENTS):
            lines["first" if number % 2 else "second"] += _make_lines(number)
        for name, texts in lines.items():
            with open(self.folder / f"{name}.log", "a", encoding="utf-8") as file:
                file.write("".join(f"{text}\n" for text in texts))
        self.written += TICK_EVENTS

    def rotate(self) -> None:
        """Rotate both files: one by renaming, the other by copying and truncating; remove the oldest."""
        for name in ("first", "second"):
            log, former = self.folder / f"{name}.log", self.folder / f"{name}.log.1"
            oldest = self.folder / f"{name}.log.2.gz"
            oldest.unlink(missing_ok=True)
            if former.exists():
                _compress(former, oldest)
            if name == "first":
                log.rename(former)
            else:
                shutil.copyfile(log, former)
                os.truncate(log, 0)


def _compress(text: Path, archive: Path) -> None:
    """Compress a file as gzip does: the archive appears beside it, then the text is removed."""
    with open(text, "rb") as source, gzip.open(archive, "wb") as target:
        shutil.copyfileobj(source, target)
    text.unlink()
