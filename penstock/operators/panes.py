"""Reduce events to partial aggregates per key and pane, the part that all operators over panes of time share.

The sender makes one row per key and pane of its events. However many windows contain a pane, each event goes into one
partial aggregate. The receiver keeps partial aggregates in a journal until their pane is due.

Partial aggregates are merged by sorting instead of hashing. Sorting by one 64-bit number and comparing neighbours takes
half the time of a hash table over texts. It also leaves the rows in the order in which runs are written and buckets are
split. Keys are compared as they are, so two keys with the same hash stay two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.contract import TIME, Operator, SliceState
from penstock.operators.functions import AggregateFunction, add_sequence
from penstock.operators.key_codes import CODE, EncodedColumn, KeyDictionary
from penstock.operators.strict import Ordered, group_by_key
from penstock.operators.time_windows import Panes
from penstock.state.buckets import HASH, combine_hashes, expand_row_ranges, with_hash

#: the instant that names a pane: its start, or its end where a pane is the window of a job (Int64)
PANE = "_pane"
#: up to this share of (key, pane) pairs with several rows, only these are merged
_MOST_MERGED = 0.6
_PACKED = "_packed"


@dataclass(frozen=True)
class PaneOperator(Operator):
    """Aggregates per key over time windows; its events arrive as partial aggregates per pane.

    Commutative: the order of events within an epoch does not matter.
    """

    keys: tuple[str, ...]
    window: Panes
    aggregates: tuple[AggregateFunction, ...]

    @property
    def partitioning(self) -> tuple[str, ...]:
        return self.keys

    @property
    def pushdown_keys(self) -> tuple[str, ...]:
        return self.keys

    def needs(self, port: int = 0) -> set[str]:
        return {*self.keys, *(column for a in self.aggregates for column in a.input_columns())}

    def pane(self) -> pl.Expr:
        """The pane of an event."""
        return self.window.pane(pl.col(TIME))

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        if any(a.sequential for a in self.aggregates):
            frame = add_sequence(frame)
        frame, pane = self._in_windows(frame), self.pane().alias(PANE)
        if self.keys and _is_mostly_distinct(frame, self.keys):
            rows = frame.select(*self.keys, pane, *(e for a in self.aggregates for e in a.from_event()))
            return self.combine(with_hash(rows, self.keys))
        reduced = frame.group_by(*self.keys, pane).agg(e for a in self.aggregates for e in a.from_events())
        # both ways give the same columns in the same order, because the receiver concatenates the frames
        return with_hash(reduced, self.keys).select(HASH, *self.keys, PANE, *partial_columns(self.aggregates))

    def prepare_encoded(self, frame: pl.DataFrame, keys: KeyDictionary) -> pl.DataFrame:
        """Reduce the rows of a template group's jobs, as `prepare` does, with dictionary-encoded keys.

        The first key is the job, and one number stands for the others. Job, keys and pane are packed into a single
        number to group by.
        """
        frame = self._in_windows(frame)
        if not frame.height:
            return self._prepare_decoded(frame, keys)
        job, codes = self.keys[0], frame[CODE].to_numpy()
        panes = frame.select(self.pane().alias(PANE))[PANE].to_numpy()
        jobs = frame[job].to_numpy().astype(np.int64)
        step, first, least = self.window.step, int(panes.min()), int(jobs.min())
        pane_count, job_count = int(panes.max() - first) // step + 1, int(jobs.max()) - least + 1
        if job_count * pane_count * (int(codes.max()) + 1) >= 2**62:  # too wide for one number
            return self._prepare_decoded(frame.sort(CODE), keys)
        packed = (codes * pane_count + (panes - first) // step) * job_count + (jobs - least)
        reduced = (
            frame.drop(CODE)
            .with_columns(pl.Series(_PACKED, packed))
            .group_by(_PACKED)
            .agg(e for a in self.aggregates for e in a.from_events())
            .sort(_PACKED)
        )
        rest, jobs = np.divmod(reduced[_PACKED].to_numpy(), job_count)
        codes, pane_numbers = np.divmod(rest, pane_count)
        partials = reduced.with_columns(
            pl.Series(job, jobs + least, dtype=frame.schema[job]),
            pl.Series(PANE, pane_numbers * step + first),
            pl.Series(CODE, codes),
        )
        return self.decode_keys(partials, keys)

    def _prepare_decoded(self, frame: pl.DataFrame, keys: KeyDictionary) -> pl.DataFrame:
        return self.prepare(frame.drop(CODE).with_columns(keys.decode(frame[CODE].to_numpy())))

    def decode_keys(self, partials: pl.DataFrame, keys: KeyDictionary) -> pl.DataFrame:
        """Replace the codes of partial aggregates, which are in ascending order, by the keys; sort by hash.

        The hash of each distinct value is computed once, and no text is moved before the order is known.
        """
        columns = [EncodedColumn.of(partials[self.keys[0]]), *keys.columns(partials[CODE].to_numpy())]
        hashes = pl.Series(HASH, combine_hashes([column.hashes[column.codes] for column in columns]))
        order = hashes.to_frame().select(pl.arg_sort_by(HASH, maintain_order=True)).to_series()
        at = order.to_numpy()
        key_columns = [column.values.gather(column.codes[at]) for column in columns]
        rest = partials.select(PANE, *partial_columns(self.aggregates))[order]
        return pl.DataFrame([hashes.gather(order), *key_columns]).hstack(rest)

    def _in_windows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The events that are in any window."""
        held = self.window.covers(pl.col(TIME))
        return frame if held is None else frame.filter(held)

    def combine(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return merge_partials(frame, self.keys, self.aggregates).rows

    def take_panes(
        self, frame: pl.DataFrame | None, state: SliceState, keep_from: int, low: int, high: int
    ) -> pl.DataFrame | None:
        """The partial aggregates of the panes from `low` to before `high` (which may be equal); None without any.

        Stores the new ones of the panes from `keep_from` on, and drops stored ones of earlier panes.
        """
        journal = state.journal("open", time=PANE)
        earlier = journal.rows(low, high) if low < high else None
        journal.empty(keep_from)
        if frame is not None and frame.height:
            later = frame.filter(pl.col(PANE) >= keep_from)
            if later.height:
                journal.insert(self.combine(later))
            panes = frame[PANE].to_numpy()
            if panes.min() < low or panes.max() >= high:
                frame = frame.filter(pl.col(PANE).is_between(low, high, closed="left"))
        journal.compact(keep_from, self.combine)
        return concat_frames(earlier, frame)

    def describe(self) -> str:
        return describe_aggregation(self.aggregates, self.keys, self.describe_windows())

    def describe_windows(self) -> str:
        """What the aggregates are over, for `describe`."""
        return self.window.describe()


def merge_partials(
    rows: pl.DataFrame, keys: tuple[str, ...], functions: Sequence[AggregateFunction]
) -> Ordered:
    """Merge the partial aggregates of equal (key, pane); the result is grouped by key, with panes in order."""
    order = None
    if not _panes_ascend(rows):
        order = rows.select(pl.arg_sort_by(PANE, maintain_order=True)).to_series()
    ordered = group_by_key(rows, keys, order)
    rows, panes = ordered.rows, ordered.rows[PANE].to_numpy()
    if ((panes[1:] < panes[:-1]) & ~ordered.first[1:]).any():
        order = pl.Series(pane_positions(ordered)[0]).arg_sort()
        rows, panes = rows[order], panes[order.to_numpy()]
    new = ordered.first.copy()
    new[1:] |= panes[1:] != panes[:-1]
    starts = np.flatnonzero(new)
    if len(starts) == rows.height:
        parts = [part for function in functions for part in function.parts()]
        return Ordered(rows.select(HASH, *keys, PANE, *parts), ordered.first)
    merged = _merge_ranges(rows, starts, functions)
    return Ordered(rows.select(HASH, *keys, PANE)[starts].hstack(merged), ordered.first[starts])


def _merge_ranges(
    rows: pl.DataFrame, starts: npt.NDArray[np.int64], functions: Sequence[AggregateFunction]
) -> list[pl.Series]:
    """The partial aggregate of each range of rows; ranges begin at `starts`. A range of one row stays as it is."""
    ends = np.append(starts[1:], rows.height)
    several = np.flatnonzero(ends - starts > 1)
    if not functions or len(several) > _MOST_MERGED * len(starts):
        return [column for function in functions for column in function.merge_ranges(rows, starts, ends)]
    parts = rows.select(part for function in functions for part in function.parts())
    low, high = starts[several], ends[several]
    ends = np.cumsum(high - low)
    chosen = parts[expand_row_ranges(low, high)[1]]
    merged = [column for f in functions for column in f.merge_ranges(chosen, ends - (high - low), ends)]
    at = starts.copy()
    at[several] = rows.height + np.arange(len(several))
    return pl.concat([parts, pl.DataFrame(merged)], rechunk=True)[at].get_columns()


def _panes_ascend(rows: pl.DataFrame) -> bool:
    """Whether panes ascend from each stretch of rows that is sorted by hash to the next, as they do from run to run.

    Then grouping by hash leaves the panes of a hash in order.
    """
    hashes, panes = rows[HASH].to_numpy(), rows[PANE].to_numpy()
    starts = np.flatnonzero(np.append(True, hashes[1:] < hashes[:-1]))
    if rows.height < 2 or len(starts) == 1:
        return True
    least, most = np.minimum.reduceat(panes, starts), np.maximum.reduceat(panes, starts)
    return bool((np.maximum.accumulate(most)[:-1] <= least[1:]).all())


def pane_positions(ordered: Ordered) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each row the rank of its (key, pane), and the distinct panes in order.

    The ranks of a key start at its number times one more than there are panes.
    """
    distinct = ordered.rows[PANE].unique().sort().to_numpy()
    rank = np.searchsorted(distinct, ordered.rows[PANE].to_numpy())
    return ordered.number * (len(distinct) + 1) + rank, distinct


def partial_columns(aggregates: Sequence[AggregateFunction]) -> list[str]:
    """The columns of the partial aggregates."""
    return [part for aggregate in aggregates for part in aggregate.parts()]


def describe_aggregation(aggregates: Sequence[AggregateFunction], keys: Sequence[str], windows: str) -> str:
    """An aggregation on one line, for `explain`."""
    what = ", ".join(aggregate.describe() for aggregate in aggregates)
    return f"{what} per {', '.join(keys) or 'everything'} over {windows}"


def concat_frames(*frames: pl.DataFrame | None) -> pl.DataFrame | None:
    """The rows of all frames; None if there are none."""
    some = [frame for frame in frames if frame is not None and frame.height]
    return pl.concat([frame.select(some[0].columns) for frame in some]) if some else None


def _is_mostly_distinct(frame: pl.DataFrame, keys: tuple[str, ...]) -> bool:
    """Whether a sample of the rows has few equal keys: then sorting by hash beats a hash table of texts."""
    sample = frame.select(keys).head(4_096)
    return sample.n_unique() * 2 > sample.height
