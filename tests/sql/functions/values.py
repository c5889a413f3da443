"""Tricky numbers, times, and texts with times; lists."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import polars as pl

from tests.sql.functions.case import INSTANT, Case, lines

_DOUBLES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5,
    2.675, 1.005, 0.285, 1e-10, 123456.789, -123456.785, 1e15 + 0.3, 1e16,
    1e300, -1e300, 9.3e18, math.nan, math.inf, -math.inf, None, 0.1, 0.3, 1e7, 9999999.5, 0.001, 0.00099, 1.2345e-5,
    4.35,     8.345, 1e22, 15e-1, 0.045, 2.2250738585072014e-308, 1.7976931348623157e308, 12345678.9, 100.0, 1e-3,
]  # fmt: skip
_OTHERS = [2.0, 0.0, 3.0, -3.0, 0.1, 0.7, math.nan, math.inf, -math.inf, None, 1.0, -0.0, 0.5]

NUMBERS = Case(
    "numbers",
    pl.DataFrame(
        [
            (x, _OTHERS[k % len(_OTHERS)], (k * 7919 - 9000) * (k % 3 - 1) if k % 11 else None, k % 5 - 2)
            for k, x in enumerate(_DOUBLES)
        ],
        schema={"x": pl.Float64, "y": pl.Float64, "n": pl.Int64, "m": pl.Int64},
        orient="row",
    ),
    lines("""
        abs(x)
        abs(n)
        negative(x)
        negative(n)
        sign(x)
        signum(n)
        ceil(x)
        ceiling(x)
        ceil(n)
        floor(x)
        floor(n)
        round(x)
        round(x, 1)
        round(x, 2)
        round(x, 5)
        round(x, -2)
        round(n, -2)
        round(n, 2)
        bround(x)
        bround(x, 1)
        bround(x, 2)
        bround(x, -1)
        bround(n, -1)
        bround(n, -3)
        sqrt(x)
        cbrt(x)
        exp(x)
        ln(x)
        log(x)
        log(y, x)
        log2(x)
        log10(x)
        log1p(x)
        pow(x, y)
        power(x, 2)
        pow(1, y)
        mod(x, y)
        mod(n, m)
        mod(n, y)
        div(n, m)
        pmod(x, y)
        pmod(n, m)
        try_divide(x, y)
        try_divide(n, m)
        sin(y)
        cos(y)
        tan(y)
        asin(x)
        acos(x)
        atan(x)
        atan2(x, y)
        atan2(y, x)
        sinh(y)
        cosh(y)
        tanh(y)
        degrees(x)
        radians(x)
        width_bucket(x, 0.0, 10.0, 5)
        width_bucket(x, 10.0, 0.0, 5)
        width_bucket(x, y, 4.0, m)
        greatest(x, y)
        least(x, y)
        greatest(n, m)
        least(n, x)
        isnan(x)
        nanvl(x, y)
        nullif(x, y)
        nullifzero(n)
        zeroifnull(n)
        equal_null(x, y)
        coalesce(x, y, 1)
        bin(n)
        hex(n)
        chr(n)
        char(m)
        concat(x, '')
        concat_ws('|', x, n)
        format_string('%.2f|%8.1f|%-9.0f|%09.3f', y, y, y, y)
        format_string('%.2f', round(x, 3))
        format_string('%f', y)
        pi()
        e()
    """),
)

_TIMES = [
    datetime(2026, 11, 15, 9, 30, 5, 123456), datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 2, 29, 12), datetime(2023, 2, 28, 23, 59, 59), datetime(1900, 3, 1, 0, 0, 0, 1),
    datetime(2000, 1, 31), datetime(2020, 12, 31, 12, 0, 30, 500000), datetime(2021, 1, 3, 1), datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59),
    datetime(1582, 10, 15), None, datetime(2027, 1, 1, 0, 5), datetime(1960, 6, 30, 13, 7, 9, 10),
]  # fmt: skip

TIMES = Case(
    "times",
    pl.DataFrame(
        {
            "a": [None if t is None else t.replace(tzinfo=UTC) for t in _TIMES],
            "b": [None if t is None else t.replace(tzinfo=UTC) for t in [*_TIMES[4:], *_TIMES[:4]]],
            "d": [None if t is None else t.date() for t in _TIMES],
            "n": [0, 1, -1, 12, -13, 30, 1, None, 100, 5, -5, 365, 7, -1000, 24],
        },
        schema={"a": INSTANT, "b": INSTANT, "d": pl.Date, "n": pl.Int32},
    ),
    lines("""
        year(a)
        year(d)
        quarter(a)
        month(a)
        day(a)
        dayofmonth(d)
        dayofweek(a)
        weekday(d)
        dayofyear(a)
        weekofyear(a)
        hour(a)
        hour(d)
        minute(a)
        second(a)
        dayname(a)
        monthname(d)
        date_trunc('YEAR', a)
        date_trunc('yyyy', a)
        date_trunc('QUARTER', a)
        date_trunc('mon', a)
        date_trunc('week', a)
        date_trunc('DAY', a)
        date_trunc('hour', a)
        date_trunc('minute', a)
        date_trunc('SECOND', a)
        date_trunc('MILLISECOND', a)
        date_trunc('MICROSECOND', a)
        date_trunc('month', d)
        trunc(d, 'YEAR')
        trunc(a, 'quarter')
        trunc(d, 'MM')
        trunc(d, 'week')
        date_add(d, n)
        dateadd(d, 3)
        date_add(a, 1)
        date_sub(d, n)
        datediff(a, b)
        date_diff(a, d)
        add_months(d, n)
        add_months(a, 1)
        add_months(d, -1)
        months_between(a, b)
        months_between(a, b, false)
        months_between(d, b)
        last_day(d)
        last_day(a)
        next_day(d, 'MO')
        next_day(a, 'Sunday')
        next_day(d, 'fri')
        to_date(a)
        to_timestamp(d)
        to_timestamp(a)
        date_format(a, 'yyyy-MM-dd HH:mm:ss.SSS')
        date_format(a, 'yyyy/M/d H:m:s')
        date_format(d, 'yyyy-MM-dd')
        date_format(a, 'EEE, EEEE d MMM MMMM')
        date_format(a, 'hh:mm a')
        date_format(a, 'h K k KK kk')
        date_format(a, 'D DDD DD')
        date_format(a, 'Q QQ QQQ')
        date_format(a, 'S SS SSSS SSSSSS SSSSSSSSS')
        date_format(a, 'yy y yyyyy')
        date_format(a, 'XXX X xxx xx x Z ZZZZ ZZZZZ VV z O')
        date_format(a, 'L LL LLL LLLL')
        date_format(a, '% %%')
        unix_timestamp(a)
        unix_timestamp(d)
        to_unix_timestamp(a)
        from_unixtime(unix_timestamp(a))
        from_unixtime(n)
        from_unixtime(n, 'HH:mm')
        timestamp_seconds(n)
        timestamp_seconds(1.25)
        timestamp_millis(n)
        timestamp_micros(n)
        unix_seconds(a)
        unix_millis(a)
        unix_micros(a)
        unix_date(d)
        date_from_unix_date(n)
        make_date(2024, n, 29)
        make_date(n, 1, 1)
        make_date(2023, 2, 28)
        greatest(a, b)
        least(d, a)
        coalesce(d, a)
        concat('at ', a)
        concat('on ', d)
        if(isnull(n), a, b)
    """),
)

READ = Case(
    "read",
    pl.DataFrame(
        {
            "s": [
                "2026-11-15",
                "2026-11-15 09:30:05",
                "2026-11-15T09:30:05.123456789Z",
                " 2026-1-5 ",
                "2026",
                "2026-02",
                "2026-02-30",
                "2026-13-01",
                "2026-11-15 25:00:00",
                "2026-11-15 9:5:7",
                "2026-11-15 09:30",
                "2026-11-15 09",
                "2026-11-15T09:30:05+02:00",
                "2026-11-15 09:30:05 -0800",
                "2026-11-15 09:30:05 UTC",
                "2026-11-15T",
                "",
                None,
                "x",
                "1969-12-31 23:59:59.5",
                "0001-01-01",
                "9999-12-31",
                "2024-02-29 23:59:60",
                "15/11/2026",
                "15 Nov 2026",
                "15 NOVEMBER 2026",
                "20261115",
                "2026-11-15 09:30:05.12",
                "11:05 PM",
                "09:30 am",
                "2026-11-15x",
                "2026-11-15 x",
                "2026-11-15T09:30:05+2",
                "2026-11-15T09:30:05+19:00",
                "2026-11-15T09:30:05-03:30",
                "26-11-15",
                "2026-11-15 09:30:05.",
                "2026-1-5",
                "2026-11-15 09:30:05.1234",
                "15/Nov/2026:09:30:05 +0200",
                "12:00 AM",
                "2026-11-15 09:30:05GMT+1",
                "13:00 PM",
            ]
        }
    ),
    lines("""
        to_date(s)
        to_timestamp(s)
        year(s)
        hour(s)
        date_add(s, 1)
        to_date(s, 'yyyy-MM-dd')
        to_date(s, 'dd/MM/yyyy')
        to_date(s, 'd MMM yyyy')
        to_date(s, 'dd MMMM yyyy')
        to_date(s, 'yyyyMMdd')
        to_date(s, 'yy-MM-dd')
        to_date(s, 'yyyy-M-d')
        to_date(s, 'yyyy')
        to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')
        to_timestamp(s, 'yyyy-MM-dd HH:mm:ss.SSS')
        to_timestamp(s, 'yyyy-MM-dd HH:mm:ss.SSSSSS')
        try_to_timestamp(s, 'hh:mm a')
        to_timestamp(s, 'dd/MMM/yyyy:HH:mm:ss Z')
        to_timestamp(s, 'yyyy-MM-dd HH:mm')
        unix_timestamp(s)
        unix_timestamp(s, 'yyyy-MM-dd')
        to_unix_timestamp(s, 'yyyy-MM-dd')
    """),
)

LISTS = Case(
    "lists",
    pl.DataFrame(
        {
            "l": [["a", "b", None], [], None, ["x"], ["b", "a", "b"], [None], ["é", "", "z"]],
            "k": [[3, 1, 2], [], None, [None, 5], [7, 7], [None], [-1]],
            "f": [[1.5, math.nan], [], None, [None, -0.5], [math.inf, 1.0], [2.0], [0.0]],
            "n": [1, -1, 0, None, 3, -4, 2],
            "s": ["a", "b", "c", "x", None, "y", ""],
        },
        schema={
            "l": pl.List(pl.String),
            "k": pl.List(pl.Int64),
            "f": pl.List(pl.Float64),
            "n": pl.Int32,
            "s": pl.String,
        },
    ),
    lines("""
        array(s, 'x', NULL)
        array(n, 1)
        array_size(l)
        array_contains(l, s)
        array_contains(k, 5)
        element_at(l, 1)
        element_at(l, -1)
        element_at(k, 9)
        get(l, n)
        slice(l, 1, 2)
        slice(k, -1, 1)
        slice(k, -2, 5)
        array_join(l, '-')
        array_join(l, '-', '?')
        array_join(l, s)
        array_distinct(k)
        array_distinct(l)
        array_min(k)
        array_max(k)
        array_min(f)
        array_max(f)
        sort_array(l)
        sort_array(k, false)
        sort_array(f)
        array_sort(k)
        array_sort(l)
        array_compact(l)
        reverse(k)
        concat(l, l)
        concat(k, array(1))
        concat_ws(',', l, s)
        concat_ws(s, l)
    """),
)
