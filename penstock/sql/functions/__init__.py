"""The functions of the query language, by names in lower case."""

from collections.abc import Mapping

import polars as pl

from penstock.sql.functions.contract import Argument, Function

__all__ = ["FUNCTIONS", "Argument", "Function"]

_ALL = (
    Function("lower", 1, 1, lambda given: given[0].expr.str.to_lowercase()),
    Function("upper", 1, 1, lambda given: given[0].expr.str.to_uppercase()),
    Function("length", 1, 1, lambda given: given[0].expr.str.len_chars().cast(pl.Int32)),
    Function("abs", 1, 1, lambda given: given[0].expr.abs()),
    Function("coalesce", 1, None, lambda given: pl.coalesce(*(one.expr for one in given))),
)
FUNCTIONS: Mapping[str, Function] = {function.name: function for function in _ALL}
