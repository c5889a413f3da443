"""Writes the segment log of one stream, as its only writer, and assigns producers to partitions.

Receives frames of any producer; returns their durable positions. A commit is one group over all partitions.

    STREAM/log.json       the number of partitions, which never changes
    STREAM/p0, p1, ...    the partitions
    STREAM/readers/       up to where each reader no longer needs the log (`readers`)

Invariants: a producer always keeps its partition; a new one goes where the fewest are. One writer at a time,
by a lock. Only the owner can read what is created here.
On failure: `ExternalError` LOG_TAKEN, LOG_DAMAGED, LOG_UNWRITABLE; after LOG_UNWRITABLE the group is as if it
never was.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ExternalError
from penstock.ingest.frames import Frame
from penstock.ingest.partition import Partition, Producer
from penstock.ingest.private_directories import make_private_directory
from penstock.ingest.readers import read_floors
from penstock.ingest.segments import list_segments, segment_path
from penstock.state.durable import sync_directory, write_whole

#: the partitions of a stream: so many producers have one to themselves
PARTITIONS = 16
SEGMENT_BYTES = 64 << 20


@dataclass
class Retention:
    """How long segments are retained that some reader may still need.

    Segments that no reader needs are removed at once; the others when they are older or more than this. None: never.
    """

    keep_seconds: float | None = None
    keep_bytes: int | None = None


@dataclass(frozen=True)
class Pruned:
    """What pruning removed. `unread_bytes` are those that a known reader still needed."""

    segments: int = 0
    freed_bytes: int = 0
    unread_bytes: int = 0


class Store:
    """The writer of a stream's segment log."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = PARTITIONS,
        segment_bytes: int = SEGMENT_BYTES,
        syncing: Executor | None = None,
    ) -> None:
        self.directory = directory
        make_private_directory(directory)
        self._lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ExternalError(
                "LOG_TAKEN",
                f"another gateway writes to {directory}",
                hint="Stop it first, or give this one a directory of its own.",
            ) from None
        try:
            self.partitions = self._open_partitions(partitions, segment_bytes)
        except BaseException:
            os.close(self._lock)
            raise
        self._home = {id: one for one in self.partitions for id in one.producers}
        self._producer_counts = {one.directory: len(one.producers) for one in self.partitions}
        self._syncing = syncing or ThreadPoolExecutor(4, thread_name_prefix="sync")
        self._own_pool = syncing is None

    def _open_partitions(self, partitions: int, segment_bytes: int) -> list[Partition]:
        facts = self.directory / "log.json"
        if not facts.exists():
            write_whole(facts, json.dumps({"format": 1, "partitions": partitions}).encode())
        count = json.loads(facts.read_bytes())["partitions"]
        found = [
            Partition(self.directory / f"p{number}", segment_bytes=segment_bytes) for number in range(count)
        ]
        sync_directory(self.directory)
        sync_directory(self.directory.parent)
        return found

    @property
    def cut_bytes(self) -> int:
        """What opening cut from the ends of segments."""
        return sum(one.cut_bytes for one in self.partitions)

    @property
    def descriptors(self) -> int:
        """How many files are open: the lock, and three for each partition."""
        return 1 + 3 * len(self.partitions)

    @property
    def given_up(self) -> int:
        """Bytes that producers reported as dropped."""
        return sum(one.given_up for one in self.partitions)

    @property
    def producers(self) -> dict[str, Producer]:
        """The durable position of each producer."""
        return {id: where for one in self.partitions for id, where in one.producers.items()}

    def position(self, producer: str) -> int:
        """Return a producer's durable position: what comes from there on is new."""
        home = self._home.get(producer)
        known = home.producers.get(producer) if home else None
        return known.position if known else 0

    def expected(self, producer: str) -> int:
        """Return a producer's position after the current group."""
        home = self._home.get(producer)
        return home.expected(producer) if home else 0

    def take(self, frame: Frame, now: int) -> int:
        """Add a frame to the current group; return how many of its lines are new: none if the log has all of it."""
        home = self._home.get(frame.producer)
        if home is None:
            home = min(self.partitions, key=lambda one: self._producer_counts[one.directory])
        taken = home.take(frame, now)
        if frame.producer not in self._home:
            self._home[frame.producer] = home
            self._producer_counts[home.directory] += 1
        return taken

    def commit(self) -> None:
        """Write the group and force it to disk; then readers may see it."""
        try:
            dirty = [one for one in self.partitions if one.write()]
            if len(dirty) == 1:
                dirty[0].sync()
            else:
                list(self._syncing.map(Partition.sync, dirty))
        except OSError as error:
            for one in self.partitions:
                one.undo()
            raise ExternalError(
                "LOG_UNWRITABLE",
                f"{self.directory} cannot be written to: {error.strerror or error}",
                detail=str(error),
                hint="Free space or fix the disk; producers send again what was not acknowledged.",
            ) from error
        for one in dirty:
            one.publish()

    def prune(self, retention: Retention, now: float) -> Pruned:
        """Remove the segments that no reader needs, and those beyond the retention."""
        needed = read_floors(self.directory, now)
        sealed: list[tuple[float, int, Partition, int, bool]] = []
        total = 0
        for one in filter(lambda one: one.has_segment, self.partitions):
            firsts = list_segments(one.directory)
            for first, end in zip(firsts, [*firsts[1:], None], strict=True):
                status = segment_path(one.directory, first).stat()
                total += status.st_size
                if end is not None:
                    done = needed is not None and end <= needed.get(one.directory.name, 0)
                    sealed.append((status.st_mtime, first, one, status.st_size, done))
        segments = freed = unread = 0
        for mtime, first, one, size, done in sorted(sealed, key=lambda entry: entry[:2]):
            old = retention.keep_seconds is not None and now - mtime > retention.keep_seconds
            much = retention.keep_bytes is not None and total > retention.keep_bytes
            if done or old or much:
                one.prune(first)
                segments, freed, total = segments + 1, freed + size, total - size
                unread += size if needed is not None and not done else 0
        return Pruned(segments, freed, unread)

    def append(self, frames: Iterable[Frame], now: int = 0) -> None:
        """Take frames and commit them, for programs that fill a log without a gateway."""
        for frame in frames:
            self.take(frame, now)
        self.commit()

    def close(self) -> None:
        """Close the files and release the lock."""
        for one in self.partitions:
            one.close()
        if self._own_pool:
            self._syncing.shutdown()
        os.close(self._lock)
