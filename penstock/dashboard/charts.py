"""Charts, as options of ECharts. Pure.

Receives figures; hands options. Colours are readable on light and on dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from penstock.http import schemas

_DIM, _GRID = "#8593a8", "rgba(133,147,168,0.22)"
COLOURS = ["#1c7ed6", "#f08c00", "#2f9e44", "#ae3ec9"]
#: bars of an answer that are shown
_BARS = 12
_HEAT = ["rgba(133,147,168,0.2)", "#74c0fc", "#fab005", "#e8590c", "#c92a2a"]


def _base(left: int = 52) -> dict[str, Any]:
    return {
        "animation": False,
        "color": COLOURS,
        "textStyle": {"color": _DIM},
        "grid": {"left": left, "right": 14, "top": 30, "bottom": 26},
        "tooltip": {"trigger": "axis", "confine": True},
        "legend": {"top": 0, "right": 0, "textStyle": {"color": _DIM}, "itemWidth": 14, "itemHeight": 8},
    }


def over_time(
    series: Mapping[str, Sequence[tuple[float, float]]], unit: str = "", area: bool = False
) -> dict[str, Any]:
    """Lines over instants (seconds since 1970); below the first one, its area."""
    lines = [
        {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "lineStyle": {"width": 2},
            "data": [[round(at * 1000), value] for at, value in points],
            **({"areaStyle": {"opacity": 0.12}} if area and not number else {}),
        }
        for number, (name, points) in enumerate(series.items())
    ]
    return _base() | {
        "xAxis": {
            "type": "time",
            "axisLabel": {"color": _DIM, "hideOverlap": True},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "name": unit,
            "nameTextStyle": {"color": _DIM, "align": "left"},
            "min": 0,
            "axisLabel": {"color": _DIM},
            "splitLine": {"lineStyle": {"color": _GRID}},
        },
        "series": lines,
    }


def of_answer(rows: pl.DataFrame) -> dict[str, Any] | None:
    """An answer as bars: its first number by its first text, the greatest first; None where it has none of these."""
    numbers = [name for name, dtype in rows.schema.items() if dtype.is_numeric() and name != "rank"]
    texts = [name for name, dtype in rows.schema.items() if dtype == pl.String and name not in numbers]
    if not numbers or not texts or not rows.height:
        return None
    value, label = numbers[0], next((t for t in texts if rows[t].n_unique() > 1), texts[0])
    best = rows.drop_nulls(value).sort(value, descending=True).head(_BARS).reverse()
    names = [_short(str(name)) for name in best[label].to_list()]
    return _base() | {
        "grid": {"left": 8, "right": 24, "top": 8, "bottom": 8, "containLabel": True},
        "legend": {"show": False},
        "xAxis": {
            "type": "value",
            "axisLabel": {"color": _DIM, "hideOverlap": True},
            "splitLine": {"lineStyle": {"color": _GRID}},
        },
        "yAxis": {
            "type": "category",
            "data": names,
            "axisLabel": {"color": _DIM},
            "axisTick": {"show": False},
        },
        "series": [
            {
                "name": value,
                "type": "bar",
                "data": best[value].to_list(),
                "barMaxWidth": 18,
                "itemStyle": {"borderRadius": [0, 4, 4, 0]},
            }
        ],
    }


def heat(engine: schemas.EngineFacts, by: str, most: int = 12) -> dict[str, Any] | None:
    """The buckets of the busiest sub-queries: the work, the state or the slice of each."""
    kinds = {"work": "bucket_seconds", "state": "bucket_bytes", "slice": "bucket_map"}
    found = [(name, sub) for name, sub in engine.sub_queries.items() if sub.bucket_map]
    found.sort(key=lambda one: -sum(one[1].bucket_seconds))
    found = found[:most][::-1]
    if not found:
        return None
    cells = [
        [bucket, row, value]
        for row, (_, sub) in enumerate(found)
        for bucket, value in enumerate(getattr(sub, kinds[by]))
    ]
    buckets = max(len(sub.bucket_map) for _, sub in found)
    return {
        "animation": False,
        "textStyle": {"color": _DIM},
        "tooltip": {"confine": True},
        "grid": {"left": 8, "right": 12, "top": 8, "bottom": 50, "containLabel": True},
        "xAxis": {"type": "category", "data": list(range(buckets)), "axisLabel": {"color": _DIM}, "name": ""},
        "yAxis": {
            "type": "category",
            "data": [_short(name, 18) for name, _ in found],
            "axisLabel": {"color": _DIM},
        },
        "visualMap": {
            "min": 0,
            "max": max((cell[2] for cell in cells), default=0) or 1,
            "orient": "horizontal",
            "left": "center",
            "bottom": 0,
            "itemHeight": 120,
            "itemWidth": 12,
            "textStyle": {"color": _DIM},
            "inRange": {"color": _HEAT},
        },
        "series": [
            {
                "name": by,
                "type": "heatmap",
                "data": cells,
                "itemStyle": {"borderRadius": 2, "borderWidth": 1, "borderColor": "rgba(0,0,0,0)"},
            }
        ],
    }


def _short(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
