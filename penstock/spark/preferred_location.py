"""Has tasks prefer an executor: Spark runs each slice there, or elsewhere if it must.

An RDD without data has the executors of the slices as preferred locations of its partitions. Zipped with the
exchange, a slice's task has the preference of the one and the data of the other. Spark does not wait for an executor
that is gone.

The function that zips has to be Scala's own: one that returns its second argument is composed from its library.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.core.rdd import RDD

from penstock.spark.exchange import RawBytes
from penstock.state.bucket_map import ExecutorLocation

#: how many RDDs with preferences are cached
_MOST_CACHED = 8


class PreferredLocations:
    """Makes tasks prefer executors; one for each Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._jvm: Any = context._jvm
        self._any = self._jvm.scala.reflect.ClassTag.Any()
        self._second = self._second_argument()
        self._cached: dict[tuple[ExecutorLocation | None, ...], Any] = {}
        self._lock = threading.Lock()

    def partitions(self, locations: Sequence[ExecutorLocation | None]) -> RDD[bytes]:
        """A partition for each location, which prefers that executor and has one empty byte string."""
        return RDD(self._preferences(locations).toJavaRDD(), self._context, RawBytes())

    def prefer(self, stage: RDD[bytes], locations: Sequence[ExecutorLocation | None]) -> RDD[bytes]:
        """An exchange whose tasks prefer these executors."""
        part: Any = stage
        zipped = self._preferences(locations).zipPartitions(
            part._jrdd.rdd(), False, self._second, self._any, self._any
        )
        return RDD(zipped.toJavaRDD(), self._context, RawBytes())

    def _preferences(self, locations: Sequence[ExecutorLocation | None]) -> Any:
        """An RDD with these preferences, one for many epochs."""
        with self._lock:  # epochs, rehearsals and cache fills run in different threads
            cached = self._cached.get(tuple(locations))
            if cached is None:
                if len(self._cached) >= _MOST_CACHED:
                    self._cached.clear()
                cached = self._cached[tuple(locations)] = self._new(locations)
            return cached

    def _new(self, locations: Sequence[ExecutorLocation | None]) -> Any:
        seq = self._jvm.PythonUtils.toSeq
        pairs = [
            self._jvm.scala.Tuple2(bytearray(), seq([] if p is None else [f"executor_{p.host}_{p.executor}"]))
            for p in locations
        ]
        context: Any = self._context
        return context._jsc.sc().makeRDD(seq(pairs), self._any)

    def _second_argument(self) -> Any:
        """A Scala function of two arguments whose value is the second."""
        jvm, context = self._jvm, self._context
        same = getattr(jvm.scala.Predef, "$conforms")()
        maps = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$")
        # by reflection: py4j cannot distinguish overloads by what they return
        uncurried = next(
            method
            for method in jvm.java.lang.Class.forName("scala.Function").getMethods()
            if method.getName() == "uncurried" and method.getReturnType().getName() == "scala.Function2"
        )
        gateway: Any = context._gateway
        arguments = gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = maps.empty().withDefaultValue(same)
        return uncurried.invoke(None, arguments)
