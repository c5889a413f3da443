"""Top-k: every slice keeps the best of its buckets; the gather makes one answer of the slices' answers.

Receives the rows of an aggregate; hands the k best rows of each window, or of the running totals whenever
the answer changed.
State: `best`, the k best rows of every bucket, so that the buckets can be dealt out anew at any epoch.
Ties are broken by key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from penstock.operators.contract import NEVER, TIME, SliceState
from penstock.state.buckets import HASH, buckets_of

_BUCKET = "_bucket"

#: all rows of the slice as they stood at an instant
Refill = Callable[[int], pl.DataFrame]


@dataclass(frozen=True)
class TopK:
    """The `k` rows with the greatest (or least) `by`.

    `keys` tell rows apart. `running`: rows are totals that replace their key's former row; else every
    window stands for itself. `changes_only`: an answer equal to the one before it is not told again.
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
        """The columns that say of when an answer is; others of these names are the user's own."""
        return ("as_of",) if self.running else ("window_start", "window_end")

    def schema(self, incoming: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        when = [name for name in self.when if name in incoming]
        rest = {name: dtype for name, dtype in incoming.items() if name not in when}
        return {name: incoming[name] for name in when} | {"rank": pl.Int32()} | rest

    # -- on a slice ------------------------------------------------------------------------------

    def local(self, rows: pl.DataFrame | None, state: SliceState, refill: Refill) -> pl.DataFrame | None:
        """The slice's candidates: at each instant its best rows.

        For running totals only where they changed, and as they stood before the epoch at the instant `NEVER`.
        """
        if rows is not None and not rows.height:
            rows = None
        if not self.running:
            return None if rows is None else self.candidates(rows)
        stored = state.table("best", keys=self.keys)
        best = before = stored.all()
        told = [self._told(best, NEVER)] if best is not None else []
        if rows is not None:
            steady = best is not None and self._steady(rows, best)
            rows = self._with_bucket(rows, state)
            if steady and best is not None and self.changes_only:
                rows = self._promising(rows, best)
            for step in rows.sort(TIME).partition_by(TIME, maintain_order=True):
                instant: int = step[TIME][0]
                if best is not None and not steady and self._worsened(step, best):
                    best = self._best(self._with_bucket(refill(instant), state), _BUCKET)
                else:
                    best = self._improved(best, step.drop(TIME))
                answer = self._told(best, instant)
                if not (self.changes_only and told and told[-1].drop(TIME).equals(answer.drop(TIME))):
                    told.append(answer)
        if best is not None and best is not before:
            stored.empty()
            stored.insert(best)
        return pl.concat(told) if told else None

    def candidates(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A slice's best rows of every window."""
        return self._best(rows, TIME)

    def _improved(self, best: pl.DataFrame | None, step: pl.DataFrame) -> pl.DataFrame:
        """The best rows per bucket once some keys have new totals."""
        if best is not None:
            kept = best.join(step, on=self._identity, how="anti", nulls_equal=True)
            step = pl.concat([kept, step.select(kept.columns)])
        return self._best(step, _BUCKET)

    def _steady(self, rows: pl.DataFrame, best: pl.DataFrame) -> bool:
        """Whether no row of the epoch is worse than an earlier one of its key: then rows only ever rise.

        An aggregate gives the rows of a key next to each other, in order of time.
        """
        if self._worsened(rows, best):
            return False
        hashes, values = rows[HASH], rows[self.by]
        fell = values[1:] < values[:-1] if self.descending else values[1:] > values[:-1]
        fell = fell.fill_null(False) | (values[1:].is_null() & values[:-1].is_not_null())
        return not ((hashes[1:] == hashes[:-1]) & fell).any()

    def _worsened(self, rows: pl.DataFrame, best: pl.DataFrame) -> bool:
        known = rows[HASH].is_in(best[HASH].implode())  # few rows: spares a hash table of all keys
        met = (
            rows.select(*self._identity, self.by)
            .filter(known)
            .join(
                best.select(*self._identity, pl.col(self.by).alias("_was")),
                on=self._identity,
                nulls_equal=True,
            )
        )
        return bool(met.select(self.worse(pl.col(self.by), pl.col("_was")).any()).item())

    def worse(self, value: pl.Expr, was: pl.Expr) -> pl.Expr:
        """Whether a value ranks below a former one; null ranks below everything."""
        below = value < was if self.descending else value > was
        return below | (value.is_null() & was.is_not_null())

    @property
    def _identity(self) -> list[str]:
        """What tells rows apart: their keys, and the hash so that there is something without keys."""
        return [HASH, *self.keys]

    def _promising(self, rows: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
        """Leave out rows that cannot enter their bucket's best, where those can only get better."""
        bar = pl.col(self.by).min() if self.descending else pl.col(self.by).max()
        # a null is beaten by anything, so a bucket's nulls count as free places
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

    def _told(self, best: pl.DataFrame, instant: int) -> pl.DataFrame:
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
        """The rows to put out, and the last answer told, from the candidates of all slices."""
        frames = [frame for frame in candidates if frame.height]
        if not frames:
            return None, last
        answers = [
            (step[TIME][0], step)
            for step in self._put_together(frames).partition_by(TIME, maintain_order=True)
            if step[TIME][0] != NEVER
        ]
        out = []
        for instant, answer in answers:
            rows = answer.drop(TIME, HASH, *self.when, strict=False)
            if self.changes_only and last is not None and rows.equals(last):
                continue
            last = rows
            if self.running:
                as_of = pl.lit(instant + 1).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias("as_of")
                answer = answer.with_columns(as_of)
            rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int32).alias("rank")
            out.append(answer.drop(HASH, strict=False).with_columns(rank))
        if not out:
            return None, last
        rows = pl.concat(out)
        return rows.select(
            TIME, *self.schema({n: t for n, t in rows.schema.items() if n not in (TIME, "rank")})
        ), last

    def merged(self, candidates: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """The candidates of several slices as those of one."""
        frames = [frame for frame in candidates if frame.height]
        return self._put_together(frames) if frames else None

    def _put_together(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """At each instant at which some slice told something: the best of what all slices last told."""
        if not self.running:
            return self._best(pl.concat(frames), TIME)
        steps: dict[int, dict[int, pl.DataFrame]] = {}
        for slice_, frame in enumerate(frames):
            for step in frame.partition_by(TIME, maintain_order=True):
                steps.setdefault(step[TIME][0], {})[slice_] = step
        latest: dict[int, pl.DataFrame] = {}
        answers = []
        for instant in sorted(steps):
            latest |= steps[instant]
            together = pl.concat(latest.values()).with_columns(pl.lit(instant, pl.Int64).alias(TIME))
            answers.append(self._best(together, TIME))
        return pl.concat(answers)

    def describe(self) -> str:
        order = "greatest" if self.descending else "least"
        told = ", told when it changes" if self.changes_only else ""
        return f"top {self.k} by {order} {self.by}{told}"
