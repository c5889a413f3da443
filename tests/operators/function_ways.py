"""Every way to a partial answer: events at once or one by one, split, merged, joined, run on, over ranges.

What a function answers may depend on the events alone, so all ways must give the same, to the last bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from penstock.operators.contract import PARTITION, SEQUENCE, TIME
from penstock.operators.functions import AggregateFunction

#: an event as the oracles see it: (time, partition, place) and its value
Event = tuple[tuple[int, int, int], Any]
Oracle = Callable[[list[Event]], Any]


def frame_of(events: Sequence[Event], dtype: pl.DataType) -> pl.DataFrame:
    """Events with a column x."""
    return pl.DataFrame(
        {
            TIME: pl.Series([place[0] for place, _ in events], dtype=pl.Int64),
            PARTITION: pl.Series([place[1] for place, _ in events], dtype=pl.UInt32),
            SEQUENCE: pl.Series([place[2] for place, _ in events], dtype=pl.Int64),
            "x": pl.Series([value for _, value in events], dtype=dtype),
        }
    )


def resolve(function: AggregateFunction, dtype: pl.DataType) -> AggregateFunction:
    return function.resolve({"x": dtype})


def answer(function: AggregateFunction, parts: pl.DataFrame) -> list[Any]:
    return parts.select(function.result()).to_series().to_list()


def same(one: object, other: object) -> bool:
    """Equal to the last bit; NaN is NaN."""
    return repr(_plain(one)) == repr(_plain(other))


def _plain(value: object) -> object:
    """Instants without the many ways to say UTC."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.timestamp() if isinstance(value, datetime) else value


def at_once(function: AggregateFunction, frame: pl.DataFrame, number: Sequence[int]) -> pl.DataFrame:
    """The partial answer of each group of events, in the order of the numbers."""
    grouped = frame.with_columns(pl.Series("g", number)).group_by("g").agg(function.from_events())
    return grouped.sort("g").select(function.parts())


def merge(function: AggregateFunction, parts: pl.DataFrame, number: Sequence[int]) -> pl.DataFrame:
    grouped = parts.with_columns(pl.Series("g", number)).group_by("g").agg(function.merge())
    return grouped.sort("g").select(function.parts())


def merge_columns(function: AggregateFunction, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    return one.hstack(other.rename(lambda name: f"{name}.b")).select(function.merge_columns(".b"))


def ways(function: AggregateFunction, frame: pl.DataFrame, chance: random.Random) -> Iterator[pl.DataFrame]:
    """Partial answers of all events together, one row each, by every way there is."""
    height = frame.height
    whole = at_once(function, frame, [0] * height)
    yield whole
    single = frame.select(function.from_event())
    assert single.schema == whole.schema
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=chance.randrange(2**31))
    number = [chance.randrange(4) for _ in range(height)]
    parts = at_once(function, mixed, number)
    if chance.random() < 0.5:
        parts = pl.concat(
            [parts[:1], mixed.filter(pl.Series(number) != min(number)).select(function.from_event())]
        )
    yield merge(function, single, [0] * height)
    yield merge(function, parts, [0] * parts.height)
    low, high = np.array([0]), np.array([height])
    yield pl.DataFrame(function.merge_ranges(single, low, high))
    so_far = parts[:1]
    for row in range(1, parts.height):
        so_far = merge_columns(function, so_far, parts[row : row + 1])
    yield so_far
    yield merge_columns(function, whole, whole.clear(1))
    ran = parts.with_columns(pl.lit(0).alias("g")).with_columns(function.merge_running("g"))
    yield ran.select(function.parts())[-1:]


def check_ways(function: AggregateFunction, frame: pl.DataFrame, chance: random.Random) -> Any:
    """The answer, after seeing that all ways agree on it."""
    found = list(ways(function, frame, chance))
    answers = [answer(function, parts) for parts in found]
    for parts, other in zip(found, answers, strict=True):
        assert parts.schema == found[0].schema
        assert same(other, answers[0]), (answers, parts)
    assert found[0].select(function.result()).schema == {
        function.alias: function.dtype({"x": frame.schema["x"]})
    }
    return answers[0][0]


def check_many(
    function: AggregateFunction,
    dtype: pl.DataType,
    events: list[Event],
    chance: random.Random,
    check: Callable[[Any, list[Event]], None],
) -> None:
    """Ranges, runs and groups against the events they hold."""
    number = sorted(chance.randrange(max(len(events) // 2, 1)) for _ in events)
    groups = [
        [e for e, at in zip(events, number, strict=True) if at == group] for group in dict.fromkeys(number)
    ]
    parts = at_once(function, frame_of(events, dtype), number)
    for found, group in zip(answer(function, parts), groups, strict=True):
        check(found, group)
    low = np.array([chance.randrange(len(groups)) for _ in range(7)])
    high = np.array([chance.randrange(start, len(groups)) + 1 for start in low.tolist()])
    if chance.random() < 0.3:  # ranges one after the other, as cells have them
        ends = sorted({*(chance.randrange(len(groups)) for _ in range(3)), len(groups)} - {0})
        low, high = np.array([0, *ends[:-1]]), np.array(ends)
    over = pl.DataFrame(function.merge_ranges(parts, low, high))
    assert over.schema == parts.schema
    for found, start, end in zip(answer(function, over), low.tolist(), high.tolist(), strict=True):
        check(found, [event for group in groups[start:end] for event in group])
    runs = [chance.randrange(3) for _ in groups]
    ran = parts.with_columns(pl.Series("g", runs)).with_columns(function.merge_running("g"))
    assert ran.drop("g").schema == parts.schema
    for row, found in enumerate(answer(function, ran)):
        before = [group for group, run in zip(groups[: row + 1], runs, strict=False) if run == runs[row]]
        check(found, [event for group in before for event in group])
    shifted = parts.with_columns(pl.all().shift(1))
    both = merge_columns(function, parts, shifted)
    assert both.schema == parts.schema
    for row, found in enumerate(answer(function, both)):
        check(found, [event for group in groups[max(row - 1, 0) : row + 1] for event in group])
