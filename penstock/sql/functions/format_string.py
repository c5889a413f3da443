"""`format_string`: text with placeholders for values, a subset of Java's formatter."""

from __future__ import annotations

import re

import polars as pl

from penstock.sql.functions.arithmetic import count_steps
from penstock.sql.functions.contract import MOST_CHARACTERS, Arguments
from penstock.sql.functions.text import TEXT, as_text

#: decimal digits of a double that can be exact
_MOST_DIGITS = 15
#: sign, digits before the point, the point and the digits after it, exponent
_NUMBER = r"^(-?)(\d+)(\.\d+)?(?:e\+?(-?\d+))?$"
_PLACEHOLDER = re.compile(
    r"%(?P<left>-?)(?P<zeros>0?)(?P<wide>\d{0,9})(?:\.(?P<digits>\d{1,9}))?(?P<kind>[a-zA-Z%])|%"
)


@TEXT.add(
    "format_string printf",
    (1, None),
    "Formats values at %s, %d, %.2f, with widths (%5d, %-5s, %05d); %% is a percent sign.",
    "format_string('%s: %05.1f', 'load', 3.14159)",
    "'load: 003.1'",
)
def _format_string(args: Arguments) -> pl.Expr:
    template, parts, at, end = args.literal_text(0), [pl.lit("")], 1, 0
    if (
        sum(int(placeholder["wide"] or 0) for placeholder in _PLACEHOLDER.finditer(template))
        > MOST_CHARACTERS
    ):
        raise args.error(0, f"text with widths of at most {MOST_CHARACTERS:,} characters")
    for placeholder in _PLACEHOLDER.finditer(template):
        parts.append(pl.lit(template[end : placeholder.start()]))
        end = placeholder.end()
        kind = placeholder["kind"]
        if kind in ("%", "n"):
            parts.append(pl.lit("%" if kind == "%" else "\n"))
            continue
        if kind not in ("s", "d", "f"):
            raise args.error(0, "text with %s, %d, %f or %%", hint=f"{placeholder[0]!r} is not known.")
        if at >= len(args):
            raise args.error(0, f"text with {len(args) - 1} placeholders")
        parts.append(_format_value(args, at, placeholder))
        at += 1
    parts.append(pl.lit(template[end:]))
    return pl.concat_str(parts)


def _format_value(args: Arguments, at: int, placeholder: re.Match[str]) -> pl.Expr:
    kind, wide = placeholder["kind"], int(placeholder["wide"] or 0)
    digits = None if placeholder["digits"] is None else int(placeholder["digits"])
    nothing = "null"[:digits]
    if kind == "s":
        text = as_text(args, at).fill_null("null")
        text, plain = text if digits is None else text.str.head(digits), pl.lit(True)
    elif kind == "d":
        if digits is not None:
            raise args.error(0, "text without decimal digits for %d")
        text, plain = args.integer(at).cast(pl.String).fill_null(nothing), args.expr(at).is_null()
    else:
        if digits is not None and digits > _MOST_DIGITS:
            raise args.error(0, f"text with at most {_MOST_DIGITS} decimal digits")
        number = args.double(at)
        text = _decimal(number, 6 if digits is None else digits).fill_null(nothing)
        plain = number.is_null() | ~number.is_finite()
    if placeholder["left"]:
        return text.str.pad_end(wide)
    if placeholder["zeros"] and kind != "s":
        return pl.when(plain).then(text.str.pad_start(wide)).otherwise(text.str.zfill(wide))
    return text.str.pad_start(wide)


def _decimal(number: pl.Expr, digits: int) -> pl.Expr:
    """Format a double with some decimal digits, its shortest decimal form rounded half up.

    The names of struct fields stay: they are in the expression's text, of which the identity of state is made.
    """
    bound = pl.struct(number=number, text=number.cast(pl.String)).struct.with_fields(
        parts=pl.field("text").str.extract_groups(_NUMBER), size=pl.field("number").abs()
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
    steps = count_steps(pl.field("behind"), pl.Float64(), digits, even=False).cast(pl.Int64, strict=False)
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
