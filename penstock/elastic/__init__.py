"""The elastic loop: collect, evaluate, decide, realise. All of it is pure but its two ends, which the engine has."""

from penstock.elastic.decide import Situation
from penstock.elastic.decisions import Decision, Decommission, Move, Nothing, Provision
from penstock.elastic.loop import Loop
from penstock.elastic.manager import DefaultManager, Manager
from penstock.elastic.measurements import Fleet, Measured, Snapshot
from penstock.elastic.settings import ElasticSettings

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
