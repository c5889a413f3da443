"""Reads several copies of a log as one: in each epoch a partition is read from one copy, which all replicas have.

`set_reports` receives what the other engines of a unit reach of the copies; `reach` reports what this one reaches.

Requirements on the copies: a partition has the same records at the same offsets in each of them, as far as a copy
reaches. The order in which records arrived, the order between partitions, and how far each copy is, do not matter.
Partitions are the same if their `common_name` is.

Invariants:
- Offsets mean the same in every copy, so that a change of copy leaves nothing out and repeats nothing.
- The epoch record names the copy that a span is read from. If that is lost, another that has the span reads the same.
- A copy that cannot be reached, lags, or no longer has what comes next is skipped; if none is left, the log waits.
- A partition does not start without its first records while a copy is unreachable that may have them (see
  `late_starts`).
- The leader waits for an engine that lacks what the others have, and skips it after a while (see `stragglers`).
On failure: `ExternalError` of the copies when none can be reached; `UserError` COPIES_DIFFER where copies turn out to
differ, COPIES_ALIKE where partitions of one cannot be distinguished.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeVar

from penstock.errors import ExternalError, UserError
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.copy_checks import Namesakes, behind_error, check_ends, difference_error
from penstock.logs.copy_choice import Choice, Extent, choose_copy
from penstock.logs.late_starts import LateStarts
from penstock.logs.stragglers import PATIENCE_SECONDS, Stragglers

#: how often a copy that has not come so far yet is tried again, in seconds
_AGAIN_SECONDS = 0.1
#: how much of the span before a change of copy is compared between the two, in bytes
_COMPARED_BYTES = 1 << 20

#: what only the leader needs; tasks read without it
_LEADER_STATE = frozenset(
    {"_cuts", "_others", "_blind", "_stragglers", "_namesakes", "_late_starts", "_broken"}
    | {"away", "withheld", "started_late"}
)

_T = TypeVar("_T")
#: what one engine reaches: partition, copy, its extent
Reach = dict[str, dict[int, Extent]]


# over 25 methods: the contract of logs has 14, and the others share ids, routes and failures of the copies
class ReplicatedLog(Log):
    """Several logs with the same events: `replicated(segments_by_producer("a/s"), segments_by_producer("b/s"))`."""

    #: how long to wait, in seconds, for a span that only a lost copy had, and for the first records of a partition that
    #: only an unreachable copy may have
    patience_seconds = 30.0

    def __init__(self, *copies: Log) -> None:
        if len(copies) < 2 or len({(copy.unit, copy.dense) for copy in copies}) > 1:
            raise UserError(
                "COPIES_DIFFER",
                "a replicated log is made of two or more logs of one kind",
                hint="Give copies whose offsets count the same: of files, of producers, or of records.",
            )
        self._copies: Sequence[Log] = copies
        self.unit, self.dense = copies[0].unit, copies[0].dense
        #: per copy, the id there of each partition
        self._ids: list[dict[str, str]] = [{} for _ in copies]
        self._routes: dict[str, Choice] = {}
        self.clock: Callable[[], float] = time.monotonic
        self._reset_decisions()

    def _reset_decisions(self) -> None:
        """Reset what only the leader needs."""
        #: per partition, the last span that was cut, and from which copy
        self._cuts: dict[str, Span] = {}
        #: what the other engines reach, by their names
        self._others: Mapping[str, Reach] = {}
        self._blind: Sequence[str] = ()
        self._stragglers, self._namesakes = Stragglers(), Namesakes(self._get_known_name)
        self._late_starts = LateStarts()
        #: per copy, the partitions of which it will never have what comes next, and why
        self._broken: dict[int, Mapping[str, ExternalError]] = {}
        #: copies that cannot be reached now, and why
        self.away: dict[int, str] = {}
        self.withheld: frozenset[str] = frozenset()
        self.started_late: frozenset[str] = frozenset()

    @property
    def unit_bytes(self) -> int:
        return self._copies[0].unit_bytes

    def units(self, partition: str, start: int, end: int) -> int:
        copy = self._routes[partition].copy if partition in self._routes else 0
        return self._copies[copy].units(self._ids[copy].get(partition, partition), start, end)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _LEADER_STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset_decisions()

    # -- starting and stopping -------------------------------------------------------------------

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Start the copies that can start; one that cannot waits for the next start, and may be read meanwhile."""
        known = self._split_memory(memory or {})
        started = self._call_copies(
            lambda number, copy: copy.start(known[number], self._to_own_ids(number, offsets))
        )
        for number in self.away:
            self._copies[number].resumed(known[number] or {})
        self._routes.clear()
        self._cuts.clear()
        return {"copies": [started.get(number, known[number]) for number in range(len(self._copies))]}

    def resumed(self, memory: Mapping[str, object]) -> None:
        for copy, known in zip(self._copies, self._split_memory(memory), strict=True):
            copy.resumed(known or {})

    def _split_memory(self, memory: Mapping[str, object]) -> list[Mapping[str, object] | None]:
        memories: Any = memory.get("copies") or []
        return [*memories, *[None] * len(self._copies)][: len(self._copies)]

    def count_doubts(self) -> int:
        return sum(copy.count_doubts() for copy in self._copies)

    def prune(self, offsets: Mapping[str, int]) -> None:
        for number, copy in enumerate(self._copies):
            with contextlib.suppress(ExternalError):  # then it keeps more than is needed
                copy.prune(self._to_own_ids(number, offsets))

    def stopped(self) -> None:
        for copy in self._copies:
            copy.stopped()

    def forsake(self) -> None:
        for copy in self._copies:
            copy.forsake()

    def closed(self) -> bool:
        return all(copy.closed() for copy in self._copies) and not self._late_starts.waiting

    def settings(self) -> Mapping[str, object]:
        return {"copies": [[type(copy).__name__, dict(copy.settings())] for copy in self._copies]}

    def describe(self) -> str:
        return f"copies: {'; '.join(copy.describe() for copy in self._copies)}"

    # -- reporting -------------------------------------------------------------------------------

    def reach(self, offsets: Mapping[str, int]) -> Reach:
        """What this engine can read of each copy; nothing if it reaches none."""
        return {
            name: {number: Extent(one.earliest, one.latest) for number, one in held.items()}
            for name, held in self._collect_partitions(offsets).items()
        }

    def set_reports(self, others: Mapping[str, Reach], patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Set what the other engines of the unit reach, by their names; wait `patience_seconds` for one that lacks
        what the others have. From any thread.

        The log does not wait for one that reaches nothing at all: it cannot take part, whichever copy is read.
        """
        self._stragglers.patience_seconds = patience_seconds
        self._stragglers.retain_replicas(others.keys())
        self._blind = tuple(member for member, reach in others.items() if not reach)
        self._others = {member: reach for member, reach in others.items() if reach}

    def find_skipped(self) -> dict[str, list[str]]:
        """Find the engines that the log does not wait for, and the partitions that they lack. From any thread."""
        found = self._stragglers.find_skipped()
        everything = sorted(self._routes)
        return found | {member: everything for member in self._blind if everything}

    def _collect_partitions(self, offsets: Mapping[str, int]) -> dict[str, dict[int, Partition]]:
        def look(number: int, copy: Log) -> list[Partition]:
            found, broken = copy.as_copy(self._to_own_ids(number, offsets))
            names = {copy.common_name(one.id): one.id for one in found}
            if len(names) < len(found):
                raise UserError(
                    "COPIES_ALIKE",
                    f"partitions of {copy.describe()} cannot be distinguished",
                    detail="Files are the same in two copies if their first lines are; two of these are the same.",
                    hint="Leave one of them out, or have each start with a line of its own.",
                )
            self._ids[number] |= names
            self._broken[number] = {copy.common_name(id): why for id, why in broken.items()}
            return found

        seen: dict[str, dict[int, Partition]] = {}
        for number, found in self._call_copies(look).items():
            for one in found:
                seen.setdefault(self._copies[number].common_name(one.id), {})[number] = one
        return seen

    def _get_known_name(self, number: int, name: str) -> str | None:
        return self._copies[number].known_as(self._ids[number][name])

    def _call_copies(self, action: Callable[[int, Log], _T]) -> dict[int, _T]:
        """Apply an action to every reachable copy; raise if none is reachable."""
        answers: dict[int, _T] = {}
        failures: dict[int, ExternalError] = {}
        for number, copy in enumerate(self._copies):
            try:
                answers[number] = action(number, copy)
            except ExternalError as failure:
                failures[number] = failure
        self.away = {number: failure.primary for number, failure in failures.items()}
        if not answers:
            raise failures[0]
        return answers

    def _to_own_ids(self, number: int, offsets: Mapping[str, int]) -> dict[str, int]:
        """Translate offsets to the ids of a copy, as far as it has the partitions."""
        ids = self._ids[number]
        if offsets.keys() - ids.keys():
            self._refresh_ids(number)
        return {ids[name]: offset for name, offset in offsets.items() if name in ids}

    def _refresh_ids(self, number: int) -> None:
        copy = self._copies[number]
        self._ids[number] |= {copy.common_name(one.id): one.id for one in copy.as_copy({})[0]}

    # -- deciding --------------------------------------------------------------------------------

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        """The partitions that some copy has, each as far as every replica has the copy it is read from next."""
        seen = self._collect_partitions(offsets)
        now = self.clock()
        self._late_starts.update(seen, offsets, self.away, now, self.patience_seconds)
        unsure = self._namesakes.find_unsure(seen, self._ids, now, rotates=not self.closed())
        unsure |= self._late_starts.waiting
        names = {name for name in seen if name in offsets or name not in unsure}
        if self.away:  # which may have what no other copy has
            names.update(offsets)
        withheld = set(unsure)
        listed = []
        for name in sorted(names):
            partition, less = self._choose_copy_of(name, seen.get(name, {}), offsets.get(name))
            listed.append(partition)
            if less:
                withheld.add(name)
        for name in offsets.keys() - names:
            self._check_broken(name, offsets[name], {})
        self.withheld, self.started_late = frozenset(withheld), self._late_starts.late
        return listed

    def _choose_copy_of(
        self, name: str, held: Mapping[int, Partition], following: int | None
    ) -> tuple[Partition, bool]:
        """Choose a partition's copy: the partition as far as every replica has it, and whether this engine has more."""
        check_ends(name, held)
        earliest = min((one.earliest for one in held.values()), default=following or 0)
        at = earliest if following is None else following
        before = self._routes.get(name)
        now = None if before is None else before.copy
        mine = {number: Extent(one.earliest, one.latest) for number, one in held.items()}
        others = {member: reach.get(name, {}) for member, reach in self._others.items()}
        choice = choose_copy(at, now, self._stragglers.select_reports(name, at, mine, others, self.clock()))
        alone = choose_copy(at, now, [mine])
        if alone is None or alone.limit <= at:
            self._check_broken(name, at, held)
        limit = at if choice is None else choice.limit
        less = alone is not None and alone.limit > limit
        if choice is None:
            self._routes[name] = Choice(now if now is not None else min(held, default=0), at)
            return Partition(name, earliest, at), less
        if before is not None and before.copy != choice.copy:
            self._compare(name, before.copy, choice.copy)
        self._routes[name] = choice
        of = held[choice.copy]
        return Partition(name, of.earliest, limit, of.finished and limit >= of.latest), less

    def _check_broken(self, name: str, at: int, held: Mapping[int, Partition]) -> None:
        """Raise if no copy will ever have what comes next."""
        broken = {number: reasons[name] for number, reasons in self._broken.items() if name in reasons}
        if self.away or not (held or broken):
            return
        failures = [
            broken.get(number) or copy.short_of(self._ids[number].get(name, name), at)
            for number, copy in enumerate(self._copies)
        ]
        if failures[0] is not None and all(failures):
            raise failures[0]

    def cut(self, partition: str, start: int, units: int) -> int:
        if partition not in self._routes:
            self._choose_copy_of(
                partition, self._collect_partitions({partition: start}).get(partition, {}), start
            )
        choice = self._routes.get(partition)
        if choice is None or choice.limit <= start:
            return start
        copy, id = self._copies[choice.copy], self._ids[choice.copy][partition]
        end = min(copy.cut(id, start, min(units, copy.units(id, start, choice.limit))), choice.limit)
        self._cuts[partition] = Span(partition, start, end, choice.copy)
        return end

    def route(self, partition: str) -> int | None:
        choice = self._routes.get(partition)
        return None if choice is None else choice.copy

    def _compare(self, partition: str, one: int, other: int) -> None:
        """Raise if the last span that was read is not the same in both copies, as far as both can be read."""
        last = self._cuts.get(partition)
        if last is None or last.copy != one or last.end <= last.start:
            return
        samples = []
        try:
            for number in (one, other):
                copy, id = self._copies[number], self._ids[number][partition]
                end = min(copy.cut(id, last.start, max(_COMPARED_BYTES // copy.unit_bytes, 1)), last.end)
                samples.append((end, copy, Span(id, last.start, end)))
            end = min(end for end, _, _ in samples)
            digests = {_digest(copy, replace(span, end=end)) for _, copy, span in samples}
        except (ExternalError, KeyError):  # the one that is left may be gone
            return
        if len(digests) > 1:
            raise difference_error(
                f"partition {partition} is not the same in {samples[0][1].describe()} and {samples[1][1].describe()}",
                f"From offset {last.start} to {end} they do not hold the same records.",
            )

    # -- reading ---------------------------------------------------------------------------------

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        """Read the records of a span from the copy it names; if that one fails, from another that has them. Wait for
        what the epoch record has and no copy has yet."""
        first = span.copy if span.copy is not None else self.route(span.partition)
        order = sorted(range(len(self._copies)), key=lambda number: (number != first, number))
        at = span.start
        until: float | None = None
        while True:
            failures: list[ExternalError] = []
            for number in order:
                sure = number == first and at == span.start
                try:
                    for chunk in self._read_copy(number, replace(span, start=at), chunk_bytes, sure=sure):
                        yield chunk
                        at = self._next_offset(chunk)
                    return
                except ExternalError as failure:
                    failures.append(failure)
            until = until or time.monotonic() + self.patience_seconds
            behind = any(failure.condition == "COPY_BEHIND" for failure in failures)
            if span.copy is None or not behind or time.monotonic() >= until:
                raise failures[0]
            time.sleep(_AGAIN_SECONDS)

    def _read_copy(self, number: int, span: Span, chunk_bytes: int, *, sure: bool) -> Iterator[Chunk]:
        """Read the records of a span from one copy. `sure`: it should have them; else check that first."""
        own = Span(self._find_own_id(number, span), span.start, span.end)
        if not sure:
            self._check_has(number, own)
        try:
            for chunk in self._copies[number].read(own, chunk_bytes):
                yield replace(chunk, partition=span.partition)
        except ExternalError:
            self._check_has(number, own)
            raise

    def _check_has(self, number: int, span: Span) -> None:
        """Raise unless a copy has all of a span, given by its own id."""
        copy = self._copies[number]
        for one in copy.as_copy({span.partition: span.start})[0]:
            if one.id == span.partition and one.earliest <= span.start and one.latest < span.end:
                raise behind_error(f"{copy.describe()} has not come to offset {span.end} yet", span)

    def _find_own_id(self, number: int, span: Span) -> str:
        ids = self._ids[number]
        if span.partition not in ids:
            self._refresh_ids(number)
        if span.partition not in ids:
            raise behind_error(
                f"{self._copies[number].describe()} does not have partition {span.partition}", span
            )
        return ids[span.partition]

    def _next_offset(self, chunk: Chunk) -> int:
        """The offset after a chunk."""
        if chunk.offsets is not None and len(chunk.offsets):
            return int(chunk.offsets[-1]) + 1
        return chunk.start + (len(chunk.data) if self.unit == "bytes" else chunk.data.count(b"\n"))


def _digest(log: Log, span: Span) -> bytes:
    digest = sha256()
    for chunk in log.read(span):
        digest.update(chunk.data)
    return digest.digest()
