"""A simulated run as a picture: load, executors, utilisation, imbalance, backlog; decisions are marked.

Receives one run, and perhaps another to compare it with; hands SVG text.
"""

from __future__ import annotations

import numpy as np

from penstock.elastic.decisions import Move, kind_of, told
from penstock.elastic.plot import Line, Mark, Panel, plotted
from penstock.elastic.record import Entry, Outcome
from penstock.elastic.simulate import Simulated

_COLOURS = {"provision": "#2f855a", "decommission": "#2b6cb0", "move": "#dd6b20"}
_MAIN, _OTHER, _LOAD = "#1a365d", "#c05621", "#718096"
_FAILED = "#e53e3e"


def picture(
    one: Simulated, title: str, other: Simulated | None = None, names: tuple[str, str] = ("", "")
) -> str:
    """The run, and the other one dashed beside it."""
    settings = one.run.settings
    runs = [(one, names[0] or "this run", _MAIN, False)]
    if other is not None:
        runs.append((other, names[1] or "the other", _OTHER, True))

    def lines(figure: str, *, steps: bool = False) -> list[Line]:
        return [
            Line(name, getattr(run.series, figure), colour, dashed=dashed, steps=steps)
            for run, name, colour, dashed in runs
        ]

    changing = any(np.ptp(run.series.executors) > 0 for run, *_ in runs)
    moving = any(isinstance(entry.decision, Move) for run, *_ in runs for entry in run.record.entries)
    imbalance = Panel(
        "imbalance: deviation of the slices' utilisation",
        lines("imbalance"),
        [("upper imbalance", settings.upper_imbalance)],
        percent=True,
    )
    behind = max(float(run.series.backlog_seconds.max()) for run, *_ in runs)
    panels = [
        Panel("load, events a second", [Line("load", one.series.rate, _LOAD)]),
        *([Panel("executors", lines("executors", steps=True))] if changing else []),
        Panel(
            "utilisation",
            lines("utilisation"),
            [
                ("upper", settings.upper_utilisation),
                ("target", settings.target_utilisation),
                ("lower", settings.lower_utilisation),
            ],
            percent=True,
            most=1.0,
        ),
        *([imbalance] if moving else []),
        Panel("backlog, seconds of work", lines("backlog_seconds"), most=max(behind, 10.0)),
    ]
    return plotted(title, one.series.at, panels, [_mark(entry) for entry in one.record.entries])


def _mark(entry: Entry) -> Mark:
    kind = kind_of(entry.decision)
    text = f"{told(entry.decision)} ({entry.outcome})"
    if entry.outcome in (Outcome.failed, Outcome.undone):
        return Mark(entry.at, f"{kind} {entry.outcome}", _FAILED, text)
    if entry.outcome == Outcome.dry_run:
        return Mark(entry.at, f"{kind} (dry run)", _COLOURS[kind], text)
    return Mark(entry.at, kind, _COLOURS[kind], text)
