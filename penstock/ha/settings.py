"""Declares every setting of the controller with its meaning, and refuses contradictions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.errors import UserError
from penstock.ha.cost import PRESETS, CostWeights
from penstock.ha.schemes import Scheme, Semantics

#: checkpoint intervals that the controller may choose with `auto`
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
    """The user's targets for recoveries, and how readily the controller switches."""

    #: the longest that a recovery should take
    threshold_seconds: float = 10.0
    semantics: Semantics = Semantics.precise
    #: lease and heartbeat interval: their sum is the time to detect a failure until that has been measured
    lease_seconds: float = 2.0
    heartbeat_seconds: float = 0.5
    weights: CostWeights = field(default_factory=lambda: PRESETS["all-costs"])
    #: checkpoint intervals to choose from; with one alone the interval stays
    checkpoint_choices: tuple[int, ...] = (1,)
    #: schemes to choose from
    schemes: tuple[Scheme, ...] = tuple(Scheme)
    #: after a switch, no switch that only saves cost for this long; a scheme over the threshold is left at once
    cool_down_seconds: float = 30.0
    #: to save cost, switch only to a scheme whose estimate leaves this share of the threshold free
    headroom: float = 0.1
    #: and that costs less by this share
    least_saving: float = 0.05
    #: share added to every estimate
    margin: float = 0.15
    #: estimates extrapolate the load this far, because starting an engine takes a while
    ahead_seconds: float = 30.0
    #: whether only the leader admits epochs, as in real units: then even a follower that executes all of them emits
    #: nothing new until it leads
    one_leader: bool = False
    #: loads to measure before active replication is left
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
            raise _reject("the checkpoint interval is below 1 epoch")
        if self.warm_up_loads < 1:
            raise _reject("at least one load must be measured before anything is decided")

    @property
    def first_scheme(self) -> Scheme:
        """The safest scheme: the one whose second engine does most."""
        return min(self.schemes, key=list(Scheme).index)


def _reject(why: str) -> UserError:
    return UserError("BAD_HA_SETTINGS", f"the controller cannot work with these settings: {why}")
