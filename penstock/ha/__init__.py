"""HA units: schemes, estimates, costs and the controller (pure); units, their coordinator and nodes.

The names exported here are those of the pure part.
"""

from penstock.ha.controller import ControllerState, decide, initial_state
from penstock.ha.cost import PRESETS, CostWeights, Use, weights_of
from penstock.ha.decision import Considered, Decision, Rejected
from penstock.ha.estimate import Estimate, Part, estimate
from penstock.ha.history import FIGURES, History, Load, Measured, Measurement, Outlook, Recovered, outlook
from penstock.ha.schemes import SCHEMES, SEMANTICS, AtRisk, Scheme, Semantics, Step, at_risk, steps
from penstock.ha.settings import ControllerSettings
from penstock.moved import former_names_in

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

__getattr__ = former_names_in(__name__, begun="initial_state")
