"""Functions of text. Positions count characters (code points) from 1, as in Spark."""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import Arguments, Family, check_repeated, map_batches, to_utc

TEXT = Family("Strings")

#: up to here a literal length needs no check of each row
_SHORT = 1_000
#: letters whose title case differs from upper case
_TITLES = {letter: letter.title() for letter in "ßﬀﬁﬂﬃﬄﬅﬆǆǉǌǳ"}
_ONE, _ZERO = pl.lit(1, pl.Int64), pl.lit(0, pl.Int64)
#: sign, digits before and after the point, exponent
_DOUBLE = r"^(-?)(\d+)(?:\.(\d+))?(?:e\+?(-?\d+))?$"


def length(text: pl.Expr) -> pl.Expr:
    """The number of characters, signed, so that differences can be negative."""
    return text.str.len_chars().cast(pl.Int64)


def slice_text(text: pl.Expr, start: pl.Expr, many: pl.Expr) -> pl.Expr:
    """Some characters from a position (from 0); NULL if the number is (for Polars, that means all of them)."""
    return pl.when(many.is_not_null()).then(text.str.slice(start, many.clip(lower_bound=0)))


def repeat_text(text: pl.Expr, times: pl.Expr) -> pl.Expr:
    """Repeat a text; empty for 0 times or fewer."""
    joined = text.repeat_by(times.clip(lower_bound=0).cast(pl.UInt32)).list.join("")
    return pl.when(text.is_not_null() & times.is_not_null()).then(joined)


def reverse_text(text: pl.Expr) -> pl.Expr:
    """Reverse the code points (Polars' own `reverse` keeps grapheme clusters)."""
    return text.str.split("").list.reverse().list.join("")


def as_text(args: Arguments, at: int) -> pl.Expr:
    """An argument of any plain type as text, as by Spark's `CAST(... AS STRING)`."""
    expr, dtype = args.expr(at), args.dtype(at)
    if dtype == pl.String:
        return expr
    if dtype.is_float():
        return _format_double(expr.cast(pl.String))
    if dtype.is_integer() or dtype.is_decimal() or dtype in (pl.Boolean, pl.Null, pl.Date):
        return expr.cast(pl.String)
    if isinstance(dtype, pl.Datetime):
        digits = to_utc(expr, dtype).dt.strftime("%Y-%m-%d %H:%M:%S.%6f")
        return digits.str.replace(r"\.?0+$", "")
    raise args.error(at, "text, a number, a condition, a date or a time")


def _format_double(text: pl.Expr) -> pl.Expr:
    """Turn Polars' text of a double into Java's: plain from 0.001 up to ten million, otherwise with an exponent.

    The names of struct fields stay: they are in the expression's text, of which the identity of state is made.
    """
    pieces = pl.struct(text=text, parts=text.str.extract_groups(_DOUBLE)).struct.with_fields(
        sign=pl.field("parts").struct.field("1"),
        digits=(pl.field("parts").struct.field("2") + pl.field("parts").struct.field("3").fill_null("")),
        before=pl.field("parts").struct.field("2").str.len_chars().cast(pl.Int64),
        said=pl.field("parts").struct.field("4").cast(pl.Int64).fill_null(0),
    )
    bare = pl.field("digits").str.strip_chars_start("0")
    zeros = pl.field("digits").str.len_chars().cast(pl.Int64) - bare.str.len_chars().cast(pl.Int64)
    scientific = pieces.struct.with_fields(
        power=pl.field("said") + pl.field("before") - 1 - zeros,
        digits=bare.str.strip_chars_end("0"),
    )
    plain = (pl.field("digits") == "") | (pl.field("power").is_between(-3, 6) & (pl.field("said") == 0))
    rest = pl.field("digits").str.slice(1)
    parts = [
        pl.field("sign"),
        pl.field("digits").str.head(1),
        pl.lit("."),
        pl.when(rest == "").then(pl.lit("0")).otherwise(rest),
        pl.lit("E"),
        pl.field("power").cast(pl.String),
    ]
    far = pl.field("text").str.replace("inf", "Infinity", literal=True)
    value = pl.when(pl.field("digits").is_null()).then(far).when(plain).then(pl.field("text"))
    return scientific.struct.with_fields(it=value.otherwise(pl.concat_str(parts))).struct.field("it")


@TEXT.add("lower lcase", (1, 1), "Converts to lower case.", "lower('PenStock')", "'penstock'")
def _lower(args: Arguments) -> pl.Expr:
    return args.text(0).str.to_lowercase()


@TEXT.add("upper ucase", (1, 1), "Converts to upper case.", "upper('PenStock')", "'PENSTOCK'")
def _upper(args: Arguments) -> pl.Expr:
    return args.text(0).str.to_uppercase()


@TEXT.add(
    "initcap",
    (1, 1),
    "Capitalizes the first letter of each word between spaces and lower-cases the others.",
    "initcap('hello BIG world')",
    "'Hello Big World'",
)
def _initcap(args: Arguments) -> pl.Expr:
    word = pl.element()
    first = word.str.head(1)
    capital = first.replace_strict(list(_TITLES), list(_TITLES.values()), default=first.str.to_uppercase())
    capital = capital + word.str.slice(1)
    return args.text(0).str.to_lowercase().str.split(" ").list.eval(capital).list.join(" ")


@TEXT.add(
    "length char_length character_length len",
    (1, 1),
    "Number of characters.",
    "length('Zürich')",
    "6",
)
def _length(args: Arguments) -> pl.Expr:
    return length(args.text(0))


@TEXT.add("octet_length", (1, 1), "Number of bytes in UTF-8.", "octet_length('Zürich')", "7")
def _octet_length(args: Arguments) -> pl.Expr:
    return args.text(0).str.len_bytes().cast(pl.Int64)


@TEXT.add(
    "trim",
    (1, 2),
    "Removes spaces at both ends; with two arguments, removes the characters of the first from the second.",
    "trim('  a b ')",
    "'a b'",
)
def _trim(args: Arguments) -> pl.Expr:
    return args.text(len(args) - 1).str.strip_chars(_trim_characters(args))


@TEXT.add("btrim", (1, 2), "Like `trim`, with the string first.", "btrim('xxaxx', 'x')", "'a'")
def _btrim(args: Arguments) -> pl.Expr:
    return args.text(0).str.strip_chars(args.literal_text(1) if len(args) > 1 else " ")


@TEXT.add("ltrim", (1, 2), "Like `trim`, at the start only.", "ltrim('x', 'xxaxx')", "'axx'")
def _ltrim(args: Arguments) -> pl.Expr:
    return args.text(len(args) - 1).str.strip_chars_start(_trim_characters(args))


@TEXT.add("rtrim", (1, 2), "Like `trim`, at the end only.", "rtrim('x', 'xxaxx')", "'xxa'")
def _rtrim(args: Arguments) -> pl.Expr:
    return args.text(len(args) - 1).str.strip_chars_end(_trim_characters(args))


def _trim_characters(args: Arguments) -> str:
    return args.literal_text(0) if len(args) > 1 else " "


@TEXT.add(
    "lpad",
    (2, 3),
    "Pads at the start to a length, with spaces or the third argument; cuts a longer string.",
    "lpad('7', 3, '0')",
    "'007'",
)
def _lpad(args: Arguments) -> pl.Expr:
    text, wide, sign = _cut_to_length(args)
    return text.str.pad_start(wide, sign) if sign is not None else _padding(args, text, wide) + text


@TEXT.add(
    "rpad",
    (2, 3),
    "Pads at the end to a length, with spaces or the third argument; cuts a longer string.",
    "rpad('pen', 5, '.')",
    "'pen..'",
)
def _rpad(args: Arguments) -> pl.Expr:
    text, wide, sign = _cut_to_length(args)
    return text.str.pad_end(wide, sign) if sign is not None else text + _padding(args, text, wide)


def _cut_to_length(args: Arguments) -> tuple[pl.Expr, pl.Expr, str | None]:
    """A text cut to the wanted length, that length, and the character to pad with if it is a single literal one."""
    wide = args.length(1).clip(lower_bound=0)
    pad = args.items[2].literal if len(args) > 2 else " "
    return (
        slice_text(args.text(0), _ZERO, wide),
        wide,
        pad if isinstance(pad, str) and len(pad) == 1 else None,
    )


def _padding(args: Arguments, text: pl.Expr, wide: pl.Expr) -> pl.Expr:
    pad, missing = args.text(2), wide - length(text)
    times = missing
    if not _is_short(args, 1):  # the padding is longer than one character, or may be
        size = length(pad)
        times = pl.when(size > 0).then((missing + size - 1) // size).otherwise(missing)
    return slice_text(repeat_text(pad, times), _ZERO, missing)


@TEXT.add(
    "substring substr",
    (2, 3),
    "Substring from a position, of at most a given length; a negative position counts from the end.",
    "substring('penstock', 1, 3)",
    "'pen'",
)
def _substring(args: Arguments) -> pl.Expr:
    text, place = args.text(0), args.integer(1)
    many = args.integer(2) if len(args) > 2 else None
    start = pl.when(place > 0).then(place - 1).when(place < 0).then(length(text) + place).otherwise(place)
    first = start.clip(lower_bound=0)
    if many is None:
        return text.str.slice(first)
    last = start + many.clip(-(2**40), 2**40)
    return slice_text(text, first, last - first)


@TEXT.add("left", (2, 2), "The first n characters.", "left('penstock', 3)", "'pen'")
def _left(args: Arguments) -> pl.Expr:
    return slice_text(args.text(0), _ZERO, args.integer(1))


@TEXT.add("right", (2, 2), "The last n characters.", "right('penstock', 5)", "'stock'")
def _right(args: Arguments) -> pl.Expr:
    text = args.text(0)
    return text.str.slice((length(text) - args.integer(1).clip(lower_bound=0)).clip(lower_bound=0))


@TEXT.add(
    "substring_index",
    (3, 3),
    "Substring before the n-th separator; for a negative n, after the n-th from the end.",
    "substring_index('www.penstock.org', '.', 2)",
    "'www.penstock'",
)
def _substring_index(args: Arguments) -> pl.Expr:
    text, by, count = args.text(0), args.text(1), args.literal_integer(2)
    if count < 0:
        parts = reverse_text(text).str.split(reverse_text(by)).list.head(-count)
        found = reverse_text(parts.list.join(reverse_text(by)))
    else:
        found = text.str.split(by).list.head(count).list.join(by)
    return pl.when(by == "").then(by).otherwise(found)


@TEXT.add("concat", (1, None), "Concatenation; NULL if any argument is NULL.", "concat('a', 1, 'b')", "'a1b'")
def _concat(args: Arguments) -> pl.Expr:
    if isinstance(args.dtype(0), pl.List):
        lists, _ = args.coerce(range(len(args)))
        return pl.concat_list(lists)
    return pl.concat_str([as_text(args, at) for at in range(len(args))])


@TEXT.add(
    "concat_ws",
    (1, None),
    "Concatenation with a separator; skips NULLs, joins arrays.",
    "concat_ws('-', 'a', NULL, 'b')",
    "'a-b'",
)
def _concat_ws(args: Arguments) -> pl.Expr:
    by = args.text(0)
    parts = [_join_part(args, at, by) for at in range(1, len(args))]
    if not parts:
        return pl.when(by.is_not_null()).then(pl.lit(""))
    return pl.when(by.is_not_null()).then(pl.concat_list(parts).list.join(by))


def _join_part(args: Arguments, at: int, by: pl.Expr) -> pl.Expr:
    """One part of the result; an empty list is none."""
    if not isinstance(args.dtype(at), pl.List):
        return as_text(args, at)
    values, inner = args.array(at)
    if inner != pl.String:
        raise args.error(at, "a list of text")
    return pl.when(values.list.drop_nulls().list.len() > 0).then(values.list.join(by))


@TEXT.add(
    "replace",
    (2, 3),
    "Replaces every occurrence of the second argument by the third, or removes it.",
    "replace('a-b-c', '-', '+')",
    "'a+b+c'",
)
def _replace(args: Arguments) -> pl.Expr:
    text, old = args.text(0), args.text(1)
    new = args.text(2) if len(args) > 2 else pl.lit("")
    return pl.when(old == "").then(text).otherwise(text.str.split(old).list.join(new))


@TEXT.add(
    "translate",
    (3, 3),
    "Replaces each character of the second argument by the one at the same position of the third, or removes it.",
    "translate('a.b:c', '.:', '_')",
    "'a_bc'",
)
def _translate(args: Arguments) -> pl.Expr:
    old, new = args.literal_text(1), args.literal_text(2)
    table: dict[str, str] = {}
    for place, character in enumerate(old):
        table.setdefault(character, new[place] if place < len(new) else "")
    return args.text(0).str.replace_many(list(table), list(table.values())) if table else args.text(0)


@TEXT.add("reverse", (1, 1), "Reverses a string or an array.", "reverse('pen')", "'nep'")
def _reverse(args: Arguments) -> pl.Expr:
    if isinstance(args.dtype(0), pl.List):
        return args.expr(0).list.reverse()
    return reverse_text(args.text(0))


@TEXT.add("repeat", (2, 2), "Repeats a string n times.", "repeat('ab', 3)", "'ababab'")
def _repeat(args: Arguments) -> pl.Expr:
    text, times = args.text(0), args.length(1)
    if not _is_short(args, 1):
        times = map_batches("repeat", check_repeated, pl.Int64, text.str.len_bytes(), times)
    return repeat_text(text, times)


def _is_short(args: Arguments, at: int) -> bool:
    """Whether a length is a literal so small that no text gets too long by it."""
    value = args.items[at].literal
    return args.items[at].is_literal and not (isinstance(value, int) and value > _SHORT)


@TEXT.add("space", (1, 1), "n spaces.", "space(2)", "'  '")
def _space(args: Arguments) -> pl.Expr:
    return repeat_text(pl.lit(" "), args.length(0))


def _position(text: pl.Expr, part: pl.Expr) -> pl.Expr:
    """The position of a part, from 1; 0 if it is absent."""
    before = length(text.str.splitn(part, 2).struct.field("field_0"))
    present = text.str.contains(part, literal=True)
    return pl.when(part == "").then(_ONE).when(present).then(before + 1).when(~present).then(_ZERO)


@TEXT.add(
    "instr",
    (2, 2),
    "Position of the second argument in the first; 0 if absent.",
    "instr('penstock', 's')",
    "4",
)
def _instr(args: Arguments) -> pl.Expr:
    text, part = args.text(0), args.text(1)
    return pl.when(text.is_not_null()).then(_position(text, part))


@TEXT.add(
    "locate position",
    (2, 3),
    "Position of the first argument in the second, from a given position on; 0 if absent.",
    "locate('o', 'foo', 3)",
    "3",
)
def _locate(args: Arguments) -> pl.Expr:
    part, text = args.text(0), args.text(1)
    if len(args) == 2:
        return pl.when(text.is_not_null()).then(_position(text, part))
    start = args.integer(2)
    passed = (start - 1).clip(lower_bound=0)
    place = _position(text.str.slice(passed), part)
    moved = pl.when((place > 0) & (part != "")).then(place + passed).otherwise(place)
    known = text.is_not_null() & part.is_not_null()
    return pl.when(start.is_null() | (start < 1)).then(_ZERO).when(known).then(moved)


@TEXT.add(
    "startswith", (2, 2), "Whether a string starts with another.", "startswith('penstock', 'pen')", "true"
)
def _startswith(args: Arguments) -> pl.Expr:
    return args.text(0).str.starts_with(args.text(1))


@TEXT.add("endswith", (2, 2), "Whether a string ends with another.", "endswith('penstock', 'pen')", "false")
def _endswith(args: Arguments) -> pl.Expr:
    return args.text(0).str.ends_with(args.text(1))


@TEXT.add("contains", (2, 2), "Whether a string contains another.", "contains('penstock', 'sto')", "true")
def _contains(args: Arguments) -> pl.Expr:
    return args.text(0).str.contains(args.text(1), literal=True)
