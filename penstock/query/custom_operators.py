"""The methods `apply` and `apply_rows`: operators of the user's own on a keyed stream."""

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
    from penstock.query.stream import Stream, WithOutputs

Columns = Mapping[str, pl.DataType | type[pl.DataType]]


@dataclass(frozen=True, eq=False)
class KeyedCustomOperators(KeyedRows):
    """Keyed rows to which an operator of the user's own can be applied."""

    def apply(
        self,
        operator: CustomOperator,
        schema: Columns,
        *,
        outputs: Mapping[str, Columns] | None = None,
        columns: Sequence[str] | None = None,
    ) -> WithOutputs:
        """Apply an operator of your own (see `CustomOperator`).

        `schema` has the columns of the rows it emits; `outputs` those of further outputs, which are items of the
        result: `applied["alerts"]`. `columns` are those it reads besides the keys (all, if not given).

        It gets its rows in strict order, or, if it is commutative, as they come. `key_by(..., order=...)` overrides
        this: "strict" for a commutative one; "none" gives any operator its rows as they come, and then its results
        may depend on where epochs were cut.
        """
        origin = here()
        _check_operator(operator, origin)
        check_methods(operator, CustomOperator, origin)
        ordering = self.order or ("epoch" if operator.commutative else "strict")
        if ordering == "epoch" and not operator.commutative:
            raise UserError(
                "ORDER_TOO_WEAK",
                f"{type(operator).__qualname__} does not declare that it is commutative",
                where=str(origin),
                hint='Declare commutative = True in the class if order makes no difference to it. With order="none" it '
                "gets events as they come all the same, and its results then depend on how they came.",
            )
        schemas = {"": _columns(schema, origin)} | {
            name: _columns(one, origin) for name, one in (outputs or {}).items()
        }
        read = tuple(self.node.schema) if columns is None else tuple(dict.fromkeys(columns))
        check.columns_exist(read, self.node.schema, origin, type(operator).__qualname__)
        runner = CustomRunner(self.keys, operator, read, schemas, ordering)
        from penstock.query.stream import WithOutputs  # whose methods come back here

        return WithOutputs(stateful(origin, schemas[""], runner, self.node).node, schemas)

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

        A key's state is `initial` at first and made of plain values (`state/plain.py` lists them). With `forget_after`
        the state of a key that had no event for longer is reset; without, the state of every key is kept for ever.

        One Python call an event is slow: a core handled 200,000 to 400,000 events a second (the fewer keys, the more),
        where `distinct`, which works on whole batches, handled 1,400,000. Use `apply` for more.
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
        idle_time = None if forget_after is None else microseconds(forget_after)
        outgoing = _columns(schema, origin)
        operator = RowFold(self.keys, function, name, initial, read, outgoing, idle_time)
        return stateful(origin, outgoing, operator, self.node)


def _columns(schema: Columns, origin: Origin) -> dict[str, pl.DataType]:
    check.names_free(schema, origin)
    return dict(pl.Schema(schema))


def _check_operator(operator: object, origin: Origin) -> None:
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
        wrong = f"{kind.__qualname__} has every = {operator.every!r}, which is no time"
    if wrong:
        raise UserError(
            "BAD_OPERATOR",
            wrong,
            where=str(origin),
            hint="Derive from ps.CustomOperator, write init_state and process, and pass an object of the class.",
        )
