"""What a query can name: streams, other jobs, parameters and functions. Given by whoever plans the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import polars as pl

from penstock.query.stream import Stream
from penstock.sql.statements import Scalar

#: makes an expression of the expressions of its arguments
UserFunction = Callable[..., pl.Expr]


class Scope(Protocol):
    """The names around a query."""

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """The values of `$name`."""

    @property
    def functions(self) -> Mapping[str, UserFunction]:
        """The user's own functions, by names in lower case."""

    def names(self) -> Sequence[str]:
        """What FROM can name, for a hint."""

    def streams(self) -> Sequence[str]:
        """What `FROM *` stands for."""

    def rows(self, name: str) -> Stream | None:
        """A stream's events or a job's results; None when there is nothing of that name."""

    def previous(self, name: str, columns: Mapping[str, pl.DataType] | None) -> Stream | None:
        """What a job told in the epoch before, of these columns if they are said; None when there is no such job."""
