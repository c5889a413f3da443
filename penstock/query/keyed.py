"""A keyed stream: what can be computed per value of some columns. Every call returns a new object and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.duration import Duration
from penstock.errors import UserError
from penstock.operators.last_n import LastN
from penstock.origin import here
from penstock.query import check
from penstock.query.custom_operators import KeyedCustomOperators
from penstock.query.event_windows import KeyedEventWindows
from penstock.query.joins import KeyedJoins
from penstock.query.patterns import KeyedPatterns
from penstock.query.rows import stateful
from penstock.query.windowed import Windowed
from penstock.query.windows import InTime, Running, time_window

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Keyed(KeyedEventWindows, KeyedJoins, KeyedPatterns, KeyedCustomOperators):
    """A stream partitioned by key."""

    def last(self, n: int, *columns: str | Sequence[str], partial: bool = False) -> Stream:
        """For each event, the last `n` values of these columns of its key, oldest first, as lists.

        A key's first n-1 events give no row, unless `partial`. Events are processed in strict order.
        """
        origin = here()
        values = check.names(columns, origin, '.last(3, "page")')
        check.columns_exist(values, self.node.schema, origin, "last")
        if not isinstance(n, int) or n < 1 or not values:
            raise UserError(
                "BAD_LAST",
                "last needs a number of at least 1 and a column",
                where=str(origin),
                hint='As in .key_by("user").last(3, "page").',
            )
        values = tuple(dict.fromkeys(values))
        check.names_differ([*self.keys, *values], origin)
        operator = LastN(self.keys, n, values, partial)
        return stateful(origin, operator.schema(self.node.schema), operator, self.node)

    def window(self, size: Duration, every: Duration | None = None, offset: Duration = 0) -> Windowed:
        """Windows of event time: each `size` long, one starting every `every`, aligned to the clock plus `offset`.

        Without `every` they tumble: each starts where the last ends. With a smaller one they overlap, and an event
        counts in each that holds it; with a greater one there are gaps, and events in these count nowhere. The clock
        starts with 1970 in UTC. A row is emitted when its window closes (see `emit`), for every key that had events in
        it.
        """
        window = InTime(time_window(size, every, offset, here()))
        return Windowed(self.node, self.keys, window, order=self.order)

    def running(self, every: Duration = "1s") -> Windowed:
        """Totals so far, emitted at the end of every `every` of event time in which the key had events."""
        step = check.duration(every, here(), "BAD_WINDOW", "a step needs a length: it is")
        return Windowed(self.node, self.keys, Running(step), order=self.order)
