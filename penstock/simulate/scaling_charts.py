"""Draws a simulated run of the elastic loop: load, executors, utilisation, imbalance, backlog and decisions.

Receives a run, and optionally another for comparison; returns SVG text.
"""

from __future__ import annotations

import numpy as np

from penstock.scaling.decisions import Move, explain, kind_of
from penstock.scaling.record import Entry, Outcome
from penstock.simulate.chart import Curve, Curves, Mark
from penstock.simulate.charts import draw_sheet
from penstock.simulate.scaling import ScalingResult

_COLOURS = {"provision": "#2f855a", "decommission": "#2b6cb0", "move": "#dd6b20"}
_MAIN, _OTHER, _LOAD, _LEVEL = "#1a365d", "#c05621", "#718096", "#718096"
_FAILED = "#e53e3e"


def draw_scaling(
    one: ScalingResult, title: str, other: ScalingResult | None = None, names: tuple[str, str] = ("", "")
) -> str:
    """Draw the run, and the other one dashed beside it."""
    settings = one.run.settings
    runs = [(one, names[0] or "this run", _MAIN, False)]
    if other is not None:
        runs.append((other, names[1] or "the other", _OTHER, True))

    def chart(
        name: str,
        column: str,
        *,
        steps: bool = False,
        levels: tuple[tuple[str, float], ...] = (),
        percent: bool = False,
        most: float | None = None,
        x_title: str = "",
    ) -> Curves:
        lines = [
            Curve(of, getattr(run.series, column), colour, dashed=dashed, steps=steps)
            for run, of, colour, dashed in runs
        ]
        return Curves(
            name,
            one.series.at,
            lines,
            x_title=x_title,
            levels=levels,
            level_colour=_LEVEL,
            percent=percent,
            clock=True,
            most=most,
            high=110,
        )

    charts = [Curves("load, events a second", one.series.at, [Curve("", one.series.rate, _LOAD)], clock=True)]
    if any(np.ptp(run.series.executors) > 0 for run, *_ in runs):
        charts.append(chart("executors", "executors", steps=True))
    wanted = (
        ("upper", settings.upper_utilisation),
        ("target", settings.target_utilisation),
        ("lower", settings.lower_utilisation),
    )
    charts.append(chart("utilisation", "utilisation", levels=wanted, percent=True, most=1.0))
    if any(isinstance(entry.decision, Move) for run, *_ in runs for entry in run.record.entries):
        limit = (("upper imbalance", settings.upper_imbalance),)
        name = "imbalance: deviation of the slices' utilisation"
        charts.append(chart(name, "imbalance", levels=limit, percent=True))
    behind = max(float(run.series.backlog_seconds.max()) for run, *_ in runs)
    unit = "hours:minutes" if one.series.at[-1] > 120 else "seconds"
    backlog = chart(
        "backlog, seconds of work", "backlog_seconds", most=max(behind, 10.0), x_title=f"time, {unit}"
    )
    charts.append(backlog)
    return draw_sheet(title, charts, [_mark(entry) for entry in one.record.entries])


def _mark(entry: Entry) -> Mark:
    kind = kind_of(entry.decision)
    text = f"{explain(entry.decision)} ({entry.outcome})"
    if entry.outcome in (Outcome.failed, Outcome.undone):
        return Mark(entry.at, f"{kind} {entry.outcome}", _FAILED, text)
    if entry.outcome == Outcome.dry_run:
        return Mark(entry.at, f"{kind} (dry run)", _COLOURS[kind], text)
    return Mark(entry.at, kind, _COLOURS[kind], text)
