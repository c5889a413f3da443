"""`format_string`: text with places for values, a part of what Java's formatter knows."""

from __future__ import annotations

import re

import polars as pl

from penstock.sql.functions.contract import Given
from penstock.sql.functions.rounding import scaled
from penstock.sql.functions.text import TEXT, words

#: digits behind the point of a double that can be told apart
_MOST = 15
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
    digits = None if place["digits"] is None else int(place["digits"])
    nothing = "null"[:digits]
    if kind == "s":
        text = words(given, at).fill_null("null")
        text, plain = text if digits is None else text.str.head(digits), pl.lit(True)
    elif kind == "d":
        if digits is not None:
            raise given.bad(0, "text without digits behind the point of %d")
        text, plain = given.whole(at).cast(pl.String).fill_null(nothing), given.any(at).is_null()
    else:
        if digits is not None and digits > _MOST:
            raise given.bad(0, f"text with at most {_MOST} digits behind the point")
        number = given.number(at)
        text = _decimal(number, 6 if digits is None else digits).fill_null(nothing)
        plain = number.is_null() | ~number.is_finite()
    if place["left"]:
        return text.str.pad_end(wide)
    if place["zeros"] and kind != "s":
        return pl.when(plain).then(text.str.pad_start(wide)).otherwise(text.str.zfill(wide))
    return text.str.pad_start(wide)


def _decimal(number: pl.Expr, digits: int) -> pl.Expr:
    """A double with a number of digits behind the point, rounded half up on its shortest decimal spelling."""
    size = number.abs()
    text = size.cast(pl.String)
    power = text.str.extract(r"e\+(\d+)$", 1).cast(pl.Int64)
    huge = text.str.extract(r"^([\d.]+)", 1).str.replace(".", "", literal=True).str.pad_end(power + 1, "0")
    before = (
        pl.when(size >= 1).then(text.str.extract(r"^(\d+)", 1).cast(pl.Int64)).otherwise(pl.lit(0, pl.Int64))
    )
    behind = (
        pl.when(size >= 1)
        .then((pl.lit("0") + text.str.extract(r"(\.\d+)", 1)).cast(pl.Float64))
        .otherwise(size)
    )
    steps = scaled(behind, pl.Float64(), digits, even=False).cast(pl.Int64, strict=False)
    carried = (steps >= 10**digits).cast(pl.Int64)
    plain = (before + carried).cast(pl.String)
    point = pl.lit("." if digits else "")
    rest = (steps - carried * 10**digits).cast(pl.String).str.zfill(digits) if digits else pl.lit("")
    negative = (number < 0) | (number.cast(pl.String) == "-0.0")
    sign = pl.when(negative).then(pl.lit("-")).otherwise(pl.lit(""))
    return (
        pl.when(number.is_nan())
        .then(pl.lit("NaN"))
        .when(number.is_infinite())
        .then(sign + pl.lit("Infinity"))
        .when(power.is_not_null())
        .then(sign + huge + point + pl.lit("0" * digits))
        .when(number.is_not_null())
        .then(sign + plain + point + rest)
    )
