"""Generates call records, as a telephone network would write them, from counters.

Receives a range of offsets of a partition and their times; returns the bytes of their lines, comma-separated
values without a header: `COLUMNS`, that is caller, callee, start and end of the call, the caller's district and
position, and when the record was emitted. Times are microseconds since 1970: they are read as numbers.

Invariants:
- A line depends on the settings, the partition, the offset and the time, on nothing else.
- A caller lives in one district and calls from near one point in it. Popularity of callers, of callees and of
  districts follows power laws; lengths of calls are bell-shaped, in whole seconds.
- A small share of the records is impossible: the caller of another record shortly before, in another district.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import ClassVar, Unpack

import numpy as np

from penstock.logs.cells import Texts, concatenate_cells, join_blocks, join_rows, to_cells
from penstock.logs.draw import Ints, Words, below, draws, draws_at, mixed, power_law
from penstock.logs.generated import ORIGIN, MadeLog, too_small_error
from penstock.logs.rates import Profile, Rate, Shape

COLUMNS = ("src", "dst", "start", "end", "district", "lat", "lon", "ts")

_SECOND = 1_000_000
#: districts are of different sizes, as cities are
_ZIPF_DISTRICTS = 0.6
#: the country, in hundred-thousandths of a degree: its south-west corner and its extent
_SOUTH, _NORTHWARDS = 3_600_000, 700_000
_WEST, _EASTWARDS = -900_000, 1_200_000
#: how far callers live from the middle of their district, and move between calls; a unit is about a metre
_LIVE_WITHIN, _MOVE_WITHIN = 4_000, 200
_FRACTIONS = 100_000
#: a record is emitted up to this long after the end of its call
_EMITTED_WITHIN = 2 * _SECOND
#: an impossible call is emitted up to this long after the one before
_IMPOSSIBLE_WITHIN_SECONDS = 30
_MILLION = 1_000_000
#: telephone numbers: a prefix and the scrambled rank in eight digits, so that neighbours are not alike
_PREFIX, _NUMBERS, _SCRAMBLE = "346", 100_000_000, 61_803_399


@dataclass(frozen=True)
class Calls:
    """Who calls whom, from where and how long. `zipf_callers` is the exponent of the power law.

    `impossible` is the share of impossible calls, `reach` how many records back their caller is found.
    """

    kind: ClassVar[str] = "call records"
    file_name: ClassVar[str] = "calls"
    line_bytes: ClassVar[int] = 96

    seed: int = 1
    callers: int = 200_000
    districts: int = 1_000
    zipf_callers: float = 0.5
    call_seconds: int = 180
    impossible: float = 0.001
    reach: int = 100_000
    disorder_seconds: float = 1.0

    def lines(self, partition: int, first: int, instants: Ints) -> bytes:
        """The lines of the offsets from `first`, one for each instant (microseconds since 1970)."""
        return join_blocks(self._block, partition, first, instants)

    def _block(self, partition: int, first: int, instants: Ints) -> memoryview:
        words, tables = _words(), _callers(self.callers, self.districts)
        draw = draws(self.seed, partition, first, len(instants))
        second, third, fourth, fifth = (mixed(draw + np.uint64(number)) for number in (1, 2, 3, 4))
        law = power_law(self.callers, self.zipf_callers)
        callers, callees = law.ranks(draw), law.ranks(second)
        callees = np.where(callees == callers, (callees + 1) % self.callers, callees)
        odd = np.flatnonzero(below(fourth, _MILLION) < round(self.impossible * _MILLION))
        victims = first + odd - 1 - below(mixed(fourth[odd]), self.reach)
        odd, victims = odd[victims >= 0], victims[victims >= 0]
        callers[odd] = law.ranks(draws_at(self.seed, partition, victims))
        districts = tables.homes.take(callers)
        away = 1 + below(mixed(draw[odd] + np.uint64(5)), max(self.districts - 1, 1))
        districts[odd] = (districts[odd] + away) % self.districts
        lat = tables.south_north.take(districts) + tables.lives_north.take(callers)
        lon = tables.west_east.take(districts) + tables.lives_east.take(callers)
        lat += below(fifth, 2 * _MOVE_WITHIN)
        lon += below(fifth << np.uint64(32), 2 * _MOVE_WITHIN)
        emitted = instants - below(third, round(self.disorder_seconds * _SECOND) + 1)
        ended = emitted - below(third << np.uint64(32), _EMITTED_WITHIN)
        started = ended - _durations(mixed(third), self.call_seconds) * _SECOND
        columns = [tables.numbers.take(callers), tables.numbers.take(callees)]
        columns += _sixteen_digits(started, words.quads_comma)
        columns += _sixteen_digits(ended, words.quads_comma)
        columns += [tables.district_names.take(districts)]
        for degrees in (lat, lon):
            size = np.abs(degrees)
            columns += [
                words.signed.take(size // _FRACTIONS + np.where(degrees < 0, 90, 0)),
                words.fractions.take(size % _FRACTIONS),
            ]
        columns += _sixteen_digits(emitted, words.quads_newline)
        return join_rows(columns)


class CallLog(MadeLog):
    """Generated call records over `partitions`, at `rate` calls a second in all.

    `total` bounds it (over all partitions). A `live` log has records as time passes; otherwise all are
    there at once, emitted from `start_time` on (UTC unless it has a zone). `disorder_seconds` makes emission
    times early by up to that much, at random. A call takes `call_seconds` on average. `impossible` is the share
    of calls whose caller has just called from somewhere far away. `clock` returns seconds since 1970.
    `shape` takes the parameters of the profile (see `Rate`).
    """

    # over 8 parameters: the public API; all are keywords with a default
    def __init__(
        self,
        *,
        partitions: int = 2,
        seed: int = 1,
        callers: int = 200_000,
        districts: int = 1_000,
        zipf_callers: float = 0.5,
        call_seconds: int = 180,
        impossible: float = 0.001,
        rate: float = 20_000,
        profile: Profile = "constant",
        total: int | None = None,
        live: bool = True,
        disorder_seconds: float = 1.0,
        start_time: datetime = ORIGIN,
        clock: Callable[[], float] = time.time,
        **shape: Unpack[Shape],
    ) -> None:
        if min(callers - 1, districts, call_seconds) < 1 or disorder_seconds < 0 or not 0 <= impossible <= 1:
            raise too_small_error()
        reach = max(1, round(rate * _IMPOSSIBLE_WITHIN_SECONDS / max(partitions, 1)))
        super().__init__(
            Calls(seed, callers, districts, zipf_callers, call_seconds, impossible, reach, disorder_seconds),
            Rate(rate, profile, **shape),
            partitions=partitions,
            total=total,
            live=live,
            start_time=start_time,
            clock=clock,
        )


@dataclass(frozen=True)
class _Words:
    """The pieces that all lines are put together from, each a column to take from."""

    quads: Texts
    quads_comma: Texts
    quads_newline: Texts
    #: whole degrees 0..89, then the same with a minus
    signed: Texts
    fractions: Texts


@dataclass(frozen=True)
class _Callers:
    """Numbers and positions: of callers by rank, of districts by number."""

    numbers: Texts
    homes: Ints
    lives_north: Ints
    lives_east: Ints
    district_names: Texts
    south_north: Ints
    west_east: Ints


@lru_cache(maxsize=1)
def _words() -> _Words:
    return _Words(
        quads=to_cells(f"{i:04d}" for i in range(10_000)),
        quads_comma=to_cells(f"{i:04d}," for i in range(10_000)),
        quads_newline=to_cells(f"{i:04d}\n" for i in range(10_000)),
        signed=to_cells(f"{sign}{i}." for sign in ("", "-") for i in range(90)),
        fractions=to_cells(f"{i:05d}," for i in range(_FRACTIONS)),
    )


@lru_cache(maxsize=4)
def _callers(callers: int, districts: int) -> _Callers:
    words = _words()
    numbers = np.arange(callers) * _SCRAMBLE % _NUMBERS
    of_caller = mixed(np.arange(1, callers + 1).astype(np.uint64))
    of_district = mixed(np.arange(1, districts + 1).astype(np.uint64) << np.uint64(32))
    return _Callers(
        numbers=concatenate_cells(
            _PREFIX, words.quads.take(numbers // 10_000), words.quads_comma.take(numbers % 10_000)
        ),
        homes=power_law(districts, _ZIPF_DISTRICTS).ranks(of_caller),
        lives_north=below(mixed(of_caller), _LIVE_WITHIN),
        lives_east=below(mixed(of_caller) << np.uint64(32), _LIVE_WITHIN),
        district_names=to_cells(f"{number}," for number in range(1, districts + 1)),
        south_north=_SOUTH + below(of_district, _NORTHWARDS),
        west_east=_WEST + below(of_district << np.uint64(32), _EASTWARDS),
    )


def _durations(words: Words, mean_seconds: int) -> Ints:
    """Whole seconds from 1 to about twice the mean: the sum of the four quarters of a draw is a bell."""
    quarters = [(words >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48)]
    total = quarters[0] + quarters[1] + quarters[2] + quarters[3]
    seconds: Ints = ((total * np.uint64(2 * mean_seconds)) >> np.uint64(18)).astype(np.int64)
    return seconds + 1


def _sixteen_digits(instants: Ints, close: Texts) -> list[Texts]:
    """Instants as four cells of four digits, what follows in the last one."""
    quads = _words().quads
    upper, lower = np.divmod(instants, 100_000_000)
    return [
        quads.take(upper // 10_000),
        quads.take(upper % 10_000),
        quads.take(lower // 10_000),
        close.take(lower % 10_000),
    ]
