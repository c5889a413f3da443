"""The names around a query: streams, jobs, parameters and functions. Whoever plans the query implements `Scope`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import polars as pl

from penstock.query.stream import Stream
from penstock.sql.statements import Scalar

#: takes the expressions of its arguments, returns an expression
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
        """The streams that `FROM *` reads."""

    def rows(self, name: str) -> Stream | None:
        """A stream's events or a job's results; None for an unknown name."""

    def previous(self, name: str, columns: Mapping[str, pl.DataType] | None) -> Stream | None:
        """A job's results of the epoch before, with these columns if they are declared; None for an unknown name."""
