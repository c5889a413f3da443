"""A log of which there are several copies: each epoch and partition is read from one, which all members have.

Receives logs that hold the same events; hands their partitions as one log. What the other engines of a unit reach of
the copies is told by `heard`; what this one reaches, by `reach`.

What is asked of the copies: a partition has the same records at the same offsets in each of them, as far as a copy has
come. Nothing is asked of the order in which they have come, of the order between partitions, or of how far each is.
Partitions are the same if their `common_name` is.

Invariants:
- Offsets mean the same in every copy, so that a change of copy leaves nothing out and repeats nothing.
- The epoch record says which copy a span is read from. Should that be lost, another that has the span gives the same.
- A copy that cannot be reached, lags, or has forgotten what comes next is passed over; if none is left, we wait.
- A partition is not begun after its beginning while a copy is away that may have that (see `late_beginnings`).
- An engine that lacks what the others have is waited for, and after a while passed over (see `stragglers`).
On failure: `ExternalError` of the copies when none can be reached; `UserError` COPIES_DIFFER where copies are seen not
to hold the same, COPIES_ALIKE where partitions of one cannot be told apart.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeVar

from penstock.errors import ExternalError, UserError
from penstock.logs.choice import Choice, Extent, chosen
from penstock.logs.contract import Chunk, Log, Partition, Span
from penstock.logs.late_beginnings import LateBeginnings
from penstock.logs.sameness import Namesakes, check_ends, differ
from penstock.logs.stragglers import PATIENCE_SECONDS, Stragglers

#: how often a copy that has not come so far yet is asked again, in seconds
_AGAIN_SECONDS = 0.1
#: how much of the span before a change of copy is compared between the two, in bytes
_COMPARED_BYTES = 1 << 20

#: what is not for those who only read
_OF_WHO_DECIDES = frozenset(
    {"_cuts", "_others", "_blind", "_stragglers", "_namesakes", "_beginnings", "_broken"}
    | {"away", "withheld", "begun_late"}
)

_T = TypeVar("_T")
#: what one engine reaches: partition, copy, its extent
Reach = dict[str, dict[int, Extent]]


class ReplicatedLog(Log):
    """Several logs with the same events: `replicated(segments_by_producer("a/s"), segments_by_producer("b/s"))`."""

    #: how long a span that only a lost copy had is waited for in the others, and a copy that is away for the beginning
    #: of a partition, in seconds
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
        self._forget()

    def _forget(self) -> None:
        """Forget what only who decides knows."""
        #: per partition, the last span that was cut, and from which copy
        self._cuts: dict[str, Span] = {}
        #: what the other engines reach, by their names
        self._others: Mapping[str, Reach] = {}
        self._blind: Sequence[str] = ()
        self._stragglers, self._namesakes = Stragglers(), Namesakes(self._called)
        self._beginnings = LateBeginnings()
        #: per copy, the partitions of which it will never have what comes next, and why
        self._broken: dict[int, Mapping[str, ExternalError]] = {}
        #: copies that cannot be reached now, and why
        self.away: dict[int, str] = {}
        self.withheld: frozenset[str] = frozenset()
        self.begun_late: frozenset[str] = frozenset()

    @property
    def unit_bytes(self) -> int:
        return self._copies[0].unit_bytes

    def units(self, partition: str, start: int, end: int) -> int:
        copy = self._routes[partition].copy if partition in self._routes else 0
        return self._copies[copy].units(self._ids[copy].get(partition, partition), start, end)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OF_WHO_DECIDES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # -- the life of the copies ------------------------------------------------------------------

    def start(self, memory: Mapping[str, object] | None, offsets: Mapping[str, int]) -> dict[str, object]:
        """Start the copies that can be; one that cannot waits for the next start, and may be read meanwhile."""
        known = self._known(memory or {})

        started = self._each(lambda number, copy: copy.start(known[number], self._in(number, offsets)))
        for number in self.away:
            self._copies[number].resumed(known[number] or {})
        self._routes.clear()
        self._cuts.clear()
        return {"copies": [started.get(number, known[number]) for number in range(len(self._copies))]}

    def resumed(self, memory: Mapping[str, object]) -> None:
        for copy, known in zip(self._copies, self._known(memory), strict=True):
            copy.resumed(known or {})

    def _known(self, memory: Mapping[str, object]) -> list[Mapping[str, object] | None]:
        told: Any = memory.get("copies") or []
        return [*told, *[None] * len(self._copies)][: len(self._copies)]

    def prune(self, offsets: Mapping[str, int]) -> None:
        for number, copy in enumerate(self._copies):
            with contextlib.suppress(ExternalError):  # then it keeps more than is needed
                copy.prune(self._in(number, offsets))

    def stopped(self) -> None:
        for copy in self._copies:
            copy.stopped()

    def forsake(self) -> None:
        for copy in self._copies:
            copy.forsake()

    def closed(self) -> bool:
        return all(copy.closed() for copy in self._copies) and not self._beginnings.waiting

    def settings(self) -> Mapping[str, object]:
        return {"copies": [[type(copy).__name__, dict(copy.settings())] for copy in self._copies]}

    def describe(self) -> str:
        return f"copies: {'; '.join(copy.describe() for copy in self._copies)}"

    # -- reporting -------------------------------------------------------------------------------

    def reach(self, offsets: Mapping[str, int]) -> Reach:
        """What this engine can read of each copy; nothing if it reaches none."""
        return {
            name: {number: Extent(one.earliest, one.latest) for number, one in held.items()}
            for name, held in self._seen(offsets).items()
        }

    def heard(self, others: Mapping[str, Reach], patience_seconds: float = PATIENCE_SECONDS) -> None:
        """What the other engines of the unit reach, as they report it by name; one is waited for so long that lacks
        what the others have. From any thread.

        One that reaches nothing at all is not waited for: it cannot take part, whichever copy is read.
        """
        self._stragglers.patience_seconds = patience_seconds
        self._stragglers.keep(others.keys())
        self._blind = tuple(member for member, reach in others.items() if not reach)
        self._others = {member: reach for member, reach in others.items() if reach}

    def passed_over(self) -> dict[str, list[str]]:
        """The engines that are not waited for, and the partitions that they lack. From any thread."""
        found = self._stragglers.passed_over()
        everything = sorted(self._routes)
        return found | {member: everything for member in self._blind if everything}

    def _seen(self, offsets: Mapping[str, int]) -> dict[str, dict[int, Partition]]:
        def look(number: int, copy: Log) -> list[Partition]:
            found, broken = copy.as_copy(self._in(number, offsets))
            names = {copy.common_name(one.id): one.id for one in found}
            if len(names) < len(found):
                raise UserError(
                    "COPIES_ALIKE",
                    f"partitions of {copy.describe()} cannot be told apart",
                    detail="Files are the same in two copies if their first lines are; two of these are the same.",
                    hint="Leave one of them out, or have each begin with a line of its own.",
                )
            self._ids[number] |= names
            self._broken[number] = {copy.common_name(id): why for id, why in broken.items()}
            return found

        seen: dict[str, dict[int, Partition]] = {}
        for number, found in self._each(look).items():
            for one in found:
                seen.setdefault(self._copies[number].common_name(one.id), {})[number] = one
        return seen

    def _called(self, number: int, name: str) -> str | None:
        return self._copies[number].known_as(self._ids[number][name])

    def _each(self, does: Callable[[int, Log], _T]) -> dict[int, _T]:
        """What every copy answers that can be reached; raises if none can."""
        answers: dict[int, _T] = {}
        failures: dict[int, ExternalError] = {}
        for number, copy in enumerate(self._copies):
            try:
                answers[number] = does(number, copy)
            except ExternalError as failure:
                failures[number] = failure
        self.away = {number: failure.primary for number, failure in failures.items()}
        if not answers:
            raise failures[0]
        return answers

    def _in(self, number: int, offsets: Mapping[str, int]) -> dict[str, int]:
        """Offsets by the ids of a copy, as far as it has the partitions."""
        ids = self._ids[number]
        if offsets.keys() - ids.keys():
            self._learn(number)
        return {ids[name]: offset for name, offset in offsets.items() if name in ids}

    def _learn(self, number: int) -> None:
        """Find what partitions are called in a copy."""
        copy = self._copies[number]
        self._ids[number] |= {copy.common_name(one.id): one.id for one in copy.as_copy({})[0]}

    # -- deciding --------------------------------------------------------------------------------

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        """The partitions that some copy has, each as far as everybody has the copy it is read from next."""
        seen = self._seen(offsets)
        now = self.clock()
        self._beginnings.look(seen, offsets, self.away, now, self.patience_seconds)
        unsure = self._namesakes.among(seen, self._ids, now, rotates=not self.closed())
        unsure |= self._beginnings.waiting
        names = {name for name in seen if name in offsets or name not in unsure}
        if self.away:  # which may have what no other copy has
            names.update(offsets)
        withheld = set(unsure)
        listed = []
        for name in sorted(names):
            partition, less = self._decided(name, seen.get(name, {}), offsets.get(name))
            listed.append(partition)
            if less:
                withheld.add(name)
        for name in offsets.keys() - names:
            self._check_broken(name, offsets[name], {})
        self.withheld, self.begun_late = frozenset(withheld), self._beginnings.late
        return listed

    def _decided(self, name: str, held: Mapping[int, Partition], begun: int | None) -> tuple[Partition, bool]:
        """A partition as far as everybody has it, and whether that is less than we have; `begun`: what comes next."""
        check_ends(name, held)
        earliest = min((one.earliest for one in held.values()), default=begun or 0)
        at = earliest if begun is None else begun
        before = self._routes.get(name)
        now = None if before is None else before.copy
        mine = {number: Extent(one.earliest, one.latest) for number, one in held.items()}
        others = {member: reach.get(name, {}) for member, reach in self._others.items()}
        choice = chosen(at, now, self._stragglers.counted(name, at, mine, others, self.clock()))
        alone = chosen(at, now, [mine])
        if alone is None or alone.upto <= at:
            self._check_broken(name, at, held)
        upto = at if choice is None else choice.upto
        less = alone is not None and alone.upto > upto
        if choice is None:
            self._routes[name] = Choice(now if now is not None else min(held, default=0), at)
            return Partition(name, earliest, at), less
        if before is not None and before.copy != choice.copy:
            self._compare(name, before.copy, choice.copy)
        self._routes[name] = choice
        of = held[choice.copy]
        return Partition(name, of.earliest, upto, of.finished and upto >= of.latest), less

    def _check_broken(self, name: str, at: int, held: Mapping[int, Partition]) -> None:
        """Raise if no copy will ever have what comes next."""
        broken = {number: told[name] for number, told in self._broken.items() if name in told}
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
            self._decided(partition, self._seen({partition: start}).get(partition, {}), start)
        choice = self._routes.get(partition)
        if choice is None or choice.upto <= start:
            return start
        copy, id = self._copies[choice.copy], self._ids[choice.copy][partition]
        end = min(copy.cut(id, start, min(units, copy.units(id, start, choice.upto))), choice.upto)
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
        told = []
        try:
            for number in (one, other):
                copy, id = self._copies[number], self._ids[number][partition]
                end = min(copy.cut(id, last.start, max(_COMPARED_BYTES // copy.unit_bytes, 1)), last.end)
                told.append((end, copy, Span(id, last.start, end)))
            end = min(end for end, _, _ in told)
            said = {_digest(copy, replace(span, end=end)) for _, copy, span in told}
        except (ExternalError, KeyError):  # the one that is left may be gone
            return
        if len(said) > 1:
            raise differ(
                f"partition {partition} is not the same in {told[0][1].describe()} and {told[1][1].describe()}",
                f"From offset {last.start} to {end} they do not hold the same records.",
            )

    # -- reading ---------------------------------------------------------------------------------

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        """The records of a span, from the copy it names; should that one fail, from another that has them. What was
        decided on and no copy has yet is waited for."""
        first = span.copy if span.copy is not None else self.route(span.partition)
        order = sorted(range(len(self._copies)), key=lambda number: (number != first, number))
        at = span.start
        until: float | None = None
        while True:
            failures: list[ExternalError] = []
            for number in order:
                sure = number == first and at == span.start
                try:
                    for chunk in self._read_of(number, replace(span, start=at), chunk_bytes, sure=sure):
                        yield chunk
                        at = self._after(chunk)
                    return
                except ExternalError as failure:
                    failures.append(failure)
            until = until or time.monotonic() + self.patience_seconds
            behind = any(failure.condition == "COPY_BEHIND" for failure in failures)
            if span.copy is None or not behind or time.monotonic() >= until:
                raise failures[0]
            time.sleep(_AGAIN_SECONDS)

    def _read_of(self, number: int, span: Span, chunk_bytes: int, *, sure: bool) -> Iterator[Chunk]:
        """The records of a span from one copy. `sure`: it should have them; else that is looked at first."""
        own = Span(self._id_in(number, span), span.start, span.end)
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
                raise _behind(f"{copy.describe()} has not come to offset {span.end} yet", span)

    def _id_in(self, number: int, span: Span) -> str:
        ids = self._ids[number]
        if span.partition not in ids:
            self._learn(number)
        if span.partition not in ids:
            raise _behind(f"{self._copies[number].describe()} does not have partition {span.partition}", span)
        return ids[span.partition]

    def _after(self, chunk: Chunk) -> int:
        """The offset after a chunk."""
        if chunk.offsets is not None and len(chunk.offsets):
            return int(chunk.offsets[-1]) + 1
        return chunk.start + (len(chunk.data) if self.unit == "bytes" else chunk.data.count(b"\n"))


def _behind(primary: str, span: Span) -> ExternalError:
    return ExternalError(
        "COPY_BEHIND",
        primary,
        where=f"partition {span.partition}, offsets {span.start} to {span.end}",
        detail="What was decided on is in no copy that can be read here.",
        hint="Another engine, or an earlier start of this one, had it. Bring a copy back that has it.",
    )


def _digest(log: Log, span: Span) -> bytes:
    digest = sha256()
    for chunk in log.read(span):
        digest.update(chunk.data)
    return digest.digest()
