"""A streaming query that waits for an engine: started by who stands by, so that its first epoch begins at once.

Receives a Spark session; hands a running query to the engine that comes to lead.

Starting a query of Spark's takes one to two seconds, most of it a Python process for its source. Here that is done
before anybody waits. Spark's checkpoint of such a query is of no use to anyone but itself and goes with it: what an
epoch consists of is in the unit's book.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.admission import Admission, Offset
from penstock.engine.desk import SourceDesk
from penstock.engine.source import FORMAT

#: it saves a second or two: for longer nobody waits for it, and an engine stands by without
_PATIENCE_SECONDS, _LOOK_SECONDS = 15.0, 0.1


class WaitingQuery:
    """A query that has run an empty batch, and waits."""

    def __init__(self, spark: SparkSession) -> None:
        self._folder = tempfile.mkdtemp(prefix="penstock-waiting-")
        self.desk = SourceDesk()
        self._begun = threading.Event()
        self._each: Callable[[int, Offset, Offset], None] | None = None
        rows = spark.readStream.format(FORMAT).option("socket", self.desk.path).load()
        writer = rows.writeStream.foreachBatch(self._batch)
        self.query: StreamingQuery = writer.option("checkpointLocation", self._folder).start()

    def ready(self) -> bool:
        """Wait until it has run its empty batch; whether it has. One that has not is discarded."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self._begun.wait(_LOOK_SECONDS) and self.alive and time.monotonic() < until:
            pass
        if self._begun.is_set() and self.alive:
            return True
        self.discard()
        return False

    @property
    def alive(self) -> bool:
        """Whether it still waits; Spark may have given it up."""
        return bool(self.query.isActive)

    def take_over(
        self, admission: Admission, reached: Offset, each: Callable[[int, Offset, Offset], None]
    ) -> StreamingQuery:
        """Have epochs from now on, after an offset; `each` is told every one that Spark has planned."""
        self._each = each
        self.desk.take_over(admission, reached)
        return self.query

    def discard(self) -> None:
        """End it: no engine comes for it."""
        self.query.stop()
        self.close()

    def close(self) -> None:
        """Let go of what it has on disk; its query has ended."""
        self.desk.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _batch(self, _: DataFrame, __: int) -> None:
        planned = self.desk.planned
        if self._each is None or planned is None:
            self._begun.set()
        else:
            self._each(planned[1]["epoch"], *planned)
