"""Java's patterns for dates (`yyyy-MM-dd HH:mm:ss`): times as text, and text as times.

Receives a literal pattern and an expression; hands an expression, or `BAD_ARGUMENT` for letters it does not know.
"""

from __future__ import annotations

import re

import polars as pl

from penstock.sql.functions.calendar import day_of, fraction, moment, offset
from penstock.sql.functions.contract import Given

_TOKEN = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<plain>[^A-Za-z'\[\]{}#]+)")
_MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip

#: what Polars' own formatter spells as Java does
_SPELLED = {
    "yy": "%y", "yyyy": "%Y", "D": "%-j", "DDD": "%j", "M": "%-m", "MM": "%m", "MMM": "%b", "MMMM": "%B",
    "L": "%-m", "LL": "%m", "LLL": "%b", "LLLL": "%B", "d": "%-d", "dd": "%d", "E": "%a", "EE": "%a", "EEE": "%a",
    "EEEE": "%A", "a": "%p", "h": "%-I", "hh": "%I", "H": "%-H", "HH": "%H", "m": "%-M", "mm": "%M", "s": "%-S",
    "ss": "%S", "SSS": "%3f", "SSSSSS": "%6f", "SSSSSSSSS": "%9f", "X": "Z", "XX": "Z", "XXX": "Z", "x": "+00",
    "xx": "+0000", "xxx": "+00:00", "Z": "+0000", "ZZ": "+0000", "ZZZ": "+0000", "ZZZZ": "GMT", "ZZZZZ": "Z",
    "VV": "UTC", "z": "UTC", "zz": "UTC", "zzz": "UTC", "O": "GMT", "OOOO": "GMT",
}  # fmt: skip

_TWO = r"(\d{2})"
_NUMBER = r"(\d{1,2})"
_OFFSETS = {
    "X": r"(Z|[+-]\d{2}(?:\d{2})?)", "XX": r"(Z|[+-]\d{4})", "XXX": r"(Z|[+-]\d{2}:\d{2})",
    "x": r"([+-]\d{2}(?:\d{2})?)", "xx": r"([+-]\d{4})", "xxx": r"([+-]\d{2}:\d{2})",
    "Z": r"([+-]\d{4})", "ZZ": r"([+-]\d{4})", "ZZZ": r"([+-]\d{4})", "ZZZZZ": r"(Z|[+-]\d{2}:\d{2})",
}  # fmt: skip
#: how text is read: for each run of letters the field and an expression for it
_READ = {
    "y": ("year", r"(\d{1,6})"), "yy": ("short", _TWO), "yyyy": ("year", r"(\d{4})"),
    "M": ("month", _NUMBER), "MM": ("month", _TWO), "L": ("month", _NUMBER), "LL": ("month", _TWO),
    "MMM": ("name", f"((?i:{'|'.join(month[:3] for month in _MONTHS)}))"),
    "MMMM": ("name", f"((?i:{'|'.join(_MONTHS)}))"),
    "d": ("day", _NUMBER), "dd": ("day", _TWO), "H": ("hour", _NUMBER), "HH": ("hour", _TWO),
    "h": ("half", _NUMBER), "hh": ("half", _TWO), "a": ("noon", "((?i:AM|PM))"),
    "m": ("minute", _NUMBER), "mm": ("minute", _TWO), "s": ("second", _NUMBER), "ss": ("second", _TWO),
} | {letters: ("zone", how) for letters, how in _OFFSETS.items()}  # fmt: skip


def _tokens(given: Given, at: int) -> list[tuple[str, bool]]:
    """A pattern in pieces: runs of letters (True) and what stands for itself."""
    pattern, place, pieces = given.said_text(at), 0, []
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        if token is None:
            raise given.bad(at, "a pattern of letters, signs and 'quoted text'")
        if token["quoted"] is not None:
            pieces.append((token["quoted"].replace("''", "'") or "'", False))
        else:
            pieces.append((token[0], token["letters"] is not None))
        place = token.end()
    return pieces


def formatted(time: pl.Expr, given: Given, at: int) -> pl.Expr:
    """A time as the pattern says."""
    parts: list[pl.Expr] = []
    run = ""
    for piece, letters in _tokens(given, at):
        if not letters:
            run += piece.replace("%", "%%")
        elif piece in _SPELLED:
            run += _SPELLED[piece]
        else:
            parts += [time.dt.strftime(run), _odd(time, piece, given, at)]
            run = ""
    if run or not parts:
        parts.append(time.dt.strftime(run) if run else pl.when(time.is_not_null()).then(pl.lit("")))
    return pl.concat_str(parts) if len(parts) > 1 else parts[0]


def _odd(time: pl.Expr, piece: str, given: Given, at: int) -> pl.Expr:
    """What Polars' formatter has no sign for."""
    letter, wide = piece[0], len(piece)
    hour = time.dt.hour().cast(pl.Int64)
    quarter = time.dt.quarter().cast(pl.String)
    if letter == "S" and wide <= 9:
        return time.dt.strftime("%9f").str.head(wide)
    if letter == "y" and wide <= 6:
        return time.dt.year().cast(pl.String).str.zfill(wide)
    if letter == "D" and wide == 2:
        return time.dt.ordinal_day().cast(pl.String).str.zfill(wide)
    if letter in "Qq" and wide <= 3:
        return [quarter, quarter.str.zfill(2), pl.lit("Q") + quarter][wide - 1]
    if letter == "K" and wide <= 2:
        return (hour % 12).cast(pl.String).str.zfill(wide)
    if letter == "k" and wide <= 2:
        return pl.when(hour == 0).then(24).otherwise(hour).cast(pl.String).str.zfill(wide)
    raise _unknown(given, at, piece)


def _unknown(given: Given, at: int, piece: str) -> Exception:
    return given.bad(at, "a pattern of known letters", hint=f"{piece!r} is not one of them here.")


def parsed(text: pl.Expr, given: Given, at: int) -> pl.Expr:
    """The instant that a text says, all of which must be as the pattern is; NULL otherwise."""
    pattern, names = "", []
    for piece, letters in _tokens(given, at):
        if not letters:
            pattern += re.escape(piece)
            continue
        field, how = ("micros", rf"(\d{{1,{len(piece)}}})") if piece[0] == "S" else _READ.get(piece, ("", ""))
        if not field or field in names or len(piece) > 9:
            raise _unknown(given, at, piece)
        names.append(field)
        pattern += how
    if not names:
        raise given.bad(at, "a pattern of a date's letters")
    said = {name: pl.field(str(place)) for place, name in enumerate(names, 1)}
    read = pl.when(pl.field("1").is_not_null()).then(_assembled(said))
    return text.str.extract_groups(f"^{pattern}$").struct.with_fields(it=read).struct.field("it")


def _assembled(said: dict[str, pl.Expr]) -> pl.Expr:
    """An instant of the fields that were read; those that were not are the first there is, from 1970 on."""
    number = {name: text.cast(pl.Int64, strict=False) for name, text in said.items()}
    zero = pl.lit(0, pl.Int64)
    year = number["short"] + 2000 if "short" in said else number.get("year", zero + 1970)
    month = number.get("month", zero + 1)
    if "name" in said:
        short = [name[:3].lower() for name in _MONTHS]
        names = said["name"].str.head(3).str.to_lowercase()
        month = names.replace_strict(short, list(range(1, 13)), default=None, return_dtype=pl.Int64)
    hour = number.get("hour", zero)
    if "half" in said and "hour" not in said:
        half = pl.when(number["half"].is_between(1, 12)).then(number["half"] % 12).otherwise(99)
        late = said["noon"].str.to_lowercase() == "pm" if "noon" in said else pl.lit(False)
        hour = half + late.cast(pl.Int64) * 12
    return moment(
        day_of(year, month, number.get("day", zero + 1)),
        hour,
        number.get("minute", zero),
        number.get("second", zero),
        fraction(said["micros"]) if "micros" in said else zero,
        offset(said["zone"]) if "zone" in said else zero,
    )
