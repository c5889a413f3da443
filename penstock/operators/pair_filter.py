"""A sieve for pairs: of a predicate over two rows, what NumPy can decide over whole tiles of pairs at once.

Receives the predicate (Polars' own expression) and the columns of both sides; hands, for any tile of pairs,
a mask in which every pair for which the predicate holds is marked. Pairs may be marked that fail it: whoever
sieves asks the predicate itself about what is left. So a part of a predicate that is not understood here only
makes the sieve coarser, never the answer wrong.

Understood: comparisons of columns, numbers, sums, differences, products and absolute values, of one type; joined
by and, or, not. Equality of columns of any plain type is decided by 16 bits of their hashes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

#: values of one tile, or of the rows along one of its sides, in a shape that NumPy brings together
Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
#: the arrays of the columns for the tile at hand, by their names
Tile = Mapping[str, Values]
Schema = Mapping[str, pl.DataType]

_OPPOSITE = {"Eq": "NotEq", "NotEq": "Eq", "Lt": "GtEq", "GtEq": "Lt", "Gt": "LtEq", "LtEq": "Gt"}
_COMPARE: dict[str, np.ufunc] = {
    "Eq": np.equal,
    "NotEq": np.not_equal,
    "Lt": np.less,
    "LtEq": np.less_equal,
    "Gt": np.greater,
    "GtEq": np.greater_equal,
}
_COMPUTE: dict[str, np.ufunc] = {"Plus": np.add, "Minus": np.subtract, "Multiply": np.multiply}
#: whole numbers that 64 bits hold with their sign
_WHOLE = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_UNITS: dict[str, Literal["ns", "us", "ms"]] = {
    "Nanoseconds": "ns",
    "Microseconds": "us",
    "Milliseconds": "ms",
}


@dataclass(frozen=True)
class FilterColumn:
    """An array the sieve needs: a column's values, or 16 bits of their hashes."""

    name: str
    hashed: bool

    @property
    def key(self) -> str:
        return f"#{self.name}" if self.hashed else self.name

    def read(self, dtype: pl.DataType) -> pl.Expr:
        """The array as Polars makes it. A null compares with nothing, so whatever stands in its place will do."""
        column = pl.col(self.name)
        if not self.hashed:
            return column.to_physical().fill_null(0).alias(self.key)
        wide = column.cast(pl.Int64) if dtype.is_integer() else column
        return wide.hash().alias(self.key)

    def array(self, read: pl.Series) -> Values:
        """The array as NumPy has it."""
        return (read.to_numpy() >> np.uint64(48)).astype(np.uint16) if self.hashed else read.to_numpy()


@dataclass(frozen=True)
class PairFilter:
    """What is left of a predicate: conditions that must all hold, the cheapest first."""

    conditions: tuple[Callable[[Tile], Mask], ...]
    columns: frozenset[FilterColumn]
    #: bytes a pair takes while it is sieved
    width: int
    #: arrays of which one pair of values must be equal in every pair that passes; none where there is no such rule
    meetings: tuple[tuple[str, str], ...] = ()

    def arrays(self, rows: pl.DataFrame) -> dict[str, Values]:
        """The arrays of the columns that are these rows'."""
        mine = [column for column in self.columns if column.name in rows.columns]
        read = rows.select(column.read(rows.schema[column.name]) for column in mine)
        return {column.key: column.array(read[column.key]) for column in mine}

    def mask(self, tile: Tile) -> Mask:
        """The pairs that may pass. Stops once few are left."""
        mask = self.conditions[0](tile)
        for condition in self.conditions[1:]:
            if np.count_nonzero(mask) * 16 < mask.size:
                break
            mask = mask & condition(tile)
        return mask


def build_pair_filter(predicate: pl.Expr, schema: Schema) -> PairFilter | None:
    """The sieve of a predicate; None where nothing of it is understood."""
    tree = _tree(predicate)
    reader = _Reader(schema)
    conditions = [found for part in _conditions(tree) if (found := reader.condition(part, True)) is not None]
    if not conditions:
        return None
    conditions.sort(key=lambda condition: condition.cost)
    columns = frozenset().union(*(condition.columns for condition in conditions))
    width = 8 if any(condition.computes for condition in conditions) else 1
    meetings = min((c.meetings for c in conditions if c.meetings), key=len, default=())
    return PairFilter(tuple(condition.of for condition in conditions), columns, width, meetings)


@dataclass(frozen=True)
class _Condition:
    of: Callable[[Tile], Mask]
    columns: frozenset[FilterColumn]
    cost: int
    #: whether numbers of every pair have to be made for it
    computes: bool = False
    #: it holds only where the arrays of one of these pairs are equal
    meetings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Value:
    """A number of every pair: its type decides what it may be compared and computed with."""

    of: Callable[[Tile], Values]
    dtype: pl.DataType | None
    columns: frozenset[FilterColumn] = frozenset()
    cost: int = 0
    literal: int | float | None = None
    computed: bool = False


@dataclass(frozen=True)
class _Reader:
    """Reads the tree of an expression as Polars writes it down; what it does not know is None."""

    schema: Schema

    # -- conditions ------------------------------------------------------------------------------

    def condition(self, tree: Any, wanted: bool) -> _Condition | None:
        """Where an expression is `wanted` (true or false), at least."""
        kind, body = _opened(tree)
        if kind == "Alias":
            return self.condition(body[0], wanted)
        if kind == "Function":
            if body["function"] == {"Boolean": "Not"}:
                return self.condition(body["input"][0], not wanted)
            return self._between(body, wanted)
        if kind != "BinaryExpr":
            return None
        operation = body["op"]
        if operation in ("And", "Or", "LogicalAnd", "LogicalOr"):
            parts = [self.condition(body[side], wanted) for side in ("left", "right")]
            return _both(parts) if operation.endswith("And") == wanted else _either(parts)
        if operation == "EqValidity" and wanted:
            return self._equal(body)
        if operation not in _COMPARE:
            return None
        operation = operation if wanted else _OPPOSITE[operation]
        return (self._equal(body) if operation == "Eq" else None) or self._compared(
            operation, self.value(body["left"]), self.value(body["right"])
        )

    def _between(self, body: Any, wanted: bool) -> _Condition | None:
        name, settings = _opened(body["function"].get("Boolean") if isinstance(body["function"], dict) else 0)
        if name != "IsBetween" or not wanted:
            return None
        value, low, high = (self.value(part) for part in body["input"])
        closed = settings["closed"]
        return _both(
            [
                self._compared("GtEq" if closed in ("Both", "Left") else "Gt", value, low),
                self._compared("LtEq" if closed in ("Both", "Right") else "Lt", value, high),
            ]
        )

    def _equal(self, body: Any) -> _Condition | None:
        """Equality of a left and a right column, by their hashes."""
        names = [_opened(body[side]) for side in ("left", "right")]
        if any(kind != "Column" for kind, _ in names):
            return None
        one, other = (self.schema.get(str(name)) for _, name in names)
        if one is None or other is None or not _hash_alike(one, other):
            return None
        first, second = (FilterColumn(name, True) for _, name in names)
        return _Condition(
            lambda tile: np.equal(tile[first.key], tile[second.key]),
            frozenset({first, second}),
            1,
            meetings=((first.key, second.key),),
        )

    def _compared(self, operation: str, one: _Value | None, other: _Value | None) -> _Condition | None:
        if one is None or other is None:
            return None
        dtype = _brought_together(one, other) or _both_numbers(one, other)
        if dtype is None or not one.columns | other.columns:
            return None
        columns, cost = one.columns | other.columns, one.cost + other.cost + 4
        compare, opposite = _COMPARE[operation], _COMPARE[_OPPOSITE[operation]]

        def plainly(tile: Tile) -> Mask:
            return np.asarray(compare(one.of(tile), other.of(tile)))

        def unless_refuted(tile: Tile) -> Mask:
            mine, others = one.of(tile), other.of(tile)
            # Polars ranks a NaN, NumPy does not: what cannot be ruled out is let through
            refuted = (mine < others) | (mine > others) if operation == "Eq" else opposite(mine, others)
            return np.logical_not(refuted)

        exact = dtype != pl.Float64 or operation == "NotEq"
        return _Condition(plainly if exact else unless_refuted, columns, cost, one.computed or other.computed)

    # -- values ----------------------------------------------------------------------------------

    def value(self, tree: Any) -> _Value | None:
        """A number for every pair."""
        kind, body = _opened(tree)
        match kind:
            case "Alias":
                return self.value(body[0])
            case "Column":
                return self._column(str(body))
            case "Literal":
                return _literal(body)
            case "Function" if body["function"] == "Abs":
                inner = self.value(body["input"][0])
                if inner is None or inner.dtype is None or not _signed(inner.dtype):
                    return None
                return _Value(
                    lambda tile: np.abs(inner.of(tile)),
                    inner.dtype,
                    inner.columns,
                    inner.cost + 3,
                    computed=True,
                )
            case "BinaryExpr" if body["op"] in _COMPUTE:
                return self._computed(body)
        return None

    def _column(self, name: str) -> _Value | None:
        dtype = self.schema.get(name)
        if dtype is None:
            return None
        plain = isinstance(dtype, pl.Datetime | pl.Duration) or dtype in (pl.Date, pl.Time)
        if not plain and dtype not in (*_WHOLE, pl.Float64):
            return None
        column = FilterColumn(name, False)
        return _Value(lambda tile: tile[column.key], dtype, frozenset({column}), 1)

    def _computed(self, body: Any) -> _Value | None:
        one, other = self.value(body["left"]), self.value(body["right"])
        if one is None or other is None:
            return None
        compute = _COMPUTE[body["op"]]
        dtype = _brought_together(one, other)
        if isinstance(dtype, pl.Datetime) and body["op"] == "Minus":
            dtype = pl.Duration(dtype.time_unit)
        elif dtype not in (pl.Int64, pl.Float64):
            return None
        return _Value(
            lambda tile: compute(one.of(tile), other.of(tile)),
            dtype,
            one.columns | other.columns,
            one.cost + other.cost + 3,
            computed=True,
        )


def split_conjuncts(predicate: pl.Expr) -> list[pl.Expr]:
    """The conditions that must all hold for the predicate to hold."""
    kind, body = _opened(_tree(predicate))
    if kind == "BinaryExpr" and body["op"] in ("And", "LogicalAnd"):
        return [part for side in reversed(predicate.meta.pop()) for part in split_conjuncts(side)]
    return [predicate]


def _tree(predicate: pl.Expr) -> Any:
    """An expression as Polars writes it down; None if it holds a function of the user's."""
    try:
        return json.loads(predicate.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None


def _conditions(tree: Any) -> list[Any]:
    kind, body = _opened(tree)
    if kind == "BinaryExpr" and body["op"] in ("And", "LogicalAnd"):
        return [*_conditions(body["left"]), *_conditions(body["right"])]
    return [tree]


def _opened(tree: Any) -> tuple[str, Any]:
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    return "", None


def _both(parts: list[_Condition | None]) -> _Condition | None:
    """Both must hold: one that is not understood is left out."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    one, other = known
    return _Condition(
        lambda tile: np.logical_and(one.of(tile), other.of(tile)),
        one.columns | other.columns,
        one.cost + other.cost,
        one.computes or other.computes,
    )


def _either(parts: list[_Condition | None]) -> _Condition | None:
    """One must hold: nothing can be said if one is not understood."""
    one, other = parts
    if one is None or other is None:
        return None
    first, second = one, other
    return _Condition(
        lambda tile: np.logical_or(first.of(tile), second.of(tile)),
        first.columns | second.columns,
        first.cost + second.cost,
        first.computes or second.computes,
        (*first.meetings, *second.meetings) if first.meetings and second.meetings else (),
    )


def _literal(body: Any) -> _Value | None:
    kind, value = _opened(body)
    if kind == "Dyn":
        kind, value = _opened(value)
        if kind in ("Int", "Float") and isinstance(value, int | float):
            return _Value(lambda tile: value, None, literal=value)
    if kind == "Scalar":
        kind, value = _opened(value)
        if kind == "Duration" and value[1] in _UNITS:
            return _Value(lambda tile: value[0], pl.Duration(_UNITS[value[1]]), literal=value[0])
    return None


def _brought_together(one: _Value, other: _Value) -> pl.DataType | None:
    """The type two values have in common; None if they have to be converted to meet."""
    if one.dtype is not None and other.dtype is not None:
        return one.dtype if one.dtype == other.dtype else None
    dtype, literal = (one.dtype, other.literal) if one.dtype is not None else (other.dtype, one.literal)
    if dtype == pl.Float64 and literal is not None:
        return dtype
    fits = isinstance(literal, int) and -(2**62) < literal < 2**62
    return dtype if dtype == pl.Int64 and fits else None


def _both_numbers(one: _Value, other: _Value) -> pl.DataType | None:
    """As what whole numbers of any two types, or one and a fraction, can be compared."""
    sides = (one, other)
    whole = [v.dtype in _WHOLE or (v.dtype is None and isinstance(v.literal, int)) for v in sides]
    if all(whole):
        return pl.Int64()
    fraction = [v.dtype is None and isinstance(v.literal, float) for v in sides]
    return pl.Float64() if any(whole) and any(fraction) else None


def _signed(dtype: pl.DataType) -> bool:
    return dtype in (pl.Int64, pl.Float64) or isinstance(dtype, pl.Duration)


def _hash_alike(one: pl.DataType, other: pl.DataType) -> bool:
    """Whether equal values of these types have equal hashes."""
    if one.is_integer() and other.is_integer():
        return one in _WHOLE and other in _WHOLE
    plain = isinstance(one, pl.Datetime | pl.Duration) or one in (pl.String, pl.Boolean, pl.Date, pl.Time)
    return one == other and plain
