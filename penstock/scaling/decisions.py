"""Defines the decisions: a closed set of frozen values, each with its reason and the values it is based on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.moved import former_names

Inputs = Mapping[str, float]
#: bucket: (from slice, to slice)
Moves = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Provision:
    """Start this many more executors; then move buckets to them."""

    count: int
    reason: str
    inputs: Inputs = field(default_factory=dict)


@dataclass(frozen=True)
class Decommission:
    """Move all buckets off these executors; then release them."""

    executors: tuple[str, ...]
    reason: str
    inputs: Inputs = field(default_factory=dict)


@former_names(sub_query="stage")
@dataclass(frozen=True)
class Move:
    """Move buckets of a stage to other slices."""

    stage: str
    buckets: Moves
    reason: str
    inputs: Inputs = field(default_factory=dict)


@dataclass(frozen=True)
class Nothing:
    """Change nothing."""

    reason: str
    inputs: Inputs = field(default_factory=dict)


Decision = Provision | Decommission | Move | Nothing


def kind_of(decision: Decision) -> str:
    """`provision`, `decommission`, `move` or `nothing`."""
    return type(decision).__name__.lower()


def subject_of(decision: Decision) -> tuple[object, ...]:
    """What a decision would change: decisions with the same subject are the same attempt, whatever their inputs."""
    if isinstance(decision, Move):
        return "move", decision.stage
    return (kind_of(decision),)


def describe(decision: Decision) -> str:
    """Describe what is decided."""
    if isinstance(decision, Provision):
        return f"{decision.count} more executor{'s' * (decision.count > 1)}"
    if isinstance(decision, Decommission):
        return f"{len(decision.executors)} executor{'s' * (len(decision.executors) > 1)} fewer"
    if isinstance(decision, Move):
        return f"move {len(decision.buckets)} bucket{'s' * (len(decision.buckets) > 1)} of {decision.stage}"
    return "nothing"


def explain(decision: Decision) -> str:
    """Describe what is decided and why, in one line."""
    return f"{describe(decision)}: {decision.reason}"


def to_plain(decision: Decision) -> dict[str, Any]:
    """The decision as plain values for JSON."""
    plain: dict[str, Any] = {"decision": kind_of(decision), "reason": decision.reason}
    plain["inputs"] = {name: float(f"{value:.4g}") for name, value in decision.inputs.items()}
    if isinstance(decision, Provision):
        plain["count"] = decision.count
    elif isinstance(decision, Decommission):
        plain["executors"] = list(decision.executors)
    elif isinstance(decision, Move):
        plain["sub_query"] = decision.stage
        plain["buckets"] = {str(bucket): list(ends) for bucket, ends in decision.buckets.items()}
    return plain


def from_plain(plain: Mapping[str, Any]) -> Decision:
    """The decision that `to_plain` has encoded."""
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
