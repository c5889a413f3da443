"""Tasks that prefer an executor: Spark is told where each slice should run, and runs it elsewhere if it must.

Receives places by slice; hands an RDD whose partitions have them for their preferred locations, and puts it to the
exchange's: zipped with it, a slice's task takes the preference of the one and the data of the other. An executor that
is not there is not waited for.

The function that zips has to be Scala's own: one that hands on its second argument is put together from its library.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.core.rdd import RDD

from penstock.spark.exchange import RawBytes
from penstock.state.bucket_map import ExecutorLocation

#: so many arrangements are kept at hand
_KEPT = 8


class PreferredLocations:
    """What makes tasks prefer executors; one a Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._jvm: Any = context._jvm
        self._any = self._jvm.scala.reflect.ClassTag.Any()
        self._second = self._second_argument()
        self._kept: dict[tuple[ExecutorLocation | None, ...], Any] = {}
        self._lock = threading.Lock()

    def partitions(self, places: Sequence[ExecutorLocation | None]) -> RDD[bytes]:
        """A partition a place, which prefers to be worked on there; each has one empty byte string."""
        return RDD(self._made(places).toJavaRDD(), self._context, RawBytes())

    def prefer(self, stage: RDD[bytes], places: Sequence[ExecutorLocation | None]) -> RDD[bytes]:
        """What an exchange hands on, with the tasks that take it at these places."""
        part: Any = stage
        zipped = self._made(places).zipPartitions(part._jrdd.rdd(), False, self._second, self._any, self._any)
        return RDD(zipped.toJavaRDD(), self._context, RawBytes())

    def _made(self, places: Sequence[ExecutorLocation | None]) -> Any:
        """An RDD with these preferences, made once for many epochs."""
        with self._lock:  # epochs, greetings and warm-ups are of different threads
            found = self._kept.get(tuple(places))
            if found is None:
                if len(self._kept) >= _KEPT:
                    self._kept.clear()
                found = self._kept[tuple(places)] = self._new(places)
            return found

    def _new(self, places: Sequence[ExecutorLocation | None]) -> Any:
        seq = self._jvm.PythonUtils.toSeq
        pairs = [
            self._jvm.scala.Tuple2(bytearray(), seq([] if p is None else [f"executor_{p.host}_{p.executor}"]))
            for p in places
        ]
        context: Any = self._context
        return context._jsc.sc().makeRDD(seq(pairs), self._any)

    def _second_argument(self) -> Any:
        """A Scala function of two arguments whose value is the second."""
        jvm, context = self._jvm, self._context
        same = getattr(jvm.scala.Predef, "$conforms")()
        maps = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$")
        # by reflection: py4j cannot tell overloads apart by what they return
        uncurried = next(
            method
            for method in jvm.java.lang.Class.forName("scala.Function").getMethods()
            if method.getName() == "uncurried" and method.getReturnType().getName() == "scala.Function2"
        )
        gateway: Any = context._gateway
        arguments = gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = maps.empty().withDefaultValue(same)
        return uncurried.invoke(None, arguments)
