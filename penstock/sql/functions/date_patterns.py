"""Format and parse times by Java's patterns (`yyyy-MM-dd HH:mm:ss`).

A pattern is a literal; letters that are not supported raise BAD_ARGUMENT.
"""

from __future__ import annotations

import re

import polars as pl

from penstock.sql.functions.calendar import fraction_micros, make_date, make_instant, offset_micros
from penstock.sql.functions.contract import Arguments

_TOKEN = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<plain>[^A-Za-z'\[\]{}#]+)")
_MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip

#: letters that Polars formats as Java does, with its own directive
_DIRECTIVES = {
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
#: how to parse each run of letters: the field and a regular expression
_FIELDS = {
    "y": ("year", r"(\d{1,6})"), "yy": ("short", _TWO), "yyyy": ("year", r"(\d{4})"),
    "M": ("month", _NUMBER), "MM": ("month", _TWO), "L": ("month", _NUMBER), "LL": ("month", _TWO),
    "MMM": ("name", f"((?i:{'|'.join(month[:3] for month in _MONTHS)}))"),
    "MMMM": ("name", f"((?i:{'|'.join(_MONTHS)}))"),
    "d": ("day", _NUMBER), "dd": ("day", _TWO), "H": ("hour", _NUMBER), "HH": ("hour", _TWO),
    "h": ("half", _NUMBER), "hh": ("half", _TWO), "a": ("noon", "((?i:AM|PM))"),
    "m": ("minute", _NUMBER), "mm": ("minute", _TWO), "s": ("second", _NUMBER), "ss": ("second", _TWO),
} | {letters: ("zone", how) for letters, how in _OFFSETS.items()}  # fmt: skip


def _tokens(args: Arguments, at: int) -> list[tuple[str, bool]]:
    """Split a pattern into runs of letters (True) and literal text (False)."""
    pattern, position, pieces = args.literal_text(at), 0, []
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            raise args.error(at, "a pattern of letters, signs and 'quoted text'")
        if token["quoted"] is not None:
            pieces.append((token["quoted"].replace("''", "'") or "'", False))
        else:
            pieces.append((token[0], token["letters"] is not None))
        position = token.end()
    return pieces


def format_time(time: pl.Expr, args: Arguments, at: int) -> pl.Expr:
    """Format a time by the pattern in an argument."""
    parts: list[pl.Expr] = []
    run = ""
    for piece, letters in _tokens(args, at):
        if not letters:
            run += piece.replace("%", "%%")
        elif piece in _DIRECTIVES:
            run += _DIRECTIVES[piece]
        else:
            parts += [time.dt.strftime(run), _format_letters(time, piece, args, at)]
            run = ""
    if run or not parts:
        parts.append(time.dt.strftime(run) if run else pl.when(time.is_not_null()).then(pl.lit("")))
    return pl.concat_str(parts) if len(parts) > 1 else parts[0]


def _format_letters(time: pl.Expr, piece: str, args: Arguments, at: int) -> pl.Expr:
    """Format a run of letters for which Polars has no directive."""
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
    raise _unknown(args, at, piece)


def _unknown(args: Arguments, at: int, piece: str) -> Exception:
    return args.error(at, "a pattern of known letters", hint=f"{piece!r} is not one of them here.")


def parse_time(text: pl.Expr, args: Arguments, at: int) -> pl.Expr:
    """Parse a text that matches the pattern as a whole; NULL otherwise."""
    pattern, names = "", []
    for piece, letters in _tokens(args, at):
        if not letters:
            pattern += re.escape(piece)
            continue
        field, how = (
            ("micros", rf"(\d{{1,{len(piece)}}})") if piece[0] == "S" else _FIELDS.get(piece, ("", ""))
        )
        if not field or field in names or len(piece) > 9:
            raise _unknown(args, at, piece)
        names.append(field)
        pattern += how
    if not names:
        raise args.error(at, "a pattern of a date's letters")
    fields = {name: pl.field(str(place)) for place, name in enumerate(names, 1)}
    read = pl.when(pl.field("1").is_not_null()).then(_assemble(fields))
    return text.str.extract_groups(f"^{pattern}$").struct.with_fields(it=read).struct.field("it")


def _assemble(fields: dict[str, pl.Expr]) -> pl.Expr:
    """The instant of parsed fields; a missing field is the first of 1970-01-01 00:00:00."""
    number = {name: text.cast(pl.Int64, strict=False) for name, text in fields.items()}
    zero = pl.lit(0, pl.Int64)
    year = number["short"] + 2000 if "short" in fields else number.get("year", zero + 1970)
    month = number.get("month", zero + 1)
    if "name" in fields:
        short = [name[:3].lower() for name in _MONTHS]
        names = fields["name"].str.head(3).str.to_lowercase()
        month = names.replace_strict(short, list(range(1, 13)), default=None, return_dtype=pl.Int64)
    hour = number.get("hour", zero)
    if "half" in fields and "hour" not in fields:
        half = pl.when(number["half"].is_between(1, 12)).then(number["half"] % 12).otherwise(99)
        late = fields["noon"].str.to_lowercase() == "pm" if "noon" in fields else pl.lit(False)
        hour = half + late.cast(pl.Int64) * 12
    return make_instant(
        make_date(year, month, number.get("day", zero + 1)),
        hour,
        number.get("minute", zero),
        number.get("second", zero),
        fraction_micros(fields["micros"]) if "micros" in fields else zero,
        offset_micros(fields["zone"]) if "zone" in fields else zero,
    )
