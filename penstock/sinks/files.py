"""Sinks that write files of epochs to a directory: JSON lines for people and scripts, Parquet for analysis.

    DIR/epoch-000000000012.jsonl (or .parquet)

Guarantees: a file with an epoch's name is whole, on disk, and never changes, unless files are compacted: then the
newest one grows (`joined_files`). It is written under a hidden name, synced,
then renamed. The directory belongs to one job, named in `.penstock-job`, and to the highest generation of its engines,
which stages its files in `.generations`: no file of a lower one appears any more.
`.penstock-epochs-SUFFIX` has the digests of the newest epochs (see `recent_epochs`); it is replaced just before a file
appears, so it may have an epoch that has no file.

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
from typing import Any

import polars as pl

from penstock.errors import ExternalError, UserError, is_transient
from penstock.sinks.contract import Sink, SinkEpoch
from penstock.sinks.joined_files import LISTS, JoinedFiles, Limits
from penstock.sinks.portable import reorder_columns, to_portable
from penstock.sinks.recent_epochs import add_epoch, check_same, digest_in, newest_in
from penstock.state.durable import make_private, open_private, sync_directory
from penstock.state.generation import FencedDirectory

_OWNER = ".penstock-job"
#: the size of files that are compacted: each epoch writes the newest one again
COMPACT_BYTES = 1_000_000
_EPOCH = re.compile(r"epoch-(\d{12,})")


class EpochFiles(Sink):
    """The common part of the file sinks; a format adds its suffix, `_encode` and `read`."""

    suffix: str
    #: whether only the user of this process can read the files
    _private = False

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        compact: bool = False,
        compact_bytes: int = 0,
        compact_seconds: float = 3600.0,
    ) -> None:
        if compact_bytes < 0 or compact_seconds <= 0:
            raise UserError(
                "BAD_OPTION",
                f"files cannot be compacted to {compact_bytes} bytes or {compact_seconds:g} s",
                hint="Set compact=True, or compact_bytes to 1000000 or so; without them each epoch has a file. "
                "compact_seconds is above 0.",
            )
        self.directory = Path(directory)
        limits = Limits(compact_bytes or (COMPACT_BYTES if compact else 0), compact_seconds)
        self._compacts = limits.bytes > 0
        self._joined = JoinedFiles(self.directory, self.suffix, limits, self._join, private=self._private)
        self._columns: list[str] = []
        self._fenced_directory = FencedDirectory(self.directory / ".generations")

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Claim the directory for the job and remove what a crashed writer left incomplete."""
        self._columns = list(schema)
        self._fenced_directory = FencedDirectory(self.directory / ".generations")
        with _translate_errors(self.directory):
            if self._private:
                make_private(self.directory)
            self.directory.mkdir(parents=True, exist_ok=True)
            self._claim(job)
            for kind in ("epoch", "recent"):
                for staged in self.directory.glob(f".{kind}-*{self.suffix}.tmp"):
                    staged.unlink(missing_ok=True)
            self._joined.forget_removed()

    def newest_epoch(self) -> SinkEpoch | None:
        """The newest epoch in a file, or in one that a reader has taken away."""
        recent = self._read_recent()
        newest = newest_in(recent)
        with _translate_errors(self.directory):
            for first, path in self._files()[-1:]:
                listed = self._joined.epochs_in(path, path.read_bytes())
                newest = max(newest, first, *(one.epoch for one in listed))
        if newest < 0:
            return None
        return SinkEpoch(
            newest,
            digest_in(recent, newest),
            self._fenced_directory.newest_generation(),
            f"move {self.directory} away, and a new one gets the later rows",
        )

    def take_over(self, generation: int) -> None:
        """Remove what lower generations have staged, so that none of it becomes a file."""
        if generation != self._fenced_directory.generation:
            with _translate_errors(self.directory):
                self._fenced_directory.take_over(generation, reentrant=True)

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Put the epoch's file in place, unless it is there. An epoch without rows leaves no file."""
        recent = self._read_recent() if self._digest else ""
        check_same(self.describe(), recent, epoch, self._digest)
        if self._compacts or (self.directory / LISTS).exists():
            return self._write_joined(epoch, rows, recent)
        target = self.directory / f"epoch-{epoch:012d}{self.suffix}"
        if target.exists():
            with _translate_errors(self.directory):
                # the attempt that put it there may have failed just before this
                sync_directory(self.directory)
            return False
        if rows.is_empty():
            return True
        content = self._encode(reorder_columns(rows, self._columns))
        with _translate_errors(self.directory):
            self._fenced_directory.run_fenced(lambda: self._note(recent, epoch))
            self._fenced_directory.run_fenced(lambda: self._put(target, content))
            sync_directory(self.directory)
        return True

    def _write_joined(self, epoch: int, rows: pl.DataFrame, recent: str) -> bool:
        if rows.is_empty():
            return True
        content = self._encode(reorder_columns(rows, self._columns))
        fenced = self._fenced_directory
        with _translate_errors(self.directory):
            fenced.run_fenced(lambda: self._note(recent, epoch))
            return fenced.run_fenced(lambda: self._joined.add(epoch, rows.height, content, fenced.staging))

    @property
    def _recent_file(self) -> Path:
        # its name has no suffix, by which readers find files
        return self.directory / f".penstock-epochs-{self.suffix[1:]}"

    def _read_recent(self) -> str:
        """The digests of the newest epochs; those of former versions have none."""
        try:
            return self._recent_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except OSError as problem:
            raise _unwritable_error(self.directory, problem) from problem
        except UnicodeDecodeError:  # a power loss has damaged it, since it is not synced
            return ""

    def _note(self, recent: str, epoch: int) -> None:
        """Remember the epoch that is put in place next."""
        content = add_epoch(recent, epoch, self._digest)
        if content == recent:
            return
        folder = self._fenced_directory.staging or self.directory
        staged = folder / f".recent-{uuid.uuid4().hex[:8]}{self.suffix}.tmp"
        try:
            staged.write_text(content, encoding="utf-8")
            os.replace(staged, self._recent_file)
        except OSError:
            with contextlib.suppress(OSError):
                staged.unlink(missing_ok=True)
            raise

    def _put(self, target: Path, content: bytes) -> None:
        # two engines of one generation may both deliver: each stages a file of its own
        mine = f".{target.stem}-{uuid.uuid4().hex[:8]}{self.suffix}.tmp"
        staging = self._fenced_directory.staging
        staged = self.directory / f".{target.name}.tmp" if staging is None else staging / mine
        try:
            with open(staged, "wb", opener=open_private if self._private else None) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(staged, target)
        except OSError:
            with contextlib.suppress(OSError):
                staged.unlink(missing_ok=True)
            raise

    def epochs(self) -> list[int]:
        """The epochs that have rows in a file, ascending."""
        return [epoch for _, _, parts in self._contents() for epoch, _ in parts]

    @abstractmethod
    def read(self) -> pl.DataFrame:
        """All rows of all epochs, in epoch order, with a column `_epoch` before the others."""

    def describe(self) -> str:
        return f"{self.directory}/epoch-*{self.suffix}"

    @abstractmethod
    def _encode(self, rows: pl.DataFrame) -> bytes: ...

    @abstractmethod
    def _join(self, before: bytes, more: bytes) -> bytes | None:
        """One content of two; None where they have other columns."""

    def _contents(self) -> Iterator[tuple[Path, bytes, list[tuple[int, int]]]]:
        """The files with their contents, and of each its epochs with the number of their rows; -1 stands for all."""
        for first, path in self._files():
            content = path.read_bytes()
            listed = self._joined.epochs_in(path, content)
            yield path, content, [(one.epoch, one.rows) for one in listed] or [(first, -1)]

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
        files = list(self._contents())
        if not files:
            return pl.DataFrame(schema={"_epoch": pl.Int64})
        rows = pl.read_ndjson(b"".join(data for _, data, _ in files), infer_schema_length=None)
        epochs = [one for _, data, parts in files for one in _repeat(parts, data.count(b"\n"))]
        return rows.insert_column(0, pl.Series("_epoch", epochs, dtype=pl.Int64))

    def _encode(self, rows: pl.DataFrame) -> bytes:
        return to_portable(rows).write_ndjson().encode()

    def _join(self, before: bytes, more: bytes) -> bytes | None:
        return before + more


class PrivateJsonLines(JsonLines):
    """The same for what an engine writes for its own user, compacted: a file has rows of a day at most."""

    _private = True

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, compact=True, compact_seconds=86_400.0)

    def complete_files(self) -> list[Path]:
        """All files but the newest, which may grow; the oldest first."""
        return [path for _, path in self._files()[:-1]]

    def remove(self, file: Path) -> None:
        """Remove a complete file."""
        with _translate_errors(self.directory):
            self._joined.remove(file)

    def latest_rows(self, limit: int, through: int | None = None) -> list[dict[str, Any]]:
        """The rows of the epochs up to one, the latest first, each with its epoch."""
        latest: list[dict[str, Any]] = []
        for first, path in reversed(self._files()):
            if len(latest) >= limit:
                break
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # it was removed, since it was too old
                break
            parts = [(one.epoch, one.rows) for one in self._joined.epochs_in(path, content)] or [(first, -1)]
            rows = pl.read_ndjson(content, infer_schema_length=None)
            rows = rows.insert_column(0, pl.Series("epoch", _repeat(parts, rows.height), dtype=pl.Int64))
            if through is not None:
                rows = rows.filter(pl.col("epoch") <= through)
            latest += rows.reverse().head(limit - len(latest)).to_dicts()
        return latest


class Parquet(EpochFiles):
    """One Parquet file an epoch, with Arrow's own types."""

    suffix = ".parquet"

    def read(self) -> pl.DataFrame:
        """All rows; a column that some epochs lack is null there."""
        frames = []
        for _, content, parts in self._contents():
            rows = pl.read_parquet(content)
            epochs = pl.Series("_epoch", _repeat(parts, rows.height), dtype=pl.Int64)
            frames.append(rows.insert_column(0, epochs))
        if not frames:
            return pl.DataFrame(schema={"_epoch": pl.Int64})
        return pl.concat(frames, how="diagonal_relaxed")

    def _encode(self, rows: pl.DataFrame) -> bytes:
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
        return buffer.getvalue()

    def _join(self, before: bytes, more: bytes) -> bytes | None:
        first, second = pl.read_parquet(before), pl.read_parquet(more)
        return self._encode(pl.concat([first, second])) if first.schema == second.schema else None


def _repeat(parts: list[tuple[int, int]], height: int) -> list[int]:
    """The epoch of each row of a file."""
    return [epoch for epoch, rows in parts for _ in range(height if rows < 0 else rows)]


@contextlib.contextmanager
def _translate_errors(directory: Path) -> Iterator[None]:
    """Raise SINK_UNWRITABLE for errors of the file system."""
    try:
        yield
    except OSError as problem:
        raise _unwritable_error(directory, problem) from problem


def _unwritable_error(directory: Path, problem: OSError) -> ExternalError:
    return ExternalError(
        "SINK_UNWRITABLE",
        f"could not write to {directory}",
        detail=f"{problem.strerror or problem}.",
        hint="Free space or fix the permissions. The rows wait for that; RESUME the job if it has failed.",
        is_transient=is_transient(problem),
    )
