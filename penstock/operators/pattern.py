"""Match patterns: sequences of events of one key, each with its condition, within a span of time.

The input is in strict order. A match is emitted at its last event. If its last step is an absence, or if timeouts are
emitted, it is emitted when its time has passed.
State: `open`, a journal of partial matches, due at their start plus `within`. A row replaces the former one of the same
start and has the match's status; rows that are due are deleted.

A match is identified by its hash, its start's time and the start's number among the events of its epoch: events of one
time all are in one epoch.
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
from penstock.state.journal import Journal

#: columns of the state, by their names on disk
_DUE, _NTH, _STAGE, _STATUS = "_due", "_nth", "_stage", "_fate"
#: the status of a stored match that has ended
_ENDED = -1
_INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Pattern(Operator):
    """Matches of `steps` per key that take at most `within` microseconds from first to last event.

    `contiguous`: each event must be its key's very next one; otherwise the first that fits is taken. `skip`: matches of
    a key do not overlap; otherwise every event that fits the first step starts one. `timeouts`: starts without a match
    are emitted too. A match has the `columns` of each of its events.
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
    def taking_steps(self) -> list[str]:
        """The steps that take an event."""
        return [one.name for one in self.steps if not one.absent]

    @cached_property
    def stored_columns(self) -> dict[str, tuple[str, str]]:
        """What is stored of a match: by name, the step and the column of that step's event."""
        emitted = [(step, column) for step in self.taking_steps for column in (TIME, *self.columns)]
        read = [place for stage in self.stages for place in stage.references.values()]
        return {f"{step}.{column}": (step, column) for step, column in dict.fromkeys(emitted + read)}

    @property
    def emits_by_time(self) -> bool:
        """Whether matches are emitted because their time has passed."""
        return self.timeouts or self.steps[-1].absent

    def schema(self, incoming: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        found = {key: incoming[key] for key in self.keys}
        for step in self.taking_steps:
            found[f"{step}_time"] = _INSTANT
            found |= {f"{step}_{column}": incoming[column] for column in self.columns}
        return found | ({"matched": pl.Boolean()} if self.timeouts else {})

    def needs(self, port: int = 0) -> set[str]:
        read = {name for stage in self.stages for name in stage.own}
        return {*self.keys, *read, *(column for _, column in self.stored_columns.values() if column != TIME)}

    def prepare(self, frame: pl.DataFrame, port: int = 0) -> pl.DataFrame:
        return add_position(frame).select(*ORDER, *sorted(self.needs()))

    def process(
        self, frame: pl.DataFrame | None, state: SliceState, progress: Progress
    ) -> pl.DataFrame | None:
        journal = state.journal("open", time=_DUE)
        ordered = take_ordered(frame, self.keys, state, progress)
        epoch = _Epoch(self, ordered, self._read_matches(journal, ordered, progress))
        advance(epoch.matches, self.stages, epoch.values, self.contiguous)
        emitted = epoch.emit_matches(progress)
        changes = epoch.changes(progress)
        if changes is not None:
            journal.insert(changes)
        journal.empty(progress.after)
        journal.compact(progress.after, _latest)
        return emitted

    def _read_matches(
        self, journal: Journal, ordered: Ordered | None, progress: Progress
    ) -> pl.DataFrame | None:
        """The stored matches of the keys that have events now, and those that are due (if these may end others, with
        all matches of their keys).

        With `skip`, they are in the order of their starts.
        """
        hashes = np.zeros(0, dtype=np.uint64)
        if ordered is not None:
            hashes = ordered.rows[HASH].to_numpy()
            hashes = hashes[np.append(True, hashes[1:] != hashes[:-1])]
        over = journal.rows(progress.before, progress.after) if self.emits_by_time else None
        if over is not None and self.skip:  # a match emitted now ends the open matches of its key
            hashes, over = np.union1d(hashes, over[HASH].to_numpy()), None
        elif over is not None:
            over = over.filter(~pl.Series(np.isin(over[HASH].to_numpy(), hashes)))
        found = (journal.of(hashes, progress.before) if len(hashes) else None, over)
        frames = [frame for frame in found if frame is not None and frame.height]
        if not frames:
            return None
        rows = _latest(pl.concat(frames)).filter(pl.col(_STATUS) != _ENDED)
        return rows.sort(_DUE, _NTH) if self.skip else rows

    def describe(self) -> str:
        how = " contiguous" if self.contiguous else ""
        after = ", not overlapping" if self.skip else ""
        steps = ", then ".join(("no " if one.absent else "") + one.name for one in self.steps)
        per = ", ".join(self.keys) or "everything"
        return f"pattern of{how} {steps} within {spelled(self.within)} per {per}{after}"


class _Epoch:
    """The matches of one epoch on one slice: the stored ones, then those that start now."""

    def __init__(self, pattern: Pattern, ordered: Ordered | None, stored: pl.DataFrame | None) -> None:
        self._pattern = pattern
        self._rows = None if ordered is None else ordered.rows
        self._stored = stored
        self._count = 0 if ordered is None else ordered.rows.height
        self._line = None if ordered is None else Timeline(ordered, ordered.rows[TIME].to_numpy())
        new = start_matches(self._line, self._starts(), pattern.within, len(pattern.taking_steps))
        self.matches = new if stored is None else concat_matches(self._continue(ordered, stored), new)
        self._before = self.matches.stage.copy(), self.matches.status.copy()
        self._ended: Bools = np.zeros(len(self.matches), dtype=bool)
        self._pools: dict[str, pl.Series] = {}

    def _starts(self) -> Ints:
        if self._rows is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self._pattern.stages[0].holds(self._rows)["_wanted"].to_numpy())

    def _continue(self, ordered: Ordered | None, stored: pl.DataFrame) -> Matches:
        """The stored matches, with the rows they may continue with."""
        height, due = stored.height, stored[_DUE].to_numpy()
        number = self._numbers(ordered, stored)
        at, stop, end = (np.zeros(height, dtype=np.int64) for _ in range(3))
        if self._line is not None:
            here = number < len(self._line.ends)
            first = np.append(0, self._line.ends[:-1])
            at[here], end[here] = first[number[here]], self._line.ends[number[here]]
            stop[here] = self._line.first_from(number[here], due[here] + 1)
        return Matches(
            source=np.arange(height),
            number=number,
            start=np.arange(height) - height,
            due=due,
            stage=stored[_STAGE].cast(pl.Int64).to_numpy().copy(),
            rows=np.full((height, len(self._pattern.taking_steps)), -1),
            status=stored[_STATUS].cast(pl.Int64).to_numpy().copy(),
            at=at,
            stop=stop,
            end=end,
        )

    def _numbers(self, ordered: Ordered | None, stored: pl.DataFrame) -> Ints:
        """The number of each stored match's key; keys without events now get numbers of their own."""
        identity = [HASH, *self._pattern.keys]
        wanted, known = stored.select(identity), stored.select(identity).clear()
        if ordered is not None:
            known = ordered.rows.select(identity).filter(pl.Series(ordered.first))
        number = _number_among(wanted, known)
        if number.null_count():
            unknown = wanted.filter(number.is_null()).unique().sort(HASH)
            number = number.fill_null(_number_among(wanted, unknown) + known.height)
        found: Ints = number.to_numpy()
        return found

    def values(self, name: str, match: Ints, event: Ints) -> pl.Series:
        """The values of a name in a condition, for pairs of a match and an event."""
        assert self._rows is not None
        if name in self._pattern.stored_columns:
            return self._value(name, match)
        return self._rows[name].gather(event)

    def emit_matches(self, progress: Progress) -> pl.DataFrame | None:
        """Decide which matches end in this epoch; returns the rows to emit."""
        matches, pattern = self.matches, self._pattern
        whole = (matches.stage == len(pattern.taking_steps)) & (matches.status != FAILED)
        over = matches.due < progress.after
        if pattern.steps[-1].absent:
            found = np.flatnonzero(whole & over)
            ends, instants = 2 * matches.stop[found] - 1, matches.due[found]
        else:
            found = np.flatnonzero(whole)
            last = matches.rows[found, -1]
            ends, instants = 2 * last, last if self._line is None else self._line.times[last]
        if pattern.skip and len(matches):
            found, instants, self._ended = skip_past(matches, found, ends, instants)
        self._ended[found] = True
        if not pattern.timeouts:
            self._ended |= matches.status == FAILED
            return self._result_rows(found, instants)
        late = np.flatnonzero(over & ~self._ended)
        matched = pl.Series("matched", np.arange(len(found) + len(late)) < len(found))
        rows = self._result_rows(np.append(found, late), np.append(instants, matches.due[late]))
        return None if rows is None else rows.with_columns(matched)

    def changes(self, progress: Progress) -> pl.DataFrame | None:
        """The rows to store: matches that started or advanced, and stored ones that have ended."""
        matches = self.matches
        new = (matches.source < 0) & ~self._ended
        stage, status = self._before
        other = (matches.source >= 0) & ((matches.stage != stage) | (matches.status != status) | self._ended)
        which = np.flatnonzero((new | other) & (matches.due >= progress.after))
        if not len(which):
            return None
        ended = self._ended[which]
        return pl.DataFrame(
            [
                *self._identity(which),
                pl.Series(_DUE, matches.due[which]),
                pl.Series(_NTH, self._nth(which)),
                pl.Series(_STAGE, matches.stage[which], dtype=pl.Int8),
                pl.Series(_STATUS, np.where(ended, _ENDED, matches.status[which]), dtype=pl.Int8),
                *(self._value(name, which, ended).alias(name) for name in self._pattern.stored_columns),
            ]
        )

    def _result_rows(self, which: Ints, instants: Ints) -> pl.DataFrame | None:
        if not len(which):
            return None
        columns = [*self._identity(which), pl.Series(TIME, instants, dtype=pl.Int64)]
        for step in self._pattern.taking_steps:
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
        """The values of a stored column of matches; null where they took no such event, or where it is hidden."""
        step, column = self._pattern.stored_columns[name]
        place = self._places(which, self._pattern.taking_steps.index(step))
        return _at(self._pool(column, name), place if hidden is None else np.where(hidden, -1, place))

    def _places(self, which: Ints, step: int) -> Ints:
        """Where in a pool the values of the event are that a step took."""
        row, source = self.matches.rows[which, step], self.matches.source[which]
        return np.where(row >= 0, row, np.where(source >= 0, self._count + source, -1))

    def _pool(self, column: str, name: str) -> pl.Series:
        """All values a match may have: of this epoch's events, then of stored matches."""
        if name not in self._pools:
            parts = [] if self._rows is None else [self._rows[column]]
            if self._stored is not None:
                mine = self._stored[name]
                parts.append(mine.cast(parts[0].dtype) if parts else mine)
            self._pools[name] = pl.concat([part.alias(name) for part in parts])
        return self._pools[name]

    def _nth(self, which: Ints) -> pl.Series:
        """The start's number among the events of its hash and epoch."""
        parts = [] if self._rows is None else [_nth_of_hash(self._rows)]
        if self._stored is not None:
            parts.append(self._stored[_NTH])
        return _at(pl.concat(part.alias(_NTH) for part in parts), self._places(which, 0))


def _at(pool: pl.Series, place: Ints) -> pl.Series:
    """The values at these places; null where the place is -1."""
    if not (place < 0).any():
        return pool.gather(place)
    where = pl.Series(place)
    return pool.to_frame().select(pl.all().gather(where.set(where < 0, None))).to_series()


def _number_among(wanted: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """The index of each row among known ones, which are different; null where there is none."""
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
    """The last row of each match; rows are in the order of their insertion."""
    identity = [HASH, _DUE, _NTH]
    later = (pl.col(_STAGE) > 1) | (pl.col(_STATUS) != OPEN)  # only these can replace an earlier one
    changed = rows.filter(later).unique(identity, keep="last")
    if changed.height * 4 > rows.height:
        return rows.unique(identity, keep="last", maintain_order=True)
    first = rows.filter(~later)
    if changed.height:
        first = pl.concat([first.join(changed, on=identity, how="anti"), changed])
    return first


def _nth_of_hash(rows: pl.DataFrame) -> pl.Series:
    """The number of each row among the epoch's rows of its hash."""
    hashes = rows[HASH].to_numpy()
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    return pl.Series(np.arange(len(hashes)) - np.repeat(starts, np.diff(starts, append=len(hashes))))
