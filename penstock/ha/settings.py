"""Every setting of the controller, declared once with its meaning; contradictions are refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.errors import UserError
from penstock.ha.cost import PRESETS, CostWeights
from penstock.ha.schemes import Scheme, Semantics

#: intervals the controller may pick from when it is left the choice
CHECKPOINT_CHOICES = (1, 2, 5, 10, 20, 30)
_NOT_NEGATIVE = (
    "threshold_seconds",
    "lease_seconds",
    "heartbeat_seconds",
    "cool_down_seconds",
    "ahead_seconds",
    "margin",
)


@dataclass(frozen=True)
class ControllerSettings:
    """What the user asks of a recovery, and how steady the controller is."""

    #: a failure should be over after this long
    threshold_seconds: float = 10.0
    semantics: Semantics = Semantics.precise
    #: how long a lease lives and how far heartbeats are apart: a failure is seen after both, until it was measured
    lease_seconds: float = 2.0
    heartbeat_seconds: float = 0.5
    weights: CostWeights = field(default_factory=lambda: PRESETS["all-costs"])
    #: epochs from one durable manifest to the next that may be picked from; one alone is not changed
    checkpoint_choices: tuple[int, ...] = (1,)
    #: schemes that may be picked
    schemes: tuple[Scheme, ...] = tuple(Scheme)
    #: after a switch nothing is switched to save for this long; what is over the threshold is left at once
    cool_down_seconds: float = 30.0
    #: a scheme is taken to save only if its estimate leaves this share of the threshold free
    headroom: float = 0.1
    #: and if it costs less by this share
    least_saving: float = 0.05
    #: share that is added to every estimate
    margin: float = 0.15
    #: estimates look this far ahead along the trend: a switch that needs an engine takes a while
    ahead_seconds: float = 30.0
    #: whether epochs are decided by the leader alone, as in units of real engines: then a follower that runs them all
    #: has nothing new to tell either until it leads
    one_leader: bool = False
    #: loads that must have been measured before active replication is left
    warm_up_loads: int = 6

    def __post_init__(self) -> None:
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise _reject(f"{name} is {value:g}; it is 0 or more")
        for name in ("headroom", "least_saving"):
            if not 0 <= getattr(self, name) < 1:
                raise _reject(f"{name} is {getattr(self, name):g}; it is a share from 0 to less than 1")
        if not self.schemes:
            raise _reject("no scheme is allowed")
        if not self.checkpoint_choices or min(self.checkpoint_choices) < 1:
            raise _reject("a durable manifest every 0 epochs cannot be; 1 is the least")
        if self.warm_up_loads < 1:
            raise _reject("at least one load must be measured before anything is decided")

    @property
    def first_scheme(self) -> Scheme:
        """The safe side: the one whose secondary does most."""
        return min(self.schemes, key=list(Scheme).index)


def _reject(why: str) -> UserError:
    return UserError("BAD_HA_SETTINGS", f"the controller cannot work with these settings: {why}")
