"""A log made of lists of lines, for tests of queries. Its offsets count records."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, SupportsIndex
from weakref import WeakValueDictionary

from penstock.logs.contract import Chunk, Log, Partition, Span


class ListLog(Log):
    """Lines in memory: `ListLog(["a", "b"])` or `ListLog({"p0": [...], "p1": [...]})`.

    `finished=False` leaves the partitions open, as a log that may still grow.
    """

    unit = "records"
    #: the logs of this process by their keys, so that an unpickled one has the lines added since
    _here: ClassVar[WeakValueDictionary[str, ListLog]] = WeakValueDictionary()

    def __init__(self, lines: Sequence[str] | Mapping[str, Sequence[str]], *, finished: bool = True) -> None:
        parts = dict(lines) if isinstance(lines, Mapping) else {"p0": lines}
        self._lines = {name: list(part) for name, part in parts.items()}
        self._finished = finished
        self._key = uuid.uuid4().hex
        self._here[self._key] = self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _unpickle, (self._key, type(self), self.__dict__)

    def add(self, partition: str, *lines: str) -> None:
        """Append to a partition, or start a new one."""
        self._lines.setdefault(partition, []).extend(lines)

    def finish(self) -> None:
        """Close all partitions: no more lines follow."""
        self._finished = True

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        return [Partition(name, 0, len(lines), self._finished) for name, lines in self._lines.items()]

    def closed(self) -> bool:
        return self._finished

    def cut(self, partition: str, start: int, units: int) -> int:
        return min(len(self._lines[partition]), start + max(1, units))

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        lines, at = self._lines[span.partition], span.start
        while at < span.end:
            stop, size = at, 0
            while stop < span.end and (size == 0 or size < chunk_bytes):
                size += len(lines[stop]) + 1
                stop += 1
            data = "".join(f"{line}\n" for line in lines[at:stop]).encode("utf-8", "surrogateescape")
            yield Chunk(span.partition, at, data)
            at = stop

    def settings(self) -> Mapping[str, object]:
        return {"object": id(self)}  # two lists with the same lines now may differ later

    def describe(self) -> str:
        return f"{sum(map(len, self._lines.values()))} lines in {len(self._lines)} lists"


def _unpickle(key: str, kind: type[ListLog], state: dict[str, Any]) -> ListLog:
    """The log itself in its own process, a copy in any other."""
    if (here := ListLog._here.get(key)) is not None:
        return here
    copy = kind.__new__(kind)
    copy.__dict__.update(state)
    return copy
