"""Limit what a check of a statement takes: time, and the size of plans and expressions.

The limits hold for whoever compiles a query. A deadline and a caller who may leave are known only in the context of a
check (`check_within`); what takes time asks for both between its steps, each of which the sizes keep short.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from penstock.errors import UserError
from penstock.query.logical import Node

#: steps of a plan in one another; a WHERE may have 200
MOST_DEPTH = 250


@dataclass(frozen=True)
class CheckLimits:
    """The limits of a check."""

    #: how long a check may take, in seconds, with waiting for others
    seconds: float = 30.0
    #: nodes of the logical plan of a query; a part of the query counts as often as it is read
    plan_nodes: int = 2_000
    #: the size of one expression, in characters of its text
    expression_characters: int = 1_500_000


@dataclass(frozen=True)
class _Check:
    limits: CheckLimits
    deadline: float
    is_cancelled: Callable[[], bool]


def _is_never_cancelled() -> bool:
    return False


_UNCHECKED = _Check(CheckLimits(), float("inf"), _is_never_cancelled)
_CURRENT: ContextVar[_Check] = ContextVar("check", default=_UNCHECKED)
_CANCELLED: ContextVar[Callable[[], bool]] = ContextVar("caller_is_gone", default=_is_never_cancelled)


@contextlib.contextmanager
def cancel_when(is_gone: Callable[[], bool]) -> Iterator[None]:
    """In this context, a check ends as soon as its caller is gone."""
    token = _CANCELLED.set(is_gone)
    try:
        yield
    finally:
        _CANCELLED.reset(token)


@contextlib.contextmanager
def check_within(limits: CheckLimits) -> Iterator[None]:
    """A context in which a check has a deadline."""
    token = _CURRENT.set(_Check(limits, time.monotonic() + limits.seconds, _CANCELLED.get()))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def check_time() -> None:
    """Raise CHECK_TOO_LONG after the deadline of a check, and CHECK_CANCELLED once its caller is gone."""
    check = _CURRENT.get()
    if time.monotonic() > check.deadline:
        raise UserError(
            "CHECK_TOO_LONG",
            f"checking the statement takes longer than {check.limits.seconds:g} s",
            hint="Make several jobs of it, or send it again when the machine is less busy.",
        )
    if check.is_cancelled():
        raise UserError(
            "CHECK_CANCELLED",
            "the caller left before the statement was checked",
            hint="Nothing was changed; send it again.",
        )


def check_expression_size(characters: int) -> None:
    """Raise EXPRESSION_TOO_LARGE for an expression whose text is too long."""
    check_time()
    limit = _CURRENT.get().limits.expression_characters
    if characters > limit:
        raise UserError(
            "EXPRESSION_TOO_LARGE",
            f"an expression becomes {characters:,} characters long, and the limit is {limit:,}",
            hint="Functions in one another may need their arguments several times: compute parts of it first, in "
            "WITH part AS (SELECT ...).",
        )


class PlanSizes:
    """Counts the nodes of plans, each as often as it is read."""

    def __init__(self) -> None:
        #: by the identity of a node, which is held so that no other gets the same
        self._sizes: dict[int, tuple[int, int, Node]] = {}

    def check(self, node: Node) -> None:
        """Raise PLAN_TOO_LARGE for a plan with too many nodes."""
        check_time()
        limit = _CURRENT.get().limits.plan_nodes
        size, depth = self._measure(node)
        if size > limit:
            raise UserError(
                "PLAN_TOO_LARGE",
                f"the plan of the query has {size:,} nodes, and the limit is {limit:,}",
                hint="A part that WITH names counts as often as it is read. Make a job of it, and read the job.",
            )
        if depth > MOST_DEPTH:
            raise UserError(
                "QUERY_TOO_DEEP",
                f"the plan of the query has {depth:,} steps in one another, and the limit is {MOST_DEPTH:,}",
                hint="Make several jobs of it.",
            )

    def _measure(self, root: Node) -> tuple[int, int]:
        """How many nodes there are, and how many in one another at most."""
        waiting = [root]
        while waiting:
            node = waiting[-1]
            missing = [part for part in node.inputs if id(part) not in self._sizes]
            if missing:
                waiting += missing
                continue
            parts = [self._sizes[id(part)] for part in node.inputs]
            size, depth = 1 + sum(one[0] for one in parts), 1 + max((one[1] for one in parts), default=0)
            self._sizes[id(node)] = size, depth, node
            waiting.pop()
        return self._sizes[id(root)][:2]
