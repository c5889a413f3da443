"""What can be decided: a closed set of frozen values, each with its reason and the figures it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Inputs = Mapping[str, float]
#: bucket: (from slice, to slice)
Moves = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Provision:
    """Get this many more executors; then move buckets to them."""

    count: int
    reason: str
    inputs: Inputs = field(default_factory=dict)


@dataclass(frozen=True)
class Decommission:
    """Move all buckets off these executors; then let them go."""

    executors: tuple[str, ...]
    reason: str
    inputs: Inputs = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """Give buckets of a sub-query to other slices."""

    sub_query: str
    buckets: Moves
    reason: str
    inputs: Inputs = field(default_factory=dict)


@dataclass(frozen=True)
class Nothing:
    """Leave everything as it is."""

    reason: str
    inputs: Inputs = field(default_factory=dict)


Decision = Provision | Decommission | Move | Nothing


def kind_of(decision: Decision) -> str:
    """`provision`, `decommission`, `move` or `nothing`."""
    return type(decision).__name__.lower()


def about(decision: Decision) -> tuple[object, ...]:
    """What a decision would change: two with the same are the same attempt, whatever their figures."""
    if isinstance(decision, Move):
        return "move", decision.sub_query
    return (kind_of(decision),)


def what(decision: Decision) -> str:
    """What is decided, in words."""
    if isinstance(decision, Provision):
        return f"{decision.count} more executor{'s' * (decision.count > 1)}"
    if isinstance(decision, Decommission):
        return f"{len(decision.executors)} executor{'s' * (len(decision.executors) > 1)} fewer"
    if isinstance(decision, Move):
        return (
            f"move {len(decision.buckets)} bucket{'s' * (len(decision.buckets) > 1)} of {decision.sub_query}"
        )
    return "nothing"


def told(decision: Decision) -> str:
    """One line for people: what, and why."""
    return f"{what(decision)}: {decision.reason}"


def to_plain(decision: Decision) -> dict[str, Any]:
    """The decision as JSON takes it."""
    plain: dict[str, Any] = {"decision": kind_of(decision), "reason": decision.reason}
    plain["inputs"] = {name: float(f"{value:.4g}") for name, value in decision.inputs.items()}
    if isinstance(decision, Provision):
        plain["count"] = decision.count
    elif isinstance(decision, Decommission):
        plain["executors"] = list(decision.executors)
    elif isinstance(decision, Move):
        plain["sub_query"] = decision.sub_query
        plain["buckets"] = {str(bucket): list(ends) for bucket, ends in decision.buckets.items()}
    return plain


def from_plain(plain: Mapping[str, Any]) -> Decision:
    """The decision that `to_plain` has told."""
    reason, inputs = plain["reason"], plain["inputs"]
    match plain["decision"]:
        case "provision":
            return Provision(plain["count"], reason, inputs)
        case "decommission":
            return Decommission(tuple(plain["executors"]), reason, inputs)
        case "move":
            moves = {int(bucket): (old, new) for bucket, (old, new) in plain["buckets"].items()}
            return Move(plain["sub_query"], moves, reason, inputs)
        case other:
            raise ValueError(f"{other!r} is not a decision")
