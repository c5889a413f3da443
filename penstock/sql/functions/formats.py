"""`format_string`: text with places for values, a part of what Java's formatter knows."""

from __future__ import annotations

import re

import polars as pl

from penstock.sql.functions.contract import Given
from penstock.sql.functions.rounding import scaled
from penstock.sql.functions.text import TEXT, words

_PLACE = re.compile(r"%(?P<left>-?)(?P<zeros>0?)(?P<wide>\d*)(?:\.(?P<digits>\d+))?(?P<kind>[a-zA-Z%])|%")


@TEXT.add(
    "format_string printf",
    (1, None),
    "Values put into a text at %s, %d, %.2f, with widths (%5d, %-5s, %05d); %% is a percent sign.",
    "format_string('%s: %05.1f', 'load', 3.14159)",
    "'load: 003.1'",
)
def _format_string(given: Given) -> pl.Expr:
    form, parts, at, end = given.said_text(0), [pl.lit("")], 1, 0
    for place in _PLACE.finditer(form):
        parts.append(pl.lit(form[end : place.start()]))
        end = place.end()
        kind = place["kind"]
        if kind in ("%", "n"):
            parts.append(pl.lit("%" if kind == "%" else "\n"))
            continue
        if kind not in ("s", "d", "f"):
            raise given.bad(0, "text with %s, %d, %f or %%", hint=f"{place[0]!r} is not known.")
        if at >= len(given):
            raise given.bad(0, f"text with {len(given) - 1} places for values")
        parts.append(_put(given, at, place))
        at += 1
    parts.append(pl.lit(form[end:]))
    return pl.concat_str(parts)


def _put(given: Given, at: int, place: re.Match[str]) -> pl.Expr:
    kind, wide = place["kind"], int(place["wide"] or 0)
    if kind == "s":
        text = words(given, at).fill_null("null")
        text = text if place["digits"] is None else text.str.head(int(place["digits"]))
        plain = pl.lit(True)
    elif kind == "d":
        text, plain = given.whole(at).cast(pl.String).fill_null("null"), given.any(at).is_null()
    else:
        number = given.number(at)
        text = _decimal(number, 6 if place["digits"] is None else int(place["digits"]))
        plain = number.is_null() | ~number.is_finite()
    if place["left"]:
        return text.str.pad_end(wide)
    if place["zeros"] and kind != "s":
        return pl.when(plain).then(text.str.pad_start(wide)).otherwise(text.str.zfill(wide))
    return text.str.pad_start(wide)


def _decimal(number: pl.Expr, digits: int) -> pl.Expr:
    """A double with a number of digits after the point, rounded half up on its decimal spelling."""
    steps = scaled(number, pl.Float64(), digits, even=False).cast(pl.Int128, strict=False)
    whole = (steps // 10**digits).cast(pl.String)
    if digits:
        whole = whole + pl.lit(".") + (steps % 10**digits).cast(pl.String).str.zfill(digits)
    negative = (number < 0) | (number.cast(pl.String) == "-0.0")
    sign = pl.when(negative).then(pl.lit("-")).otherwise(pl.lit(""))
    return (
        pl.when(number.is_null())
        .then(pl.lit("null"))
        .when(number.is_nan())
        .then(pl.lit("NaN"))
        .when(number.is_infinite())
        .then(sign + pl.lit("Infinity"))
        .otherwise(sign + whole)
    )
