"""Patterns: sequences of events of one key, each with its condition, within a time.

Receives events in strict order; hands a row for every match: at its last event, or, where an event must be absent or
starts that came to nothing are told too, once the time has passed.
State: `open`, a journal of partial matches due at their start plus `within`. A row replaces the former one of the
same start, and says whether the match still goes on; what is due is gone.

A match is told from the others of its hash by its start's time and the start's number among the events of its
epoch: events of one time all come in one epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import ORDER, TIME, Operator, Progress, SliceState
from penstock.operators.pattern_matching import (
    FAILED,
    OPEN,
    Bools,
    Matches,
    advance,
    concat_matches,
    skip_past,
    start_matches,
)
from penstock.operators.pattern_steps import PatternStage, PatternStep, build_stages
from penstock.operators.strict import Ordered, add_position, take_ordered
from penstock.operators.timeline import Ints, Timeline
from penstock.state.buckets import HASH
from penstock.state.collection import Journal

_DUE, _NTH, _STAGE, _FATE = "_due", "_nth", "_stage", "_fate"
#: the fate of a remembered match that is no more
_GONE = -1
_INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Pattern(Operator):
    """Matches of `steps` per key that take at most `within` microseconds from first to last event.

    `contiguous`: each event must be its key's very next one; else the first that fits is taken. `skip`: matches of a
    key do not overlap; else every event that fits the first step begins one. `timeouts`: starts that came to
    nothing are told too. `columns` of every event are told.
    """

    kind: ClassVar[str] = "pattern"
    state_version: ClassVar[int] = 1

    keys: tuple[str, ...]
    steps: tuple[PatternStep, ...]
    within: int
    columns: tuple[str, ...]
    contiguous: bool = False
    skip: bool = False
    timeouts: bool = False

    @property
    def partitioning(self) -> tuple[str, ...]:
        return self.keys

    @property
    def order(self) -> str:
        return "strict"

    @cached_property
    def stages(self) -> list[PatternStage]:
        return build_stages(self.steps)

    @cached_property
    def taking(self) -> list[str]:
        """The steps that take an event."""
        return [one.name for one in self.steps if not one.absent]

    @cached_property
    def kept(self) -> dict[str, tuple[str, str]]:
        """What a match remembers: its name, the step, and the column of that step's event."""
        told = [(step, column) for step in self.taking for column in (TIME, *self.columns)]
        asked = [place for stage in self.stages for place in stage.references.values()]
        return {f"{step}.{column}": (step, column) for step, column in dict.fromkeys(told + asked)}

    @property
    def waits(self) -> bool:
        """Whether something is told because time has passed."""
        return self.timeouts or self.steps[-1].absent

    def schema(self, incoming: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        found = {key: incoming[key] for key in self.keys}
        for step in self.taking:
            found[f"{step}_time"] = _INSTANT
            found |= {f"{step}_{column}": incoming[column] for column in self.columns}
        return found | ({"matched": pl.Boolean()} if self.timeouts else {})

    def needs(self, port: int = 0) -> set[str]:
        asked = {name for stage in self.stages for name in stage.own}
        return {*self.keys, *asked, *(column for _, column in self.kept.values() if column != TIME)}

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return add_position(frame).select(*ORDER, *sorted(self.needs()))

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        journal = state.journal("open", time=_DUE)
        ordered = take_ordered(frame, self.keys, state, progress)
        epoch = _Epoch(self, ordered, self._remembered(journal, ordered, progress))
        advance(epoch.matches, self.stages, epoch.values, self.contiguous)
        told = epoch.settle(progress)
        changed = epoch.changed(progress)
        if changed is not None:
            journal.insert(changed)
        journal.empty(progress.after)
        journal.compact(progress.after, _latest)
        return told

    def _remembered(
        self, journal: Journal, ordered: Ordered | None, progress: Progress
    ) -> pl.DataFrame | None:
        """The partial matches of the keys that have events now, and those whose time has come (if they may end
        others, with all of their key).

        Where it matters which began first, they stand in that order.
        """
        hashes = np.zeros(0, dtype=np.uint64)
        if ordered is not None:
            hashes = ordered.rows[HASH].to_numpy()
            hashes = hashes[np.append(True, hashes[1:] != hashes[:-1])]
        over = journal.rows(progress.before, progress.after) if self.waits else None
        if over is not None and self.skip:  # a match told now ends whatever of its key goes on
            hashes, over = np.union1d(hashes, over[HASH].to_numpy()), None
        elif over is not None:
            over = over.filter(~pl.Series(np.isin(over[HASH].to_numpy(), hashes)))
        found = (journal.of(hashes, progress.before) if len(hashes) else None, over)
        frames = [frame for frame in found if frame is not None and frame.height]
        if not frames:
            return None
        rows = _latest(pl.concat(frames)).filter(pl.col(_FATE) != _GONE)
        return rows.sort(_DUE, _NTH) if self.skip else rows

    def describe(self) -> str:
        how = " contiguous" if self.contiguous else ""
        after = ", not overlapping" if self.skip else ""
        steps = ", then ".join(("no " if one.absent else "") + one.name for one in self.steps)
        per = ", ".join(self.keys) or "everything"
        return f"pattern of{how} {steps} within {spelled(self.within)} per {per}{after}"


class _Epoch:
    """The matches of one epoch on one slice: those remembered, then those that begin now."""

    def __init__(self, pattern: Pattern, ordered: Ordered | None, remembered: pl.DataFrame | None) -> None:
        self._pattern = pattern
        self._rows = None if ordered is None else ordered.rows
        self._remembered = remembered
        self._count = 0 if ordered is None else ordered.rows.height
        self._line = None if ordered is None else Timeline(ordered, ordered.rows[TIME].to_numpy())
        new = start_matches(self._line, self._starts(), pattern.within, len(pattern.taking))
        self.matches = (
            new if remembered is None else concat_matches(self._continued(ordered, remembered), new)
        )
        self._before = self.matches.stage.copy(), self.matches.status.copy()
        self._gone: Bools = np.zeros(len(self.matches), dtype=bool)
        self._pools: dict[str, pl.Series] = {}

    def _starts(self) -> Ints:
        if self._rows is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self._pattern.stages[0].holds(self._rows)["_wanted"].to_numpy())

    def _continued(self, ordered: Ordered | None, remembered: pl.DataFrame) -> Matches:
        """The remembered matches, with the rows they may go on with."""
        height, due = remembered.height, remembered[_DUE].to_numpy()
        number = self._numbers(ordered, remembered)
        at, stop, end = (np.zeros(height, dtype=np.int64) for _ in range(3))
        if self._line is not None:
            here = number < len(self._line.ends)
            begins = np.append(0, self._line.ends[:-1])
            at[here], end[here] = begins[number[here]], self._line.ends[number[here]]
            stop[here] = self._line.first_from(number[here], due[here] + 1)
        return Matches(
            source=np.arange(height),
            number=number,
            start=np.arange(height) - height,
            due=due,
            stage=remembered[_STAGE].cast(pl.Int64).to_numpy().copy(),
            rows=np.full((height, len(self._pattern.taking)), -1),
            status=remembered[_FATE].cast(pl.Int64).to_numpy().copy(),
            at=at,
            stop=stop,
            end=end,
        )

    def _numbers(self, ordered: Ordered | None, remembered: pl.DataFrame) -> Ints:
        """The number of each remembered match's key; keys without events now get numbers of their own."""
        identity = [HASH, *self._pattern.keys]
        wanted, known = remembered.select(identity), remembered.select(identity).clear()
        if ordered is not None:
            known = ordered.rows.select(identity).filter(pl.Series(ordered.first))
        number = _number_among(wanted, known)
        if number.null_count():
            strangers = wanted.filter(number.is_null()).unique().sort(HASH)
            number = number.fill_null(_number_among(wanted, strangers) + known.height)
        found: Ints = number.to_numpy()
        return found

    def values(self, name: str, match: Ints, event: Ints) -> pl.Series:
        """For pairs of a match and an event: what a name in a condition stands for."""
        assert self._rows is not None
        return self._value(name, match) if name in self._pattern.kept else self._rows[name].gather(event)

    def settle(self, progress: Progress) -> pl.DataFrame | None:
        """Say what becomes of every match by the end of the epoch; hands the rows to tell."""
        matches, pattern = self.matches, self._pattern
        whole = (matches.stage == len(pattern.taking)) & (matches.status != FAILED)
        over = matches.due < progress.after
        if pattern.steps[-1].absent:
            found = np.flatnonzero(whole & over)
            ends, instants = 2 * matches.stop[found] - 1, matches.due[found]
        else:
            found = np.flatnonzero(whole)
            last = matches.rows[found, -1]
            ends, instants = 2 * last, last if self._line is None else self._line.times[last]
        if pattern.skip and len(matches):
            found, instants, self._gone = skip_past(matches, found, ends, instants)
        self._gone[found] = True
        if not pattern.timeouts:
            self._gone |= matches.status == FAILED
            return self._told(found, instants)
        late = np.flatnonzero(over & ~self._gone)
        matched = pl.Series("matched", np.arange(len(found) + len(late)) < len(found))
        told = self._told(np.append(found, late), np.append(instants, matches.due[late]))
        return None if told is None else told.with_columns(matched)

    def changed(self, progress: Progress) -> pl.DataFrame | None:
        """What has to be remembered: matches that began or came further, and that remembered ones are gone."""
        matches = self.matches
        new = (matches.source < 0) & ~self._gone
        stage, fate = self._before
        other = (matches.source >= 0) & ((matches.stage != stage) | (matches.status != fate) | self._gone)
        which = np.flatnonzero((new | other) & (matches.due >= progress.after))
        if not len(which):
            return None
        gone = self._gone[which]
        return pl.DataFrame(
            [
                *self._identity(which),
                pl.Series(_DUE, matches.due[which]),
                pl.Series(_NTH, self._nth(which)),
                pl.Series(_STAGE, matches.stage[which], dtype=pl.Int8),
                pl.Series(_FATE, np.where(gone, _GONE, matches.status[which]), dtype=pl.Int8),
                *(self._value(name, which, gone).alias(name) for name in self._pattern.kept),
            ]
        )

    def _told(self, which: Ints, instants: Ints) -> pl.DataFrame | None:
        if not len(which):
            return None
        columns = [*self._identity(which), pl.Series(TIME, instants, dtype=pl.Int64)]
        for step in self._pattern.taking:
            if "time" not in self._pattern.columns:
                micros = self._value(f"{step}.{TIME}", which)
                columns.append(
                    micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias(f"{step}_time")
                )
            columns += [self._value(f"{step}.{c}", which).alias(f"{step}_{c}") for c in self._pattern.columns]
        return pl.DataFrame(columns)

    def _identity(self, which: Ints) -> list[pl.Series]:
        """The hash and the key columns of matches."""
        place = self._places(which, 0)
        return [_at(self._pool(name, name), place).alias(name) for name in (HASH, *self._pattern.keys)]

    def _value(self, name: str, which: Ints, hidden: Bools | None = None) -> pl.Series:
        """What matches hold under a name of `kept`; null where they took no such event, or where it is hidden."""
        step, column = self._pattern.kept[name]
        place = self._places(which, self._pattern.taking.index(step))
        return _at(self._pool(column, name), place if hidden is None else np.where(hidden, -1, place))

    def _places(self, which: Ints, step: int) -> Ints:
        """Where in a pool the values of the event stand that a step took."""
        row, source = self.matches.rows[which, step], self.matches.source[which]
        return np.where(row >= 0, row, np.where(source >= 0, self._count + source, -1))

    def _pool(self, column: str, name: str) -> pl.Series:
        """All values a match may hold: this epoch's events', then those remembered."""
        if name not in self._pools:
            parts = [] if self._rows is None else [self._rows[column]]
            if self._remembered is not None:
                mine = self._remembered[name]
                parts.append(mine.cast(parts[0].dtype) if parts else mine)
            self._pools[name] = pl.concat([part.alias(name) for part in parts])
        return self._pools[name]

    def _nth(self, which: Ints) -> pl.Series:
        """The start's number among the events of its hash and epoch."""
        parts = [] if self._rows is None else [_nth_of_hash(self._rows)]
        if self._remembered is not None:
            parts.append(self._remembered[_NTH])
        return _at(pl.concat(part.alias(_NTH) for part in parts), self._places(which, 0))


def _at(pool: pl.Series, place: Ints) -> pl.Series:
    """The values at these places; null where it is -1."""
    if not (place < 0).any():
        return pool.gather(place)
    where = pl.Series(place)
    return pool.to_frame().select(pl.all().gather(where.set(where < 0, None))).to_series()


def _number_among(wanted: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """For each row its place among known ones, which differ from each other; null where there is none."""
    hashes = known[HASH].to_numpy()
    if len(hashes) and (hashes[1:] > hashes[:-1]).all():
        at = np.searchsorted(hashes, wanted[HASH].to_numpy())
        at[at == len(hashes)] = 0
        there = known[at]
        same = pl.select(pl.all_horizontal(there[name].eq_missing(wanted[name]) for name in wanted.columns))
        return pl.Series(at, dtype=pl.Int64).set(~same.to_series(), None)
    numbered = known.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_NTH))
    found = wanted.join(numbered, on=wanted.columns, how="left", nulls_equal=True, maintain_order="left")
    return found[_NTH]


def _latest(rows: pl.DataFrame) -> pl.DataFrame:
    """Of several rows of a match, those inserted first before the others, the last one."""
    identity = [HASH, _DUE, _NTH]
    later = (pl.col(_STAGE) > 1) | (pl.col(_FATE) != OPEN)  # only these can stand for an earlier one
    changed = rows.filter(later).unique(identity, keep="last")
    if changed.height * 4 > rows.height:
        return rows.unique(identity, keep="last", maintain_order=True)
    first = rows.filter(~later)
    if changed.height:
        first = pl.concat([first.join(changed, on=identity, how="anti"), changed])
    return first


def _nth_of_hash(rows: pl.DataFrame) -> pl.Series:
    """For each row its number among the epoch's rows of its hash."""
    hashes = rows[HASH].to_numpy()
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    return pl.Series(np.arange(len(hashes)) - np.repeat(starts, np.diff(starts, append=len(hashes))))
