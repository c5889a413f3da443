"""Filter pairs of rows with NumPy: evaluate the parts of a join predicate that work on whole tiles of pairs at once.

A filter is built from the predicate, a Polars expression, and the columns of both sides. For a tile of pairs it returns
a mask.

Guarantees: every pair for which the predicate holds is marked.
Does not guarantee: that a marked pair passes. The caller evaluates the predicate itself on the marked pairs, so a part
of a predicate that is not supported here makes the filter weaker and never the result wrong.

Supported: comparisons of columns, numbers, sums, differences, products and absolute values, of one type; combined by
and, or, not. Equality of columns of any plain type is decided by 16 bits of their hashes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

#: values of one tile, or of the rows along one of its sides, in a shape that NumPy can broadcast
Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
#: the arrays of the columns of a tile, by their names
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
#: integers that fit into 64 bits with a sign
_WHOLE = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_UNITS: dict[str, Literal["ns", "us", "ms"]] = {
    "Nanoseconds": "ns",
    "Microseconds": "us",
    "Milliseconds": "ms",
}


@dataclass(frozen=True)
class FilterColumn:
    """An array that the filter reads: a column's values, or 16 bits of their hashes."""

    name: str
    hashed: bool

    @property
    def key(self) -> str:
        return f"#{self.name}" if self.hashed else self.name

    def read(self, dtype: pl.DataType) -> pl.Expr:
        """The array as a Polars expression. A comparison with null never holds, so any value may replace it."""
        column = pl.col(self.name)
        if not self.hashed:
            return column.to_physical().fill_null(0).alias(self.key)
        wide = column.cast(pl.Int64) if dtype.is_integer() else column
        return wide.hash().alias(self.key)

    def array(self, read: pl.Series) -> Values:
        """The array in NumPy."""
        return (read.to_numpy() >> np.uint64(48)).astype(np.uint16) if self.hashed else read.to_numpy()


@dataclass(frozen=True)
class PairFilter:
    """The supported conditions of a predicate, which must all hold, the cheapest first."""

    conditions: tuple[Callable[[Tile], Mask], ...]
    columns: frozenset[FilterColumn]
    #: bytes that a pair takes during the evaluation
    width: int
    #: pairs of arrays of which at least one must be equal in every pair that passes; empty without such a rule
    equal_pairs: tuple[tuple[str, str], ...] = ()

    def arrays(self, rows: pl.DataFrame) -> dict[str, Values]:
        """The arrays of the columns that these rows have."""
        mine = [column for column in self.columns if column.name in rows.columns]
        read = rows.select(column.read(rows.schema[column.name]) for column in mine)
        return {column.key: column.array(read[column.key]) for column in mine}

    def mask(self, tile: Tile) -> Mask:
        """The pairs that may pass. Stops as soon as few are left."""
        mask = self.conditions[0](tile)
        for condition in self.conditions[1:]:
            if np.count_nonzero(mask) * 16 < mask.size:
                break
            mask = mask & condition(tile)
        return mask


def build_pair_filter(predicate: pl.Expr, schema: Schema) -> PairFilter | None:
    """The filter of a predicate; None if no part of it is supported."""
    tree = _parse(predicate)
    reader = _Reader(schema)
    conditions = [
        condition for part in _conjuncts(tree) if (condition := reader.condition(part, True)) is not None
    ]
    if not conditions:
        return None
    conditions.sort(key=lambda condition: condition.cost)
    columns = frozenset().union(*(condition.columns for condition in conditions))
    width = 8 if any(condition.computes for condition in conditions) else 1
    equal_pairs = min((c.equal_pairs for c in conditions if c.equal_pairs), key=len, default=())
    return PairFilter(tuple(condition.of for condition in conditions), columns, width, equal_pairs)


@dataclass(frozen=True)
class _Condition:
    of: Callable[[Tile], Mask]
    columns: frozenset[FilterColumn]
    cost: int
    #: whether it computes numbers for every pair
    computes: bool = False
    #: it holds only where the arrays of one of these pairs are equal
    equal_pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Value:
    """A number for every pair. Its type decides what it can be compared and computed with."""

    of: Callable[[Tile], Values]
    dtype: pl.DataType | None
    columns: frozenset[FilterColumn] = frozenset()
    cost: int = 0
    literal: int | float | None = None
    computed: bool = False


@dataclass(frozen=True)
class _Reader:
    """Reads the tree of an expression as Polars serializes it; returns None for what is not supported."""

    schema: Schema

    # -- conditions ------------------------------------------------------------------------------

    def condition(self, tree: Any, wanted: bool) -> _Condition | None:
        """A condition that holds at least where the expression is `wanted` (true or false)."""
        kind, body = _unwrap(tree)
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
            return _and(parts) if operation.endswith("And") == wanted else _or(parts)
        if operation == "EqValidity" and wanted:
            return self._equal(body)
        if operation not in _COMPARE:
            return None
        operation = operation if wanted else _OPPOSITE[operation]
        return (self._equal(body) if operation == "Eq" else None) or self._compared(
            operation, self.value(body["left"]), self.value(body["right"])
        )

    def _between(self, body: Any, wanted: bool) -> _Condition | None:
        name, settings = _unwrap(body["function"].get("Boolean") if isinstance(body["function"], dict) else 0)
        if name != "IsBetween" or not wanted:
            return None
        value, low, high = (self.value(part) for part in body["input"])
        closed = settings["closed"]
        return _and(
            [
                self._compared("GtEq" if closed in ("Both", "Left") else "Gt", value, low),
                self._compared("LtEq" if closed in ("Both", "Right") else "Lt", value, high),
            ]
        )

    def _equal(self, body: Any) -> _Condition | None:
        """Equality of two columns, by their hashes."""
        names = [_unwrap(body[side]) for side in ("left", "right")]
        if any(kind != "Column" for kind, _ in names):
            return None
        one, other = (self.schema.get(str(name)) for _, name in names)
        if one is None or other is None or not _have_equal_hashes(one, other):
            return None
        first, second = (FilterColumn(name, True) for _, name in names)
        return _Condition(
            lambda tile: np.equal(tile[first.key], tile[second.key]),
            frozenset({first, second}),
            1,
            equal_pairs=((first.key, second.key),),
        )

    def _compared(self, operation: str, one: _Value | None, other: _Value | None) -> _Condition | None:
        if one is None or other is None:
            return None
        dtype = _common_type(one, other) or _number_type(one, other)
        if dtype is None or not one.columns | other.columns:
            return None
        columns, cost = one.columns | other.columns, one.cost + other.cost + 4
        compare, opposite = _COMPARE[operation], _COMPARE[_OPPOSITE[operation]]

        def compare_exactly(tile: Tile) -> Mask:
            return np.asarray(compare(one.of(tile), other.of(tile)))

        def exclude_refuted(tile: Tile) -> Mask:
            mine, others = one.of(tile), other.of(tile)
            # Polars orders a NaN, NumPy does not: a pair that cannot be excluded passes
            refuted = (mine < others) | (mine > others) if operation == "Eq" else opposite(mine, others)
            return np.logical_not(refuted)

        exact = dtype != pl.Float64 or operation == "NotEq"
        return _Condition(
            compare_exactly if exact else exclude_refuted, columns, cost, one.computed or other.computed
        )

    # -- values ----------------------------------------------------------------------------------

    def value(self, tree: Any) -> _Value | None:
        """A number for every pair."""
        kind, body = _unwrap(tree)
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
        dtype = _common_type(one, other)
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
    kind, body = _unwrap(_parse(predicate))
    if kind == "BinaryExpr" and body["op"] in ("And", "LogicalAnd"):
        return [part for side in reversed(predicate.meta.pop()) for part in split_conjuncts(side)]
    return [predicate]


def _parse(predicate: pl.Expr) -> Any:
    """The tree of an expression as Polars serializes it; None if it contains a user's function."""
    try:
        return json.loads(predicate.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None


def _conjuncts(tree: Any) -> list[Any]:
    kind, body = _unwrap(tree)
    if kind == "BinaryExpr" and body["op"] in ("And", "LogicalAnd"):
        return [*_conjuncts(body["left"]), *_conjuncts(body["right"])]
    return [tree]


def _unwrap(tree: Any) -> tuple[str, Any]:
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    return "", None


def _and(parts: list[_Condition | None]) -> _Condition | None:
    """Both must hold: one that is not supported is left out."""
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


def _or(parts: list[_Condition | None]) -> _Condition | None:
    """One must hold: None if one of them is not supported."""
    one, other = parts
    if one is None or other is None:
        return None
    first, second = one, other
    return _Condition(
        lambda tile: np.logical_or(first.of(tile), second.of(tile)),
        first.columns | second.columns,
        first.cost + second.cost,
        first.computes or second.computes,
        (*first.equal_pairs, *second.equal_pairs) if first.equal_pairs and second.equal_pairs else (),
    )


def _literal(body: Any) -> _Value | None:
    kind, value = _unwrap(body)
    if kind == "Dyn":
        kind, value = _unwrap(value)
        if kind in ("Int", "Float") and isinstance(value, int | float):
            return _Value(lambda tile: value, None, literal=value)
    if kind == "Scalar":
        kind, value = _unwrap(value)
        if kind == "Duration" and value[1] in _UNITS:
            return _Value(lambda tile: value[0], pl.Duration(_UNITS[value[1]]), literal=value[0])
    return None


def _common_type(one: _Value, other: _Value) -> pl.DataType | None:
    """The common type of two values; None if one has to be converted."""
    if one.dtype is not None and other.dtype is not None:
        return one.dtype if one.dtype == other.dtype else None
    dtype, literal = (one.dtype, other.literal) if one.dtype is not None else (other.dtype, one.literal)
    if dtype == pl.Float64 and literal is not None:
        return dtype
    fits = isinstance(literal, int) and -(2**62) < literal < 2**62
    return dtype if dtype == pl.Int64 and fits else None


def _number_type(one: _Value, other: _Value) -> pl.DataType | None:
    """The type in which integers of any two types, or an integer and a fraction, can be compared."""
    sides = (one, other)
    whole = [v.dtype in _WHOLE or (v.dtype is None and isinstance(v.literal, int)) for v in sides]
    if all(whole):
        return pl.Int64()
    fraction = [v.dtype is None and isinstance(v.literal, float) for v in sides]
    return pl.Float64() if any(whole) and any(fraction) else None


def _signed(dtype: pl.DataType) -> bool:
    return dtype in (pl.Int64, pl.Float64) or isinstance(dtype, pl.Duration)


def _have_equal_hashes(one: pl.DataType, other: pl.DataType) -> bool:
    """Whether equal values of these types have equal hashes."""
    if one.is_integer() and other.is_integer():
        return one in _WHOLE and other in _WHOLE
    plain = isinstance(one, pl.Datetime | pl.Duration) or one in (pl.String, pl.Boolean, pl.Date, pl.Time)
    return one == other and plain
