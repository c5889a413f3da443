"""The methods `join` and `lookup` of keyed streams."""

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
#: no bound is longer, so that sums of instants and bounds fit into 64 bits
_LONGEST = 2**60


@dataclass(frozen=True, eq=False)
class KeyedJoins(KeyedRows):
    """Keyed rows that can be joined with others."""

    # over 8 parameters: the public API; nearly all are keywords with a default
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

        Which rows meet: with `before` and `after`, a right row from `before` earlier than the left one to `after` later
        (0 if not given), bounds included; `within` is both. With `events`, each row in strict order meets the last so
        many rows of its key that came before it on the other side. `where` is a further condition over the columns of
        the result. A null key equals nothing.

        Columns: those of the left, then those of the right; a right column whose name is taken gets `suffix`. Keys of
        the same name on both sides are one column.

        `how`: with "left", "right" or "full" the rows of that side (of both) without a partner are emitted too, with
        nulls for the other side, as soon as the watermark proves that none can come. Not with `events`.

        `order`: "epoch" emits a pair as soon as both rows are there; "strict" processes rows in total order, when the
        watermark has passed them. The pairs are the same.

        A stream joined with itself is joined as any other: an event pairs with itself too, and two events pair both
        ways. `distinct_pairs` emits every two different events once, the earlier one left.
        """
        origin = here()
        _check_sides(self, other, origin, "join")
        columns = JoinColumns.of(self.node.schema, other.node.schema, self.keys, other.keys, suffix)
        _check_names(columns, origin)
        if where is not None:
            check.condition(columns.schema(), where, origin, "the join's where")
        _check_choice(how, get_args(How), "how", origin)
        _check_choice(order or "epoch", ("epoch", "strict"), "order", origin)
        with_itself = self.node is other.node and self.keys == other.keys and how == "inner"
        if distinct_pairs:
            _check_distinct_pairs(with_itself and before is None and after is None, origin)
        condition, ports = JoinCondition.of(where), 1 if with_itself else 2
        operator: Operator
        if events is None:
            earlier, later = _bounds(within, before, after, origin)
            earlier = 0 if distinct_pairs else earlier
            strict, distinct = order == "strict", distinct_pairs
            operator = IntervalJoin(
                self.keys, other.keys, columns, earlier, later, condition, how, strict, distinct, ports
            )
        else:
            _check_count(events, (within, before, after), how, order, origin)
            operator = CountJoin(self.keys, other.keys, columns, events, condition, distinct_pairs, ports)
        return stateful(origin, columns.schema(), operator, *(self.node, other.node)[:ports])

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

        The table is a stream too: the latest row of a key holds from its own time on (at one instant, the table's rows
        come before the events). A row whose Boolean column `deleted` is true removes its key. With "left" an event
        whose key has no row is emitted with nulls, with "inner" it is dropped. A null key has no row. Columns are named
        as by `join`; the column `deleted` is left out.

        Events wait until the watermark of both streams has passed them. A table that seldom changes does not hold them
        back for longer than the `idle_after` of its stream (see `ps.stream`; not None).

        `broadcast` sends the whole table to every slice instead of exchanging both by key: for a small table and a big
        stream, or one with a few very frequent keys. The rows are the same.
        """
        origin = here()
        _check_sides(self, table, origin, "lookup")
        _check_choice(how, ("left", "inner"), "how", origin)
        table_schema = dict(table.node.schema)
        if deleted is not None:
            check.columns_exist([deleted], table_schema, origin, "deleted")
            if table_schema.pop(deleted) != pl.Boolean or deleted in table.keys:
                raise UserError(
                    "TYPE_MISMATCH",
                    f"the column {deleted!r} must be Boolean, and no key",
                    where=str(origin),
                    hint='Make one with .map(gone=col("state") == "closed") before key_by.',
                )
        columns = JoinColumns.of(self.node.schema, table_schema, self.keys, table.keys, suffix)
        _check_names(columns, origin)
        operator = Lookup(self.keys, table.keys, columns, how, deleted, broadcast)
        return stateful(origin, columns.schema(), operator, self.node, table.node)


def _bounds(
    within: Duration | None, before: Duration | None, after: Duration | None, origin: Origin
) -> tuple[int, int]:
    """How far a right row may lie before and after a left one, in microseconds."""
    if within is None and before is None and after is None:
        raise UserError(
            "JOIN_UNBOUNDED",
            "a join without a bound would have to keep every row for ever",
            where=str(origin),
            hint='Declare how far apart two rows may be, within="60s" (or before=..., after=...), or events=10; '
            "for the latest row of a table use .lookup(...).",
        )
    if within is not None and (before is not None or after is not None):
        raise UserError(
            "BAD_JOIN", "within says both before and after", where=str(origin), hint="Leave one of them out."
        )
    earlier = microseconds(before or 0) if within is None else microseconds(within)
    later = microseconds(after or 0) if within is None else microseconds(within)
    if not 0 <= min(earlier, later) <= max(earlier, later) <= _LONGEST:
        raise UserError(
            "BAD_JOIN",
            "the bounds of a join are durations from 0 to some thousand years",
            where=str(origin),
            hint='As in before="60s", after="5s": the right row up to 60 s before, up to 5 s after the left one.',
        )
    return earlier, later


def _check_distinct_pairs(possible: bool, origin: Origin) -> None:
    if not possible:
        raise UserError(
            "BAD_JOIN",
            "distinct pairs are those of one stream with itself, by the same keys, within a time or a number",
            where=str(origin),
            hint='As in x = calls.key_by("src"); x.join(x, within="60s", distinct_pairs=True).',
        )


def _check_count(
    events: int, bounds: tuple[Duration | None, ...], how: str, order: str | None, origin: Origin
) -> None:
    if how != "inner":
        raise UserError(
            "JOIN_OUTER_EVENTS",
            f"a join over the last {events} rows is an inner one: a row may meet a partner however late, so "
            "none is ever proven to have no partner",
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


def _check_sides(left: KeyedRows, right: KeyedRows, origin: Origin, what: str) -> None:
    """Raise unless both sides are keyed, by as many columns of the same types."""
    if not isinstance(right, KeyedJoins) or not left.keys or not right.keys:
        raise UserError(
            "BAD_JOIN",
            f"a {what} needs a key on both sides",
            where=str(origin),
            hint=f'As in calls.key_by("src").{what}(bills.key_by("caller"), ...).',
        )
    left_types = [left.node.schema[key] for key in left.keys]
    right_types = [right.node.schema[key] for key in right.keys]
    if left_types != right_types:
        raise UserError(
            "TYPE_MISMATCH",
            f"the keys of a {what} must be as many and of the same types on both sides",
            where=str(origin),
            detail=f"left: {_spell_keys(left)}; right: {_spell_keys(right)}",
            hint="Cast one of them with .map(...) before key_by.",
        )


def _spell_keys(side: KeyedRows) -> str:
    return ", ".join(f"{key} {side.node.schema[key]}" for key in side.keys)


def _check_names(columns: JoinColumns, origin: Origin) -> None:
    names = [name for name, _ in columns.left] + [named for _, named, _ in columns.right]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                "NAME_TAKEN",
                f"two columns would be called {name!r}",
                where=str(origin),
                hint='Choose another suffix for the right side\'s, as in suffix="_other", or select fewer columns.',
            )


def _check_choice(value: str, known: tuple[str, ...], what: str, origin: Origin) -> None:
    if value not in known:
        raise UserError(
            "BAD_JOIN",
            f"{what}={value!r} is not known",
            where=str(origin),
            hint=f"Use {', '.join(map(repr, known))}.",
        )
