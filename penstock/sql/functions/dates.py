"""Functions of dates and times. Times are instants, their fields are in UTC. Text is parsed where a time is due."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from penstock.sql.functions.arithmetic import divide, round_to
from penstock.sql.functions.calendar import (
    DAY,
    add_days,
    add_months,
    date,
    from_micros,
    make_date,
    time,
    to_micros,
)
from penstock.sql.functions.contract import Arguments, Family, TypedExpr
from penstock.sql.functions.date_patterns import format_time, parse_time

DATES = Family("Dates and times")

_UNITS = {
    "1y": ("YEAR", "YYYY", "YY"),
    "1q": ("QUARTER",),
    "1mo": ("MONTH", "MM", "MON"),
    "1w": ("WEEK",),
    "1d": ("DAY", "DD"),
    "1h": ("HOUR",),
    "1m": ("MINUTE",),
    "1s": ("SECOND",),
    "1ms": ("MILLISECOND",),
    "1us": ("MICROSECOND",),
}
_EVERY = {name: every for every, names in _UNITS.items() for name in names}
_OF_DATES = {name: every for name, every in _EVERY.items() if every in ("1y", "1q", "1mo", "1w")}
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
#: Polars can compute the year of instants up to this many microseconds from 1970
_FAR = 2**62


def _field(names: str, doc: str, result: str, of: Callable[[pl.Expr], pl.Expr], clock: bool = False) -> None:
    """Add a function that returns one field of a date or of a time."""
    example = f"{names.split()[0]}('2026-11-15 09:30:05')"

    @DATES.add(names, (1, 1), doc, example, result)
    def _build(args: Arguments) -> pl.Expr:
        return of(time(args, 0) if clock else date(args, 0)).cast(pl.Int64)


_field("year", "The year.", "2026", lambda day: day.dt.year())
_field("quarter", "The quarter, from 1.", "4", lambda day: day.dt.quarter())
_field("month", "The month, from 1.", "11", lambda day: day.dt.month())
_field("day dayofmonth", "The day of the month.", "15", lambda day: day.dt.day())
_field("dayofweek", "The day of the week; Sunday is 1.", "1", lambda day: day.dt.weekday() % 7 + 1)
_field("weekday", "The day of the week; Monday is 0.", "6", lambda day: day.dt.weekday() - 1)
_field("dayofyear", "The day of the year.", "319", lambda day: day.dt.ordinal_day())
_field("weekofyear", "The week of the year (ISO 8601).", "46", lambda day: day.dt.week())
_field("hour", "The hour of the day.", "9", lambda instant: instant.dt.hour(), clock=True)
_field("minute", "The minute of the hour.", "30", lambda instant: instant.dt.minute(), clock=True)
_field("second", "The second of the minute.", "5", lambda instant: instant.dt.second(), clock=True)


@DATES.add("dayname", (1, 1), "Abbreviated name of the weekday.", "dayname('2026-11-15')", "'Sun'")
def _dayname(args: Arguments) -> pl.Expr:
    return date(args, 0).dt.strftime("%a")


@DATES.add("monthname", (1, 1), "Abbreviated name of the month.", "monthname('2026-11-15')", "'Nov'")
def _monthname(args: Arguments) -> pl.Expr:
    return date(args, 0).dt.strftime("%b")


def _unit(args: Arguments, at: int, names: dict[str, str]) -> str:
    unit = names.get(args.literal_text(at).upper())
    if unit is None:
        raise args.error(at, f"one of {', '.join(names)}")
    return unit


@DATES.add(
    "date_trunc",
    (2, 2),
    "Truncates a time to the year, quarter, month, week (Monday), day, hour, minute, second...",
    "date_trunc('HOUR', '2026-11-15 09:30:05')",
    "to_timestamp('2026-11-15 09:00:00')",
)
def _date_trunc(args: Arguments) -> pl.Expr:
    return time(args, 1).dt.truncate(_unit(args, 0, _EVERY))


@DATES.add(
    "trunc",
    (2, 2),
    "Truncates a date to the first day of the year, quarter, month or week (Monday).",
    "trunc('2026-11-15', 'MM')",
    "to_date('2026-11-01')",
)
def _trunc(args: Arguments) -> pl.Expr:
    return date(args, 0).dt.truncate(_unit(args, 1, _OF_DATES))


@DATES.add(
    "date_add dateadd", (2, 2), "Adds days to a date.", "date_add('2026-02-27', 2)", "to_date('2026-03-01')"
)
def _date_add(args: Arguments) -> pl.Expr:
    return add_days(date(args, 0), args.integer(1))


@DATES.add(
    "date_sub", (2, 2), "Subtracts days from a date.", "date_sub('2026-03-01', 1)", "to_date('2026-02-28')"
)
def _date_sub(args: Arguments) -> pl.Expr:
    return add_days(date(args, 0), -args.integer(1))


@DATES.add(
    "datediff date_diff",
    (2, 2),
    "Days from the second date to the first.",
    "datediff('2026-03-01', '2026-02-01')",
    "28",
)
def _datediff(args: Arguments) -> pl.Expr:
    return date(args, 0).to_physical().cast(pl.Int64) - date(args, 1).to_physical().cast(pl.Int64)


@DATES.add(
    "add_months",
    (2, 2),
    "Adds months to a date; the last day if the month is shorter.",
    "add_months('2026-01-31', 1)",
    "to_date('2026-02-28')",
)
def _add_months(args: Arguments) -> pl.Expr:
    return add_months(date(args, 0), args.integer(1))


@DATES.add(
    "months_between",
    (2, 3),
    "Months from the second time to the first, with a day as 1/31; to 8 places unless the third is false.",
    "months_between('2026-03-31', '2026-02-28')",
    "1.0",
)
def _months_between(args: Arguments) -> pl.Expr:
    bound = pl.struct(one=time(args, 0), other=time(args, 1)).struct
    one, other = pl.field("one"), pl.field("other")
    counted = bound.with_fields(
        months=_months(one) - _months(other),
        days=one.dt.day().cast(pl.Int64) - other.dt.day().cast(pl.Int64),
        clock=_clock(one) - _clock(other),
    ).struct
    seconds = pl.field("days") * 86_400 + pl.field("clock")
    share = pl.field("months").cast(pl.Float64) + divide(seconds.cast(pl.Float64), 31.0 * 86_400)
    whole = (pl.field("days") == 0) | (_is_last(one) & _is_last(other))
    between = counted.with_fields(
        it=pl.when(whole).then(pl.field("months").cast(pl.Float64)).otherwise(share)
    ).struct.field("it")
    exact = len(args) > 2 and not args.literal_boolean(2)
    return between if exact else round_to(between, pl.Float64(), 8, even=False)


def _months(instant: pl.Expr) -> pl.Expr:
    return instant.dt.year().cast(pl.Int64) * 12 + instant.dt.month().cast(pl.Int64)


def _clock(instant: pl.Expr) -> pl.Expr:
    """Seconds since midnight."""
    return to_micros(instant) % DAY // 1_000_000


def _is_last(instant: pl.Expr) -> pl.Expr:
    day = instant.dt.date()
    return day == day.dt.month_end()


@DATES.add(
    "last_day", (1, 1), "The last day of the month.", "last_day('2028-02-01')", "to_date('2028-02-29')"
)
def _last_day(args: Arguments) -> pl.Expr:
    return date(args, 0).dt.month_end()


@DATES.add(
    "next_day",
    (2, 2),
    "The first given weekday after a date.",
    "next_day('2026-11-15', 'Mon')",
    "to_date('2026-11-16')",
)
def _next_day(args: Arguments) -> pl.Expr:
    wanted = args.literal_text(1).upper()
    numbers = [n for n, name in enumerate(_WEEKDAYS, 1) if wanted in (name, name[:3], name[:2])]
    if not numbers:
        raise args.error(1, "a day of the week, such as Mon")
    day = date(args, 0)
    return add_days(day, (numbers[0] - day.dt.weekday().cast(pl.Int64) - 1) % 7 + 1)


@DATES.add(
    "to_date",
    (1, 2),
    "Parses a date, by a pattern if given; of a time, its date.",
    "to_date('15/11/2026', 'dd/MM/yyyy')",
    "to_date('2026-11-15')",
)
def _to_date(args: Arguments) -> pl.Expr:
    return date(args, 0) if len(args) == 1 else _parse_by_pattern(args).dt.date()


@DATES.add(
    "to_timestamp try_to_timestamp",
    (1, 2),
    "Parses a time, by a pattern if given.",
    "to_timestamp('15.11.2026 09:30', 'dd.MM.yyyy HH:mm')",
    "to_timestamp('2026-11-15 09:30:00')",
)
def _to_timestamp(args: Arguments) -> pl.Expr:
    return time(args, 0) if len(args) == 1 else _parse_by_pattern(args)


def _parse_by_pattern(args: Arguments) -> pl.Expr:
    """Parse a text by the pattern in the second argument; a date or a time stays."""
    return parse_time(args.text(0), args, 1) if args.dtype(0) in (pl.String, pl.Null) else time(args, 0)


@DATES.add(
    "date_format",
    (2, 2),
    "Formats a time by a Java pattern.",
    "date_format('2026-11-15 09:30:05', 'EEE d MMM yyyy, HH:mm')",
    "'Sun 15 Nov 2026, 09:30'",
)
def _date_format(args: Arguments) -> pl.Expr:
    return format_time(time(args, 0), args, 1)


@DATES.add(
    "unix_timestamp to_unix_timestamp",
    (1, 2),
    "Seconds since 1970 of a time, or of a string parsed by the pattern.",
    "unix_timestamp('2026-11-15 09:30:05')",
    "1794735005",
)
def _unix_timestamp(args: Arguments) -> pl.Expr:
    if len(args) == 1 and args.dtype(0) in (pl.String, pl.Null):
        instant = parse_time(args.text(0), _with_pattern(args), 1)
    else:
        instant = time(args, 0) if len(args) == 1 else _parse_by_pattern(args)
    return to_micros(instant).truncdiv(1_000_000)


@DATES.add(
    "from_unixtime",
    (1, 2),
    "Formats seconds since 1970 by the pattern.",
    "from_unixtime(0, 'yyyy-MM-dd')",
    "'1970-01-01'",
)
def _from_unixtime(args: Arguments) -> pl.Expr:
    instant = _since(args.integer(0), 1_000_000)
    return format_time(instant, args if len(args) > 1 else _with_pattern(args), 1)


def _with_pattern(args: Arguments) -> Arguments:
    """The arguments with the default pattern as their second."""
    pattern = TypedExpr(pl.lit(_DEFAULT_PATTERN), pl.String(), _DEFAULT_PATTERN, True)
    return Arguments(args.name, [args.items[0], pattern])


@DATES.add(
    "timestamp_seconds",
    (1, 1),
    "The time of seconds since 1970.",
    "timestamp_seconds(1.5)",
    "to_timestamp('1970-01-01 00:00:01.5')",
)
def _timestamp_seconds(args: Arguments) -> pl.Expr:
    if args.dtype(0).is_integer():
        return _since(args.integer(0), 1_000_000)
    micros = args.double(0) * 1e6
    return from_micros(pl.when(micros.abs() < float(_FAR)).then(micros).cast(pl.Int64))


@DATES.add(
    "timestamp_millis",
    (1, 1),
    "The time of milliseconds since 1970.",
    "timestamp_millis(1500)",
    "to_timestamp('1970-01-01 00:00:01.5')",
)
def _timestamp_millis(args: Arguments) -> pl.Expr:
    return _since(args.integer(0), 1_000)


@DATES.add(
    "timestamp_micros",
    (1, 1),
    "The time of microseconds since 1970.",
    "timestamp_micros(1500000)",
    "to_timestamp('1970-01-01 00:00:01.5')",
)
def _timestamp_micros(args: Arguments) -> pl.Expr:
    return _since(args.integer(0), 1)


def _since(count: pl.Expr, micros: int) -> pl.Expr:
    """The instant of a count of units of some microseconds since 1970; NULL beyond 64 bits."""
    return from_micros(pl.when(count.is_between(-_FAR // micros, _FAR // micros)).then(count) * micros)


@DATES.add("unix_seconds", (1, 1), "Seconds since 1970.", "unix_seconds('1970-01-01 00:00:01.5')", "1")
def _unix_seconds(args: Arguments) -> pl.Expr:
    return to_micros(time(args, 0)) // 1_000_000


@DATES.add("unix_millis", (1, 1), "Milliseconds since 1970.", "unix_millis('1970-01-01 00:00:01.5')", "1500")
def _unix_millis(args: Arguments) -> pl.Expr:
    return to_micros(time(args, 0)) // 1_000


@DATES.add(
    "unix_micros", (1, 1), "Microseconds since 1970.", "unix_micros('1970-01-01 00:00:01.5')", "1500000"
)
def _unix_micros(args: Arguments) -> pl.Expr:
    return to_micros(time(args, 0))


@DATES.add("unix_date", (1, 1), "Days since 1970.", "unix_date('1970-01-02')", "1")
def _unix_date(args: Arguments) -> pl.Expr:
    return date(args, 0).to_physical().cast(pl.Int64)


@DATES.add(
    "date_from_unix_date",
    (1, 1),
    "The date of days since 1970.",
    "date_from_unix_date(1)",
    "to_date('1970-01-02')",
)
def _date_from_unix_date(args: Arguments) -> pl.Expr:
    return args.integer(0).cast(pl.Int32, strict=False).cast(pl.Date)


@DATES.add(
    "make_date",
    (3, 3),
    "The date of a year, a month and a day; NULL if it does not exist.",
    "make_date(2026, 2, 29)",
    "NULL",
)
def _make_date(args: Arguments) -> pl.Expr:
    return make_date(args.integer(0), args.integer(1), args.integer(2))
