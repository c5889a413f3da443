"""Cases over logs that others write meanwhile: a gateway's segment log, streams of Redis, a topic of Kafka."""

from __future__ import annotations

import contextlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.testing import kafka_cluster, redis_server
from tests.golden import archive, lives
from tests.golden.case import Case
from tests.golden.given import BEGIN, Given, Lines

#: the stream whose log it is
STREAM = "events"


class Place(ABC):
    """Where a log lies, for whoever writes it."""

    @abstractmethod
    def append(self, lines: Lines) -> None:
        """Put more lines into the partitions."""

    @abstractmethod
    def log(self, finished: bool) -> Any:
        """The log, as a query names it."""


@dataclass(frozen=True)
class OverLog(Case, ABC):
    """A case over a log that grows. At the cut it holds lines that were not read yet; others come later, and in the end
    it is finished.
    """

    #: how many lines of each partition are there at the cut
    written: int = 85

    def lines(self, made: Mapping[str, Lines]) -> Mapping[str, Lines]:
        return {STREAM: made[STREAM]}

    @abstractmethod
    def place(self, folder: Path) -> contextlib.AbstractContextManager[Place]:
        """The place of a log: of the one in a folder, or an empty one."""

    def restore_log(self, given: Given, place: Place) -> None:
        """Bring what was in the log at the cut to an empty place, where the archive does not hold it."""
        place.append(self._part(given, 0, self.written))

    @abstractmethod
    def lines_before(self, part: str, lines: Sequence[str], offset: int) -> int:
        """How many lines of a partition come before an offset."""

    def partition(self, part: str) -> str:
        """What the log calls a partition."""
        return part

    def first(self, given: Given, folder: Path) -> None:
        with self.place(folder) as place:
            place.append(self._part(given, 0, self.written))
            super().first(_over(given, place, finished=False), folder)

    def whole(self, given: Given, folder: Path) -> None:
        with self.place(folder) as place:
            place.append(given.lines[STREAM])
            super().whole(_over(given, place, finished=True), folder)

    def rest(self, given: Given, folder: Path) -> None:
        with self.place(folder) as place:
            self.restore_log(given, place)
            super().rest(_over(given, place, finished=False), folder)
            place.append(self._part(given, self.written, None))
            super().rest(_over(given, place, finished=True), folder)

    def facts(self, folder: Path) -> dict[str, Any]:
        reached = archive.offsets(folder / "state", archive.newest_record(folder / "state"))[STREAM]
        parts = archive.read_lines(folder)[STREAM]
        read = {
            part: self.lines_before(part, lines, reached[self.partition(part)])
            for part, lines in parts.items()
        }
        assert max(read.values()) < self.written, "the log holds nothing that was not read"
        return {"reached": reached, "offsets": {STREAM: read}}

    @staticmethod
    def _part(given: Given, start: int, end: int | None) -> Lines:
        return {part: lines[start:end] for part, lines in given.lines[STREAM].items()}


def _over(given: Given, place: Place, *, finished: bool) -> Given:
    return replace(given, logs={STREAM: place.log(finished)})


# -- segment logs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SegmentPlace(Place):
    """Directories of segment logs: of one, or of copies with frames of other lengths."""

    names: Sequence[str]

    def append(self, lines: Lines) -> None:
        for number, name in enumerate(self.names):
            lives.append_segments(Path(name), lines, 6 + 3 * number)

    def log(self, finished: bool) -> Any:
        if len(self.names) == 1:
            return ps.segments(self.names[0], finished=finished)
        return ps.replicated(*(ps.segments_by_producer(name, finished=finished) for name in self.names))


@dataclass(frozen=True)
class Segments(OverLog):
    """A segment log, or two copies of one that are read by producer. The archive holds it, without the segments that
    were read before the cut; the code of today appends to it.
    """

    names: Sequence[str] = ("log/events",)

    @contextlib.contextmanager
    def place(self, folder: Path) -> Iterator[Place]:
        yield _SegmentPlace(self.names)

    def planned(self, given: Given, folder: Path) -> list[object]:
        return super().planned(_over(given, _SegmentPlace(self.names), finished=False), folder)

    def first(self, given: Given, folder: Path) -> None:
        super().first(given, folder)
        for name in self.names:
            assert lives.prune_segments(Path(name)), "no segment was read to its end"

    def restore_log(self, given: Given, place: Place) -> None:
        assert len(self._readers()) == len(self.names)

    def rest(self, given: Given, folder: Path) -> None:
        before = self._readers()
        super().rest(given, folder)
        assert self._readers() == before, "it read on as the reader that it was"

    def _readers(self) -> list[Path]:
        return sorted(path for name in self.names for path in Path(name).glob("readers/[!.]*.json"))

    def lines_before(self, part: str, lines: Sequence[str], offset: int) -> int:
        return [0, *accumulate(len(line.encode()) + 1 for line in lines)].index(offset)


# -- Redis ---------------------------------------------------------------------------------------


class _RedisPlace(Place):
    """The streams of a server. The same line always has the same id; up to three have the same time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._count: dict[str, int] = {}

    def append(self, lines: Lines) -> None:
        import redis

        with redis.Redis.from_url(self._address) as server:
            for part, held in lines.items():
                for line in held:
                    number = self._count.get(part, 0)
                    self._count[part] = number + 1
                    server.xadd(_key(part), {"line": line}, id=_id(number))

    def log(self, finished: bool) -> Any:
        return ps.redis(self._address, [_key("p0"), _key("p1")], field="line", finished=finished)


def _key(part: str) -> str:
    return f"golden:{part}"


def _id(number: int) -> str:
    return f"{int(BEGIN.timestamp() * 1000) + number // 3 * 250}-{number % 3 + 1}"


@dataclass(frozen=True)
class Redis(OverLog):
    """Streams of a real server. The test puts the entries of the cut there again, by their ids."""

    @contextlib.contextmanager
    def place(self, folder: Path) -> Iterator[Place]:
        with tempfile.TemporaryDirectory(prefix="golden-redis-") as elsewhere:
            server = redis_server.RedisServer(Path(elsewhere))
            server.start()
            try:
                yield _RedisPlace(server.address)
            finally:
                server.stop()

    def planned(self, given: Given, folder: Path) -> list[object]:
        return super().planned(_over(given, _RedisPlace("redis://nowhere"), finished=False), folder)

    def why_not(self) -> str | None:
        return redis_server.why_not()

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        return (pytest.mark.process,)

    def partition(self, part: str) -> str:
        return _key(part)

    def lines_before(self, part: str, lines: Sequence[str], offset: int) -> int:
        times = [(number, *map(int, _id(number).split("-"))) for number in range(len(lines))]
        return sum(ms << 20 | sequence < offset for _, ms, sequence in times)


# -- Kafka ---------------------------------------------------------------------------------------


@cache
def _cluster() -> kafka_cluster.KafkaCluster:
    return kafka_cluster.KafkaCluster()


@dataclass(frozen=True)
class _KafkaPlace(Place):
    """A topic with two partitions."""

    brokers: str
    topic: str

    def append(self, lines: Lines) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.brokers, "log_level": "2", "linger.ms": "5"})
        for part, held in lines.items():
            for line in held:
                producer.produce(self.topic, line.encode(), partition=int(part[1:]))
        assert producer.flush(60) == 0

    def log(self, finished: bool) -> Any:
        return ps.kafka(self.brokers, self.topic, finished=finished)


@dataclass(frozen=True)
class Kafka(OverLog):
    """A topic of real brokers or of librdkafka's mock of them. The test puts the records of the cut into a new one."""

    @contextlib.contextmanager
    def place(self, folder: Path) -> Iterator[Place]:
        yield _KafkaPlace(_cluster().brokers, _cluster().topic(2))

    def planned(self, given: Given, folder: Path) -> list[object]:
        return super().planned(_over(given, _KafkaPlace("nowhere", "golden"), finished=False), folder)

    def why_not(self) -> str | None:
        return kafka_cluster.why_not()

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        return (pytest.mark.process,)

    def lines_before(self, part: str, lines: Sequence[str], offset: int) -> int:
        return offset
