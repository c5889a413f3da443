"""The kinds of windows: of time, running totals, by count, sessions, landmarks.

Each has the columns of its rows and the operator that computes aggregates over it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from penstock.duration import Duration, spelled
from penstock.errors import UserError
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.count_windows import CountWindows
from penstock.operators.functions import AggregateFunction
from penstock.operators.landmark_windows import LandmarkWindows
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.running import RunningAggregation
from penstock.operators.session_windows import SessionWindows
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import ALL_TIME, INSTANT, TimeWindow
from penstock.origin import Origin
from penstock.query import check

#: how many windows an event may be in
MAX_OVERLAPS = 100_000
#: when results are emitted: when the window closes, on every change, or every so many microseconds
Emission = Literal["close", "change"] | int


class Window(ABC):
    """A way to cut a keyed stream into windows: of time, of counts, ..."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The columns of a row before the keys and the aggregates."""
        return {"window_start": INSTANT, "window_end": INSTANT}

    @abstractmethod
    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        """The operator that computes these aggregates, whose types are known, over the windows of every key."""

    def with_emission(self, emission: Emission, origin: Origin) -> Window:
        """The same windows with results emitted at other times. Raises if these windows cannot."""
        if emission == "close":
            return self
        raise UserError(
            "BAD_EMIT",
            "these windows can emit results only when they close",
            where=str(origin),
            hint='Windows of time emit more often: .window("1m").emit(every="10s").',
        )


@dataclass(frozen=True)
class InTime(Window):
    """Windows of time."""

    window: TimeWindow
    emission: Emission = "close"

    @property
    def columns(self) -> dict[str, pl.DataType]:
        as_of: dict[str, pl.DataType] = {} if self.emission == "close" else {"as_of": INSTANT}
        return {**super().columns, **as_of}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        if self.emission == "close":
            kind = Aggregation if self.window.is_disjoint else SlidingAggregation
            return kind(keys, self.window, aggregates)
        if self.emission == "change":
            return OnChangeAggregation(keys, self.window, aggregates)
        return PeriodicAggregation(keys, self.window, aggregates, self.emission)

    def with_emission(self, emission: Emission, origin: Origin) -> Window:
        return replace(self, emission=emission)


@dataclass(frozen=True)
class Running(Window):
    """Totals so far, emitted on every change or every so many microseconds."""

    emission: Emission

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"as_of": INSTANT}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        if isinstance(self.emission, int):
            return RunningAggregation(keys, TimeWindow(self.emission, self.emission), aggregates)
        return OnChangeAggregation(keys, ALL_TIME, aggregates, running=True)

    def with_emission(self, emission: Emission, origin: Origin) -> Window:
        if emission == "close":
            raise UserError(
                "BAD_EMIT",
                "running aggregates never close",
                where=str(origin),
                hint='Use .emit("change") or .emit(every="10s"), or take windows: .window("1m").',
            )
        return Running(emission)


@dataclass(frozen=True)
class ByCount(Window):
    """Windows of `size` events, one every `every`; or, if `growing`, at every event the last `size` so far."""

    size: int
    every: int
    growing: bool = False
    partial: bool = False
    forget_after: int | None = None

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return CountWindows(
            keys, aggregates, self.size, self.every, self.growing, self.partial, self.forget_after
        )


@dataclass(frozen=True)
class InSessions(Window):
    """Sessions that end with a silence of `gap` microseconds, or `longest` after they started."""

    gap: int
    longest: int | None

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return SessionWindows(keys, aggregates, self.gap, self.longest)


@dataclass(frozen=True)
class BetweenLandmarks(Window):
    """Windows from an opening event to a closing one, at the latest to `longest` after."""

    longest: int | None

    @property
    def columns(self) -> dict[str, pl.DataType]:
        closed = {} if self.longest is None else {"closed": pl.Boolean()}
        return {**super().columns, **closed}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        return LandmarkWindows(keys, aggregates, self.longest)


def time_window(size: Duration, every: Duration | None, offset: Duration, origin: Origin) -> TimeWindow:
    """Windows of time, checked."""
    length = check.duration(size, origin, "BAD_WINDOW", "a window needs a length: it is")
    advance = length
    if every is not None:
        advance = check.duration(every, origin, "BAD_WINDOW", "windows need to advance: one starts")
    if length > MAX_OVERLAPS * advance:
        raise UserError(
            "BAD_WINDOW",
            f"every event would be in {-(-length // advance):,} windows",
            where=str(origin),
            detail=f"windows of {spelled(length)} every {spelled(advance)}; at most {MAX_OVERLAPS:,} may overlap",
            hint="Let them start less often, with a longer step: window(size, every=...).",
        )
    shift = check.duration(offset, origin, "BAD_WINDOW", "windows are shifted by", least=None)
    return TimeWindow(length, advance, shift % advance)
