"""`format_string`: text with places for values, a part of what Java's formatter knows."""

from __future__ import annotations

import re

import polars as pl

from penstock.sql.functions.contract import Given
from penstock.sql.functions.rounding import scaled
from penstock.sql.functions.text import TEXT, words

#: digits behind the point of a double that can be told apart
_MOST = 15
#: sign, digits before the point, the point and those behind it, exponent
_SPELLED = r"^(-?)(\d+)(\.\d+)?(?:e\+?(-?\d+))?$"
_PLACE = re.compile(r"%(?P<left>-?)(?P<zeros>0?)(?P<wide>\d*)(?:\.(?P<digits>\d+))?(?P<kind>[a-zA-Z%])|%")


@TEXT.add(
    "format_string printf",
    (1, None),
    "Formats values at %s, %d, %.2f, with widths (%5d, %-5s, %05d); %% is a percent sign.",
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
    bound = pl.struct(number=number, text=number.cast(pl.String)).struct.with_fields(
        parts=pl.field("text").str.extract_groups(_SPELLED), size=pl.field("number").abs()
    )
    one = pl.field("size") >= 1
    behind = (pl.lit("0") + pl.field("parts").struct.field("3")).cast(pl.Float64, strict=False)
    split = bound.struct.with_fields(
        sign=pl.field("parts").struct.field("1"),
        power=pl.when(one).then(pl.field("parts").struct.field("4").cast(pl.Int64, strict=False)),
        before=pl.when(one)
        .then(pl.field("parts").struct.field("2").cast(pl.Int64, strict=False))
        .otherwise(0),
        behind=pl.when(one).then(behind).otherwise(pl.field("size")),
        huge=pl.field("parts").struct.field("2")
        + pl.field("parts").struct.field("3").fill_null("").str.slice(1),
    )
    steps = scaled(pl.field("behind"), pl.Float64(), digits, even=False).cast(pl.Int64, strict=False)
    counted = split.struct.with_fields(steps=steps).struct.with_fields(
        carried=(pl.field("steps") >= 10**digits).cast(pl.Int64)
    )
    plain = (pl.field("before") + pl.field("carried")).cast(pl.String)
    point, rest = pl.lit("." if digits else ""), pl.lit("")
    if digits:
        rest = (pl.field("steps") - pl.field("carried") * 10**digits).cast(pl.String).str.zfill(digits)
    huge = (
        pl.field("huge").str.pad_end(pl.field("power").fill_null(0) + 1, "0") + point + pl.lit("0" * digits)
    )
    it = (
        pl.when(pl.field("sign").is_null())
        .then(pl.field("text").str.replace("inf", "Infinity", literal=True))
        .when(pl.field("power").is_not_null())
        .then(pl.field("sign") + huge)
        .otherwise(pl.field("sign") + plain + point + rest)
    )
    return counted.struct.with_fields(it=it).struct.field("it")
