"""Joins of keyed streams, as the user says them. Every call returns something new and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import polars as pl

from penstock.duration import Duration, microseconds
from penstock.errors import UserError
from penstock.operators.contract import Operator
from penstock.operators.count_join import CountJoin
from penstock.operators.interval_join import IntervalJoin
from penstock.operators.join_columns import JoinColumns, JoinCondition
from penstock.operators.lookup import Lookup
from penstock.origin import Origin, here
from penstock.query import check
from penstock.query.rows import KeyedRows, stateful

if TYPE_CHECKING:
    from penstock.query.stream import Stream

How = Literal["inner", "left", "right", "full"]
#: no bound is longer: sums of instants and bounds must not leave 64 bits
_LONGEST = 2**60


@dataclass(frozen=True, eq=False)
class KeyedJoins(KeyedRows):
    """What two keyed streams can do together."""

    def join(
        self,
        other: KeyedJoins,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        events: int | None = None,
        where: pl.Expr | None = None,
        how: How = "inner",
        suffix: str = "_right",
        order: Literal["epoch", "strict"] | None = None,
        distinct_pairs: bool = False,
    ) -> Stream:
        """Pairs of a row of this stream (left) and one of the other (right) with equal keys.

        Which rows meet: with `before` and `after`, a right row from `before` earlier than the left one to
        `after` later (one that is not given is 0); `within` is both; the bounds belong to it. With
        `events`, each row in strict order meets the last so many rows of its key that came on the other side
        before it. `where` is a further condition over the columns of the result. A null key equals nothing.

        Columns: those of the left, then those of the right; a right column whose name is taken gets `suffix`. Keys of
        the same name on both sides are one column.

        `how`: with "left", "right" or "full" the rows of that side (of both) that find no partner leave too, as soon as
        the watermark proves it, with nulls for the other side; a key of one name is theirs then. Not with `events`.

        `order`: "epoch" hands a pair on as soon as both rows are there; "strict" takes rows in total order, when
        the watermark has passed them. The pairs are the same.

        A stream joined with itself meets itself as any other: an event pairs with itself too, and two events
        pair both ways. `distinct_pairs` gives every two different events once, the earlier one left.
        """
        origin = here()
        _sides_fit(self, other, origin, "join")
        columns = JoinColumns.of(self.node.schema, other.node.schema, self.keys, other.keys, suffix)
        _names_fit(columns, origin)
        schema = columns.schema()
        if where is not None:
            check.condition(schema, where, origin, "the join's where")
        _one_of(how, get_args(How), "how", origin)
        _one_of(order or "epoch", ("epoch", "strict"), "order", origin)
        with_itself = self.node is other.node and self.keys == other.keys and how == "inner"
        if distinct_pairs and (not with_itself or before is not None or after is not None):
            raise UserError(
                "BAD_JOIN",
                "distinct pairs are those of one stream with itself, by the same keys, within a time or a number",
                where=str(origin),
                hint='As in x = calls.key_by("src"); x.join(x, within="60s", distinct_pairs=True).',
            )
        condition, ports = JoinCondition.of(where), 1 if with_itself else 2
        operator: Operator
        if events is None:
            back, ahead = _bounds(within, before, after, origin)
            operator = IntervalJoin(
                self.keys,
                other.keys,
                columns,
                0 if distinct_pairs else back,
                ahead,
                condition,
                how,
                order == "strict",
                distinct_pairs,
                ports,
            )
        else:
            _count_fits(events, (within, before, after), how, order, origin)
            operator = CountJoin(self.keys, other.keys, columns, events, condition, distinct_pairs, ports)
        return stateful(origin, schema, operator, *(self.node, other.node)[:ports])

    def lookup(
        self,
        table: KeyedJoins,
        *,
        how: Literal["left", "inner"] = "left",
        suffix: str = "_right",
        deleted: str | None = None,
        broadcast: bool = False,
    ) -> Stream:
        """Every event with the row that its key has in a table at the event's time.

        The table is a stream too: its latest row of a key is what holds, from its own time on (of one instant, the
        table's rows count before the events). A row whose Boolean column `deleted` is true removes its key.
        With "left" an event whose key has no row leaves with nulls, with "inner" it does not leave. A null key
        has no row. Columns are named as by `join`; the column `deleted` is left out.

        Events wait until the watermark of both streams has passed them. A table that seldom changes does not
        hold them back for longer than the `idle_after` of its stream (see `ps.stream`; not None).

        `broadcast` sends the whole table to every slice instead of both by their keys: for a small table and a big
        stream, or one with a few very frequent keys. The rows are the same.
        """
        origin = here()
        _sides_fit(self, table, origin, "lookup")
        _one_of(how, ("left", "inner"), "how", origin)
        theirs = dict(table.node.schema)
        if deleted is not None:
            check.columns_exist([deleted], theirs, origin, "deleted")
            if theirs.pop(deleted) != pl.Boolean or deleted in table.keys:
                raise UserError(
                    "TYPE_MISMATCH",
                    f"the column {deleted!r} must say true or false, and be no key",
                    where=str(origin),
                    hint='Make one with .map(gone=col("state") == "closed") before key_by.',
                )
        columns = JoinColumns.of(self.node.schema, theirs, self.keys, table.keys, suffix)
        _names_fit(columns, origin)
        operator = Lookup(self.keys, table.keys, columns, how, deleted, broadcast)
        return stateful(origin, columns.schema(), operator, self.node, table.node)


def _bounds(
    within: Duration | None, before: Duration | None, after: Duration | None, origin: Origin
) -> tuple[int, int]:
    """How far a right row may lie before and after a left one, in microseconds."""
    if within is None and before is None and after is None:
        raise UserError(
            "JOIN_UNBOUNDED",
            "a join without a bound would have to remember every row for ever",
            where=str(origin),
            hint='Say how far apart two rows may be, within="60s" (or before=..., after=...), or events=10; '
            "for the latest row of a table use .lookup(...).",
        )
    if within is not None and (before is not None or after is not None):
        raise UserError(
            "BAD_JOIN", "within says both before and after", where=str(origin), hint="Leave one of them out."
        )
    back = microseconds(before or 0) if within is None else microseconds(within)
    ahead = microseconds(after or 0) if within is None else microseconds(within)
    if not 0 <= min(back, ahead) <= max(back, ahead) <= _LONGEST:
        raise UserError(
            "BAD_JOIN",
            "the bounds of a join are durations from 0 to some thousand years",
            where=str(origin),
            hint='As in before="60s", after="5s": the right row up to 60 s before, up to 5 s after the left one.',
        )
    return back, ahead


def _count_fits(
    events: int, bounds: tuple[Duration | None, ...], how: str, order: str | None, origin: Origin
) -> None:
    if how != "inner":
        raise UserError(
            "JOIN_OUTER_EVENTS",
            f"a join over the last {events} rows is an inner one: a row may meet a partner however late, so "
            "none is ever proven to stay alone",
            where=str(origin),
            hint="Bound it by time, as in within=..., for an outer join.",
        )
    if events < 1 or any(bound is not None for bound in bounds) or order == "epoch":
        raise UserError(
            "BAD_JOIN",
            "a join over the last rows takes a number of at least 1, no bound of time, and strict order",
            where=str(origin),
            hint="As in .join(other, events=10); further bounds can be a condition of where=....",
        )


def _sides_fit(left: KeyedRows, right: KeyedRows, origin: Origin, what: str) -> None:
    """Raise unless both sides are keyed, by as many columns of the same types."""
    if not isinstance(right, KeyedJoins) or not left.keys or not right.keys:
        raise UserError(
            "BAD_JOIN",
            f"a {what} needs a key on both sides",
            where=str(origin),
            hint=f'As in calls.key_by("src").{what}(bills.key_by("caller"), ...).',
        )
    mine = [left.node.schema[key] for key in left.keys]
    theirs = [right.node.schema[key] for key in right.keys]
    if mine != theirs:
        raise UserError(
            "TYPE_MISMATCH",
            f"the keys of a {what} must be as many and of the same types on both sides",
            where=str(origin),
            detail=f"left: {_told(left)}; right: {_told(right)}",
            hint="Cast one of them with .map(...) before key_by.",
        )


def _told(side: KeyedRows) -> str:
    return ", ".join(f"{key} {side.node.schema[key]}" for key in side.keys)


def _names_fit(columns: JoinColumns, origin: Origin) -> None:
    names = [name for name, _ in columns.left] + [named for _, named, _ in columns.right]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                "NAME_TAKEN",
                f"two columns would be called {name!r}",
                where=str(origin),
                hint='Choose another suffix for the right side\'s, as in suffix="_other", or select fewer columns.',
            )


def _one_of(said: str, known: tuple[str, ...], what: str, origin: Origin) -> None:
    if said not in known:
        raise UserError(
            "BAD_JOIN",
            f"{what}={said!r} is not known",
            where=str(origin),
            hint=f"Say {', '.join(map(repr, known))}.",
        )
