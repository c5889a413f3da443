"""Draws simulated failures: schemes over time, and overhead by threshold, state size, costs and semantics.

Receives a run or a sweep's rows; returns SVG text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.ha.cost import RESOURCES
from penstock.ha.schemes import SCHEMES
from penstock.simulate.chart import Chart, Curve, Curves, Lanes, Shares
from penstock.simulate.charts import draw_sheet
from penstock.simulate.failures import ORDER, FailureResult
from penstock.simulate.sweeps import Row

COLOURS = dict(zip(ORDER, ("#9b2c2c", "#dd6b20", "#d69e2e", "#38a169", "#3182ce", "#805ad5"), strict=True))
_RESOURCE_COLOURS = dict(zip(RESOURCES, ("#c53030", "#2b6cb0", "#2f855a", "#805ad5"), strict=True))
_TITLES = {scheme: SCHEMES[scheme].title for scheme in ORDER}
_WITHIN, _OVER, _LINE = "#2f855a", "#e53e3e", "#1a365d"


def draw_over_time(done: FailureResult, title: str) -> str:
    """Draw load, state, scheme and recoveries of one run."""
    series, threshold = done.series, done.run.settings.threshold_seconds
    at = series.at
    dots = [(recovery.at, _WITHIN if recovery.within_threshold else _OVER) for recovery in done.recoveries]
    measured = [
        (
            r.at,
            r.seconds,
            "measured, within" if r.within_threshold else "measured, over",
            _WITHIN if r.within_threshold else _OVER,
        )
        for r in done.recoveries
    ]
    charts: list[Chart] = [
        Curves("load, events a second", at, [Curve("", series.rate, _LINE)], clock=True, high=90),
        Curves("state, bytes", at, [Curve("", series.state_bytes, _LINE)], clock=True, high=90),
        Lanes(
            "scheme that protects; dots are failures",
            at,
            series.scheme,
            [_TITLES[scheme] for scheme in ORDER],
            [COLOURS[scheme] for scheme in ORDER],
            dots,
        ),
        Curves(
            "recovery time, seconds",
            at,
            [Curve("estimate", series.estimated_seconds, _LINE, steps=True)],
            levels=[(f"threshold {threshold:g} s", threshold)],
            dots=measured,
            clock=True,
            high=110,
        ),
        Curves(
            "cost of fault tolerance; the primary costs 1",
            at,
            [
                Curve("the controller", series.cost, _LINE, steps=True),
                Curve("constant active replication", series.active_cost, _OVER, dashed=True),
            ],
            clock=True,
            x_title="time, hours:minutes",
            high=90,
        ),
    ]
    return draw_sheet(title, charts)


def draw_overhead(rows: Sequence[Row], title: str) -> str:
    """Draw the overhead of every resource over the threshold, a chart for each cost model."""
    charts = []
    for costs in dict.fromkeys(row["costs"] for row in rows):
        part = [row for row in rows if row["costs"] == costs]
        charts.append(
            Curves(
                f"costs {costs}: overhead, of what constant active replication takes on top",
                [row["threshold_seconds"] for row in part],
                [
                    Curve(name, [row["resource_shares"][name] for row in part], colour, dots=True)
                    for name, colour in _RESOURCE_COLOURS.items()
                ],
                x_title="threshold, seconds",
                percent=True,
                even=True,
                high=170,
            )
        )
    return draw_sheet(title, charts)


def draw_time_in_schemes(rows: Sequence[Row], by: str, title: str) -> str:
    """Draw the time spent in each scheme over the threshold, a chart for each kind of row."""
    kinds = list(dict.fromkeys(row[by] for row in rows))
    charts = []
    for place, kind in enumerate(kinds):
        part = [row for row in rows if row[by] == kind]
        charts.append(
            Shares(
                f"{by} {kind}: share of the time",
                [f"{row['threshold_seconds']:g}" for row in part],
                [
                    (_TITLES[scheme], COLOURS[scheme], [row["time_shares"][str(scheme)] for row in part])
                    for scheme in ORDER
                ],
                x_title="threshold, seconds",
                legend=place == 0,
            )
        )
    return draw_sheet(title, charts)


def draw_by_state_size(rows: Sequence[Row], title: str) -> str:
    """Draw the least threshold that saves a resource, over the state size."""
    lines = []
    for name, colour in _RESOURCE_COLOURS.items():
        least = [row["least_threshold_seconds"][name] for row in rows]
        lines.append(Curve(name, [math.nan if v is None else v for v in least], colour, dots=True))
    chart = Curves(
        "least threshold that saves, seconds",
        [row["state_bytes"] for row in rows],
        lines,
        even=True,
        high=150,
    )
    estimates = Curves(
        "estimate of each scheme, seconds",
        [row["state_bytes"] for row in rows],
        [
            Curve(_TITLES[scheme], [row["estimated_seconds"][str(scheme)] for row in rows], colour, dots=True)
            for scheme, colour in COLOURS.items()
        ],
        x_title="state, bytes",
        even=True,
        high=170,
    )
    return draw_sheet(title, [chart, estimates])


def draw_by_interval(rows: Sequence[Row], title: str) -> str:
    """Draw recovery time and overhead over the checkpoint interval."""
    schemes = [scheme for scheme in ORDER if any(row["scheme"] == scheme for row in rows)]

    def lines(column: str, resource: str | None = None, dashed: bool = False, more: str = "") -> list[Curve]:
        return [
            Curve(
                _TITLES[scheme] + more,
                [
                    row[column] if resource is None else row[column][resource]
                    for row in rows
                    if row["scheme"] == scheme
                ],
                COLOURS[scheme],
                dashed=dashed,
                dots=not dashed,
            )
            for scheme in schemes
        ]

    at = [row["checkpoint_every"] for row in rows if row["scheme"] == schemes[0]]
    charts = [
        Curves(
            "recovery time, seconds: the longest measured, and its estimate dashed",
            at,
            [*lines("worst_seconds"), *lines("estimated_seconds", dashed=True, more=", estimate")],
            even=True,
        ),
        Curves(
            "network overhead, of the primary's", at, lines("overhead", "network"), percent=True, even=True
        ),
        Curves(
            "CPU overhead, of the primary's",
            at,
            lines("overhead", "cpu"),
            percent=True,
            even=True,
            x_title="epochs from one durable manifest to the next",
        ),
    ]
    return draw_sheet(title, charts)
