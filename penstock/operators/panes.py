"""Operators over panes of time: the sender's part, which all of them share.

Receives events; hands one row per key and pane, the partial answers of its events. However many windows a pane is
in, an event is taken into one partial answer once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.contract import TIME, Operator, SliceState
from penstock.operators.functions import AggregateFunction, add_sequence
from penstock.operators.key_codes import CODE, EncodedColumn, KeyDictionary
from penstock.operators.partials import PANE, merge_partials
from penstock.operators.time_windows import Panes
from penstock.state.buckets import HASH, mixed, with_hash

_PACKED = "_packed"


@dataclass(frozen=True)
class PaneOperator(Operator):
    """Aggregates per key over windows of time, whose events arrive as partial answers per pane.

    Commutative: inside an epoch the order of events does not matter.
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

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        if any(a.sequential for a in self.aggregates):
            frame = add_sequence(frame)
        held = self.window.held(pl.col(TIME))
        if held is not None:
            frame = frame.filter(held)
        pane = self.pane().alias(PANE)
        if self.keys and _mostly_apart(frame, self.keys):
            rows = frame.select(*self.keys, pane, *(e for a in self.aggregates for e in a.from_event()))
            return merge_partials(with_hash(rows, self.keys), self.keys, self.aggregates).rows
        reduced = frame.group_by(*self.keys, pane).agg(e for a in self.aggregates for e in a.from_events())
        # whichever way, the same columns in the same order: the receiver puts them one below the other
        return with_hash(reduced, self.keys).select(HASH, *self.keys, PANE, *partial_columns(self.aggregates))

    def prepare_encoded(self, frame: pl.DataFrame, keys: KeyDictionary) -> pl.DataFrame:
        """The same of rows of jobs whose keys are numbers: the first key is the job, the others are in one number.

        Job, keys and pane are put into one number, by which rows are grouped.
        """
        held = self.window.held(pl.col(TIME))
        if held is not None:
            frame = frame.filter(held)
        if not frame.height:
            return self.prepare(frame.drop(CODE).with_columns(keys.decode(frame[CODE].to_numpy())))
        job, codes = self.keys[0], frame[CODE].to_numpy()
        panes = frame.select(self.pane().alias(PANE))[PANE].to_numpy()
        jobs = frame[job].to_numpy().astype(np.int64)
        step, first, least = self.window.step, int(panes.min()), int(jobs.min())
        many_panes, many_jobs = int(panes.max() - first) // step + 1, int(jobs.max()) - least + 1
        if many_jobs * many_panes * (int(codes.max()) + 1) >= 2**62:
            rows = frame.sort(CODE)
            return self.prepare(rows.drop(CODE).with_columns(keys.decode(rows[CODE].to_numpy())))
        packed = (codes * many_panes + (panes - first) // step) * many_jobs + (jobs - least)
        reduced = (
            frame.drop(CODE)
            .with_columns(pl.Series(_PACKED, packed))
            .group_by(_PACKED)
            .agg(e for a in self.aggregates for e in a.from_events())
            .sort(_PACKED)
        )
        rest, jobs = np.divmod(reduced[_PACKED].to_numpy(), many_jobs)
        codes, places = np.divmod(rest, many_panes)
        made = reduced.with_columns(
            pl.Series(job, jobs + least, dtype=frame.schema[job]),
            pl.Series(PANE, places * step + first),
            pl.Series(CODE, codes),
        )
        return self.decode_keys(made, keys)

    def decode_keys(self, cells: pl.DataFrame, keys: KeyDictionary) -> pl.DataFrame:
        """Partial answers, in order of the numbers that stand for their keys, with the keys themselves; sorted by hash.

        What a value has of the hash is computed once, and no text is moved before the order is known.
        """
        columns = [EncodedColumn.of(cells[self.keys[0]]), *keys.columns(cells[CODE].to_numpy())]
        hashes = pl.Series(HASH, mixed([column.hashes[column.codes] for column in columns]))
        order = hashes.to_frame().select(pl.arg_sort_by(HASH, maintain_order=True)).to_series()
        at = order.to_numpy()
        named = [column.values.gather(column.codes[at]) for column in columns]
        rest = cells.select(PANE, *partial_columns(self.aggregates))[order]
        return pl.DataFrame([hashes.gather(order), *named]).hstack(rest)

    def pane(self) -> pl.Expr:
        """The pane of an event."""
        return self.window.pane(pl.col(TIME))

    def combine(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return merge_partials(frame, self.keys, self.aggregates).rows

    def take_due(
        self, frame: pl.DataFrame | None, state: SliceState, kept: int, low: int, high: int
    ) -> pl.DataFrame | None:
        """The partial answers of the panes from `low` to before `high`, which may be the same; None without any.

        What came now is put to what waits, and what is before `kept` forgotten.
        """
        waiting = state.journal("open", time=PANE)
        earlier = waiting.rows(low, high) if low < high else None
        waiting.empty(kept)
        if frame is not None and frame.height:
            later = frame.filter(pl.col(PANE) >= kept)
            if later.height:
                waiting.insert(self.combine(later))
            panes = frame[PANE].to_numpy()
            if panes.min() < low or panes.max() >= high:
                frame = frame.filter(pl.col(PANE).is_between(low, high, closed="left"))
        waiting.compact(kept, self.combine)
        return concat_frames(earlier, frame)

    def describe(self) -> str:
        what = ", ".join(aggregate.describe() for aggregate in self.aggregates)
        return f"{what} per {', '.join(self.keys) or 'everything'} over {self.describe_windows()}"

    def describe_windows(self) -> str:
        """What the aggregates are over, for `describe`."""
        return self.window.describe()


def partial_columns(aggregates: Sequence[AggregateFunction]) -> list[str]:
    """The columns of the partial answers."""
    return [part for aggregate in aggregates for part in aggregate.parts()]


def concat_frames(*frames: pl.DataFrame | None) -> pl.DataFrame | None:
    """The rows of those frames that have any, one below the other; None when there are none."""
    some = [frame for frame in frames if frame is not None and frame.height]
    return pl.concat([frame.select(some[0].columns) for frame in some]) if some else None


def _mostly_apart(frame: pl.DataFrame, keys: tuple[str, ...]) -> bool:
    """Whether a sample of the rows has few equal keys: then sorting by hash beats a hash table of texts."""
    sample = frame.select(keys).head(4_096)
    return sample.n_unique() * 2 > sample.height
