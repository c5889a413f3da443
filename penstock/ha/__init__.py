"""Fault tolerance, the deciding part: schemes, estimates, costs and the controller. Pure; the engine carries it out."""

from penstock.ha.controller import ControllerState, begun, decide
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
    "begun",
    "decide",
    "estimate",
    "outlook",
    "steps",
    "weights_of",
]
