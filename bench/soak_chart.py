"""Draws the samples of a soak: a panel for each series, all over the epochs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.soak_samples import SERIES, Growth, Sample
from penstock.simulate.chart import Chart, Curve, Curves
from penstock.simulate.charts import draw_sheet

_FLAT, _GROWING = "#0b6e99", "#c53030"


def draw_soak(title: str, samples: Sequence[Sample], growth: Sequence[Growth]) -> str:
    """Draw the series as SVG; those that grow in red."""
    growing = {one.series.name for one in growth if one.grows}
    at = [float(sample.epochs) for sample in samples]
    shown = [one for one in SERIES if any(sample.values[one.name] for sample in samples)]
    charts: list[Chart] = [
        Curves(
            one.name if one.unit in one.name else f"{one.name}, {one.unit}",
            at,
            [
                Curve(
                    "",
                    [sample.values[one.name] for sample in samples],
                    _GROWING if one.name in growing else _FLAT,
                )
            ],
            x_title="epochs" if one is shown[-1] else "",
            high=56.0,
        )
        for one in shown
    ]
    return draw_sheet(title, charts)
