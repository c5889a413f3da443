"""Distinct events of a stream. Every call returns something new and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.duration import Duration, microseconds
from penstock.errors import UserError
from penstock.operators.distinct import Distinct
from penstock.origin import here
from penstock.query import check
from penstock.query.rows import Rows, stateful

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Distincts(Rows):
    """Rows of which equal ones can be left out."""

    def distinct(
        self, *columns: str | Sequence[str], within: Duration | None = None, forever: bool = False
    ) -> Stream:
        """Leave out events that are equal, in these columns (all, if none is named), to one before.

        The first event of its kind is kept. One that follows is left out while less than `within` of event time
        has passed since the event that was *kept* last; events left out do not put this off. Events are taken
        in strict order. With `forever` an event is never kept again, and what was seen is never forgotten.
        """
        origin = here()
        schema = self.node.schema
        named = check.names(columns, origin, '.distinct("user", within="1h")')
        keys = tuple(dict.fromkeys(named or schema))
        check.keys_fit(keys, schema, origin)
        if forever == (within is not None):
            raise UserError(
                "WINDOW_UNBOUNDED" if not forever else "BAD_DISTINCT",
                "distinct does not say how long an event is remembered"
                if not forever
                else "distinct within some time is not forever",
                where=str(origin),
                hint='Say within="1h"; or forever=True, where only so many different ones can come.',
            )
        span = None if within is None else microseconds(within)
        if span is not None and span < 1:
            raise UserError("BAD_WINDOW", "distinct needs a time", where=str(origin), hint='As in "1h".')
        return stateful(origin, schema, Distinct(keys, span, tuple(schema)), self.node)
