"""Functions of text. Places count characters (code points) from 1, as Spark has it."""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import Family, Given
from penstock.sql.functions.spelling import spelled

TEXT = Family("Strings")

#: letters whose capital at a word's start is another than the usual one
_TITLES = {letter: letter.title() for letter in "ßﬀﬁﬂﬃﬄﬅﬆǆǉǌǳ"}
_ONE, _NONE = pl.lit(1, pl.Int64), pl.lit(0, pl.Int64)


def length(text: pl.Expr) -> pl.Expr:
    """Characters, as a signed number: differences of lengths may be negative."""
    return text.str.len_chars().cast(pl.Int64)


def cut(text: pl.Expr, start: pl.Expr, many: pl.Expr) -> pl.Expr:
    """So many characters from a place on, from 0; NULL if one is (for Polars, no number means all of them)."""
    return pl.when(many.is_not_null()).then(text.str.slice(start, many.clip(lower_bound=0)))


def repeated(text: pl.Expr, times: pl.Expr) -> pl.Expr:
    """A text again and again; nothing for no times or fewer."""
    joined = text.repeat_by(times.clip(lower_bound=0).cast(pl.UInt32)).list.join("")
    return pl.when(text.is_not_null() & times.is_not_null()).then(joined)


def backwards(text: pl.Expr) -> pl.Expr:
    """Code points in the other order (Polars' own `reverse` keeps what a reader sees as one character)."""
    return text.str.split("").list.reverse().list.join("")


def words(given: Given, at: int) -> pl.Expr:
    """An argument as text, whatever plain value it is."""
    text = spelled(given.any(at), given.dtype(at))
    if text is None:
        raise given.bad(at, "text, a number, a condition, a date or a time")
    return text


@TEXT.add("lower lcase", (1, 1), "Converts to lower case.", "lower('PenStock')", "'penstock'")
def _lower(given: Given) -> pl.Expr:
    return given.text(0).str.to_lowercase()


@TEXT.add("upper ucase", (1, 1), "Converts to upper case.", "upper('PenStock')", "'PENSTOCK'")
def _upper(given: Given) -> pl.Expr:
    return given.text(0).str.to_uppercase()


@TEXT.add(
    "initcap",
    (1, 1),
    "Capitalizes the first letter of each word between spaces and lower-cases the others.",
    "initcap('hello BIG world')",
    "'Hello Big World'",
)
def _initcap(given: Given) -> pl.Expr:
    word = pl.element()
    first = word.str.head(1)
    capital = first.replace_strict(list(_TITLES), list(_TITLES.values()), default=first.str.to_uppercase())
    capital = capital + word.str.slice(1)
    return given.text(0).str.to_lowercase().str.split(" ").list.eval(capital).list.join(" ")


@TEXT.add(
    "length char_length character_length len",
    (1, 1),
    "Number of characters.",
    "length('Zürich')",
    "6",
)
def _length(given: Given) -> pl.Expr:
    return length(given.text(0))


@TEXT.add("octet_length", (1, 1), "Number of bytes in UTF-8.", "octet_length('Zürich')", "7")
def _octet_length(given: Given) -> pl.Expr:
    return given.text(0).str.len_bytes().cast(pl.Int64)


@TEXT.add(
    "trim",
    (1, 2),
    "Removes spaces at both ends; with two arguments, removes the characters of the first from the second.",
    "trim('  a b ')",
    "'a b'",
)
def _trim(given: Given) -> pl.Expr:
    return given.text(len(given) - 1).str.strip_chars(_stripped(given))


@TEXT.add("btrim", (1, 2), "Like `trim`, with the string first.", "btrim('xxaxx', 'x')", "'a'")
def _btrim(given: Given) -> pl.Expr:
    return given.text(0).str.strip_chars(given.said_text(1) if len(given) > 1 else " ")


@TEXT.add("ltrim", (1, 2), "Like `trim`, at the start only.", "ltrim('x', 'xxaxx')", "'axx'")
def _ltrim(given: Given) -> pl.Expr:
    return given.text(len(given) - 1).str.strip_chars_start(_stripped(given))


@TEXT.add("rtrim", (1, 2), "Like `trim`, at the end only.", "rtrim('x', 'xxaxx')", "'xxa'")
def _rtrim(given: Given) -> pl.Expr:
    return given.text(len(given) - 1).str.strip_chars_end(_stripped(given))


def _stripped(given: Given) -> str:
    return given.said_text(0) if len(given) > 1 else " "


@TEXT.add(
    "lpad",
    (2, 3),
    "Pads at the start to a length, with spaces or the third argument; cuts a longer string.",
    "lpad('7', 3, '0')",
    "'007'",
)
def _lpad(given: Given) -> pl.Expr:
    kept, wide, sign = _kept(given)
    return kept.str.pad_start(wide, sign) if sign is not None else _filling(given, kept, wide) + kept


@TEXT.add(
    "rpad",
    (2, 3),
    "Pads at the end to a length, with spaces or the third argument; cuts a longer string.",
    "rpad('pen', 5, '.')",
    "'pen..'",
)
def _rpad(given: Given) -> pl.Expr:
    kept, wide, sign = _kept(given)
    return kept.str.pad_end(wide, sign) if sign is not None else kept + _filling(given, kept, wide)


def _kept(given: Given) -> tuple[pl.Expr, pl.Expr, str | None]:
    """What is kept of a text, how wide it shall be, and the sign that fills it if it is a single one."""
    wide = given.whole(1).clip(lower_bound=0)
    pad = given.arguments[2].literal if len(given) > 2 else " "
    return cut(given.text(0), _NONE, wide), wide, pad if isinstance(pad, str) and len(pad) == 1 else None


def _filling(given: Given, kept: pl.Expr, wide: pl.Expr) -> pl.Expr:
    missing = wide - length(kept)
    return cut(repeated(given.text(2), missing), _NONE, missing)


@TEXT.add(
    "substring substr",
    (2, 3),
    "Substring from a position, of at most a given length; a negative position counts from the end.",
    "substring('penstock', 1, 3)",
    "'pen'",
)
def _substring(given: Given) -> pl.Expr:
    text, place = given.text(0), given.whole(1)
    many = given.whole(2) if len(given) > 2 else None
    start = pl.when(place > 0).then(place - 1).when(place < 0).then(length(text) + place).otherwise(place)
    first = start.clip(lower_bound=0)
    if many is None:
        return text.str.slice(first)
    last = start + many.clip(-(2**40), 2**40)
    return cut(text, first, last - first)


@TEXT.add("left", (2, 2), "The first n characters.", "left('penstock', 3)", "'pen'")
def _left(given: Given) -> pl.Expr:
    return cut(given.text(0), _NONE, given.whole(1))


@TEXT.add("right", (2, 2), "The last n characters.", "right('penstock', 5)", "'stock'")
def _right(given: Given) -> pl.Expr:
    text = given.text(0)
    return text.str.slice((length(text) - given.whole(1).clip(lower_bound=0)).clip(lower_bound=0))


@TEXT.add(
    "substring_index",
    (3, 3),
    "Substring before the n-th separator; for a negative n, after the n-th from the end.",
    "substring_index('www.penstock.org', '.', 2)",
    "'www.penstock'",
)
def _substring_index(given: Given) -> pl.Expr:
    text, by, count = given.text(0), given.text(1), given.said_whole(2)
    if count < 0:
        parts = backwards(text).str.split(backwards(by)).list.head(-count)
        found = backwards(parts.list.join(backwards(by)))
    else:
        found = text.str.split(by).list.head(count).list.join(by)
    return pl.when(by == "").then(by).otherwise(found)


@TEXT.add("concat", (1, None), "Concatenation; NULL if any argument is NULL.", "concat('a', 1, 'b')", "'a1b'")
def _concat(given: Given) -> pl.Expr:
    if isinstance(given.dtype(0), pl.List):
        lists, _ = given.alike(range(len(given)))
        return pl.concat_list(lists)
    return pl.concat_str([words(given, at) for at in range(len(given))])


@TEXT.add(
    "concat_ws",
    (1, None),
    "Concatenation with a separator; skips NULLs, joins arrays.",
    "concat_ws('-', 'a', NULL, 'b')",
    "'a-b'",
)
def _concat_ws(given: Given) -> pl.Expr:
    by = given.text(0)
    parts = [_joined(given, at, by) for at in range(1, len(given))]
    if not parts:
        return pl.when(by.is_not_null()).then(pl.lit(""))
    return pl.when(by.is_not_null()).then(pl.concat_list(parts).list.join(by))


def _joined(given: Given, at: int, by: pl.Expr) -> pl.Expr:
    """One part of the whole; an empty list is no part at all."""
    if not isinstance(given.dtype(at), pl.List):
        return words(given, at)
    values, inner = given.values(at)
    if inner != pl.String:
        raise given.bad(at, "a list of text")
    return pl.when(values.list.drop_nulls().list.len() > 0).then(values.list.join(by))


@TEXT.add(
    "replace",
    (2, 3),
    "Replaces every occurrence of the second argument by the third, or removes it.",
    "replace('a-b-c', '-', '+')",
    "'a+b+c'",
)
def _replace(given: Given) -> pl.Expr:
    text, old = given.text(0), given.text(1)
    new = given.text(2) if len(given) > 2 else pl.lit("")
    return pl.when(old == "").then(text).otherwise(text.str.split(old).list.join(new))


@TEXT.add(
    "translate",
    (3, 3),
    "Replaces each character of the second argument by the one at the same position of the third, or removes it.",
    "translate('a.b:c', '.:', '_')",
    "'a_bc'",
)
def _translate(given: Given) -> pl.Expr:
    old, new = given.said_text(1), given.said_text(2)
    table: dict[str, str] = {}
    for place, character in enumerate(old):
        table.setdefault(character, new[place] if place < len(new) else "")
    return given.text(0).str.replace_many(list(table), list(table.values())) if table else given.text(0)


@TEXT.add("reverse", (1, 1), "Reverses a string or an array.", "reverse('pen')", "'nep'")
def _reverse(given: Given) -> pl.Expr:
    if isinstance(given.dtype(0), pl.List):
        return given.any(0).list.reverse()
    return backwards(given.text(0))


@TEXT.add("repeat", (2, 2), "Repeats a string n times.", "repeat('ab', 3)", "'ababab'")
def _repeat(given: Given) -> pl.Expr:
    return repeated(given.text(0), given.whole(1))


@TEXT.add("space", (1, 1), "n spaces.", "space(2)", "'  '")
def _space(given: Given) -> pl.Expr:
    return repeated(pl.lit(" "), given.whole(0))


def _place(text: pl.Expr, part: pl.Expr) -> pl.Expr:
    """Where a part begins, from 1; 0 when it is nowhere."""
    before = length(text.str.splitn(part, 2).struct.field("field_0"))
    found = text.str.contains(part, literal=True)
    return pl.when(part == "").then(_ONE).when(found).then(before + 1).when(~found).then(_NONE)


@TEXT.add(
    "instr",
    (2, 2),
    "Position of the second argument in the first; 0 if absent.",
    "instr('penstock', 's')",
    "4",
)
def _instr(given: Given) -> pl.Expr:
    text, part = given.text(0), given.text(1)
    return pl.when(text.is_not_null()).then(_place(text, part))


@TEXT.add(
    "locate position",
    (2, 3),
    "Position of the first argument in the second, from a given position on; 0 if absent.",
    "locate('o', 'foo', 3)",
    "3",
)
def _locate(given: Given) -> pl.Expr:
    part, text = given.text(0), given.text(1)
    if len(given) == 2:
        return pl.when(text.is_not_null()).then(_place(text, part))
    start = given.whole(2)
    passed = (start - 1).clip(lower_bound=0)
    place = _place(text.str.slice(passed), part)
    moved = pl.when((place > 0) & (part != "")).then(place + passed).otherwise(place)
    known = text.is_not_null() & part.is_not_null()
    return pl.when(start.is_null() | (start < 1)).then(_NONE).when(known).then(moved)


@TEXT.add(
    "startswith", (2, 2), "Whether a string starts with another.", "startswith('penstock', 'pen')", "true"
)
def _startswith(given: Given) -> pl.Expr:
    return given.text(0).str.starts_with(given.text(1))


@TEXT.add("endswith", (2, 2), "Whether a string ends with another.", "endswith('penstock', 'pen')", "false")
def _endswith(given: Given) -> pl.Expr:
    return given.text(0).str.ends_with(given.text(1))


@TEXT.add("contains", (2, 2), "Whether a string contains another.", "contains('penstock', 'sto')", "true")
def _contains(given: Given) -> pl.Expr:
    return given.text(0).str.contains(given.text(1), literal=True)
