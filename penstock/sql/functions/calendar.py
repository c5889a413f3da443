"""Dates and instants out of arguments: from fields, and from text as Spark's CAST reads it.

Receives expressions; hands a Date or a Datetime in microseconds and UTC, NULL where there is no such day or time.
"""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import Given, instant

DAY = 86_400_000_000
INSTANT = pl.Datetime("us", "UTC")
#: years of which Polars knows the days
_YEARS = 200_000

_BLANK = r"[\x00-\x20]*"
_DATE = rf"^{_BLANK}([+-]?\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T].*)?)?)?{_BLANK}$"
_ZONE = r"Z|(?:UTC|GMT|UT)?(?:[+-]\d{1,2}(?::?\d{2})?)?"
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?"
_INSTANT = rf"^{_BLANK}([+-]?\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_TIME} ?({_ZONE}))?)?)?{_BLANK}$"


def date(given: Given, at: int) -> pl.Expr:
    """An argument as a date: a date, a time or text."""
    dtype = given.dtype(at)
    if dtype == pl.Date:
        return given.any(at)
    if isinstance(dtype, pl.Datetime):
        return instant(given.any(at), dtype).dt.date()
    if dtype in (pl.String, pl.Null):
        return read_date(given.text(at))
    raise given.bad(at, "a date, a time or text that says one")


def time(given: Given, at: int) -> pl.Expr:
    """An argument as an instant: a time, a date (its midnight) or text."""
    dtype = given.dtype(at)
    if dtype == pl.Date or isinstance(dtype, pl.Datetime):
        return instant(given.any(at), dtype)
    if dtype in (pl.String, pl.Null):
        return read_instant(given.text(at))
    raise given.bad(at, "a time, a date or text that says one")


def read_date(text: pl.Expr) -> pl.Expr:
    """`2026-11-15`, `2026-11`, `2026`, and whatever stands behind a T or a blank."""
    year, month, day = _fields(text, _DATE, 3)
    return day_of(year, month.fill_null(1), day.fill_null(1))


def read_instant(text: pl.Expr) -> pl.Expr:
    """A date with a time behind a T or a blank, and perhaps an offset from UTC."""
    pieces = text.str.extract_groups(_INSTANT)
    year, month, day, hour, minute, second = _fields(text, _INSTANT, 6)
    zone = pieces.struct.field("8")
    days = day_of(year, month.fill_null(1), day.fill_null(1))
    micros = fraction(pieces.struct.field("7"))
    return moment(days, hour, minute, second, micros, offset(zone))


def _fields(text: pl.Expr, pattern: str, many: int) -> list[pl.Expr]:
    pieces = text.str.extract_groups(pattern)
    return [pieces.struct.field(str(place)).cast(pl.Int64, strict=False) for place in range(1, many + 1)]


def fraction(digits: pl.Expr) -> pl.Expr:
    """Digits behind a second's point as microseconds."""
    return digits.str.slice(0, 6).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)


def offset(zone: pl.Expr) -> pl.Expr:
    """Microseconds east of UTC that `+05:30` or `-8` say; 0 for nothing, NULL beyond 18 hours."""
    hours = zone.str.extract(r"[+-](\d{1,2})", 1).cast(pl.Int64).fill_null(0)
    minutes = zone.str.extract(r"[+-]\d{1,2}:?(\d{2})$", 1).cast(pl.Int64).fill_null(0)
    size = hours * 60 + minutes
    west = zone.str.contains("-", literal=True).fill_null(False)
    signed = pl.when(west).then(-size).otherwise(size)
    return pl.when((size <= 18 * 60) & (minutes < 60)).then(signed * 60_000_000)


def moment(
    days: pl.Expr, hour: pl.Expr, minute: pl.Expr, second: pl.Expr, micros: pl.Expr, east: pl.Expr
) -> pl.Expr:
    """An instant of a date and a time of day; missing fields are 0, those out of range make it NULL."""
    hour, minute, second = hour.fill_null(0), minute.fill_null(0), second.fill_null(0)
    sound = (hour < 24) & (minute < 60) & (second < 60)
    clock = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
    total = days.to_physical().cast(pl.Int64) * DAY + clock - east
    return pl.when(sound).then(total).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def day_of(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """The date of three numbers; NULL if there is none."""
    sound = year.is_between(-_YEARS, _YEARS) & month.is_between(1, 12) & day.is_between(1, 31)
    days = pl.when(sound).then(_days(year, month, day)).cast(pl.Int32).cast(pl.Date)
    return pl.when(days.dt.day() == day).then(days)


def _days(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """Days since 1970, counted in years that begin with March, 400 of which are alike."""
    shifted = year - (month <= 2).cast(pl.Int64)
    age = shifted // 400
    year_of_age = shifted - age * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_age = year_of_age * 365 + year_of_age // 4 - year_of_age // 100 + day_of_year
    return age * 146_097 + day_of_age - 719_468


def months_later(days: pl.Expr, months: pl.Expr) -> pl.Expr:
    """A date some months on; the last day of a month that has fewer days."""
    total = days.dt.year().cast(pl.Int64) * 12 + days.dt.month().cast(pl.Int64) - 1 + months
    first = day_of(total // 12, total % 12 + 1, pl.lit(1, pl.Int64))
    passed = pl.min_horizontal(days.dt.day().cast(pl.Int64), first.dt.month_end().dt.day().cast(pl.Int64))
    known = days.is_not_null() & months.is_not_null()
    return pl.when(known).then(later(first, passed - 1))


def later(days: pl.Expr, many: pl.Expr) -> pl.Expr:
    """A date some days on."""
    return (days.to_physical().cast(pl.Int64) + many).cast(pl.Int32, strict=False).cast(pl.Date)


def micros_of(time: pl.Expr) -> pl.Expr:
    """An instant as microseconds since 1970."""
    return time.to_physical().cast(pl.Int64)


def from_micros(micros: pl.Expr) -> pl.Expr:
    """The instant of microseconds since 1970."""
    return micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
