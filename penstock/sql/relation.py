"""Resolve the names of columns: a relation is a stream with the names that a query gives to its columns.

A name matches as it is written or, if none does, without regard to case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.query.stream import Stream
from penstock.sql.errors import query_error, suggest_name
from penstock.sql.windows import WindowSpec

#: the metadata of a node that stands for a column of `*`: the stream's column
COLUMN = "column"


@dataclass(frozen=True)
class Field:
    """A column: the name or alias of its part of FROM, its name there, and its name in the stream."""

    qualifier: str | None
    name: str
    column: str


@dataclass(frozen=True)
class Relation:
    """A stream with names for its columns; `window` is the one of a table function in FROM."""

    stream: Stream
    fields: tuple[Field, ...]
    window: WindowSpec | None = None

    @classmethod
    def of(cls, stream: Stream, qualifier: str | None) -> Relation:
        """All columns of a stream, under a name."""
        return cls(stream, tuple(Field(qualifier, name, name) for name in stream.columns))

    def resolve(self, node: exp.Expr) -> tuple[str, list[str]]:
        """The stream's column that a name means, and the path to a field in it.

        Raises `UserError` UNKNOWN_COLUMN or AMBIGUOUS_COLUMN.
        """
        if (column := node.meta.get(COLUMN)) is not None:
            return str(column), []
        parts = name_parts(node)
        if len(parts) > 1 and (matches := _matching(parts[1], self.fields_of(parts[0]))):
            return self._only(node, matches, parts[1]), parts[2:]
        if matches := _matching(parts[0], self.fields):
            return self._only(node, matches, parts[0]), parts[1:]
        known = [field.name for field in self.fields]
        raise query_error(
            node,
            "UNKNOWN_COLUMN",
            f"there is no column {'.'.join(parts)!r}",
            suggest_name(parts[-1] if len(parts) == 2 else parts[0], known)
            or f"There are {', '.join(known)}.",
        )

    def has(self, name: str) -> bool:
        """Whether a name means a column."""
        return bool(_matching(name, self.fields))

    def fields_of(self, qualifier: str) -> list[Field]:
        """The columns of one part of FROM."""
        matches = match_names(qualifier, {field.qualifier for field in self.fields if field.qualifier})
        return [field for field in self.fields if field.qualifier in matches]

    @staticmethod
    def _only(node: exp.Expr, matches: Sequence[Field], name: str) -> str:
        columns = {field.column for field in matches}
        if len(columns) > 1:
            choices = ", ".join(f"{field.qualifier}.{field.name}" for field in matches)
            raise query_error(
                node,
                "AMBIGUOUS_COLUMN",
                f"{name!r} could be any of several columns",
                f"Write one of {choices}.",
            )
        return columns.pop()


def column_reference(column: str) -> exp.Column:
    """A node that means a stream's column, whatever the query calls it."""
    node = exp.column(exp.to_identifier(column, quoted=True))
    node.meta[COLUMN] = column
    return node


def name_parts(node: exp.Expr) -> list[str]:
    """The names in `a.b.c`."""
    if isinstance(node, exp.Dot):
        return [*name_parts(node.this), node.expression.name]
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    return [node.name]


def match_names(name: str, known: Iterable[str]) -> set[str]:
    """The known names that are a name exactly or, if none is, without regard to case."""
    names = set(known)
    return {name} if name in names else {one for one in names if one.lower() == name.lower()}


def _matching(name: str, fields: Sequence[Field]) -> list[Field]:
    names = match_names(name, {field.name for field in fields})
    return [field for field in fields if field.name in names]
