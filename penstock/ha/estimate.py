"""How long a recovery would take, scheme by scheme, as a list of named parts that sum up. Pure.

Receives a scheme, the checkpoint interval, the history and the outlook; hands an `Estimate`.

Invariants:
- An estimate's seconds are the sum of its parts; no part is negative.
- It is for a failure at the worst moment: just before the next durable manifest.
- More epochs between durable manifests never make it less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.ha.history import History, Outlook
from penstock.ha.schemes import Scheme, Semantics, Step, steps

#: part of an estimate that is no step: what past recoveries took longer than their steps
CORRECTION = "correction"
#: part of an estimate that is no step: kept free for what varies
MARGIN = "margin"
#: what a follower's recovery consists of where nothing new is decided until another leads
_PROMOTED = (Step.overtake, Step.detect, Step.deliver, Step.replay)


class Part(NamedTuple):
    """One part: its name, its seconds, and how they come about if it is an amount over a speed."""

    name: str
    seconds: float
    amount: float = 0.0
    speed: float = 0.0
    unit: str = ""

    def told(self) -> str:
        """The part in words: `load 0.6 s (50,000,000 bytes at 80,000,000 a second)`."""
        how = f" ({self.amount:,.0f} {self.unit} at {self.speed:,.0f} a second)" if self.unit else ""
        return f"{self.name} {self.seconds:.2f} s{how}"


@dataclass(frozen=True)
class Estimate:
    """What recovering with a scheme would take."""

    scheme: Scheme
    checkpoint_every: int
    parts: tuple[Part, ...]
    #: the sum of the parts
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", sum([part.seconds for part in self.parts]))

    @property
    def step_seconds(self) -> float:
        """The steps alone, with neither correction nor margin: what a measured recovery is compared with."""
        return sum(part.seconds for part in self.parts if part.name not in (CORRECTION, MARGIN))

    def told(self) -> str:
        """The estimate in words."""
        return f"{self.scheme}: {self.seconds:.2f} s = " + " + ".join(part.told() for part in self.parts)

    def to_plain(self) -> dict[str, Any]:
        """The estimate as JSON takes it."""
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
    """The recovery time of a scheme with so many epochs from one durable manifest to the next; `one_leader` as in the
    settings."""
    done = steps(scheme, semantics)
    if one_leader and done[0] is Step.overtake:
        done = _PROMOTED
    parts = [_part(step, checkpoint_every, history, ahead) for step in done]
    if done is _PROMOTED:  # nothing is repeated, but the first epoch has to take in what came meanwhile
        parts[-1] = _replay(history.safe("detect") + ahead.epoch_seconds, ahead)
    if done[0] is Step.overtake and Step.detect in done:
        # the secondary works on while the failure is being detected
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
    # one epoch was running when the primary failed
    again_seconds = (checkpoint_every + 1) * ahead.epoch_seconds
    if step is Step.fetch:
        return _over("fetch", ahead.input_bytes_per_second * again_seconds, history.safe("fetch"), "bytes")
    if step is Step.replay:
        return _replay(again_seconds, ahead)
    if step is Step.overtake:
        return Part("overtake", ahead.epoch_seconds + ahead.lag_seconds)
    return Part(step.value, history.safe(step.value))


def _replay(arrived_seconds: float, ahead: Outlook) -> Part:
    """Processing what has come in a while: as its events take or, where it is known, as its epochs took."""
    events = _over(
        "replay", ahead.events_per_second * arrived_seconds, ahead.most_events_per_second, "events"
    )
    epochs = arrived_seconds / max(ahead.epoch_seconds, 1e-6)
    again = epochs * ahead.work_seconds
    return Part("replay", again) if 0.0 < again < events.seconds else events


def _over(name: str, amount: float, speed: float, unit: str) -> Part:
    # a machine that does not process at all is taken for one that does one a second
    return Part(name, amount / max(speed, 1.0), amount, max(speed, 1.0), unit)
