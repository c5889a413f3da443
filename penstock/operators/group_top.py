"""Rank the rows of every group and keep the k best: a top-k that other operators follow.

The operator reads the rows of an aggregate. At each instant it emits the k best rows of each group with their rank;
with `changes_only`, only rankings that differ from the group's last one. Ties are broken by key.
State: `best`, each group's last ranking; and for running totals `totals`, the latest row of every key, from which a
ranking is computed again when one of its rows got worse.

Rows of one instant arrive in one epoch, because the aggregate emits them when the watermark passes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import TIME, Operator, Progress, SliceState
from penstock.operators.time_windows import to_datetime
from penstock.operators.top_k import TopK
from penstock.state.buckets import HASH
from penstock.state.table import Table

_BEST, _RANK, _TEXT = "_best", "rank", "_text"


@dataclass(frozen=True)
class GroupTop(Operator):
    """A top-k for each value of `keys`; `columns` are those of the incoming rows."""

    kind: ClassVar[str] = "group-top"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    top: TopK
    columns: tuple[tuple[str, pl.DataType], ...]

    @property
    def partitioning(self) -> tuple[str, ...]:
        return self.keys

    @property
    def can_pre_reduce(self) -> bool:
        return not self.top.running

    def schema(self) -> dict[str, pl.DataType]:
        """The columns of a ranking."""
        return self.top.schema(dict(self.columns))

    def needs(self, port: int = 0) -> set[str]:
        return {name for name, _ in self.columns}

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        rows = frame.select(TIME, *(name for name, _ in self.columns))
        return rows if self.top.running else self._rank(rows).drop(_RANK)

    def combine(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return frame if self.top.running else self._rank(frame).drop(_RANK)

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        best = state.table("best", keys=self.keys)
        best.compact()
        totals = state.table("totals", keys=(*self.keys, *self._identity)) if self.top.running else None
        if totals is not None:
            totals.compact()
        if frame is None or not frame.height:
            return None
        rankings = self._rank(frame) if totals is None else self._rank_running(frame, best, totals)
        results = self._select_results(rankings, best)
        if totals is not None:
            latest = frame.sort(TIME).unique([*self.keys, *self._identity], keep="last", maintain_order=True)
            totals.insert(latest.select(HASH, *self.keys, *self._identity, *self._rest))
        return results

    # -- rankings --------------------------------------------------------------------------------

    def _rank_running(self, frame: pl.DataFrame, best: Table, totals: Table) -> pl.DataFrame:
        """At each instant, the ranking of every group in which a total changed."""
        current = self._last_rankings(frame.select(HASH, *self.keys).unique(maintain_order=True), best)
        stored: pl.DataFrame | None = None
        rankings = []
        for step in frame.sort(TIME).partition_by(TIME, maintain_order=True):
            at: int = step[TIME][0]
            changed = step.select(*self._members)
            touched = current.join(changed, on=self._group, how="semi", nulls_equal=True)
            others = current.join(changed, on=self._group, how="anti", nulls_equal=True)
            if self._has_worse(changed, touched):
                stored = totals.all() if stored is None else stored
                recent = frame.filter(pl.col(TIME) <= at).sort(TIME).select(*self._members)
                known = recent if stored is None else pl.concat([stored.select(*self._members), recent])
                touched = known.join(changed, on=self._group, how="semi", nulls_equal=True)
            rows = pl.concat([touched.select(*self._members), changed])
            rows = rows.unique(self._row_key, keep="last", maintain_order=True)
            ranked = self._rank(rows.with_columns(pl.lit(at, pl.Int64).alias(TIME)))
            current = pl.concat([others.select(*self._members), ranked.select(*self._members)])
            rankings.append(ranked.with_columns(to_datetime(pl.lit(at + 1)).alias("as_of")))
        return pl.concat(rankings)

    def _select_results(self, rankings: pl.DataFrame, best: Table) -> pl.DataFrame | None:
        """The rankings to emit; stores the last one of each group."""
        group = self._group
        packed = (
            rankings.sort(TIME, _RANK)
            .group_by(*group, TIME, maintain_order=True)
            .agg(pl.struct(*self._identity, *self._rest).alias(_BEST))
            .with_columns(_to_text(_BEST).alias(_TEXT))
        )
        if self.top.changes_only:
            heads = packed.select(*group).unique(maintain_order=True)
            stored = heads.with_columns(
                pl.lit(None, pl.Int64).alias(TIME),
                best.lookup(heads, [_BEST])[_BEST].cast(packed.schema[_BEST]),
            )
            stored = stored.filter(pl.col(_BEST).is_not_null()).with_columns(_to_text(_BEST).alias(_TEXT))
            history = pl.concat([stored.select(packed.columns), packed])
            previous = pl.col(_TEXT).shift(1).over(group)
            changed = history.filter(pl.col(TIME).is_not_null() & pl.col(_TEXT).ne_missing(previous))
            rankings = rankings.join(
                changed.select(*group, TIME), on=[*group, TIME], how="semi", nulls_equal=True
            )
        latest = packed.unique(group, keep="last", maintain_order=True)
        best.insert(latest.select(HASH, *self.keys, _BEST))
        if not rankings.height:
            return None
        return rankings.select(TIME, HASH, *self.schema())

    # -- rows ------------------------------------------------------------------------------------

    def _rank(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The k best rows of each group and instant, with their rank."""
        group = [TIME, *self.keys]
        ordered = rows.sort(
            self.top.by,
            *self.top.keys,
            descending=[self.top.descending, *[False] * len(self.top.keys)],
            nulls_last=True,
        )
        rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over(group).alias(_RANK)
        return ordered.with_columns(rank).filter(pl.col(_RANK) <= self.top.k)

    def _last_rankings(self, groups: pl.DataFrame, best: Table) -> pl.DataFrame:
        """The rows of the last rankings of these groups."""
        dtypes = dict(self.columns)
        row = pl.Struct({name: dtypes[name] for name in (*self._identity, *self._rest)})
        stored = best.lookup(groups, [_BEST])[_BEST].cast(pl.List(row))
        rows = groups.with_columns(stored.alias(_BEST)).explode(_BEST)
        return rows.filter(pl.col(_BEST).is_not_null()).unnest(_BEST).select(*self._members)

    def _has_worse(self, changed: pl.DataFrame, ranked: pl.DataFrame) -> bool:
        """Whether a changed row of a ranking ranks below what it was."""
        before = ranked.select(*self._row_key, pl.col(self.top.by).alias("_before"))
        both = changed.join(before, on=self._row_key, nulls_equal=True)
        return bool(both.select(self.top.is_worse(pl.col(self.top.by), pl.col("_before")).any()).item())

    @property
    def _group(self) -> list[str]:
        return [HASH, *self.keys]

    @property
    def _row_key(self) -> list[str]:
        return [HASH, *self.keys, *self._identity]

    @property
    def _members(self) -> list[str]:
        """The columns of a ranked row."""
        return [HASH, *self.keys, *self._identity, *self._rest]

    @property
    def _identity(self) -> list[str]:
        """The columns that identify a row in its group."""
        return [key for key in self.top.keys if key not in self.keys]

    @property
    def _rest(self) -> list[str]:
        known = {*self.keys, *self._identity, *self.top.when}
        return [name for name, _ in self.columns if name not in known]

    def describe(self) -> str:
        return f"{self.top.describe()}, per {', '.join(self.keys)}" if self.keys else self.top.describe()


def _to_text(column: str) -> pl.Expr:
    """A list of rows as one text, equal for equal lists."""
    row = pl.element().struct.json_encode()
    return pl.col(column).list.eval(row).list.join("\n")


def columns_of(schema: Mapping[str, pl.DataType]) -> tuple[tuple[str, pl.DataType], ...]:
    """A schema as a field of an operator."""
    return tuple(schema.items())
