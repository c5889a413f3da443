"""A keyed stream: what can be said per value of some columns. Every call returns something new and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.operators.last_n import LastN
from penstock.query import check
from penstock.query.customs import KeyedCustoms
from penstock.query.origin import here
from penstock.query.patterns import KeyedPatterns
from penstock.query.rows import stateful
from penstock.query.windowed import Windowed
from penstock.words.duration import Duration, microseconds
from penstock.words.errors import UserError

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class Keyed(KeyedCustoms, KeyedPatterns):
    """A stream taken per key."""

    def last(self, n: int, *values: str, partial: bool = False) -> Stream:
        """For each event the last `n` values of these columns of its key, oldest first, as lists.

        A key's first n-1 events give no row, unless `partial`. Events are taken in strict order.
        """
        origin = here()
        check.columns_exist(values, self.node.schema, origin, "last")
        if n < 1 or not values:
            raise UserError(
                "BAD_LAST",
                "last needs a number of at least 1 and a column",
                where=str(origin),
                hint='As in .key_by("user").last(3, "page").',
            )
        values = tuple(dict.fromkeys(values))
        operator = LastN(self.keys, n, values, partial)
        return stateful(origin, operator.schema(self.node.schema), operator, self.node)

    def window(self, size: Duration) -> Windowed:
        """In windows of event time, one after the other, aligned to the clock."""
        return self._windowed(size, running=False)

    def running(self, every: Duration = "1s") -> Windowed:
        """Since the beginning, told at the end of every `every` of event time in which the key had events."""
        return self._windowed(every, running=True)

    def _windowed(self, size: Duration, *, running: bool) -> Windowed:
        micros = microseconds(size)
        if micros < 1:
            raise UserError("BAD_WINDOW", "a window needs a length", where=str(here()), hint='As in "30s".')
        return Windowed(self.node, self.keys, micros, running, order=self.order)
