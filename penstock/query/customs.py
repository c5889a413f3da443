"""A user's own operators over a keyed stream. Every call returns something new and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.duration import Duration, microseconds
from penstock.errors import UserError
from penstock.operators.custom import CustomOperator
from penstock.operators.custom_runner import CustomRunner
from penstock.operators.row_fold import RowFold, RowFunction
from penstock.origin import Origin, here
from penstock.query import check
from penstock.query.purity import check_methods, check_repeatable
from penstock.query.rows import KeyedRows, stateful
from penstock.state import plain

if TYPE_CHECKING:
    from penstock.query.outputs import WithOutputs
    from penstock.query.stream import Stream

Columns = Mapping[str, pl.DataType | type[pl.DataType]]


@dataclass(frozen=True, eq=False)
class KeyedCustoms(KeyedRows):
    """Keyed rows that an operator of the user's own can be put on."""

    def apply(
        self,
        operator: CustomOperator,
        schema: Columns,
        *,
        outputs: Mapping[str, Columns] | None = None,
        columns: Sequence[str] | None = None,
    ) -> WithOutputs:
        """Put an operator of your own on the stream (see `CustomOperator`).

        `schema` names the columns of the rows it tells; `outputs` those of further outputs, to be had by their
        names: `applied["alerts"]`. `columns` says what it reads besides the keys (everything, if not given).

        It gets its rows in strict order, or, if it is commutative, as they come. `key_by(..., order=...)` overrides
        this: "strict" for a commutative one; "none" gives any operator its rows as they come, and then what it
        tells may depend on where epochs were cut.
        """
        origin = here()
        _sound(operator, origin)
        check_methods(operator, CustomOperator, origin)
        ordering = self.order or ("epoch" if operator.commutative else "strict")
        if ordering == "epoch" and not operator.commutative:
            raise UserError(
                "ORDER_TOO_WEAK",
                f"{type(operator).__qualname__} does not say that it is commutative",
                where=str(origin),
                hint='Say commutative = True in the class if order makes no difference to it; order="none" gives it '
                "events as they come all the same, and its answers then depend on how they came.",
            )
        schemas = {"": _columns(schema, origin)} | {
            name: _columns(one, origin) for name, one in (outputs or {}).items()
        }
        read = tuple(self.node.schema) if columns is None else tuple(dict.fromkeys(columns))
        check.columns_exist(read, self.node.schema, origin, type(operator).__qualname__)
        made = CustomRunner(self.keys, operator, read, schemas, ordering)
        from penstock.query.outputs import WithOutputs  # a stream, whose methods come back here

        return WithOutputs(stateful(origin, schemas[""], made, self.node).node, schemas)

    def apply_rows(
        self,
        function: RowFunction,
        schema: Columns,
        initial: Any = None,
        *,
        columns: Sequence[str] | None = None,
        forget_after: Duration | None = None,
    ) -> Stream:
        """Call `function(state, row, emit)` for every event of a key, in strict order; it returns the new state.

            def jumps(last, row, emit):
                if last is not None and row["price"] > 2 * last:
                    emit({"item": row["item"], "price": row["price"]})
                return row["price"]

        A key's state is `initial` at first and made of plain values (`state/plain.py` says which). With `forget_after`
        a key that was not seen for longer begins anew; without, every key is remembered for ever.

        One Python call an event: slow. A second of one core's time was enough for 200,000 to 400,000 events (the
        fewer keys, the more), where `distinct`, which works on whole batches, did 1,400,000. Use `apply` for more.
        """
        origin = here()
        check_repeatable(function, origin)
        read = tuple(self.node.schema) if columns is None else tuple(dict.fromkeys(columns))
        name = getattr(function, "__qualname__", type(function).__qualname__)
        check.columns_exist(read, self.node.schema, origin, name)
        try:
            plain.to_bytes(initial)
        except TypeError as failure:
            raise UserError(
                "STATE_NOT_SERIALIZABLE",
                f"{initial!r} cannot be a state",
                where=str(origin),
                detail=str(failure),
            ) from failure
        forgotten = None if forget_after is None else microseconds(forget_after)
        outgoing = _columns(schema, origin)
        operator = RowFold(self.keys, function, name, initial, read, outgoing, forgotten)
        return stateful(origin, outgoing, operator, self.node)


def _columns(schema: Columns, origin: Origin) -> dict[str, pl.DataType]:
    check.names_free(schema, origin)
    return dict(pl.Schema(schema))


def _sound(operator: object, origin: Origin) -> None:
    """Raise unless this is an operator that can work."""
    wrong = None
    if not isinstance(operator, CustomOperator):
        wrong = f"{operator!r} is not a CustomOperator"
    elif (
        kind := type(operator)
    ).process is CustomOperator.process or kind.init_state is CustomOperator.init_state:
        wrong = f"{kind.__qualname__} needs both init_state and process"
    elif (operator.every is None) != (kind.on_watermark is CustomOperator.on_watermark):
        wrong = f"{kind.__qualname__} has only one of on_watermark and every, the time between its calls"
    elif operator.every is not None and microseconds(operator.every) < 1:
        wrong = f"{kind.__qualname__} says every {operator.every!r}, which is no time"
    if wrong:
        raise UserError(
            "BAD_OPERATOR",
            wrong,
            where=str(origin),
            hint="Derive from ps.CustomOperator, write init_state and process, and pass an object of the class.",
        )
