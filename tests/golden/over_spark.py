"""A case over a source of Spark, whose position is in the checkpoint of Spark's side query.

The archive holds the source (a file of lines), the log that the side query made of it, and Spark's checkpoint. The test
appends the rest of the lines to the source: only a side query that continues brings each of them once.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import penstock as ps
from tests.golden.given import Given, Lines
from tests.golden.over_logs import STREAM, OverLog, Place

#: the partition that a source of Spark is as a log
ONLY = "p0"
#: how long the side query may take to bring what the source has
_SECONDS = 120.0
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import tests


class LinesOfFile(DataSource):
    """The lines of the file `path`; an offset is a number of lines."""

    @classmethod
    def name(cls) -> str:
        return "golden-lines"

    def schema(self) -> str:
        return "value STRING"

    def simpleStreamReader(self, schema: Any) -> Any:
        return _Reader(self.options["path"])


class _Reader(SimpleDataSourceStreamReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:
        return {"lines": 0}

    def read(self, start: dict[str, int]) -> Any:
        end = {"lines": len(Path(self._path).read_text().splitlines())}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:
        lines = Path(self._path).read_text().splitlines()
        return iter([(line,) for line in lines[start["lines"] : end["lines"]]])


@dataclass(frozen=True)
class _SparkPlace(Place):
    """A source, and the log that Spark makes of it."""

    folder: Path

    def append(self, lines: Lines) -> None:
        """Append to the source, and wait until the side query has brought it into the log."""
        source = self.folder / "source.txt"
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[ONLY])
        log, deadline = self.log(finished=False), time.monotonic() + _SECONDS
        log.start(None, {})
        while log.partitions({})[0].latest < source.stat().st_size:
            assert time.monotonic() < deadline, "Spark has not brought the lines in time"
            time.sleep(0.05)
        log.stopped()

    def log(self, finished: bool) -> Any:
        return ps.spark_source(
            LinesOfFile,
            {"path": str(self.folder / "source.txt")},
            directory=self.folder / "log",
            line="value",
            interval_seconds=0.05,
            available_now=finished,
        )


@dataclass(frozen=True)
class OverSpark(OverLog):
    """A source that Spark reads: one partition, whose offsets are bytes of what the side query wrote."""

    written: int = 170

    def lines(self, made: Mapping[str, Lines]) -> Mapping[str, Lines]:
        in_turn = chain.from_iterable(zip_longest(*made[STREAM].values()))
        return {STREAM: {ONLY: [line for line in in_turn if line is not None]}}

    @contextlib.contextmanager
    def place(self, folder: Path) -> Iterator[Place]:
        yield _SparkPlace(folder.resolve())

    def restore_log(self, given: Given, place: Place) -> None:
        assert Path("log/checkpoint/offsets/0").exists(), "the archive has no checkpoint of Spark"

    def planned(self, given: Given, folder: Path) -> list[object]:
        log = _SparkPlace(folder).log(finished=False)
        return super().planned(Given(given.lines, given.out, {STREAM: log}), folder)

    def lines_before(self, part: str, lines: Sequence[str], offset: int) -> int:
        return [0, *accumulate(len(line.encode()) + 1 for line in lines)].index(offset)

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        return (pytest.mark.spark,)
