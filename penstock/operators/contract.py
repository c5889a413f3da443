"""What a stateful operator is: frames of one slice and its state in, frames out; never Spark, never a clock.

Receives the slice's input of one epoch; hands its output and, through the state, the runs of the epoch.

Guarantees of every operator: the output depends on the input events, their order by (event time, partition,
offset) and the watermark alone; not on where epochs or slices were cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.routing import ByKey, Route
from penstock.state.collection import Changes, Journal, Scope, Table
from penstock.state.run import RunEntry
from penstock.state.unmoved import Unmoved

#: event time in microseconds since 1970 (Int64)
TIME = "_time"
#: the ordinal of the event's partition (UInt32) and the event's place in it (Int64): the order among equal times
PARTITION = "_partition"
SEQUENCE = "_sequence"
ORDER = (TIME, PARTITION, SEQUENCE)
#: which of an operator's inputs a row came by (UInt8): the order where all else is equal; only with several inputs
INPUT = "_input"
#: the ordinal of rows that are not a log's events but an operator's answers
DERIVED = 2**32 - 1

#: watermarks before the first event and after the last
NEVER = -(2**62)
FOREVER = 2**62


@dataclass(frozen=True)
class Progress:
    """How event time moved in this epoch: no event earlier than `after` can still come; before, it was `before`.

    `flush`: the numbers of jobs, of those whose operator this is, that are to tell their open windows now, as they
    stand. `ahead`: how many lots of jobs had told what ends one instant after `before`, and are to have told what ends
    one instant after `after`, which has come though it is held back.
    """

    before: int
    after: int
    flush: frozenset[int] = frozenset()
    ahead: tuple[int, int] = (0, 0)


class SliceState:
    """The collections of one operator on one slice in one epoch."""

    def __init__(self, operator: str, entries: Mapping[str, Sequence[RunEntry]], scope: Scope) -> None:
        self._operator = operator
        self._entries = entries
        self._scope = scope
        self._opened: dict[str, Journal | Table] = {}

    @property
    def bucket_count(self) -> int:
        return self._scope.bucket_count

    def journal(self, name: str, *, time: str, by_time: bool = False) -> Journal:
        """A collection of rows that wait for their time; `by_time`: in whose runs time can be searched."""
        return self._journal(name, self._scope, time, by_time)

    def shared_journal(self, name: str, *, time: str) -> Journal:
        """A journal every slice sees whole: what was broadcast. The slice of the first bucket alone writes it."""
        return self._journal(name, self._scope.shared(), time, False)

    def _journal(self, name: str, scope: Scope, time: str, by_time: bool) -> Journal:
        found = self._opened.get(name)
        if found is None:
            entries = self._entries.get(name, ())
            found = Journal(f"{self._operator}.{name}", entries, scope, time=time, by_time=by_time)
            self._opened[name] = found
        assert isinstance(found, Journal)
        return found

    def table(
        self, name: str, *, keys: Sequence[str], time: str | None = None, gone: str | None = None
    ) -> Table:
        """A collection of one row a key; with `time`, the column by which rows grow old, it can forget them;
        with `gone`, a Boolean column, a row can say that its key has none any more."""
        found = self._opened.get(name)
        if found is None:
            entries = self._entries.get(name, ())
            found = Table(f"{self._operator}.{name}", entries, self._scope, keys=keys, time=time, gone=gone)
            self._opened[name] = found
        assert isinstance(found, Table)
        return found

    def shared_table(self, name: str, *, keys: Sequence[str], gone: str | None = None) -> Table:
        """A table every slice sees whole: what was broadcast. The slice of the first bucket alone writes it."""
        found = self._opened.get(name)
        if found is None:
            entries = self._entries.get(name, ())
            found = Table(f"{self._operator}.{name}", entries, self._scope.shared(), keys=keys, gone=gone)
            self._opened[name] = found
        assert isinstance(found, Table)
        return found

    def read_only(self, wanted: pl.Expr) -> SliceState:
        """The journals as the last epoch left them, with the wanted rows only: what is done to them is not kept."""
        return _LookedAt(self._operator, self._entries, self._scope, wanted)

    def changes(self) -> dict[str, Changes]:
        """What the operator did to its collections."""
        found = {name: collection.changes() for name, collection in self._opened.items()}
        return {name: change for name, change in found.items() if change.added or change.dropped}


class _LookedAt(SliceState):
    def __init__(
        self, operator: str, entries: Mapping[str, Sequence[RunEntry]], scope: Scope, wanted: pl.Expr
    ) -> None:
        super().__init__(operator, entries, scope)
        self._wanted = wanted

    def _journal(self, name: str, scope: Scope, time: str, by_time: bool) -> Journal:
        entries = self._entries.get(name, ())
        return Unmoved(f"{self._operator}.{name}", entries, scope, time=time, wanted=self._wanted)


#: what came in by each port; None where nothing came
Inputs = Sequence[pl.DataFrame | None]
#: rows by the name of the output they leave by; most operators have one output, named ""
Results = Mapping[str, pl.DataFrame | None]


class Operator(ABC):
    """A stateful operator: a frozen description that can do one slice's work of one epoch.

    Rows that leave it in an epoch carry a `_time` not before `progress.before`, so whatever reads them can
    still take them in. An operator with one port has `process`, one with several has `run`.
    """

    #: what it is, in the ids and the identity of its state; stays when the class is renamed
    kind: ClassVar[str]
    #: the form in which it keeps its state; another one is refused, but for those in `reads_versions`
    state_version: ClassVar[int]
    reads_versions: ClassVar[frozenset[int]] = frozenset()
    #: the columns that decide which bucket a row is worked on in (of the first port, if they differ)
    keys: tuple[str, ...]
    #: how many inputs it tells apart (a join has two)
    ports: int = 1

    @property
    def partitioning(self) -> tuple[str, ...] | None:
        """The columns of its output that hold the keys its rows lie by; None where there are none."""
        return None

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        """Key columns by which its output can be filtered before it as well as after it."""
        return ()

    @property
    def can_pre_reduce(self) -> bool:
        """Whether senders can merge rows before they travel."""
        return type(self).combine is not Operator.combine

    @property
    def order(self) -> str:
        """What it asks of its input: `strict`, `epoch` or `none`."""
        return "epoch"

    @property
    def needs_position(self) -> bool:
        """Whether rows of equal time must be told apart by their place in the total order."""
        return self.order == "strict"

    def route(self, port: int = 0) -> Route:
        """How the rows of a port find their buckets."""
        return ByKey(self.keys)

    def drained_at(self, watermark: int) -> int | None:
        """When all that is open at a watermark is over and told, where what comes later shares nothing with it; None
        where that never is."""
        return None

    @property
    def closes_in_batches(self) -> bool:
        """Whether it tells what ends at one instant lot by lot, if it is asked to."""
        return False

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
        """How many rows it will take in hand when the watermark, now at `after`, reaches which instants; as far as it
        can say at little cost. Asked after `run`."""
        return {}

    @abstractmethod
    def needs(self, port: int = 0) -> set[str]:
        """The columns it reads from its input."""

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        """The sender's part: what can be done before the exchange (pre-reduction). Carries no state."""
        return frame

    def combine(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        """Merge prepared frames of one sender, where that makes them smaller."""
        return frame

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        """The slice's part. Frames carry `_hash`; results carry `_time`."""
        return {"": self.process(inputs[0], state, progress)}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        """The slice's part of an operator with one input and one output."""
        raise AssertionError(f"{type(self).__name__} says neither process nor run")

    def describe(self) -> str:
        """One line for `explain`."""
        return type(self).__name__
