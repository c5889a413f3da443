"""The sink of dead letters, late events and skipped spans: files in a directory of the engine or of its HA unit.

    DIR/dead/STREAM/    records that cannot be decoded
    DIR/late/STREAM/    late and future events
    DIR/leaped/STREAM/  spans of partitions that were skipped

They are rows of the result log like those of an output, so an engine that follows holds them back too.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from penstock.sinks.contract import Sink
from penstock.sinks.files import PrivateJsonLines

#: the name of the output in the result log; no job can have it
SIDE_OUTPUT = "#side-output"


class SideOutput(Sink):
    """Writes rows to files by the stream that they are from, and why they are there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = 0
        self._files: dict[tuple[str, str], PrivateJsonLines] = {}

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
