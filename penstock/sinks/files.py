"""Sinks that write one file per epoch to a directory: JSON lines for people and scripts, Parquet for analysis.

    DIR/epoch-000000000012.jsonl (or .parquet)

Guarantees: a file with an epoch's name is whole, on disk, and never changes. It is written under a hidden name, synced,
then renamed. The directory belongs to one job, named in `.penstock-job`, and to the highest generation of its engines,
which stages its files in `.generations`: no file of a lower one appears any more.
Does not guarantee: a file for an epoch without rows; that an epoch is not written again if its file is removed before
the epoch is committed.
On failure: `ExternalError` SINK_UNWRITABLE, or FENCED, and the epoch is not visible.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from penstock.errors import ExternalError, UserError, is_transient
from penstock.sinks.contract import Sink
from penstock.sinks.portable import reorder_columns, to_portable
from penstock.state.durable import sync_directory
from penstock.state.generation import FencedDirectory

_OWNER = ".penstock-job"
_EPOCH = re.compile(r"epoch-(\d{12,})")


class EpochFiles(Sink):
    """The common part of the file sinks; a format adds its suffix, `_encode` and `read`."""

    suffix: str

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._columns: list[str] = []
        self._fenced_directory = FencedDirectory(self.directory / ".generations")

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Claim the directory for the job and remove what a crashed writer left incomplete."""
        self._columns = list(schema)
        self._fenced_directory = FencedDirectory(self.directory / ".generations")
        with _translate_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._claim(job)
            for staged in self.directory.glob(f".epoch-*{self.suffix}.tmp"):
                staged.unlink(missing_ok=True)

    def take_over(self, generation: int) -> None:
        """Remove what lower generations have staged, so that none of it becomes a file."""
        if generation != self._fenced_directory.generation:
            with _translate_errors(self.directory):
                self._fenced_directory.take_over(generation, reentrant=True)

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Put the epoch's file in place, unless it is there. An epoch without rows leaves no file."""
        target = self.directory / f"epoch-{epoch:012d}{self.suffix}"
        if target.exists():
            with _translate_errors(self.directory):
                sync_directory(
                    self.directory
                )  # the attempt that put it there may have failed just before this
            return False
        if rows.is_empty():
            return True
        content = self._encode(reorder_columns(rows, self._columns))
        with _translate_errors(self.directory):
            self._fenced_directory.run_fenced(lambda: self._put(target, content))
            sync_directory(self.directory)
        return True

    def _put(self, target: Path, content: bytes) -> None:
        # two engines of one generation may both deliver: each stages a file of its own
        mine = f".{target.stem}-{uuid.uuid4().hex[:8]}{self.suffix}.tmp"
        staging = self._fenced_directory.staging
        staged = self.directory / f".{target.name}.tmp" if staging is None else staging / mine
        try:
            with staged.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(staged, target)
        except OSError:
            with contextlib.suppress(OSError):
                staged.unlink(missing_ok=True)
            raise

    def epochs(self) -> list[int]:
        """The epochs that have a file, ascending."""
        return [epoch for epoch, _ in self._files()]

    @abstractmethod
    def read(self) -> pl.DataFrame:
        """All rows of all epochs, in epoch order, with a column `_epoch` before the others."""

    def describe(self) -> str:
        return f"{self.directory}/epoch-*{self.suffix}"

    @abstractmethod
    def _encode(self, rows: pl.DataFrame) -> bytes: ...

    def _files(self) -> list[tuple[int, Path]]:
        named = ((_EPOCH.fullmatch(path.stem), path) for path in self.directory.glob(f"epoch-*{self.suffix}"))
        return sorted((int(name.group(1)), path) for name, path in named if name)

    def _claim(self, job: str) -> None:
        """Write the owner's name in one atomic step, unless another job was first."""
        marker = self.directory / _OWNER
        if not marker.exists():
            if self._files():
                raise self._taken_error("an unknown job", f"It has epoch files but no {_OWNER} file.")
            handle, staged = tempfile.mkstemp(dir=self.directory, prefix=f"{_OWNER}-", suffix=".tmp")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(job)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(staged, marker)  # unlike a rename, refuses to replace another's claim
            except FileExistsError:
                pass
            except OSError:  # a file system without hard links
                os.replace(staged, marker)
            Path(staged).unlink(missing_ok=True)
            sync_directory(self.directory)
        owner = marker.read_text(encoding="utf-8")
        if owner != job:
            raise self._taken_error(f"job {owner!r}", f"This is job {job!r}.")

    def _taken_error(self, owner: str, detail: str) -> UserError:
        return UserError(
            "SINK_TAKEN",
            f"{self.directory} already has the rows of {owner}",
            detail=detail,
            hint="Give each job an output directory of its own; where the job's state directory was removed, "
            "remove its output too.",
        )


class JsonLines(EpochFiles):
    """One JSON object a line; times as ISO-8601 with Z; NaN and infinity, which JSON lacks, as null."""

    suffix = ".jsonl"

    def read(self) -> pl.DataFrame:
        """All rows, with the types of JSON (times stay text)."""
        files = [(epoch, path.read_bytes()) for epoch, path in self._files()]
        if not files:
            return pl.DataFrame(schema={"_epoch": pl.Int64})
        rows = pl.read_ndjson(b"".join(data for _, data in files), infer_schema_length=None)
        epochs = [epoch for epoch, data in files for _ in range(data.count(b"\n"))]
        return rows.insert_column(0, pl.Series("_epoch", epochs, dtype=pl.Int64))

    def _encode(self, rows: pl.DataFrame) -> bytes:
        return to_portable(rows).write_ndjson().encode()


class Parquet(EpochFiles):
    """One Parquet file an epoch, with Arrow's own types."""

    suffix = ".parquet"

    def read(self) -> pl.DataFrame:
        """All rows; a column that some epochs lack is null there."""
        frames = [
            pl.read_parquet(path).insert_column(0, pl.lit(epoch, dtype=pl.Int64).alias("_epoch"))
            for epoch, path in self._files()
        ]
        if not frames:
            return pl.DataFrame(schema={"_epoch": pl.Int64})
        return pl.concat(frames, how="diagonal_relaxed")

    def _encode(self, rows: pl.DataFrame) -> bytes:
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
        return buffer.getvalue()


@contextlib.contextmanager
def _translate_errors(directory: Path) -> Iterator[None]:
    """Raise SINK_UNWRITABLE for errors of the file system."""
    try:
        yield
    except OSError as problem:
        raise ExternalError(
            "SINK_UNWRITABLE",
            f"could not write to {directory}",
            detail=f"{problem.strerror or problem}.",
            hint="Free space or fix the permissions, then start again: nothing of the epoch is visible.",
            is_transient=is_transient(problem),
        ) from problem
