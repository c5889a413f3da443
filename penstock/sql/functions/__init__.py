"""The functions of the query language, by name: Spark's names and Spark's meaning, as Polars expressions."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.sql.functions import formats  # noqa: F401 - adds to the functions of text
from penstock.sql.functions.conditions import CONDITIONS
from penstock.sql.functions.contract import Argument, Family, Function
from penstock.sql.functions.dates import DATES
from penstock.sql.functions.hashes import HASHES
from penstock.sql.functions.json import JSON
from penstock.sql.functions.lists import LISTS
from penstock.sql.functions.numbers import NUMBERS
from penstock.sql.functions.patterns import PATTERNS
from penstock.sql.functions.text import TEXT
from penstock.sql.functions.web import WEB

FAMILIES: tuple[Family, ...] = (TEXT, PATTERNS, NUMBERS, DATES, CONDITIONS, JSON, WEB, LISTS, HASHES)

#: by names in lower case, aliases included
FUNCTIONS: Mapping[str, Function] = {
    name: function for family in FAMILIES for name, function in family.named.items()
}

__all__ = ["FAMILIES", "FUNCTIONS", "Argument", "Family", "Function"]
