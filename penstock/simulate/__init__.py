"""Simulates what the deciding code does with days of load, in seconds: models of a cluster and of an engine that fails.

`simulate_scaling` turns the elastic loop, `simulate_failures` the fault-tolerance controller; both execute the same
pure code as a real engine. `draw_sheet` and its charts are what every SVG chart of Penstock is drawn with.
"""

from penstock.simulate.charts import Bars, Curve, Curves, Lanes, Mark, Shares, draw_sheet
from penstock.simulate.cluster_model import ModelCluster, ModelSettings
from penstock.simulate.engine_model import EngineModel, Truth
from penstock.simulate.failures import FailureResult, FailureRun, simulate_failures
from penstock.simulate.loads import (
    DRAWN,
    FORMS,
    SPREADS,
    Trace,
    draw_rates,
    find_spread,
    find_trace,
    follow_rates,
)
from penstock.simulate.scaling import ScalingResult, ScalingRun, simulate_scaling

__all__ = [
    "Bars",
    "Curve",
    "Curves",
    "DRAWN",
    "EngineModel",
    "FORMS",
    "FailureResult",
    "FailureRun",
    "Lanes",
    "Mark",
    "ModelCluster",
    "ModelSettings",
    "SPREADS",
    "ScalingResult",
    "ScalingRun",
    "Shares",
    "Trace",
    "Truth",
    "draw_rates",
    "draw_sheet",
    "find_spread",
    "find_trace",
    "follow_rates",
    "simulate_failures",
    "simulate_scaling",
]
