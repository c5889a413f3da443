"""Click patterns in plain PySpark: the last pages of each session kept by `transformWithState`, in both forms.

Both forms run over the same data sets.

In the peers' favour, since it is less than Penstock does: all servers rotate at the same
instants and a trigger takes whole rotations, so it is enough to sort a session's events inside a trigger; nothing
waits for the watermark. The counts of the patterns are kept by the driver, not in checkpointed state.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.dataset import Dataset
from bench.outcome import AnswerRows, Outcome
from bench.pyspark_session import ROCKSDB, lines, parse_lines, peer_session, run_to_end
from bench.reference import TOP

#: rotations a trigger takes: 300,000 events; the more events a session has in a trigger, the better for the peer
_ROTATIONS = 3
_PAGES = 3
_NEEDED = ("pandas", "google.protobuf")
_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    # the place of a line in its file is needed for a total order; Spark has it, but refuses it in streams
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    # a file must not be cut, or positions in it would start again
    "spark.sql.files.openCostInBytes": str(64 << 20),
}


def missing() -> list[str]:
    """The packages that `transformWithState` needs and that are not installed here."""
    return [name for name in _NEEDED if not _installed(name)]


def runs(form: str, datasets: list[Dataset], place: Path) -> list[Outcome]:
    """The query over each data set in turn, in one session; the first ones warm it up for the last."""
    spark = peer_session(_SETTINGS)
    return [patterns(spark, form, dataset, place / str(number)) for number, dataset in enumerate(datasets)]


def patterns(spark: SparkSession, form: str, dataset: Dataset, checkpoint: Path) -> Outcome:
    """One run over a data set. `form` is the method: transformWithState or transformWithStateInPandas."""
    name = F.col("_metadata.file_name")
    server = F.substring_index(F.substring_index(name, "-p", -1), ".", 1).cast("long")
    place = (server * (1 << 40) + F.monotonically_increasing_id() % (1 << 33)).alias("place")
    text = lines(spark, dataset, _ROTATIONS).select("value", place)
    events = parse_lines(text, "place").select(
        "session", F.unix_timestamp("time").alias("time"), "place", "path"
    )
    by_session = events.groupBy("session")
    if form == "transformWithState":
        found = by_session.transformWithState(LastPages(), "pattern string", "Append", "None")
    else:
        found = by_session.transformWithStateInPandas(LastPagesInPandas(), "pattern string", "Append", "None")
    totals: Counter[str] = Counter()

    def each(batch: DataFrame, _: int) -> None:
        counted = batch.groupBy("pattern").count().toArrow()
        totals.update(dict(zip(*(column.to_pylist() for column in counted.columns), strict=True)))

    def answer() -> AnswerRows:
        best = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:TOP]
        return [[rank, pattern, count] for rank, (pattern, count) in enumerate(best, 1)]

    return run_to_end(found, each, answer, dataset, checkpoint)


class LastPages(StatefulProcessor):
    """Keeps the last pages of a session in a list state; gets rows one by one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getListState("last", "path string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        ordered = [path for _, _, path in sorted((row.time, row.place, row.path) for row in rows)]
        for pattern in self._patterns(ordered):
            yield Row(pattern=pattern)

    def _patterns(self, ordered: list[str]) -> Iterable[str]:
        """The patterns that end in one of these pages; the last pages go to the state."""
        pages = [path for (path,) in self._last.get()] + ordered
        self._last.put([(path,) for path in pages[-(_PAGES - 1) :]])
        return [" > ".join(pages[at : at + _PAGES]) for at in range(len(pages) - _PAGES + 1)]

    def close(self) -> None:
        pass


class LastPagesInPandas(LastPages):
    """The same with pandas frames."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd  # type: ignore[import-untyped, unused-ignore] # an extra, for this peer alone

        ordered = pd.concat(rows).sort_values(["time", "place"])["path"].tolist()
        yield pd.DataFrame({"pattern": self._patterns(ordered)}, dtype="object")


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False
