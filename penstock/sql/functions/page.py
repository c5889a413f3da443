"""The page of the docs that lists all functions: `python -m penstock.sql.functions.page > docs/functions.md`."""

from __future__ import annotations

import sys

from penstock.sql.functions import FAMILIES, Family

_START = """\
# Functions of the query language

Names and meanings are Spark's, outside its ANSI mode: NULL in gives NULL out, what cannot be computed is
NULL, places count from 1, the time zone is UTC. Every example below is run as a test, and every function
but `size` is compared with Spark itself on tricky values. Functions whose answer is another each time
(`rand`, `uuid`, `now`) do not exist here: an epoch that is computed again must give the same rows.

This page is made from the functions themselves: `python -m penstock.sql.functions.page >
docs/functions.md`.
"""

_DIFFERENCES = r"""
## Differences from Spark

Types:

- Whole numbers that a function gives have 64 bits (in Spark `length` and `year` have 32). Numbers with a
  point are doubles, where Spark has decimals.
- Nothing is converted silently: text is not taken for a number, nor a number for text, except by `concat`,
  `concat_ws` and `format_string`. Where a date or a time is due, text is read as Spark's CAST reads it.
- A double in text has the shortest digits that say it, as from Java 19 on; older ones sometimes print more.
  The smallest double of all is `5.0E-324`, in Java `4.9E-324`.
- `0.0` and `-0.0` are equal; which of them `greatest` and `least` give is not said.

Literals:

- Regular expressions, replacements and numbers of groups, patterns of dates, units (`date_trunc`),
  weekdays, paths of JSON, parts of addresses, the characters of `trim` and `translate`, decimal places, the
  count of `substring_index`, the bits of `sha2` must be literals, and not NULL.
- A literal that says nothing known (a unit, a part of an address, a path, a pattern's letter) is an error;
  in Spark the answer is NULL for some of them.

NULL where Spark has something else:

- `size(NULL)` is NULL, not -1. `element_at(list, 0)` and `slice` from place 0 or of a negative length are
  NULL, not errors.
- `url_decode` gives NULL, not an error, for text that is not encoded, and NULL for bytes that are not
  UTF-8.
- Text that says a time with the name of a region (`Europe/Zurich`) or without a date is NULL; offsets are
  read.

Regular expressions:

- Look-around, back-references, possessive quantifiers, atomic groups and flags other than `i`, `m`, `s` are
  refused.
- `$` is the very end; Java's also stands before a last line end. `(?i)` goes for all letters, in Java for
  ASCII. `\b` goes by all letters, as in Java up to 18, which
  however counts an accent that stands alone with the letter before it.
- An expression that takes nothing at all is not found again right behind a place where it took something:
  `regexp_replace('axb', 'x*', '-')` is `-a-b-`, in Spark `-a--b-`. `split` refuses such expressions, except
  the empty one.
- `regexp_extract_all` with a group from 1 on expects that U+FDD0 and U+FDD1, which Unicode keeps out of
  text, are not in it.

Dates:

- Patterns are written with `y M L d D E a h H K k m s S Q q X x Z V z O`, and read with `y M L d H h a m s
  S X x Z`; optional parts in brackets are refused.

JSON:

- Paths have names and numbers, no wildcards. The whole text must be JSON, with double quotes; of a name
  that is there twice the last counts. Spark stops reading at what it looked for, and takes the first.

Others:

- `format_string` knows `%s`, `%d`, `%f` (up to 15 digits), `%n` and `%%`; widths count characters, in Java
  UTF-16 units.
- `xxhash64` takes one text.
- `substring_index` counts separators that do not overlap; in Spark `aa` is twice in `aaa`.
- `initcap` makes of a Turkish İ an I and a dot above it.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_START, *map(_section, FAMILIES)]) + _DIFFERENCES


def _section(family: Family) -> str:
    shown: dict[str, list[str]] = {}
    for name, function in family.named.items():
        shown.setdefault(function.name, []).append(f"`{name}`")
    rows = [
        " | ".join((", ".join(names), _cell(made.doc), f"`{_cell(made.example)}`", f"`{_cell(made.result)}`"))
        for names, made in ((names, family.named[first]) for first, names in shown.items())
    ]
    table = [
        "| Function | What it gives | Example | Result |",
        "|---|---|---|---|",
        *(f"| {row} |" for row in rows),
    ]
    return f"## {family.title}\n\n" + "\n".join(table) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
