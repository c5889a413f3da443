"""Renders charts as options of ECharts, in colours that are readable on light and on dark pages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from penstock.server import response_bodies as schemas

_DIM = "#8593a8"
_LABEL = {"color": _DIM}
_GRID_LINES = {"lineStyle": {"color": "rgba(133,147,168,0.22)"}}
_LEGEND = {"top": 0, "textStyle": _LABEL, "itemWidth": 14, "itemHeight": 8}
COLOURS = ["#1c7ed6", "#f08c00", "#2f9e44", "#ae3ec9"]
#: the colours of the parts of a sum
_PARTS = ["#1c7ed6", "#f08c00", "#2f9e44", "#ae3ec9", "#12b886", "#e64980", "#7950f2", "#fab005", "#868e96"]
_LIMIT = "#e03131"
#: bars of a result that are shown
_MAX_BARS = 12
_HEAT = ["rgba(133,147,168,0.2)", "#74c0fc", "#fab005", "#e8590c", "#c92a2a"]


def time_chart(
    series: Mapping[str, Sequence[tuple[float, float]]], unit: str = "", area: bool = False
) -> dict[str, Any]:
    """Lines over time (seconds since 1970); with `area`, the area below the first one is filled."""
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
        "grid": {"left": 52, "right": 14, "top": 30, "bottom": 26},
        "tooltip": {"trigger": "axis", "confine": True},
        "legend": {**_LEGEND, "right": 0},
        "xAxis": {"type": "time", "axisLabel": {**_LABEL, "hideOverlap": True}, "splitLine": {"show": False}},
        "yAxis": {
            "type": "value",
            "name": unit,
            "nameTextStyle": {"color": _DIM, "align": "left"},
            "min": 0,
            "axisLabel": _LABEL,
            "splitLine": _GRID_LINES,
        },
        "series": lines,
    }


def result_chart(rows: pl.DataFrame) -> dict[str, Any] | None:
    """A result as bars: its last number (keys come first) by its first text, the greatest first; None if it has no
    number or no text."""
    numbers = [name for name, dtype in rows.schema.items() if dtype.is_numeric() and name != "rank"]
    texts = [name for name, dtype in rows.schema.items() if dtype == pl.String and name not in numbers]
    if not numbers or not texts or not rows.height:
        return None
    value, label = numbers[-1], next((t for t in texts if rows[t].n_unique() > 1), texts[0])
    best = rows.drop_nulls(value).sort(value, descending=True).head(_MAX_BARS).reverse()
    by = [label]
    if best[label].n_unique() < best.height:  # one text several times: the other columns distinguish the bars
        by += [name for name in (*texts, *numbers[:-1]) if name != label]
    bars = {
        "name": value,
        "type": "bar",
        "data": best[value].to_list(),
        "barMaxWidth": 18,
        "itemStyle": {"borderRadius": [0, 4, 4, 0]},
    }
    return _base() | {
        "grid": _grid(top=8, bottom=8, right=24),
        "tooltip": {"trigger": "axis", "confine": True},
        "legend": {"show": False},
        "xAxis": _value_axis(),
        "yAxis": _categories([_short(" ".join(map(str, parts))) for parts in best.select(by).iter_rows()]),
        "series": [bars],
    }


def stacked_bars(
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    points: Sequence[tuple[float, str]],
    limit: float | None,
) -> dict[str, Any]:
    """Sums of seconds as bars of their parts, one bar for each name, with points beside some of them and a line at the
    limit."""
    bars: list[dict[str, Any]] = [
        {"name": part, "type": "bar", "stack": "sum", "barMaxWidth": 18, "data": list(values)}
        for part, values in parts.items()
    ]
    if bars and limit is not None:
        bars[0]["markLine"] = {
            "symbol": "none",
            "silent": True,
            "lineStyle": {"color": _LIMIT, "type": "dashed", "width": 2},
            "label": {"color": _LIMIT, "formatter": f"{limit:g} s", "position": "start"},
            "data": [{"xAxis": limit}],
        }
    measured = {
        "name": "measured",
        "type": "scatter",
        "symbol": "diamond",
        "symbolSize": 11,
        "z": 5,
        "itemStyle": {"color": _LIMIT, "borderColor": "#fff", "borderWidth": 1},
        "data": [[round(seconds, 3), name] for seconds, name in points],
    }
    longest = max([sum(values) for values in zip(*parts.values(), strict=True)], default=0.0)
    right = max([longest, limit or 0.0, *(seconds for seconds, _ in points)])
    return _base() | {
        "color": _PARTS,
        "grid": _grid(top=50, bottom=8, right=24),
        "tooltip": {"trigger": "item", "confine": True},
        "legend": {**_LEGEND, "right": 0, "type": "scroll", "left": 0},
        "xAxis": _value_axis(formatter="{value} s", showMaxLabel=False) | {"max": round(1.05 * right, 1)},
        "yAxis": _categories(names) | {"inverse": True},
        "series": [*bars, measured] if points else bars,
    }


def heat_map(engine: schemas.EngineFacts, by: str, limit: int = 12) -> dict[str, Any] | None:
    """The buckets of the busiest stages, by their `work`, `state` or `slice`."""
    kinds = {"work": "bucket_seconds", "state": "bucket_bytes", "slice": "bucket_map"}
    stages = [(name, stage) for name, stage in engine.sub_queries.items() if stage.bucket_map]
    stages.sort(key=lambda one: -sum(one[1].bucket_seconds))
    stages = stages[:limit][::-1]
    if not stages:
        return None
    cells = [
        [bucket, row, value]
        for row, (_, stage) in enumerate(stages)
        for bucket, value in enumerate(getattr(stage, kinds[by]))
    ]
    buckets = max(len(stage.bucket_map) for _, stage in stages)
    return {
        "animation": False,
        "textStyle": _LABEL,
        "tooltip": {"confine": True},
        "grid": _grid(top=8, bottom=50, right=12),
        "xAxis": {"type": "category", "data": list(range(buckets)), "axisLabel": _LABEL, "name": ""},
        "yAxis": {"type": "category", "data": [_short(name, 18) for name, _ in stages], "axisLabel": _LABEL},
        "visualMap": {
            "min": 0,
            "max": max((cell[2] for cell in cells), default=0) or 1,
            "orient": "horizontal",
            "left": "center",
            "bottom": 0,
            "itemHeight": 120,
            "itemWidth": 12,
            "textStyle": _LABEL,
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


# -- parts ---------------------------------------------------------------------------------------


def _base() -> dict[str, Any]:
    return {"animation": False, "color": COLOURS, "textStyle": _LABEL}


def _grid(**margins: int) -> dict[str, Any]:
    return {"left": 8, "containLabel": True, **margins}


def _value_axis(**label: Any) -> dict[str, Any]:
    return {"type": "value", "axisLabel": {**_LABEL, "hideOverlap": True, **label}, "splitLine": _GRID_LINES}


def _categories(names: Sequence[str]) -> dict[str, Any]:
    return {"type": "category", "data": list(names), "axisLabel": _LABEL, "axisTick": {"show": False}}


def _short(text: str, limit: int = 30) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
