"""Rank rows: every slice selects the best of its buckets, and the gather merges the slices' candidates.

The input is the rows of an aggregate. The output is the k best rows of each window, or of running totals whenever the
ranking changes. Ties are broken by key.
State: `best`, the k best rows of every bucket, so that buckets can migrate between slices at any epoch. Where it is
missing, because the ranking was dropped or did not run for a while, it is made again from the totals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import NEVER, TIME, SliceState
from penstock.state.buckets import HASH, buckets_of

_BUCKET = "_bucket"

#: all rows of the slice as of an instant, `NEVER` for the end of the last epoch; None if there are none
Refill = Callable[[int], pl.DataFrame | None]


@dataclass(frozen=True)
class TopK:
    """The `k` rows with the greatest (or least) `by`.

    `keys` identify rows. `running`: rows are totals that replace their key's former row; else every window is ranked
    by itself. `changes_only`: a ranking equal to the one before it is not emitted.
    """

    kind: ClassVar[str] = "top"
    state_version: ClassVar[int] = 1

    k: int
    by: str
    keys: tuple[str, ...]
    running: bool
    descending: bool = True
    changes_only: bool = True

    @property
    def when(self) -> tuple[str, ...]:
        """The columns that date a ranking; others of these names are the user's own."""
        return ("as_of",) if self.running else ("window_start", "window_end")

    def schema(self, incoming: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        when = [name for name in self.when if name in incoming]
        rest = {name: dtype for name, dtype in incoming.items() if name not in when}
        return {name: incoming[name] for name in when} | {"rank": pl.Int32()} | rest

    # -- on a slice ------------------------------------------------------------------------------

    def process_slice(
        self, rows: pl.DataFrame | None, state: SliceState, refill: Refill
    ) -> pl.DataFrame | None:
        """The slice's candidates: its best rows at each instant.

        For running totals only where they changed, and as they were before the epoch, at the instant `NEVER`.
        """
        if rows is not None and not rows.height:
            rows = None
        if not self.running:
            return None if rows is None else self.candidates(rows)
        stored = state.table("best", keys=self.keys)
        best = before = stored.all()
        if best is None and (totals := refill(NEVER)) is not None:
            best = self._best_of_all(totals, state)
        rankings = [self._rank(best, NEVER)] if best is not None else []
        if rows is not None:
            only_rises = best is not None and self._only_rises(rows, best)
            rows = self._with_bucket(rows, state)
            if only_rises and best is not None and self.changes_only:
                rows = self._promising(rows, best)
            for step in rows.sort(TIME).partition_by(TIME, maintain_order=True):
                instant: int = step[TIME][0]
                if best is not None and not only_rises and self._has_worse(step, best):
                    totals = refill(instant)
                    assert totals is not None, "those of this instant at least"
                    best = self._best_of_all(totals, state)
                else:
                    best = self._replace_rows(best, step.drop(TIME))
                ranking = self._rank(best, instant)
                if not (
                    self.changes_only and rankings and rankings[-1].drop(TIME).equals(ranking.drop(TIME))
                ):
                    rankings.append(ranking)
        if best is not None and best is not before:
            stored.empty()
            stored.insert(best)
        return pl.concat(rankings) if rankings else None

    def candidates(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A slice's best rows of every window."""
        return self._best(rows, TIME)

    def _best_of_all(self, rows: pl.DataFrame, state: SliceState) -> pl.DataFrame:
        """The best rows per bucket of all rows of the slice."""
        return self._best(self._with_bucket(rows, state), _BUCKET)

    def _replace_rows(self, best: pl.DataFrame | None, step: pl.DataFrame) -> pl.DataFrame:
        """The best rows per bucket after some keys got new totals."""
        if best is not None:
            others = best.join(step, on=self._identity, how="anti", nulls_equal=True)
            step = pl.concat([others, step.select(others.columns)])
        return self._best(step, _BUCKET)

    def _only_rises(self, rows: pl.DataFrame, best: pl.DataFrame) -> bool:
        """Whether no row of the epoch is worse than an earlier one of its key.

        An aggregate returns the rows of a key next to each other, in order of time.
        """
        if self._has_worse(rows, best):
            return False
        hashes, values = rows[HASH], rows[self.by]
        fell = values[1:] < values[:-1] if self.descending else values[1:] > values[:-1]
        fell = fell.fill_null(False) | (values[1:].is_null() & values[:-1].is_not_null())
        return not ((hashes[1:] == hashes[:-1]) & fell).any()

    def _has_worse(self, rows: pl.DataFrame, best: pl.DataFrame) -> bool:
        """Whether a row is worse than the best row of its key."""
        known = rows[HASH].is_in(best[HASH].implode())  # few rows: saves a hash table of all keys
        pairs = (
            rows.select(*self._identity, self.by)
            .filter(known)
            .join(
                best.select(*self._identity, pl.col(self.by).alias("_was")),
                on=self._identity,
                nulls_equal=True,
            )
        )
        return bool(pairs.select(self.is_worse(pl.col(self.by), pl.col("_was")).any()).item())

    def is_worse(self, value: pl.Expr, was: pl.Expr) -> pl.Expr:
        """Whether a value ranks below a former one. Null ranks below everything."""
        below = value < was if self.descending else value > was
        return below | (value.is_null() & was.is_not_null())

    @property
    def _identity(self) -> list[str]:
        """What identifies rows: their keys, and the hash, because there may be no keys."""
        return [HASH, *self.keys]

    def _promising(self, rows: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
        """The rows that may enter their bucket's best, where those can only get better."""
        bar = pl.col(self.by).min() if self.descending else pl.col(self.by).max()
        # any value beats a null, so a bucket's nulls count as free ranks
        bars = best.group_by(_BUCKET).agg(bar.alias("_bar"), pl.col(self.by).count().alias("_held"))
        value = pl.col(self.by)
        passes = value >= pl.col("_bar") if self.descending else value <= pl.col("_bar")
        return (
            rows.join(bars, on=_BUCKET, how="left", maintain_order="left")
            .filter((pl.col("_held") < self.k) | pl.col("_held").is_null() | passes)
            .drop("_bar", "_held")
        )

    def _with_bucket(self, rows: pl.DataFrame, state: SliceState) -> pl.DataFrame:
        buckets = buckets_of(rows[HASH].to_numpy(), state.bucket_count)
        return rows.with_columns(pl.Series(_BUCKET, buckets, dtype=pl.UInt16))

    def _rank(self, best: pl.DataFrame, instant: int) -> pl.DataFrame:
        top = self._best(best.drop(_BUCKET).with_columns(pl.lit(instant, pl.Int64).alias(TIME)), TIME)
        return top.drop(HASH).select(TIME, pl.exclude(TIME))

    def _best(self, rows: pl.DataFrame, group: str) -> pl.DataFrame:
        """The k best rows of each group, best first."""
        ordered = rows.sort(
            group,
            self.by,
            *self.keys,
            descending=[False, self.descending, *[False] * len(self.keys)],
            nulls_last=True,
        )
        return ordered.filter(pl.int_range(pl.len()).over(group) < self.k)

    # -- in the gather ---------------------------------------------------------------------------

    def gather(
        self, candidates: Sequence[pl.DataFrame], last: pl.DataFrame | None
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The rows to emit, and the last ranking emitted, from the candidates of all slices."""
        frames = [frame for frame in candidates if frame.height]
        if not frames:
            return None, last
        rankings = [
            (step[TIME][0], step)
            for step in self._merge_slices(frames).partition_by(TIME, maintain_order=True)
            if step[TIME][0] != NEVER
        ]
        out = []
        for instant, ranking in rankings:
            rows = ranking.drop(TIME, HASH, *self.when, strict=False)
            if self.changes_only and last is not None and rows.equals(last):
                continue
            last = rows
            if self.running:
                as_of = pl.lit(instant + 1).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias("as_of")
                ranking = ranking.with_columns(as_of)
            rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int32).alias("rank")
            out.append(ranking.drop(HASH, strict=False).with_columns(rank))
        if not out:
            return None, last
        rows = pl.concat(out)
        return rows.select(
            TIME, *self.schema({n: t for n, t in rows.schema.items() if n not in (TIME, "rank")})
        ), last

    def merge(self, candidates: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """Merge the candidates of several slices into one frame of candidates."""
        frames = [frame for frame in candidates if frame.height]
        return self._merge_slices(frames) if frames else None

    def _merge_slices(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """At each instant at which some slice has candidates: the best of the latest candidates of all slices."""
        if not self.running:
            return self._best(pl.concat(frames), TIME)
        steps: dict[int, dict[int, pl.DataFrame]] = {}
        for slice_, frame in enumerate(frames):
            for step in frame.partition_by(TIME, maintain_order=True):
                steps.setdefault(step[TIME][0], {})[slice_] = step
        latest: dict[int, pl.DataFrame] = {}
        rankings = []
        for instant in sorted(steps):
            latest |= steps[instant]
            together = pl.concat(latest.values()).with_columns(pl.lit(instant, pl.Int64).alias(TIME))
            rankings.append(self._best(together, TIME))
        return pl.concat(rankings)

    def describe(self) -> str:
        order = "greatest" if self.descending else "least"
        emission = ", emitted when it changes" if self.changes_only else ""
        return f"top {self.k} by {order} {self.by}{emission}"
