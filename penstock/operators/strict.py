"""Put events in strict order: an event waits in a journal until nothing earlier can come.

The input is a slice's events as they arrive. The output is those before the watermark, grouped by key and sorted by
(event time, partition, offset) within a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.contract import (
    DERIVED,
    INPUT,
    ORDER,
    PARTITION,
    SEQUENCE,
    TIME,
    Operator,
    Progress,
    SliceState,
)
from penstock.state.buckets import HASH, can_be_key, key_hash
from penstock.state.journal import Journal

#: up to this share of the rows is compared with the row before by gathering both
_MOST_GATHERED = 0.4
#: up to this number of sorted stretches are merged rather than sorted
_FEW_STRETCHES = 64
#: how many of the 63 bits of a sequence number the rows that were made of one event
_NUMBER_BITS = 14
#: and how many the inputs
_INPUT_BITS = 8


@dataclass(frozen=True)
class Ordered:
    """Rows grouped by key, in total order within each; `first` marks where a key begins."""

    rows: pl.DataFrame
    first: npt.NDArray[np.bool_]

    @property
    def last(self) -> npt.NDArray[np.bool_]:
        """Marks the last row of each key."""
        return np.append(self.first[1:], True)

    @property
    def number(self) -> npt.NDArray[np.int64]:
        """The number of each row's key, from 0."""
        return np.cumsum(self.first) - 1

    @property
    def place(self) -> npt.NDArray[np.int64]:
        """The index of each row within its key, from 0."""
        return np.arange(len(self.first)) - np.flatnonzero(self.first)[self.number]


class StrictOperator(Operator):
    """A keyed operator that processes its events in strict order and whose rows have the keys."""

    @property
    def partitioning(self) -> tuple[str, ...] | None:
        return self.keys

    @property
    def order(self) -> str:
        return "strict"

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return add_position(frame).select(*ORDER, *sorted(self.needs(port)))


@dataclass(frozen=True)
class Ordering(StrictOperator):
    """Puts the events of each key in strict order and emits these columns, for readers that do not order themselves."""

    kind: ClassVar[str] = "event-time-order"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.columns}

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        rows = take_due(frame, state.journal("waiting", time=TIME), progress)
        if rows is None:
            return None
        order = total_order(rows)
        return (rows if order is None else rows[order]).select(*ORDER, HASH, *self.columns)

    def describe(self) -> str:
        return f"strict order per {', '.join(self.keys) or 'everything'}"


def add_position(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with a position in the total order, for a sender to a strict operator.

    An operator's results have no position of their own. At one instant they come after a log's events, in the order of
    their contents' hashes. So only equal results share a position, and their order makes no difference.
    """
    if SEQUENCE in frame.columns:
        return frame
    content = _content(frame)
    sequence = pl.Series(SEQUENCE, key_hash(content, content.columns).view(np.int64))
    return frame.with_columns(pl.lit(DERIVED, pl.UInt32).alias(PARTITION), sequence)


def position_columns(rows: pl.DataFrame) -> tuple[str, ...]:
    """The columns that position a row made of one of these events in the total order.

    Events of several inputs may share theirs; then a row's content decides its position.
    """
    return (TIME,) if INPUT in rows.columns else ORDER


def _content(frame: pl.DataFrame) -> pl.DataFrame:
    """The user's columns, each in a type that can be hashed."""
    mine = frame.select(name for name in frame.columns if name not in (*ORDER, HASH, INPUT))
    texts = [
        pl.struct(name).struct.json_encode().alias(name)
        for name, dtype in mine.schema.items()
        if not can_be_key(dtype)
    ]
    return mine.with_columns(texts)


def number_siblings(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows that were made of one event, and so share its position, positions of their own, in their order.

    The sequence is shifted to make room for a number. Where there is no room (more than 16,384 rows of an event, a
    result positioned by its contents, rows multiplied at two levels), the order among an event's rows at one instant is
    that of a hash: arbitrary, but always the same.
    """
    if SEQUENCE not in rows.columns or not rows.height:
        return rows
    nth, sequence = _number_within_position(rows), rows[SEQUENCE].to_numpy()
    shifted = (sequence << _NUMBER_BITS) | nth
    crowded = (nth >> _NUMBER_BITS != 0) | (sequence < 0) | (sequence >> (63 - _NUMBER_BITS) != 0)
    partition = rows[PARTITION]
    if crowded.any():
        # by contents: a sequence's value may depend on where the log was cut; only its order does not
        content = pl.DataFrame([pl.Series("_nth", nth), *_content(rows)])
        spread = key_hash(content, content.columns)
        shifted = np.where(crowded, spread.view(np.int64), shifted)
        partition = pl.Series(np.where(crowded, DERIVED, partition.to_numpy()), dtype=pl.UInt32)
    return rows.with_columns(partition.alias(PARTITION), pl.Series(SEQUENCE, shifted))


def fold_input_into_sequence(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of several inputs, which may have the same event more than once, positioned without the column `_input`.

    The sequence is shifted to make room for the number of the input, as in `number_siblings`. Results keep their
    positions: only those of equal contents share one.
    """
    sequence, derived = rows[SEQUENCE].to_numpy(), (rows[PARTITION] == DERIVED).to_numpy()
    shifted = (sequence << _INPUT_BITS) | rows[INPUT].to_numpy().astype(np.int64)
    crowded = ~derived & (sequence >> (63 - _INPUT_BITS) != 0)
    partition = rows[PARTITION]
    if crowded.any():
        position = (PARTITION, SEQUENCE, INPUT)
        shifted = np.where(crowded, key_hash(rows.select(position), position).view(np.int64), shifted)
        partition = pl.Series(np.where(crowded, DERIVED, partition.to_numpy()), dtype=pl.UInt32)
    sequence = np.where(derived, sequence, shifted)
    return rows.with_columns(partition.alias(PARTITION), pl.Series(SEQUENCE, sequence)).drop(INPUT)


def _number_within_position(rows: pl.DataFrame) -> npt.NDArray[np.int64]:
    """The number of each row, from 0, among the rows of its position."""
    new = rows.select(_changes(ORDER)).to_series().to_numpy().copy()
    new[0] = True
    starts = np.flatnonzero(new)
    heads = rows[SEQUENCE].to_numpy()[starts]
    if (heads[1:] > heads[:-1]).all():  # in a log's order: rows of a position are adjacent
        return np.arange(rows.height, dtype=np.int64) - np.repeat(starts, np.diff(starts, append=rows.height))
    number: npt.NDArray[np.int64] = (
        rows.select(pl.int_range(pl.len(), dtype=pl.Int64).over(ORDER)).to_series().to_numpy()
    )
    return number


def take_ordered(
    frame: pl.DataFrame | None,
    keys: tuple[str, ...],
    state: SliceState,
    progress: Progress,
    name: str = "waiting",
) -> Ordered | None:
    """The events due now, grouped and in order; None if there are none. The others wait in the journal of this name."""
    rows = take_due(frame, state.journal(name, time=TIME), progress)
    return None if rows is None else group_by_key(rows, keys, total_order(rows))


def take_due(frame: pl.DataFrame | None, waiting: Journal, progress: Progress) -> pl.DataFrame | None:
    """The events due now, in any order; None if there are none. The others wait in the journal."""
    earlier = waiting.flush(progress.before, progress.after)
    parts = [earlier] if earlier is not None and earlier.height else []
    if frame is not None and frame.height:
        early = frame.filter(pl.col(TIME) >= progress.after)
        if early.height:
            waiting.insert(early)
            frame = frame.filter(pl.col(TIME) < progress.after)
        if frame.height:
            parts.append(frame)
    waiting.compact(progress.after)
    if not parts:
        return None
    return pl.concat(parts, rechunk=True)


def group_by_key(rows: pl.DataFrame, keys: tuple[str, ...], order: pl.Series | None = None) -> Ordered:
    """Rows grouped by key; within a key in their order, or in the order of these row numbers."""
    rows = rows.rechunk()  # gathering from several chunks takes twenty times as long
    hashes = rows[HASH] if order is None else rows[HASH].gather(order)
    at = _hash_order(hashes)
    if at is not None:
        rows = rows[at] if order is None else rows[order.gather(at)]
    elif order is not None:
        rows = rows[order]
    there = rows[HASH].to_numpy()
    first = np.ones(rows.height, dtype=np.bool_)
    np.not_equal(there[1:], there[:-1], out=first[1:])
    if not _same_as_before(rows, keys, ~first):
        # two keys share a 64-bit hash: separate them
        rows = rows.sort(HASH, *keys, maintain_order=True)
        first = rows.select(_changes((HASH, *keys))).to_series().to_numpy().copy()
        first[:1] = True
    return Ordered(rows, first)


def _same_as_before(rows: pl.DataFrame, keys: tuple[str, ...], marked: npt.NDArray[np.bool_]) -> bool:
    """Whether each marked row has the keys of the row before it."""
    many = np.count_nonzero(marked)
    if not many or not keys:
        return True
    if many > _MOST_GATHERED * rows.height:  # cheaper over all
        return not (rows.select(_changes(keys)).to_series().to_numpy() & marked).any()
    mine, at = rows.select(keys), np.flatnonzero(marked)
    return mine[at].equals(mine[at - 1], null_equal=True)


def _hash_order(hashes: pl.Series) -> pl.Series | None:
    """The row numbers in the order of the hashes, equal ones in row order; None if the rows are in that order."""
    there = hashes.to_numpy()
    falls = np.count_nonzero(there[1:] < there[:-1])
    if not falls:
        return None
    if falls < _FEW_STRETCHES:  # each run and message is sorted; this sort finds and merges them
        return pl.Series(np.argsort(there, kind="stable"))
    return hashes.to_frame().select(pl.arg_sort_by(hashes.name, maintain_order=True)).to_series()


def _changes(names: tuple[str, ...]) -> pl.Expr:
    """Whether any of the columns differs from the row before."""
    return pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names)


def total_order(rows: pl.DataFrame) -> pl.Series | None:
    """The row numbers in the order (event time, partition, offset, input); None if the rows are in that order.

    Rows come as a few sorted stretches; a stable merge sort finds and merges them.
    """
    if INPUT in rows.columns:
        return rows.select(pl.arg_sort_by(*ORDER, INPUT, maintain_order=True)).to_series()
    order = _offset_order(rows[PARTITION].to_numpy(), rows[SEQUENCE].to_numpy())
    times = rows[TIME].to_numpy()
    if order is not None:
        times = times[order]
    if (times[1:] < times[:-1]).any():
        later = np.argsort(times, kind="stable")
        order = later if order is None else order[later]
    return None if order is None else pl.Series(order)


def _offset_order(
    partition: npt.NDArray[np.uint32], sequence: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64] | None:
    """The row numbers in the order (partition, offset); None if the rows are in that order."""
    apart = partition[1:] != partition[:-1]
    if not ((partition[1:] < partition[:-1]) | (~apart & (sequence[1:] < sequence[:-1]))).any():
        return None
    # sorted stretches of one partition: usually concatenating them is enough
    starts = np.flatnonzero(np.append(True, apart | (sequence[1:] < sequence[:-1])))
    ends = np.append(starts[1:], len(partition))
    at = np.lexsort((sequence[starts], partition[starts]))
    order = np.concatenate([np.arange(starts[s], ends[s]) for s in at]) if len(at) < 1_000 else None
    if order is not None:
        last, first = ends[at][:-1] - 1, starts[at][1:]
        if ((partition[last] < partition[first]) | (sequence[last] <= sequence[first])).all():
            return order
    order = np.argsort(sequence, kind="stable")
    return order[np.argsort(partition[order], kind="stable")]
