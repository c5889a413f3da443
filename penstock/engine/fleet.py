"""The executors of a running application, as the elastic loop's end needs them: who is there, more of them, fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.engine.collect import Worker
from penstock.spark.executors import Executors
from penstock.state.bucket_map import ExecutorLocation


class Cluster(Protocol):
    """The executors of a Spark application, live."""

    def workers(self) -> Mapping[str, tuple[Worker, ExecutorLocation]]:
        """Those that are there."""

    def request(self, total: int) -> bool:
        """Have so many; False if the cluster manager would not hear of it. One that dies is replaced unasked."""

    def retire(self, executors: Sequence[str]) -> None:
        """Let these go, once what they work on is done; they are not replaced."""


class SparkFleet:
    """A `Cluster` of Spark's."""

    def __init__(self, executors: Executors) -> None:
        self._executors = executors

    def workers(self) -> Mapping[str, tuple[Worker, ExecutorLocation]]:
        return {
            one.id: (Worker(one.id, one.cores), ExecutorLocation(one.host, one.id))
            for one in self._executors.staying()
        }

    def request(self, total: int) -> bool:
        return self._executors.request(total)

    def retire(self, executors: Sequence[str]) -> None:
        self._executors.retire(executors)
