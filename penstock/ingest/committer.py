"""Commits groups: writes the frames of many connections to disk together and acknowledges them together.

Receives frames from the event loop; sends each sender its durable position, or the error.

One thread does all that touches the logs. While it forces one group to disk the next one gathers; a group waits
at most `gather_seconds` for more frames. The gateway bounds what waits in memory (`waiting_bytes`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from penstock.errors import ExternalError, PenstockError
from penstock.ingest.frames import Frame
from penstock.ingest.store import Pruned, Retention, Store


class CommittedFrame(NamedTuple):
    """A frame that is on disk: its producer's durable position, and how many of its lines were new."""

    position: int
    lines: int


FrameOutcome = CommittedFrame | PenstockError
T = TypeVar("T")


@dataclass(slots=True)
class _QueuedFrame:
    """A frame on its way to disk; `anywhere`: at whatever position its producer is by then."""

    sender: Hashable
    stream: str
    frame: Frame
    on_outcome: Callable[[FrameOutcome], None]
    anywhere: bool
    #: its lines that are new, as far as is known
    lines: int = 0


class Committer:
    """Writes to the logs of all streams below a directory."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int,
        segment_bytes: int,
        gather_seconds: float,
        most_streams: int = 256,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._partitions, self._segment_bytes = partitions, segment_bytes
        self._gather_seconds = gather_seconds
        self._most_streams = most_streams
        self._clock = clock
        self._stores: dict[str, Store] = {}
        self._queue: list[_QueuedFrame] = []
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._syncing = ThreadPoolExecutor(4, thread_name_prefix="sync")
        #: bytes that wait to be written
        self.waiting_bytes = 0
        #: frames and lines that are on disk
        self.groups = self.frames = self.lines = self.duplicates = 0

    def submit(
        self,
        sender: Hashable,
        stream: str,
        frame: Frame,
        on_outcome: Callable[[FrameOutcome], None],
        *,
        anywhere: bool = False,
    ) -> None:
        """Take a frame; `on_outcome` is called in the event loop."""
        self._queue.append(_QueuedFrame(sender, stream, frame, on_outcome, anywhere))
        self.waiting_bytes += len(frame.payload)
        self._wake.set()

    def has_log(self, stream: str) -> bool:
        """Whether there is a log of a stream."""
        return stream in self._stores

    @property
    def descriptors(self) -> int:
        """How many files are open."""
        return sum(store.descriptors for store in list(self._stores.values()))

    async def position(self, stream: str, producer: str) -> int:
        """Return a producer's durable position."""
        return await self._in_thread(lambda: self._store(stream).position(producer))

    async def prune(self, retention: Retention) -> dict[str, Pruned]:
        """Remove the segments that no reader needs from all streams."""
        now = self._clock()
        return await self._in_thread(
            lambda: {name: store.prune(retention, now) for name, store in self._stores.items()}
        )

    async def open_all(self) -> dict[str, int]:
        """Open the existing logs; return how many bytes were cut from the end of each."""

        def open_stores() -> dict[str, int]:
            found = sorted(path.parent.name for path in self._directory.glob("*/log.json"))
            return {name: self._store(name).cut_bytes for name in found}

        return await self._in_thread(open_stores)

    async def run(self, on_commit: Callable[[], None]) -> None:
        """Commit groups for ever; call `on_commit` after each."""
        while True:
            await self._wake.wait()
            if self._gather_seconds:
                await asyncio.sleep(self._gather_seconds)
            self._wake.clear()
            group, self._queue = self._queue, []
            outcomes = await self._in_thread(lambda group=group: self._commit(group))  # type: ignore[misc]
            self.waiting_bytes -= sum(len(one.frame.payload) for one in group)
            self.groups += 1
            for one, outcome in zip(group, outcomes, strict=True):
                one.on_outcome(outcome)
            on_commit()

    async def close(self) -> None:
        """Close the logs."""

        def close_stores() -> None:
            for store in self._stores.values():
                store.close()

        await self._in_thread(close_stores)
        self._thread.shutdown()
        self._syncing.shutdown()

    def collect_metrics(self) -> dict[str, object]:
        """Collect the counters."""
        return {
            "groups": self.groups,
            "frames": self.frames,
            "lines": self.lines,
            "duplicate_frames": self.duplicates,
            "waiting_bytes": self.waiting_bytes,
            "streams": {
                name: {
                    "producers": len(store.producers),
                    "given_up_bytes": store.given_up,
                    "latest": {
                        one.directory.name: one.committed.latest
                        for one in store.partitions
                        if one.has_segment
                    },
                }
                for name, store in list(self._stores.items())
            },
        }

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _store(self, name: str) -> Store:
        store = self._stores.get(name)
        if store is None:
            if len(self._stores) >= self._most_streams:
                raise ExternalError("TOO_MANY_STREAMS", f"there are {len(self._stores)} streams already")
            try:
                store = self._stores[name] = Store(
                    self._directory / name,
                    partitions=self._partitions,
                    segment_bytes=self._segment_bytes,
                    syncing=self._syncing,
                )
            except OSError as error:
                raise ExternalError(
                    "LOG_UNWRITABLE",
                    f"the log of {name} cannot be opened: {error.strerror or error}",
                    detail=str(error),
                ) from error
        return store

    def _commit(self, group: list[_QueuedFrame]) -> list[FrameOutcome]:
        """Write a group. After a frame that is refused, all later frames of its sender are refused too."""
        now = int(self._clock() * 1e6)
        refused: dict[Hashable, PenstockError] = {}
        dirty: dict[str, Store] = {}
        for one in group:
            if one.sender in refused:
                continue
            try:
                store = dirty[one.stream] = self._store(one.stream)
                if one.anywhere:
                    one.frame = replace(one.frame, first=store.expected(one.frame.producer))
                one.lines = store.take(one.frame, now)
            except PenstockError as error:
                refused[one.sender] = error
        failed: dict[str, PenstockError] = {}
        for name, store in dirty.items():
            try:
                store.commit()
            except PenstockError as error:
                failed[name] = error
        return [refused.get(one.sender) or failed.get(one.stream) or self._count_frame(one) for one in group]

    def _count_frame(self, one: _QueuedFrame) -> CommittedFrame:
        """Count a frame that is on disk."""
        if one.lines:
            self.frames += 1
            self.lines += one.lines
        else:
            self.duplicates += 1
        return CommittedFrame(self._stores[one.stream].position(one.frame.producer), one.lines)
