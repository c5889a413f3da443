"""Define a stateful operator: it turns the frames and the state of one slice into frames.

An operator receives the slice's input of one epoch. It returns its output, and through the state it writes the runs of
the epoch. It never uses Spark and never reads a clock.

Guarantees of every operator: the output depends on the input events, their order by (event time, partition, offset)
and the watermark alone; not on where epochs or slices were cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.routes import ByKey, Route
from penstock.state.collection import Changes, Scope
from penstock.state.journal import Journal, ReadOnlyJournal
from penstock.state.run import RunEntry
from penstock.state.table import Table

#: event time in microseconds since 1970 (Int64)
TIME = "_time"
#: the ordinal of the event's partition (UInt32) and its position there (Int64): the order among equal times
PARTITION = "_partition"
SEQUENCE = "_sequence"
ORDER = (TIME, PARTITION, SEQUENCE)
#: the number of the input by which a row arrived (UInt8): the order where all else is equal; only with several inputs
INPUT = "_input"
#: the partition ordinal of rows that are no events of a log but results of an operator
DERIVED = 2**32 - 1

#: watermarks before the first event and after the last
NEVER = -(2**62)
FOREVER = 2**62


@dataclass(frozen=True)
class Progress:
    """How the watermark moved in this epoch: from `before` to `after`. No event earlier than `after` can still come.

    `flush`: the numbers of the jobs of a template group that emit their open windows now, as they stand.
    `ahead`: a watermark can be held back while some closing batches of jobs already pass it. So many batches had
    emitted what ends one instant after `before`, and so many are to have emitted what ends one instant after `after`.
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
        """Open a collection of rows that wait for their time. With `by_time`, its runs can be searched by time."""
        return self._journal(name, self._scope, time, by_time)

    def shared_journal(self, name: str, *, time: str) -> Journal:
        """Open a journal of broadcast rows, which every slice sees whole. Only the slice of the first bucket writes."""
        return self._journal(name, self._scope.shared(), time, False)

    def table(
        self, name: str, *, keys: Sequence[str], time: str | None = None, gone: str | None = None
    ) -> Table:
        """Open a collection of one row per key.

        `time` is the column by which rows expire. `gone` is a Boolean column: a row with true deletes its key.
        """
        return self._table(name, self._scope, keys, time, gone)

    def shared_table(self, name: str, *, keys: Sequence[str], gone: str | None = None) -> Table:
        """Open a table of broadcast rows, which every slice sees whole. Only the slice of the first bucket writes."""
        return self._table(name, self._scope.shared(), keys, None, gone)

    def _journal(self, name: str, scope: Scope, time: str, by_time: bool) -> Journal:
        if name not in self._opened:
            entries = self._entries.get(name, ())
            self._opened[name] = Journal(
                f"{self._operator}.{name}", entries, scope, time=time, by_time=by_time
            )
        journal = self._opened[name]
        assert isinstance(journal, Journal)
        return journal

    def _table(
        self, name: str, scope: Scope, keys: Sequence[str], time: str | None, gone: str | None
    ) -> Table:
        if name not in self._opened:
            entries = self._entries.get(name, ())
            self._opened[name] = Table(
                f"{self._operator}.{name}", entries, scope, keys=keys, time=time, gone=gone
            )
        table = self._opened[name]
        assert isinstance(table, Table)
        return table

    def read_only(self, wanted: pl.Expr) -> SliceState:
        """The journals as the last epoch left them, with the wanted rows only; changes to them are discarded."""
        return _ReadOnlyState(self._operator, self._entries, self._scope, wanted)

    def changes(self) -> dict[str, Changes]:
        """The runs that the operator added to its collections, and those it dropped."""
        changes = {name: collection.changes() for name, collection in self._opened.items()}
        return {name: change for name, change in changes.items() if change.added or change.dropped}


class _ReadOnlyState(SliceState):
    def __init__(
        self, operator: str, entries: Mapping[str, Sequence[RunEntry]], scope: Scope, wanted: pl.Expr
    ) -> None:
        super().__init__(operator, entries, scope)
        self._wanted = wanted

    def _journal(self, name: str, scope: Scope, time: str, by_time: bool) -> Journal:
        entries = self._entries.get(name, ())
        return ReadOnlyJournal(f"{self._operator}.{name}", entries, scope, time=time, wanted=self._wanted)


#: the input of each port; None where nothing came
Inputs = Sequence[pl.DataFrame | None]
#: rows by the name of their output; most operators have one output, named ""
Results = Mapping[str, pl.DataFrame | None]


class Operator(ABC):
    """A stateful operator: a frozen description that can do one slice's work of one epoch.

    The rows that it emits in an epoch have a `_time` not before `progress.before`, so that operators that read them
    still accept them. An operator with one port defines `process`, one with several defines `run`.
    """

    #: its name in the ids and the identity of its state; it stays when the class is renamed
    kind: ClassVar[str]
    #: the version of its state's form; others are refused, except those in `reads_versions`
    state_version: ClassVar[int]
    reads_versions: ClassVar[frozenset[int]] = frozenset()
    #: the columns that decide the bucket of a row (those of the first port, if they differ)
    keys: tuple[str, ...]
    #: how many inputs it has (a join has two)
    ports: int = 1

    @property
    def partitioning(self) -> tuple[str, ...] | None:
        """The output columns by which its rows are partitioned; None if there are none."""
        return None

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        """The key columns whose filters can move from after the operator to before it."""
        return ()

    @property
    def can_pre_reduce(self) -> bool:
        """Whether senders can merge rows before the exchange."""
        return type(self).combine is not Operator.combine

    @property
    def order(self) -> str:
        """The order that it needs of its input: `strict`, `epoch` or `none`."""
        return "epoch"

    @property
    def needs_position(self) -> bool:
        """Whether rows of equal time need their position in the total order."""
        return self.order == "strict"

    def route(self, port: int = 0) -> Route:
        """How the rows of a port find their buckets."""
        return ByKey(self.keys)

    def drained_at(self, watermark: int) -> int | None:
        """The instant at which everything open at this watermark has ended, if later input shares nothing with it.

        None if there is no such instant.
        """
        return None

    @property
    def closes_in_batches(self) -> bool:
        """Whether it can emit what ends at one instant in several epochs, batch after batch of jobs."""
        return False

    def pending_rows(self, state: SliceState, after: int) -> Mapping[int, int]:
        """How many rows it will process when the watermark, now at `after`, reaches an instant, by instant.

        An estimate at little cost; called after `run`.
        """
        return {}

    @abstractmethod
    def needs(self, port: int = 0) -> set[str]:
        """The columns that it reads from its input."""

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        """The sender's part, before the exchange: select columns, reduce. It has no state."""
        return frame

    def combine(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        """Merge the prepared frames of one sender, where that makes them smaller."""
        return frame

    def run(self, inputs: Inputs, state: SliceState, progress: Progress) -> Results:
        """The slice's part. Inputs have the column `_hash`, results the column `_time`."""
        return {"": self.process(inputs[0], state, progress)}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        """The slice's part of an operator with one input and one output."""
        raise AssertionError(f"{type(self).__name__} defines neither process nor run")

    def describe(self) -> str:
        """One line for `explain`."""
        return type(self).__name__
