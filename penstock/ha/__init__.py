"""HA units: schemes, estimates, costs and the controller (pure); units, their coordinator and nodes.

The names exported here are those of the pure part.
"""

import warnings
from typing import Any

from penstock.ha.controller import ControllerState, decide, initial_state
from penstock.ha.cost import PRESETS, CostWeights, Use, weights_of
from penstock.ha.decision import Considered, Decision, Rejected
from penstock.ha.estimate import Estimate, Part, estimate
from penstock.ha.history import FIGURES, History, Load, Measured, Measurement, Outlook, Recovered, outlook
from penstock.ha.schemes import SCHEMES, SEMANTICS, AtRisk, Scheme, Semantics, Step, at_risk, steps
from penstock.ha.settings import ControllerSettings

__all__ = [
    "AtRisk",
    "Considered",
    "ControllerSettings",
    "ControllerState",
    "CostWeights",
    "Decision",
    "Estimate",
    "FIGURES",
    "History",
    "Load",
    "Measured",
    "Measurement",
    "Outlook",
    "PRESETS",
    "Part",
    "Recovered",
    "Rejected",
    "SCHEMES",
    "SEMANTICS",
    "Scheme",
    "Semantics",
    "Step",
    "Use",
    "at_risk",
    "decide",
    "estimate",
    "initial_state",
    "outlook",
    "steps",
    "weights_of",
]


def __getattr__(name: str) -> Any:
    if name != "begun":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "penstock.ha.begun is now initial_state; the next version removes the former name",
        DeprecationWarning,
        stacklevel=2,
    )
    return initial_state
