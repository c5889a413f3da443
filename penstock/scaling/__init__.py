"""The elastic loop: collect, evaluate, decide, realise. Pure, except for its two ends, which the engine implements."""

from penstock.scaling.decide import DefaultManager, Manager, Situation
from penstock.scaling.decisions import Decision, Decommission, Move, Nothing, Provision
from penstock.scaling.loop import Loop
from penstock.scaling.measurements import Fleet, Measured, Snapshot
from penstock.scaling.settings import ElasticSettings

__all__ = [
    "Decision",
    "Decommission",
    "DefaultManager",
    "ElasticSettings",
    "Fleet",
    "Loop",
    "Manager",
    "Measured",
    "Move",
    "Nothing",
    "Provision",
    "Situation",
    "Snapshot",
]
