"""Calls of functions: those of SQL and the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from sqlglot import exp

from penstock.errors import UserError
from penstock.sql.aggregates import AGGREGATES
from penstock.sql.errors import query_error, suggest_name
from penstock.sql.functions import FUNCTIONS, TypedExpr
from penstock.sql.scope import UserFunction
from penstock.sql.windows import EDGES, is_window

#: functions whose result depends on when or where they are called
_NON_DETERMINISTIC = """
    rand randn random uuid shuffle now curdate current_date current_time current_timestamp current_timezone
    current_user localtimestamp localtime sysdate monotonically_increasing_id input_file_name spark_partition_id
"""
NON_DETERMINISTIC = frozenset(_NON_DETERMINISTIC.split())


def check_function(node: exp.Expr, name: str, own: Mapping[str, UserFunction]) -> None:
    """Raise NON_DETERMINISTIC, or UNKNOWN_FUNCTION or what explains a misplaced name better."""
    if name in own or name in FUNCTIONS:
        return
    if name in NON_DETERMINISTIC:
        raise non_deterministic(node, name)
    if name in AGGREGATES:
        raise query_error(
            node,
            "MISPLACED_AGGREGATE",
            f"{name} is computed over several events and cannot stand here",
            "Aggregates stand in SELECT, HAVING and ORDER BY, not in WHERE, GROUP BY, ON or another aggregate.",
        )
    if name in EDGES or is_window(node):
        raise query_error(
            node,
            "BAD_WINDOW",
            f"{name} belongs in GROUP BY, or in FROM",
            "As in GROUP BY TUMBLE(ts, INTERVAL '30' SECOND); then select window_start and window_end.",
        )
    raise query_error(
        node,
        "UNKNOWN_FUNCTION",
        f"there is no function {name}",
        suggest_name(name, [*FUNCTIONS, *AGGREGATES, *own]),
    )


def build_call(
    node: exp.Expr, name: str, arguments: Sequence[TypedExpr], own: Mapping[str, UserFunction]
) -> pl.Expr:
    """The expression of a call; raises BAD_ARGUMENT, or USER_FUNCTION_FAILED for the user's own functions."""
    if name not in own:
        check_function(node, name, own)
        return FUNCTIONS[name].build(arguments)
    try:
        return own[name](*(argument.expr for argument in arguments))
    except UserError:
        raise
    except Exception as failure:  # whatever the user's code raises
        raise query_error(
            node,
            "USER_FUNCTION_FAILED",
            f"the function {name} raised {type(failure).__name__}: {failure}",
            "It is called with Polars expressions and must return one.",
        ) from failure


def non_deterministic(node: exp.Expr, name: str) -> UserError:
    """The error for a function whose result is another each time."""
    return query_error(
        node,
        "NON_DETERMINISTIC",
        f"{name.lower()} would return another result when the same events are computed again",
        "Use the event time of the events, or window_end.",
    )
