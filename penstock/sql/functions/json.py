"""Functions of JSON text."""

from __future__ import annotations

import re

import polars as pl

from penstock.sql.functions.contract import Arguments, Family, map_batches

JSON = Family("JSON")

_STEP = re.compile(r"\.(?P<name>[^.\[\]*'\"]+)|\['(?P<quoted>[^'\"\\\]\[*]+)'\]|\[(?P<index>\d+)\]")
_MOST_STEPS = 100
_STRINGS = r'"(?:[^"\\]|\\.)*"'
_INNERMOST = r"\{[^\[\]{}]*\}|\[[^\[\]{}]*\]"


@JSON.add(
    "get_json_object",
    (2, 2),
    "The value at a path ($, .name, ['name'], [0]), as a string; NULL if there is none.",
    "get_json_object('{\"a\": {\"b\": [5, 6]}}', '$.a.b[1]')",
    "'6'",
)
def _get_json_object(args: Arguments) -> pl.Expr:
    return args.text(0).str.json_path_match(_path(args, 1))


def _path(args: Arguments, at: int) -> str:
    """A path in the form that Polars parses: every name in brackets and quotes."""
    text = args.literal_text(at)
    steps, place = "$", 1
    while text.startswith("$") and place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            break
        name = step["name"] or step["quoted"]
        steps += f"[{step['index']}]" if name is None else f"['{name}']"
        place = step.end()
    if steps.count("[") > _MOST_STEPS:
        raise args.error(at, f"a path of at most {_MOST_STEPS} steps")
    if place != len(text) or not text.startswith("$"):
        raise args.error(at, "a path of $, .name, ['name'] and [0]", hint="Wildcards are not known.")
    return steps


@JSON.add(
    "json_array_length",
    (1, 1),
    "Number of elements of a JSON array; NULL for anything else.",
    "json_array_length('[1, [2, 3], {}]')",
    "3",
)
def _json_array_length(args: Arguments) -> pl.Expr:
    text = args.text(0)
    sound = text.str.json_path_match("$")
    array = pl.when(sound.str.starts_with("[") & text.str.contains(r"^\s*\[")).then(sound)
    return map_batches("json_array_length", _lengths, pl.Int64, array)


def _lengths(arrays: pl.Series) -> pl.Series:
    """Count the commas of the outermost level, after strings and then nested values, innermost first, became a `v`."""
    flat = arrays.str.replace_all(_STRINGS, "v").str.slice(1)
    flat = flat.str.head(flat.str.len_chars().cast(pl.Int64) - 1)
    while flat.str.contains(_INNERMOST).any():
        flat = flat.str.replace_all(_INNERMOST, "v")
    commas = flat.str.count_matches(",", literal=True).cast(pl.Int64)
    return pl.select(pl.when(flat == "").then(pl.lit(0, pl.Int64)).otherwise(commas + 1)).to_series()
