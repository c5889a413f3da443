"""A decision of the controller: its inputs, its choice, and why the other schemes were rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.ha.cost import Use
from penstock.ha.estimate import Estimate
from penstock.ha.schemes import Scheme
from penstock.moved import former_names


class Rejected(StrEnum):
    """Why a scheme was not chosen."""

    too_slow = "over the threshold"
    too_close = "too close to the threshold to switch to"
    costlier = "costs more"
    slower = "costs the same and is slower"
    saves_little = "saves too little to switch"
    cooling = "would save, but the last switch was too recently"


@dataclass(frozen=True)
class Considered:
    """A scheme with the checkpoint interval that suits it best, its estimate and its cost."""

    estimate: Estimate
    overhead: Use
    cost: float
    rejected: Rejected | None = None

    @property
    def scheme(self) -> Scheme:
        return self.estimate.scheme

    @property
    def checkpoint_every(self) -> int:
        return self.estimate.checkpoint_every

    @property
    def rank(self) -> tuple[float, float]:
        """Cheapest first, the faster of two that cost the same."""
        return round(self.cost, 9), self.estimate.seconds

    def to_plain(self) -> dict[str, Any]:
        """As plain values for JSON."""
        plain = self.estimate.to_plain()
        plain["cost"] = round(self.cost, 4)
        plain["overhead"] = {name: round(value, 4) for name, value in self.overhead._asdict().items()}
        if self.rejected is not None:
            plain["rejected"] = str(self.rejected)
        return plain


@former_names(told="describe")
@dataclass(frozen=True)
class Decision:
    """The decision of one turn."""

    at: float
    before: Scheme
    before_checkpoint_every: int
    chosen: Scheme
    checkpoint_every: int
    reason: str
    #: whether the chosen scheme is within the threshold
    suits: bool
    inputs: Mapping[str, float]
    considered: tuple[Considered, ...] = ()

    @property
    def switched(self) -> bool:
        """Whether another scheme was chosen than before."""
        return self.chosen is not self.before

    @property
    def changed(self) -> bool:
        """Whether the scheme or the checkpoint interval changed."""
        return self.switched or self.checkpoint_every != self.before_checkpoint_every

    def of(self, scheme: Scheme) -> Considered | None:
        """The consideration of a scheme; None during the warm-up."""
        return next((one for one in self.considered if one.scheme is scheme), None)

    def describe(self) -> str:
        """The decision in one line."""
        what = f"{self.before} to {self.chosen}" if self.switched else str(self.chosen)
        every = "every epoch" if self.checkpoint_every == 1 else f"every {self.checkpoint_every} epochs"
        return f"{what}, a durable manifest {every}: {self.reason}"

    def to_plain(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {
            "at": round(self.at, 3),
            "before": str(self.before),
            "before_checkpoint_every": self.before_checkpoint_every,
            "chosen": str(self.chosen),
            "checkpoint_every": self.checkpoint_every,
            "switched": self.switched,
            "suits": self.suits,
            "reason": self.reason,
            "inputs": {name: float(f"{value:.6g}") for name, value in self.inputs.items()},
            "considered": [one.to_plain() for one in self.considered],
        }
