"""Renders charts as options of ECharts, in colours that are readable on light and on dark pages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from penstock.server import response_bodies as schemas

_DIM, _GRID = "#8593a8", "rgba(133,147,168,0.22)"
COLOURS = ["#1c7ed6", "#f08c00", "#2f9e44", "#ae3ec9"]
#: the colours of the parts of a sum
_PARTS = ["#1c7ed6", "#f08c00", "#2f9e44", "#ae3ec9", "#12b886", "#e64980", "#7950f2", "#fab005", "#868e96"]
_LIMIT = "#e03131"
#: bars of a result that are shown
_MAX_BARS = 12
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
    names = [_short(" ".join(map(str, parts))) for parts in best.select(by).iter_rows()]
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
    return _base() | {
        "color": _PARTS,
        "grid": {"left": 8, "right": 24, "top": 50, "bottom": 8, "containLabel": True},
        "tooltip": {"trigger": "item", "confine": True},
        "legend": {**_base()["legend"], "type": "scroll", "left": 0},
        "xAxis": {
            "type": "value",
            "max": round(1.05 * max([longest, limit or 0.0, *(seconds for seconds, _ in points)]), 1),
            "axisLabel": {
                "color": _DIM,
                "hideOverlap": True,
                "formatter": "{value} s",
                "showMaxLabel": False,
            },
            "splitLine": {"lineStyle": {"color": _GRID}},
        },
        "yAxis": {
            "type": "category",
            "inverse": True,
            "data": list(names),
            "axisLabel": {"color": _DIM},
            "axisTick": {"show": False},
        },
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
        "textStyle": {"color": _DIM},
        "tooltip": {"confine": True},
        "grid": {"left": 8, "right": 12, "top": 8, "bottom": 50, "containLabel": True},
        "xAxis": {"type": "category", "data": list(range(buckets)), "axisLabel": {"color": _DIM}, "name": ""},
        "yAxis": {
            "type": "category",
            "data": [_short(name, 18) for name, _ in stages],
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


def _short(text: str, limit: int = 30) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
