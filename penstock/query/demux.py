"""Demux: one stream dealt out to several by conditions. Every call returns something new and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from penstock.errors import UserError
from penstock.origin import here
from penstock.query import check, logical
from penstock.query.rows import Rows, stream_of

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Demux(Rows):
    """Rows that can be dealt out."""

    def demux(
        self, *, otherwise: str | None = "rest", every_match: bool = False, **predicates: pl.Expr
    ) -> dict[str, Stream]:
        """Deal the events out by conditions: a stream a name.

            parts = clicks.demux(bad=col("status") >= 500, slow=col("seconds") > 2)
            parts["bad"], parts["slow"], parts["rest"]

        An event goes to the first stream whose condition holds (with `every_match`, to every such one), and
        to the one named `otherwise` where none does (None: such events are left out). A condition that is null
        does not hold.
        """
        origin = here()
        if not predicates:
            raise UserError(
                "BAD_DEMUX",
                "demux needs a condition",
                where=str(origin),
                hint='As in .demux(bad=col("status") >= 500).',
            )
        if otherwise in predicates:
            raise UserError(
                "NAME_TAKEN",
                f"two streams would be called {otherwise!r}",
                where=str(origin),
                hint='Call the stream of what is left something else, as in demux(..., otherwise="others").',
            )
        for name, predicate in predicates.items():
            check.condition(self.node.schema, predicate, origin, f"the part {name!r}")
        chosen: dict[str, pl.Expr] = {}
        left: pl.Expr | None = None
        for name, predicate in predicates.items():
            chosen[name] = predicate if every_match or left is None else predicate & left
            fails = ~predicate.fill_null(False)
            left = fails if left is None else left & fails
        if otherwise is not None and left is not None:
            chosen[otherwise] = left
        return {
            name: stream_of(logical.Part(origin, self.node.schema, self.node, condition, name))
            for name, condition in chosen.items()
        }
