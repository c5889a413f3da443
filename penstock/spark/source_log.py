"""Reads any streaming source of Spark as a log: a side query of Spark writes its micro-batches to files, the log.

    DIR/checkpoint/               the side query's own: which micro-batch has which of the source's offsets
    DIR/drafts/                   where a micro-batch is written first
    DIR/batches/000000000007/     its lines, in files, and `extent.json`: their offsets in the log

A row is a line: a JSON object, or the value of an expression.

Guarantees: a micro-batch gets its number and its offsets from Spark's checkpoint, and its directory by one rename, only
if there is none of that number. So each row of the source is in the log once, if the source can be read again (as Spark
requires of sources). Tasks on any machine that reaches the directory can read the log.
Does not guarantee the order of rows inside a micro-batch.
On failure: an `ExternalError` with Spark's message; the side query starts again with the engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ExternalError, UserError
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.textfile import boundary_near, last_boundary, next_boundary, pread
from penstock.state.durable import make_private

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_ONLY = "p0"
_JSON = (
    "to_json(struct(*), map('timeZone', 'UTC', 'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS\\'Z\\''))"
)


@dataclass(frozen=True)
class _File:
    """A file of the log: the bytes from `start` to `end`."""

    path: Path
    start: int
    end: int


class SparkSource(Log):
    """The streaming source `format` (a name, or a class of a Python data source) with its `options`.

    `directory` is where the log is kept, in reach of all machines. `select` has SQL expressions that make the
    columns; the line is a JSON object of them, or `line`, an SQL expression too. `available_now` reads what
    there is and ends; otherwise there is a micro-batch every `interval_seconds` at most. `schema` is for
    sources that require one (DDL).
    """

    unit = "bytes"

    def __init__(
        self,
        format: str | type,
        options: Mapping[str, str] | None = None,
        *,
        directory: str | os.PathLike[str],
        schema: str | None = None,
        select: Sequence[str] = (),
        line: str | None = None,
        interval_seconds: float = 1.0,
        available_now: bool = False,
    ) -> None:
        if isinstance(select, str):
            raise UserError(
                "BAD_OPTION", "select is a list of expressions", hint='As in ["id", "value * 2 AS twice"].'
            )
        self._format, self._options, self._schema = format, dict(options or {}), schema
        self._directory = Path(os.path.abspath(os.path.expanduser(directory)))
        self._select, self._line = tuple(select), line
        self._interval, self._available_now = interval_seconds, available_now
        self._leads = False
        self._query: StreamingQuery | None = None
        self._known: dict[str, list[_File]] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_query": None, "_known": {}, "_leads": False, "_format": self._name}

    @property
    def _name(self) -> str:
        return self._format if isinstance(self._format, str) else str(self._format.name())  # type: ignore[attr-defined]

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """From now on this engine runs the side query; Spark may not be started yet."""
        try:
            make_private(self._directory / "batches")
        except OSError as error:
            raise ExternalError(
                "LOG_UNWRITABLE", f"{self._directory} cannot hold a log", detail=f"{error.strerror}."
            ) from error
        self._leads = True
        return {}

    def resumed(self, memory: Mapping[str, object]) -> None:
        self._leads = False

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        ended = self._ensure_query()
        files = self._files()
        earliest, latest = (files[0].start, files[-1].end) if files else (0, 0)
        return [Partition(_ONLY, earliest, max(latest, offsets.get(_ONLY, 0)), ended)]

    def closed(self) -> bool:
        return self._available_now

    def cut(self, partition: str, start: int, units: int) -> int:
        files = self._files()
        target = start + max(units, 1)
        if not files or target >= files[-1].end:
            return max(start, files[-1].end if files else 0)
        file = files[bisect_right(files, target, key=lambda one: one.start) - 1]
        low = max(file.start, start) - file.start
        with _open(file, Span(partition, start, target)) as fd:
            found = last_boundary(fd, low, target - file.start)
            if file.start + found <= start:
                found = next_boundary(fd, target - file.start, file.end - file.start)
        return file.start + found

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        at = span.start
        for file in self._files():
            if file.end <= at or file.start >= span.end:
                continue
            if file.start > at:
                break
            with _open(file, span) as fd:
                end = min(file.end, span.end) - file.start
                while (place := at - file.start) < end:
                    stop = boundary_near(fd, place, max(chunk_bytes, 1), end)
                    yield Chunk(span.partition, at, pread(fd, stop - place, place))
                    at = file.start + stop
        if at < span.end:
            raise _gone_error(span, self._directory)

    def prune(self, offsets: Mapping[str, int]) -> None:
        """Remove batches that nobody will read again; the newest stays, and shows where the log ends."""
        for name in self._names()[:-1]:
            if self._extent(name)[-1].end <= offsets.get(_ONLY, 0):
                shutil.rmtree(self._directory / "batches" / name, ignore_errors=True)

    def stopped(self) -> None:
        if self._query is not None:
            with contextlib.suppress(Exception):  # a query that has failed raises again
                self._query.stop()
            self._query = None

    def settings(self) -> Mapping[str, object]:
        return {
            "format": self._name,
            "options": dict(self._options),
            "schema": self._schema,
            "directory": str(self._directory),
            "select": [*self._select],
            "line": self._line,
        }

    def describe(self) -> str:
        return f"spark {self._name}, kept in {self._directory}"

    # -- the side query ----------------------------------------------------------------------------

    def _ensure_query(self) -> bool:
        """Start the side query if this engine runs it and it is not running; returns whether it has ended."""
        end = self._directory / "ended"
        if end.exists():
            return True
        if not self._leads:
            return False
        if self._query is None:
            self._query = self._start_query(_session())
        if self._query.isActive:
            return False
        if problem := self._query.exception():
            self.stopped()
            raise ExternalError(
                "LOG_UNREADABLE",
                f"Spark's query on the source {self._name} has failed",
                detail=f"{str(problem).strip().splitlines()[0]}",
                hint="Fix the source or its options, then start again: it continues where it was.",
            )
        if self._available_now:
            end.touch()
        return self._available_now

    def _start_query(self, spark: SparkSession) -> StreamingQuery:
        if not isinstance(self._format, str):
            spark.dataSource.register(self._format)
        reader = spark.readStream.format(self._name).options(**self._options)
        if self._schema is not None:
            reader = reader.schema(self._schema)
        try:
            rows = reader.load()
            rows = rows.selectExpr(*self._select) if self._select else rows
            line = _JSON if self._line is None else f"regexp_replace({self._line}, '[\\\\r\\\\n]+', ' ')"
            lines = rows.selectExpr(f"{line} AS value")
            writer = lines.writeStream.foreachBatch(self._append)
            writer = writer.option("checkpointLocation", (self._directory / "checkpoint").as_uri())
            every = f"{max(1, round(self._interval * 1000))} milliseconds"
            writer = (
                writer.trigger(availableNow=True)
                if self._available_now
                else writer.trigger(processingTime=every)
            )
            return writer.start()
        except Exception as problem:
            raise ExternalError(
                "LOG_UNREADABLE",
                f"Spark cannot read the source {self._name}",
                detail=str(problem).strip().splitlines()[0],
                hint="Check its name, its options and the expressions; its package must be among Spark's jars.",
            ) from problem

    def _append(self, lines: DataFrame, batch: int) -> None:
        """Put a micro-batch in place, unless it or a later one is there."""
        names = self._names()
        if names and int(names[-1]) >= batch:
            return
        start = self._extent(names[-1])[-1].end if names else 0
        temporary = self._directory / "drafts" / f"{batch:012d}"
        shutil.rmtree(temporary, ignore_errors=True)
        lines.write.mode("overwrite").text(temporary.as_uri())
        parts = sorted(path for path in temporary.glob("part-*") if path.stat().st_size)
        if parts:
            for path in parts:
                _sync(path)
            extent = {"start": start, "files": [[path.name, path.stat().st_size] for path in parts]}
            (temporary / "extent.json").write_text(json.dumps(extent))
            _sync(temporary / "extent.json")
            _sync(temporary)
            os.rename(temporary, self._directory / "batches" / temporary.name)
            _sync(self._directory / "batches")
        shutil.rmtree(temporary, ignore_errors=True)

    # -- the files ---------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._directory / "batches") if name.isdigit())
        except FileNotFoundError:
            return []

    def _files(self) -> list[_File]:
        names = self._names()
        self._known = {name: self._extent(name) for name in names}
        return [file for name in names for file in self._known[name]]

    def _extent(self, name: str) -> list[_File]:
        if name in self._known:
            return self._known[name]
        folder = self._directory / "batches" / name
        try:
            extent: dict[str, Any] = json.loads((folder / "extent.json").read_text())
        except FileNotFoundError:  # being pruned
            return []
        files, at = [], int(extent["start"])
        for file, size in extent["files"]:
            files.append(_File(folder / file, at, at + size))
            at += size
        return files


def _session() -> SparkSession:
    """The session of the engine; one of its own where the engine has none."""
    from pyspark.sql import SparkSession

    from penstock.settings import Settings
    from penstock.spark.session import session

    return SparkSession.getActiveSession() or session(Settings(master="local[2]"))


@contextlib.contextmanager
def _open(file: _File, span: Span) -> Iterator[int]:
    try:
        fd = os.open(file.path, os.O_RDONLY)
    except FileNotFoundError:
        raise _gone_error(span, file.path.parents[2]) from None
    try:
        yield fd
    finally:
        os.close(fd)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _gone_error(span: Span, directory: Path) -> ExternalError:
    return ExternalError(
        "LOG_SPAN_GONE",
        "a part of the log of a Spark source that is still needed is not there",
        where=f"{directory}, partition {span.partition}, bytes {span.start} to {span.end}",
        hint="Put it back from a copy, or start afresh with --fresh and another directory.",
    )
