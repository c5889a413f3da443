"""Windows of event time, and totals since the beginning: what they are called and which operator computes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from penstock.duration import Duration, spelled
from penstock.errors import UserError
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.functions import AggregateFunction
from penstock.operators.on_change import OnChangeAggregation
from penstock.operators.periodic import PeriodicAggregation
from penstock.operators.running import RunningAggregation
from penstock.operators.sliding import SlidingAggregation
from penstock.operators.time_windows import ALL_TIME, INSTANT, TimeWindow
from penstock.origin import Origin
from penstock.query import check
from penstock.query.window import Emission, Window

#: how many windows an event may be in
MOST_OVERLAPS = 100_000


@dataclass(frozen=True)
class InTime(Window):
    """Windows of time, told when they close, when they change, or every so many microseconds."""

    window: TimeWindow
    emission: Emission = "close"

    @property
    def columns(self) -> dict[str, pl.DataType]:
        when: dict[str, pl.DataType] = {} if self.emission == "close" else {"as_of": INSTANT}
        return {"window_start": INSTANT, "window_end": INSTANT} | when

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        if self.emission == "close":
            made = Aggregation if self.window.alone else SlidingAggregation
            return made(keys, self.window, aggregates)
        if self.emission == "change":
            return OnChangeAggregation(keys, self.window, aggregates)
        return PeriodicAggregation(keys, self.window, aggregates, self.emission)

    def emitting(self, emission: Emission, origin: Origin) -> Window:
        return replace(self, emission=emission)


@dataclass(frozen=True)
class Running(Window):
    """Everything since the beginning, told when it changes, or every so many microseconds."""

    emission: Emission

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"as_of": INSTANT}

    def operator(self, keys: tuple[str, ...], aggregates: tuple[AggregateFunction, ...]) -> Operator:
        if isinstance(self.emission, int):
            return RunningAggregation(keys, TimeWindow(self.emission, self.emission), aggregates)
        return OnChangeAggregation(keys, ALL_TIME, aggregates, running=True)

    def emitting(self, emission: Emission, origin: Origin) -> Window:
        if emission == "close":
            raise UserError(
                "BAD_EMIT",
                "running aggregates never close",
                where=str(origin),
                hint='Say .emit("change") or .emit(every="10s"), or take windows: .window("1m").',
            )
        return Running(emission)


def time_window(size: Duration, every: Duration | None, offset: Duration, origin: Origin) -> TimeWindow:
    """What the user said of windows of time, checked."""
    length = check.duration(size, origin, "BAD_WINDOW", "a window needs a length: it is")
    advance = length
    if every is not None:
        advance = check.duration(every, origin, "BAD_WINDOW", "windows need to advance: one begins")
    if length > MOST_OVERLAPS * advance:
        raise UserError(
            "BAD_WINDOW",
            f"every event would be in {-(-length // advance):,} windows",
            where=str(origin),
            detail=f"windows of {spelled(length)} every {spelled(advance)}; at most {MOST_OVERLAPS:,} may overlap",
            hint="Let them begin less often, or take a longer step: window(size, every=...).",
        )
    shift = check.duration(offset, origin, "BAD_WINDOW", "windows are shifted by", least=None)
    return TimeWindow(length, advance, shift % advance)
