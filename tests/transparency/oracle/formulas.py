"""Conditions and formulas, computed for one row."""

from __future__ import annotations

from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.rows import Row, Values


def holds(condition: d.Compare | None, values: Values, matched: dict[str, Row] | None = None) -> bool:
    """Whether a condition holds; a comparison with null does not."""
    if condition is None or condition.op == "true":
        return True
    mine, other = values[condition.column], condition.other
    if condition.op == "null":
        return mine is None
    if isinstance(other, d.Other):
        other = (
            values[other.column] if other.step is None else (matched or {})[other.step].values[other.column]
        )
    if mine is None or other is None:
        return False
    return bool(
        {">": mine > other, "<=": mine <= other}[condition.op]
        if condition.op in (">", "<=")
        else (mine == other) == (condition.op == "==")
    )


def compute(formula: d.Formula, values: Values) -> Any:
    """Return the value of a formula for a row."""
    if formula.what == "constant":
        return formula.by
    if formula.what == "holds":
        return holds(formula.by, values)
    value = values[formula.column]
    if value is None or formula.what == "copy":
        return value
    return {
        "plus": lambda: value + formula.by,
        "times": lambda: value * formula.by,
        "mod": lambda: value % formula.by,
        "steps": lambda: list(range(value % 3)),
        "upper": lambda: value.upper(),
    }[formula.what]()
