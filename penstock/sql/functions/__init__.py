"""The functions of SQL by name, with Spark's names and meaning, as Polars expressions."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.sql.functions import format_string  # noqa: F401 - adds to TEXT
from penstock.sql.functions.conditions import CONDITIONS
from penstock.sql.functions.contract import Family, Function, TypedExpr
from penstock.sql.functions.dates import DATES
from penstock.sql.functions.hashes import HASHES
from penstock.sql.functions.json import JSON
from penstock.sql.functions.lists import LISTS
from penstock.sql.functions.numbers import NUMBERS
from penstock.sql.functions.regex import REGEX
from penstock.sql.functions.text import TEXT
from penstock.sql.functions.web import WEB

FAMILIES: tuple[Family, ...] = (TEXT, REGEX, NUMBERS, DATES, CONDITIONS, JSON, WEB, LISTS, HASHES)

#: by names in lower case, aliases included
FUNCTIONS: Mapping[str, Function] = {
    name: function for family in FAMILIES for name, function in family.by_name.items()
}

__all__ = ["FAMILIES", "FUNCTIONS", "Family", "Function", "TypedExpr"]
