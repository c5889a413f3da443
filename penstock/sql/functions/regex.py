"""Functions of regular expressions. The expression is a literal in Java's dialect."""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import Arguments, Family
from penstock.sql.functions.java_regex import can_be_empty, groups, replacement, translate_regex

REGEX = Family("Regular expressions")

#: put around what a group captured; Unicode reserves these as noncharacters
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"


@REGEX.add(
    "regexp_like regexp rlike",
    (2, 2),
    "Whether the expression matches anywhere in a string.",
    "regexp_like('penstock', 'n.t')",
    "true",
)
def _regexp_like(args: Arguments) -> pl.Expr:
    return args.text(0).str.contains(translate_regex(args, 1))


@REGEX.add(
    "regexp_extract",
    (2, 3),
    "What a group (default 1; 0: all) captures in the first match; empty without a match.",
    "regexp_extract('GET /p7 HTTP/1.1', '/p(\\d+)', 1)",
    "'7'",
)
def _regexp_extract(args: Arguments) -> pl.Expr:
    text, pattern = args.text(0), translate_regex(args, 1)
    found = text.str.extract(pattern, _group(args, pattern)).fill_null("")
    return pl.when(text.is_not_null()).then(found)


@REGEX.add(
    "regexp_extract_all",
    (2, 3),
    "What a group (default 1; 0: all) captures in every match.",
    "regexp_extract_all('a1b22', '([a-z])(\\d+)', 2)",
    "array('1', '22')",
)
def _regexp_extract_all(args: Arguments) -> pl.Expr:
    text, pattern = args.text(0), translate_regex(args, 1)
    group = _group(args, pattern)
    if group == 0:
        return text.str.extract_all(pattern)
    marked = text.str.replace_all(pattern, f"{_OPEN}${{{group}}}{_CLOSE}")
    inside = marked.str.extract_all(f"{_OPEN}[^{_CLOSE}]*{_CLOSE}")
    return inside.list.eval(pl.element().str.strip_chars(_OPEN + _CLOSE))


def _group(args: Arguments, pattern: str) -> int:
    group, most = args.literal_integer(2) if len(args) > 2 else 1, len(groups(pattern))
    if not 0 <= group <= most:
        raise args.error(
            2 if len(args) > 2 else 1,
            f"a group from 0 to {most}" if len(args) > 2 else "a regular expression with a group",
            hint="Group 0 is the whole match.",
        )
    return group


@REGEX.add(
    "regexp_substr",
    (2, 2),
    "The first match; NULL if there is none or it is empty.",
    "regexp_substr('a1b22', '\\d+')",
    "'1'",
)
def _regexp_substr(args: Arguments) -> pl.Expr:
    match = args.text(0).str.extract(translate_regex(args, 1), 0)
    return pl.when(match != "").then(match)


@REGEX.add("regexp_count", (2, 2), "Number of matches.", "regexp_count('a1b22', '\\d')", "3")
def _regexp_count(args: Arguments) -> pl.Expr:
    return args.text(0).str.count_matches(translate_regex(args, 1)).cast(pl.Int64)


@REGEX.add(
    "regexp_replace",
    (3, 3),
    "Replaces every match; $1 is what the first group captured.",
    "regexp_replace('2026-11-15', '(\\d+)-(\\d+)', '$2/$1')",
    "'11/2026-15'",
)
def _regexp_replace(args: Arguments) -> pl.Expr:
    pattern = translate_regex(args, 1)
    return args.text(0).str.replace_all(pattern, replacement(args, 2, groups(pattern)))


@REGEX.add(
    "split",
    (2, 3),
    "The parts of a string between matches; the third argument limits their number.",
    "split('a1b2c', '\\d', 2)",
    "array('a', 'b2c')",
)
def _split(args: Arguments) -> pl.Expr:
    text, pattern = args.text(0), translate_regex(args, 1)
    most = args.literal_integer(2) if len(args) > 2 else -1
    if pattern and can_be_empty(pattern):
        raise args.error(1, "a regular expression that matches at least one character")
    parts = text.str.split(pattern, literal=False)
    if not pattern:
        parts = pl.when(text == "").then(pl.concat_list(pl.lit(""))).otherwise(parts)
    if most <= 0:
        return parts
    before = parts.list.head(most - 1).list.join("").str.len_chars()
    between = text.str.extract_all(pattern).list.head(most - 1).list.join("").str.len_chars()
    rest = text.str.slice((before + between).cast(pl.Int64))
    cut = pl.concat_list(parts.list.head(most - 1), rest)
    return pl.when(parts.list.len() > most).then(cut).otherwise(parts)
