"""Dates and instants from arguments: from their fields, and from text as Spark's CAST parses it.

Dates are Polars Dates, instants are Datetimes in microseconds and UTC; NULL where there is no such day or time.

The names of struct fields in these expressions (`it`, `passed`, ...) stay: they are in an expression's text, of which
the identity of state is made.
"""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import Arguments, to_utc

DAY = 86_400_000_000
INSTANT = pl.Datetime("us", "UTC")
#: Polars has dates up to this year
_YEARS = 200_000

_BLANK = r"[\x00-\x20]*"
_DATE = rf"^{_BLANK}([+-]?\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T].*)?)?)?{_BLANK}$"
_ZONE = r"Z|(?:UTC|GMT|UT)?(?:[+-]\d{1,2}(?::?\d{2})?)?"
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?"
_INSTANT = rf"^{_BLANK}([+-]?\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_TIME} ?({_ZONE}))?)?)?{_BLANK}$"


def date(args: Arguments, at: int) -> pl.Expr:
    """An argument as a date: a date, a time or text."""
    dtype = args.dtype(at)
    if dtype == pl.Date:
        return args.expr(at)
    if isinstance(dtype, pl.Datetime):
        return to_utc(args.expr(at), dtype).dt.date()
    if dtype in (pl.String, pl.Null):
        return parse_date(args.text(at))
    raise args.error(at, "a date, a time or text with a date")


def time(args: Arguments, at: int) -> pl.Expr:
    """An argument as an instant: a time, a date (its midnight) or text."""
    dtype = args.dtype(at)
    if dtype == pl.Date or isinstance(dtype, pl.Datetime):
        return to_utc(args.expr(at), dtype)
    if dtype in (pl.String, pl.Null):
        return parse_instant(args.text(at))
    raise args.error(at, "a time, a date or text with a time")


def parse_date(text: pl.Expr) -> pl.Expr:
    """Parse `2026-11-15`, `2026-11` or `2026`; what follows a T or a blank is ignored."""
    pieces = text.str.extract_groups(_DATE).struct
    return pieces.with_fields(
        it=make_date(_number(1), _number(2).fill_null(1), _number(3).fill_null(1))
    ).struct.field("it")


def parse_instant(text: pl.Expr) -> pl.Expr:
    """Parse a date, optionally with a time after a T or a blank, and an offset from UTC."""
    days = make_date(_number(1), _number(2).fill_null(1), _number(3).fill_null(1))
    hour, minute, second = (_number(place).fill_null(0) for place in (4, 5, 6))
    read = make_instant(
        days, hour, minute, second, fraction_micros(pl.field("7")), offset_micros(pl.field("8"))
    )
    return text.str.extract_groups(_INSTANT).struct.with_fields(it=read).struct.field("it")


def _number(place: int) -> pl.Expr:
    """What a group captured, as a number."""
    return pl.field(str(place)).cast(pl.Int64, strict=False)


def fraction_micros(digits: pl.Expr) -> pl.Expr:
    """Decimal digits of a second as microseconds."""
    return digits.str.slice(0, 6).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)


def offset_micros(zone: pl.Expr) -> pl.Expr:
    """Parse `+05:30` or `-8` to microseconds east of UTC; 0 for nothing, NULL beyond 18 hours."""
    groups = zone.fill_null("").str.extract_groups(r"([+-])(\d{1,2})(?::?(\d{2}))?$").struct
    bound = groups.with_fields(hours=_number(2).fill_null(0), minutes=_number(3).fill_null(0)).struct
    size = pl.field("hours") * 60 + pl.field("minutes")
    signed = pl.when(pl.field("1") == "-").then(-size).otherwise(size) * 60_000_000
    return bound.with_fields(
        it=pl.when((size <= 18 * 60) & (pl.field("minutes") < 60)).then(signed)
    ).struct.field("it")


def make_instant(
    days: pl.Expr, hour: pl.Expr, minute: pl.Expr, second: pl.Expr, micros: pl.Expr, east: pl.Expr
) -> pl.Expr:
    """The instant of a date and a time of day; NULL if one is NULL or out of range."""
    bound = pl.struct(hour=hour, minute=minute, second=second, rest=micros - east, days=days).struct
    sound = (pl.field("hour") < 24) & (pl.field("minute") < 60) & (pl.field("second") < 60)
    clock = ((pl.field("hour") * 60 + pl.field("minute")) * 60 + pl.field("second")) * 1_000_000
    total = pl.field("days").to_physical().cast(pl.Int64) * DAY + clock + pl.field("rest")
    return from_micros(bound.with_fields(it=pl.when(sound).then(total)).struct.field("it"))


def make_date(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """The date of three numbers; NULL if it does not exist."""
    bound = pl.struct(year=year, month=month, day=day).struct
    sound = (
        pl.field("year").is_between(-_YEARS, _YEARS)
        & pl.field("month").is_between(1, 12)
        & pl.field("day").is_between(1, 31)
    )
    marched = bound.with_fields(
        shifted=pl.when(sound).then(pl.field("year") - (pl.field("month") <= 2).cast(pl.Int64)),
        passed=(153 * ((pl.field("month") + 9) % 12) + 2) // 5 + pl.field("day") - 1,
    ).struct
    days = marched.with_fields(
        it=_days(pl.field("shifted"), pl.field("passed")).cast(pl.Int32).cast(pl.Date)
    ).struct
    real = pl.when(pl.field("it").dt.day() == pl.field("day")).then(pl.field("it"))
    return days.with_fields(it=real).struct.field("it")


def _days(year: pl.Expr, passed: pl.Expr) -> pl.Expr:
    """Days from 1970 to a day of a year that starts in March; the calendar repeats every 400 years."""
    return year * 365 + year // 4 - year // 100 + year // 400 + passed - 719_468


def add_months(days: pl.Expr, months: pl.Expr) -> pl.Expr:
    """Add months to a date; the last day if the month is shorter."""
    total = days.dt.year().cast(pl.Int64) * 12 + days.dt.month().cast(pl.Int64) - 1 + months
    bound = pl.struct(total=total, day=days.dt.day().cast(pl.Int64)).struct
    first = make_date(pl.field("total") // 12, pl.field("total") % 12 + 1, pl.lit(1, pl.Int64))
    target = bound.with_fields(first=first).struct
    passed = pl.min_horizontal(pl.field("day"), pl.field("first").dt.month_end().dt.day().cast(pl.Int64)) - 1
    return target.with_fields(it=add_days(pl.field("first"), passed)).struct.field("it")


def add_days(days: pl.Expr, many: pl.Expr) -> pl.Expr:
    """Add days to a date."""
    return (days.to_physical().cast(pl.Int64) + many).cast(pl.Int32, strict=False).cast(pl.Date)


def to_micros(time: pl.Expr) -> pl.Expr:
    """An instant as microseconds since 1970."""
    return time.to_physical().cast(pl.Int64)


def from_micros(micros: pl.Expr) -> pl.Expr:
    """The instant of microseconds since 1970."""
    return micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
