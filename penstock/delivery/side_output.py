"""The sink of dead letters, late events and skipped spans: files in a directory of the engine or of its HA unit.

    DIR/dead/STREAM/    records that cannot be decoded
    DIR/late/STREAM/    late and future events
    DIR/leaped/STREAM/  spans of partitions that were skipped

They are rows of the result log like those of an output, so an engine that follows holds them back too.

Files are compacted (`JoinedFiles`), and removed when all have more bytes or are older than `SideOutputLimits` says; the
newest of each directory stays. What is removed is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from penstock.errors import PenstockError
from penstock.sinks.contract import Sink
from penstock.sinks.files import PrivateJsonLines

#: the name of the output in the result log; no job can have it
SIDE_OUTPUT = "#side-output"
_LOG = logging.getLogger(__name__)
_DIRECTORIES = ("dead", "late", "leaped")
#: old files are looked for so often, in seconds
_PRUNE_SECONDS = 600.0


@dataclass(frozen=True)
class SideOutputLimits:
    """How much is kept."""

    bytes: int = 1_000_000_000
    days: float = 30.0


@dataclass(frozen=True)
class SideOutputFile:
    """A file that may be removed."""

    files: PrivateJsonLines
    path: Path
    bytes: int
    #: when it was written last, in seconds since 1970
    written_at: float


def choose_old(
    complete: Sequence[SideOutputFile], total_bytes: int, limits: SideOutputLimits, now: float
) -> list[SideOutputFile]:
    """The files to remove: those that are too old, and the oldest of the others as long as all have too many bytes."""
    chosen = []
    for file in sorted(complete, key=lambda one: one.written_at):
        if file.written_at < now - limits.days * 86_400.0 or total_bytes > limits.bytes:
            chosen.append(file)
            total_bytes -= file.bytes
    return chosen


class SideOutput(Sink):
    """Writes rows to files by the stream that they are from, and why they are there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = 0
        self._files: dict[tuple[str, str], PrivateJsonLines] = {}
        self._pruned_at = -_PRUNE_SECONDS

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Nothing: directories are made with their first rows."""

    def take_over(self, generation: int) -> None:
        """Write as this generation from now on."""
        self._generation = generation

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Write the rows of an epoch; False when all files have that epoch."""
        is_new = False
        ordered = rows.sort("stream", "why", "partition", "offset")
        for (stream, why), part in ordered.group_by("stream", "why", maintain_order=True):
            files = self._files_of(str(stream), str(why))
            files.take_over(self._generation)
            is_new |= files.write(epoch, part.drop("stream", "why"))
        return is_new

    def prune(self, limits: SideOutputLimits, *, at_once: bool = False) -> None:
        """Remove what is too old or too much, unless that was done a short time ago. From any thread."""
        if time.monotonic() - self._pruned_at < _PRUNE_SECONDS and not at_once:
            return
        self._pruned_at = time.monotonic()
        try:
            total, complete = self._list_files()
            old = choose_old(complete, total, limits, time.time())
            for file in old:
                file.files.remove(file.path)
        except (OSError, PenstockError) as failure:
            _LOG.warning("old dead letters and late events cannot be removed: %s", failure)
            return
        if old:
            _LOG.warning(
                "removed %d files with %d bytes of dead letters, late events and skipped spans: older than %g days, or "
                "more than %d bytes (side_output_days, side_output_bytes); the first is %s",
                *(len(old), sum(file.bytes for file in old), limits.days, limits.bytes, old[0].path),
            )

    def _list_files(self) -> tuple[int, list[SideOutputFile]]:
        """The bytes of all files, and those that may be removed."""
        total, complete = 0, list[SideOutputFile]()
        for folder in (one for why in _DIRECTORIES for one in (self._directory / why).glob("*")):
            files = PrivateJsonLines(folder)
            total += sum(path.stat().st_size for path in folder.glob(f"epoch-*{files.suffix}"))
            for path in files.complete_files():
                found = path.stat()
                complete.append(SideOutputFile(files, path, found.st_size, found.st_mtime))
        return total, complete

    def _files_of(self, stream: str, why: str) -> PrivateJsonLines:
        if (stream, why) not in self._files:
            files = PrivateJsonLines(self._directory / why / stream)
            files.open(f"{why}-{stream}", {})
            self._files[stream, why] = files
        return self._files[stream, why]

    def close(self) -> None:
        for files in self._files.values():
            files.close()
        self._files.clear()

    def describe(self) -> str:
        return f"dead letters and late events in {self._directory}"
