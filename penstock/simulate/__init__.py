"""Simulates scaling and fault-tolerance decisions under days of load, in seconds, on models of a cluster and an engine.

`simulate_scaling` runs the elastic loop, `simulate_failures` the fault-tolerance controller; both execute the same
pure code as a real engine. `draw_sheet` draws every SVG chart of Penstock.
"""

from penstock.simulate.chart import Bars, Curve, Curves, Lanes, Mark, Shares
from penstock.simulate.charts import draw_sheet
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
