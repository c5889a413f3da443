"""What a function of the query language is: a name, how many arguments, and how expressions become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.sql.statements import Scalar


@dataclass(frozen=True)
class Argument:
    """One argument of a call; `literal` is its value if it `is_literal`."""

    expr: pl.Expr
    dtype: pl.DataType
    literal: Scalar | None
    is_literal: bool


@dataclass(frozen=True)
class Function:
    """A function of the query language, between `least` and `most` arguments (None: any number)."""

    name: str
    least: int
    most: int | None
    build: Callable[[Sequence[Argument]], pl.Expr]
