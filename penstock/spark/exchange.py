"""Exchanges messages between slices: Spark's shuffle moves byte strings from one stage's tasks to the next stage's.

It uses Spark's Python shuffle directly (the machinery under `RDD.partitionBy`) without pickling: the payloads
are Arrow already, and the JVM only carries them. See docs/decisions/0002 for the measurement against
`mapInArrow` and `repartitionById`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import IO, Any

from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.serializers import Serializer, SpecialLengths

_LENGTH = struct.Struct("!i")


class RawBytes(Serializer):
    """Serializes byte strings, each with its length before it; nothing is copied twice."""

    def dump_stream(self, iterator: Iterable[bytes], stream: IO[bytes]) -> None:
        for item in iterator:
            stream.write(_LENGTH.pack(len(item)))
            stream.write(item)

    def load_stream(self, stream: IO[bytes]) -> Iterator[bytes]:
        while True:
            prefix = stream.read(4)
            if len(prefix) < 4:
                return
            (length,) = _LENGTH.unpack(prefix)
            if length == SpecialLengths.END_OF_DATA_SECTION:
                return
            yield stream.read(length)

    def __repr__(self) -> str:
        return "RawBytes()"


def exchange(context: SparkContext, addressed: RDD[Any], slices: int) -> RDD[bytes]:
    """Send every (slice, bytes) to the task of its slice: an RDD with one partition for each slice."""

    def flat(_: int, pairs: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        for slice_, data in pairs:
            yield struct.pack("!q", slice_)
            yield data

    keyed: Any = addressed.mapPartitionsWithIndex(flat, preservesPartitioning=True)
    keyed._bypass_serializer = True
    jvm: Any = context._jvm
    pairs = jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    shuffled = pairs.partitionBy(jvm.PythonPartitioner(slices, 0))
    return RDD(jvm.PythonRDD.valueOfPair(shuffled), context, RawBytes())
