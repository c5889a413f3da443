"""Top-k of every group, as an operator of its own: what a top-k is where something else follows it.

Receives the rows of an aggregate; hands the k best rows of each group at each instant, with their rank, and with
`changes_only` those answers alone that differ from the group's last. Ties are broken by key.
State: `best`, each group's last answer; and for running totals `totals`, the latest row of every key, from which
an answer is made anew when one of its rows got worse.

Rows of one instant come in one epoch, since the aggregate tells them when the watermark passes it.
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

_BEST, _RANK, _ANSWER = "_best", "rank", "_answer"


@dataclass(frozen=True)
class GroupTop(Operator):
    """What `top` says, for each value of `keys`; `columns` are those of the incoming rows."""

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
        """The columns of an answer."""
        return self.top.schema(dict(self.columns))

    def needs(self, port: int = 0) -> set[str]:
        return {name for name, _ in self.columns}

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        rows = frame.select(TIME, *(name for name, _ in self.columns))
        return rows if self.top.running else self._ranked(rows).drop(_RANK)

    def combine(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return frame if self.top.running else self._ranked(frame).drop(_RANK)

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
        answers = self._ranked(frame) if totals is None else self._running(frame, best, totals)
        told = self._told(answers, best)
        if totals is not None:
            latest = frame.sort(TIME).unique([*self.keys, *self._identity], keep="last", maintain_order=True)
            totals.insert(latest.select(HASH, *self.keys, *self._identity, *self._rest))
        return told

    # -- answers ---------------------------------------------------------------------------------

    def _running(self, frame: pl.DataFrame, stored: Table, totals: Table) -> pl.DataFrame:
        """At each instant, the answer of every group in which a total changed."""
        current = self._unpacked(frame.select(HASH, *self.keys).unique(maintain_order=True), stored)
        before: pl.DataFrame | None = None
        answers = []
        for step in frame.sort(TIME).partition_by(TIME, maintain_order=True):
            at: int = step[TIME][0]
            changed = step.select(*self._members)
            touched = current.join(changed, on=self._of_group, how="semi", nulls_equal=True)
            others = current.join(changed, on=self._of_group, how="anti", nulls_equal=True)
            if self._worsened(changed, touched):
                before = totals.all() if before is None else before
                seen = frame.filter(pl.col(TIME) <= at).sort(TIME).select(*self._members)
                known = seen if before is None else pl.concat([before.select(*self._members), seen])
                touched = known.join(changed, on=self._of_group, how="semi", nulls_equal=True)
            together = pl.concat([touched.select(*self._members), changed])
            together = together.unique(self._one_row, keep="last", maintain_order=True)
            ranked = self._ranked(together.with_columns(pl.lit(at, pl.Int64).alias(TIME)))
            current = pl.concat([others.select(*self._members), ranked.select(*self._members)])
            answers.append(ranked.with_columns(to_datetime(pl.lit(at + 1)).alias("as_of")))
        return pl.concat(answers)

    def _told(self, answers: pl.DataFrame, best: Table) -> pl.DataFrame | None:
        """The answers that are news, and the last of each group remembered."""
        group = [HASH, *self.keys]
        packed = (
            answers.sort(TIME, _RANK)
            .group_by(*group, TIME, maintain_order=True)
            .agg(pl.struct(*self._identity, *self._rest).alias(_BEST))
            .with_columns(_text(_BEST).alias(_ANSWER))
        )
        if self.top.changes_only:
            heads = packed.select(*group).unique(maintain_order=True)
            last = best.lookup(heads, [_BEST])
            known = heads.with_columns(last[_BEST].cast(packed.schema[_BEST])).select(
                *group, pl.lit(None, pl.Int64).alias(TIME), _BEST
            )
            known = known.filter(pl.col(_BEST).is_not_null()).with_columns(_text(_BEST).alias(_ANSWER))
            lined_up = pl.concat([known.select(packed.columns), packed])
            previous = pl.col(_ANSWER).shift(1).over(group)
            news = lined_up.filter(pl.col(TIME).is_not_null() & pl.col(_ANSWER).ne_missing(previous))
            answers = answers.join(news.select(*group, TIME), on=[*group, TIME], how="semi", nulls_equal=True)
        latest = packed.unique(group, keep="last", maintain_order=True)
        best.insert(latest.select(HASH, *self.keys, _BEST))
        if not answers.height:
            return None
        return answers.select(TIME, HASH, *self.schema())

    # -- rows ------------------------------------------------------------------------------------

    def _ranked(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The k best rows of each group and instant, with their rank."""
        group = [TIME, *self.keys]
        ordered = rows.sort(
            self.top.by,
            *self.top.keys,
            descending=[self.top.descending, *[False] * len(self.top.keys)],
            nulls_last=True,
        )
        place = pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over(group).alias(_RANK)
        return ordered.with_columns(place).filter(pl.col(_RANK) <= self.top.k)

    def _unpacked(self, groups: pl.DataFrame, stored: Table) -> pl.DataFrame:
        """The rows of these groups' last answers."""
        found = stored.lookup(groups, [_BEST])[_BEST]
        dtypes = dict(self.columns)
        row = pl.Struct({name: dtypes[name] for name in (*self._identity, *self._rest)})
        rows = groups.with_columns(found.cast(pl.List(row)).alias(_BEST)).explode(_BEST)
        return rows.filter(pl.col(_BEST).is_not_null()).unnest(_BEST).select(*self._members)

    def _worsened(self, changed: pl.DataFrame, held: pl.DataFrame) -> bool:
        """Whether a row of an answer ranks below what it was."""
        was = held.select(*self._one_row, pl.col(self.top.by).alias("_was"))
        met = changed.join(was, on=self._one_row, nulls_equal=True)
        return bool(met.select(self.top.is_worse(pl.col(self.top.by), pl.col("_was")).any()).item())

    @property
    def _of_group(self) -> list[str]:
        return [HASH, *self.keys]

    @property
    def _one_row(self) -> list[str]:
        return [HASH, *self.keys, *self._identity]

    @property
    def _members(self) -> list[str]:
        """The columns of a row of an answer."""
        return [HASH, *self.keys, *self._identity, *self._rest]

    @property
    def _identity(self) -> list[str]:
        """What tells the rows of a group apart."""
        return [key for key in self.top.keys if key not in self.keys]

    @property
    def _rest(self) -> list[str]:
        known = {*self.keys, *self._identity, *self.top.when}
        return [name for name, _ in self.columns if name not in known]

    def describe(self) -> str:
        return f"{self.top.describe()}, per {', '.join(self.keys)}" if self.keys else self.top.describe()


def _text(column: str) -> pl.Expr:
    """A list of rows as one text: equal for equal lists."""
    row = pl.element().struct.json_encode()
    return pl.col(column).list.eval(row).list.join("\n")


def columns_of(schema: Mapping[str, pl.DataType]) -> tuple[tuple[str, pl.DataType], ...]:
    """A schema as an operator carries it."""
    return tuple(schema.items())
