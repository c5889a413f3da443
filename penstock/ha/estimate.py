"""Estimates how long a recovery with a scheme would take, as named parts that sum up. Pure.

Invariants:
- The seconds of an estimate are the sum of its parts; no part is negative.
- The failure is assumed at the worst moment: just before the next durable manifest.
- A longer checkpoint interval never makes the estimate smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.ha.history import History, Outlook
from penstock.ha.schemes import Scheme, Semantics, Step, steps
from penstock.moved import former_names

#: the part for what past recoveries took longer than their steps
CORRECTION = "correction"
#: the part that is added for variation
MARGIN = "margin"
#: the steps of a follower's recovery where it admits no epochs until it leads
_PROMOTED = (Step.overtake, Step.detect, Step.deliver, Step.replay)


@former_names(told="describe")
class Part(NamedTuple):
    """One part: its name and seconds, with amount and speed if they are a quotient."""

    name: str
    seconds: float
    amount: float = 0.0
    speed: float = 0.0
    unit: str = ""

    def describe(self) -> str:
        """The part in words: `load 0.6 s (50,000,000 bytes at 80,000,000 a second)`."""
        how = f" ({self.amount:,.0f} {self.unit} at {self.speed:,.0f} a second)" if self.unit else ""
        return f"{self.name} {self.seconds:.2f} s{how}"


@former_names(told="describe")
@dataclass(frozen=True)
class Estimate:
    """The estimated recovery time of a scheme."""

    scheme: Scheme
    checkpoint_every: int
    parts: tuple[Part, ...]
    #: the sum of the parts
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", sum([part.seconds for part in self.parts]))

    @property
    def step_seconds(self) -> float:
        """The seconds of the steps, without correction and margin, for the comparison with measured recoveries."""
        return sum(part.seconds for part in self.parts if part.name not in (CORRECTION, MARGIN))

    def describe(self) -> str:
        """The estimate in words."""
        return f"{self.scheme}: {self.seconds:.2f} s = " + " + ".join(part.describe() for part in self.parts)

    def to_plain(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {
            "scheme": str(self.scheme),
            "checkpoint_every": self.checkpoint_every,
            "seconds": round(self.seconds, 4),
            "parts": [
                {
                    name: (round(value, 4) if isinstance(value, float) else value)
                    for name, value in part._asdict().items()
                    if value or name == "seconds"
                }
                for part in self.parts
            ],
        }


def estimate(
    scheme: Scheme,
    checkpoint_every: int,
    semantics: Semantics,
    history: History,
    ahead: Outlook,
    margin: float = 0.15,
    *,
    one_leader: bool = False,
) -> Estimate:
    """The recovery time of a scheme at a checkpoint interval; `one_leader` as in the settings."""
    done = steps(scheme, semantics)
    if one_leader and done[0] is Step.overtake:
        done = _PROMOTED
    parts = [_part(step, checkpoint_every, history, ahead) for step in done]
    if done is _PROMOTED:  # nothing is repeated, but the first epoch processes what arrived meanwhile
        parts[-1] = _replay(history.safe("detect") + ahead.epoch_seconds, ahead)
    if done[0] is Step.overtake and Step.detect in done:
        # the follower works on while the failure is being detected
        parts[0] = Part("overtake", max(parts[0].seconds - history.safe("detect"), 0.0))
    seconds = sum([part.seconds for part in parts])
    excess = history.excess.get(scheme, 0.0) * seconds
    if excess:
        parts.append(Part(CORRECTION, excess))
    parts.append(Part(MARGIN, margin * (seconds + excess)))
    return Estimate(scheme, checkpoint_every, tuple(parts))


def _part(step: Step, checkpoint_every: int, history: History, ahead: Outlook) -> Part:
    if step is Step.load:
        return _over("load", ahead.state_bytes, history.safe("load"), "bytes")
    # one epoch was running when the leader failed
    again_seconds = (checkpoint_every + 1) * ahead.epoch_seconds
    if step is Step.fetch:
        return _over("fetch", ahead.input_bytes_per_second * again_seconds, history.safe("fetch"), "bytes")
    if step is Step.replay:
        return _replay(again_seconds, ahead)
    if step is Step.overtake:
        return Part("overtake", ahead.epoch_seconds + ahead.lag_seconds)
    return Part(step.value, history.safe(step.value))


def _replay(arrived_seconds: float, ahead: Outlook) -> Part:
    """Processing what arrived in that time: by its events or, if less, by its epochs."""
    events = _over(
        "replay", ahead.events_per_second * arrived_seconds, ahead.most_events_per_second, "events"
    )
    epochs = arrived_seconds / max(ahead.epoch_seconds, 1e-6)
    again = epochs * ahead.work_seconds
    return Part("replay", again) if 0.0 < again < events.seconds else events


def _over(name: str, amount: float, speed: float, unit: str) -> Part:
    # a speed of 0 counts as one per second
    return Part(name, amount / max(speed, 1.0), amount, max(speed, 1.0), unit)
