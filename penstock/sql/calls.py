"""Calls of functions: those of the language and the user's own.

Receives a name and typed arguments; hands an expression, or raises UNKNOWN_FUNCTION, BAD_ARGUMENT or
NON_DETERMINISTIC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from sqlglot import exp

from penstock.errors import UserError
from penstock.sql.aggregates import AGGREGATES
from penstock.sql.functions import FUNCTIONS, Argument
from penstock.sql.places import nearest, refused
from penstock.sql.scope import UserFunction
from penstock.sql.windows import EDGES, is_window

#: functions whose answer depends on when or where they are asked
FICKLE = frozenset(
    (
        "rand",
        "randn",
        "random",
        "uuid",
        "shuffle",
        "now",
        "curdate",
        "current_date",
        "current_time",
        "current_timestamp",
        "current_timezone",
        "current_user",
        "localtimestamp",
        "localtime",
        "sysdate",
        "monotonically_increasing_id",
        "input_file_name",
        "spark_partition_id",
    )
)


def check_known(node: exp.Expr, name: str, own: Mapping[str, UserFunction]) -> None:
    """Raise for a function that is not there, or whose answer would not be the same again."""
    if name not in own and name in FICKLE:
        raise fickle(node, name)
    if name not in own and name not in FUNCTIONS:
        raise _unknown(node, name, own)


def called(
    node: exp.Expr, name: str, arguments: Sequence[Argument], own: Mapping[str, UserFunction]
) -> pl.Expr:
    """The expression of a call."""
    if name in own:
        try:
            return own[name](*(argument.expr for argument in arguments))
        except UserError:
            raise
        except Exception as failure:
            raise refused(
                node,
                "USER_FUNCTION_FAILED",
                f"the function {name} raised {type(failure).__name__}: {failure}",
                "It is given Polars expressions and must return one.",
            ) from failure
    check_known(node, name, own)
    function = FUNCTIONS[name]
    if not function.least <= len(arguments) <= (len(arguments) if function.most is None else function.most):
        wanted = f"{function.least}" if function.least == function.most else f"at least {function.least}"
        raise refused(
            node,
            "BAD_ARGUMENT",
            f"{name} has {len(arguments)} arguments here",
            f"It takes {wanted}" + (f", at most {function.most}." if function.most is not None else "."),
        )
    return function.build(arguments)


def fickle(node: exp.Expr, name: str) -> UserError:
    """The error for a function that answers differently each time."""
    return refused(
        node,
        "NON_DETERMINISTIC",
        f"{name.lower()} would give another answer when the same events are computed again",
        "Use the event time of the events, or window_end.",
    )


def _unknown(node: exp.Expr, name: str, own: Mapping[str, UserFunction]) -> UserError:
    if name in AGGREGATES:
        return refused(
            node,
            "MISPLACED_AGGREGATE",
            f"{name} goes over several events and cannot stand here",
            "Aggregates stand in SELECT, HAVING and ORDER BY, not in WHERE, GROUP BY, ON or another aggregate.",
        )
    if name in EDGES or is_window(node):
        return refused(
            node,
            "BAD_WINDOW",
            f"{name} belongs in GROUP BY, or in FROM",
            "As in GROUP BY TUMBLE(ts, INTERVAL '30' SECOND); then select window_start and window_end.",
        )
    return refused(
        node,
        "UNKNOWN_FUNCTION",
        f"there is no function {name}",
        nearest(name, [*FUNCTIONS, *AGGREGATES, *own]),
    )
