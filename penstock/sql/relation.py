"""What a query reads from: a stream, and the names under which its columns are known.

Receives streams with their aliases; hands the column that a name means, or raises `UserError` with UNKNOWN_COLUMN
or AMBIGUOUS_COLUMN. Names are looked up as they are written, then without regard to case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.query.stream import Stream
from penstock.sql.places import nearest, refused
from penstock.sql.windows import Cut

#: where a node keeps the stream's column that it means, if it was not written but stands for a `*`
COLUMN = "column"


@dataclass(frozen=True)
class Field:
    """A column: what it is called, of which part of FROM it is, and what the stream calls it."""

    qualifier: str | None
    name: str
    column: str


@dataclass(frozen=True)
class Relation:
    """A stream with names for its columns; `cut` is how a table function cut it into windows."""

    stream: Stream
    fields: tuple[Field, ...]
    cut: Cut | None = None

    @classmethod
    def of(cls, stream: Stream, qualifier: str | None, cut: Cut | None = None) -> Relation:
        """All columns of a stream, under a name."""
        return cls(stream, tuple(Field(qualifier, name, name) for name in stream.columns), cut)

    def find(self, node: exp.Expr) -> tuple[str, list[str]]:
        """The stream's column that a name means, and the fields to take out of it."""
        if (column := node.meta.get(COLUMN)) is not None:
            return str(column), []
        parts = parts_of(node)
        if len(parts) > 1:
            within = _alike(parts[0], {field.qualifier for field in self.fields if field.qualifier})
            fields = [field for field in self.fields if field.qualifier in within]
            found = self._named(parts[1], fields)
            if found:
                return self._only(node, found, parts[1]), parts[2:]
        found = self._named(parts[0], self.fields)
        if found:
            return self._only(node, found, parts[0]), parts[1:]
        known = [field.name for field in self.fields]
        raise refused(
            node,
            "UNKNOWN_COLUMN",
            f"there is no column {'.'.join(parts)!r}",
            nearest(parts[-1] if len(parts) == 2 else parts[0], known) or f"There are {', '.join(known)}.",
        )

    def has(self, name: str) -> bool:
        """Whether a name means a column."""
        return bool(self._named(name, self.fields))

    def of_qualifier(self, qualifier: str) -> list[Field]:
        """The columns of one part of FROM."""
        within = _alike(qualifier, {field.qualifier for field in self.fields if field.qualifier})
        return [field for field in self.fields if field.qualifier in within]

    @staticmethod
    def _named(name: str, fields: Sequence[Field]) -> list[Field]:
        names = _alike(name, {field.name for field in fields})
        return [field for field in fields if field.name in names]

    @staticmethod
    def _only(node: exp.Expr, found: Sequence[Field], name: str) -> str:
        columns = {field.column for field in found}
        if len(columns) > 1:
            choices = ", ".join(f"{field.qualifier}.{field.name}" for field in found)
            raise refused(
                node,
                "AMBIGUOUS_COLUMN",
                f"{name!r} could be any of several columns",
                f"Say one of {choices}.",
            )
        return columns.pop()


def named(column: str) -> exp.Column:
    """The name of a stream's column, whatever others are called."""
    node = exp.column(exp.to_identifier(column, quoted=True))
    node.meta[COLUMN] = column
    return node


def parts_of(node: exp.Expr) -> list[str]:
    """The names in `a.b.c`."""
    if isinstance(node, exp.Dot):
        return [*parts_of(node.this), node.expression.name]
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    return [node.name]


def _alike(name: str, known: Iterable[str]) -> set[str]:
    names = set(known)
    return {name} if name in names else {one for one in names if one.lower() == name.lower()}
