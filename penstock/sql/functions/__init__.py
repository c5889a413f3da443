"""The functions of the query language, by name: Spark's names and Spark's meaning, as Polars expressions."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.sql.functions.contract import Argument, Family, Function
from penstock.sql.functions.numbers import NUMBERS
from penstock.sql.functions.text import TEXT

FAMILIES: tuple[Family, ...] = (TEXT, NUMBERS)

#: by names in lower case, aliases included
FUNCTIONS: Mapping[str, Function] = {
    name: function for family in FAMILIES for name, function in family.named.items()
}

__all__ = ["FAMILIES", "FUNCTIONS", "Argument", "Family", "Function"]
