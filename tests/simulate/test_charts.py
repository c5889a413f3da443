"""A chart is valid SVG that shows every curve, mark and name, with no more points than needed."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from penstock.simulate.chart import Bars, Chart, Curve, Curves, Lanes, Mark, Shares
from penstock.simulate.charts import bars, curves, draw_sheet

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_long_curves_keep_their_peaks_in_few_points() -> None:
    at = np.arange(100_000.0)
    values = np.ones(at.size)
    values[54_321], values[10] = 7, math.nan
    svg = draw_sheet("t", [Curves("p", at, [Curve("l", values, "red")], clock=True)])
    assert len(svg) < 40_000
    ys = {float(y) for y in re.findall(r"L[\d.]+,([\d.]+)", svg)}
    assert len(ys) == 2  # the level, and the peak
    assert draw_sheet("t", [Curves("p", at, [Curve("l", np.zeros(at.size), "red")])])


def test_a_gap_in_the_values_is_a_gap_in_the_curve() -> None:
    svg = draw_sheet("t", [Curves("p", range(5), [Curve("l", [1, 2, math.nan, 2, 1], "red")])])
    path = next(part for part in svg.splitlines() if part.startswith("<path"))
    assert path.count("M") == 2
    assert "nan" not in svg


def test_steps_are_drawn_as_steps() -> None:
    svg = draw_sheet("t", [Curves("p", range(4), [Curve("l", [1.0, 1, 3, 3], "red", steps=True)])])
    path = next(part for part in svg.splitlines() if part.startswith("<path"))
    assert "H" in path
    assert path.count("V") == 1


def test_marks_cross_all_charts_and_are_counted_by_kind() -> None:
    chart = Curves("p", [0.0, 600.0], [Curve("", [1, 2], "red")], clock=True, high=100)
    marks = [Mark(60, "move", "blue", "why <not>"), Mark(300, "move", "blue", "again")]
    svg = draw_sheet("t", [chart, chart], marks)
    assert "move, 2 times" in texts(svg)
    assert [title.text for title in ElementTree.fromstring(svg).iter(f"{SVG}title")] == ["why <not>", "again"]
    lines = [line for line in ElementTree.fromstring(svg).iter(f"{SVG}line") if line.get("stroke") == "blue"]
    assert any(float(line.get("y2", "")) - float(line.get("y1", "")) > 200 for line in lines)


def test_a_level_is_named_and_a_percentage_is_shown_as_one() -> None:
    chart = Curves(
        "p", [0, 1], [Curve("", [0.2, 0.9], "red")], levels=[("upper", 0.8)], percent=True, most=1.0
    )
    shown = texts(draw_sheet("t", [chart]))
    assert {"upper", "0%", "100%"} <= set(shown)


def test_bars_are_sorted_and_their_lengths_follow_their_values() -> None:
    svg = bars("speed", "events/s", {"slow": 1_500, "ours": 2_000_000, "mid": 30_000}, "ours")
    shown = texts(svg)
    assert [name for name in shown if name in ("slow", "ours", "mid")] == ["ours", "mid", "slow"]
    assert "2M events/s" in shown
    widths = [float(r.get("width", "")) for r in ElementTree.fromstring(svg).iter(f"{SVG}rect")][1:]
    assert widths == sorted(widths, reverse=True)
    assert "1k" in shown


def test_equal_ratios_are_equal_distances_on_logarithmic_axes() -> None:
    svg = curves("t", "keys", "cost", {"one": [(1, 1), (10, 10), (100, 100)], "other": [(1, 2), (100, 2)]})
    (path, other) = (part for part in svg.splitlines() if part.startswith("<path"))
    points = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+),([\d.]+)", path)]
    steps = np.diff(np.array(points), axis=0)
    assert steps[0] == pytest.approx(steps[1], abs=0.15)
    assert {"one", "other", "keys", "cost"} <= set(texts(svg))
    assert other.count("M") == 2  # two separate points


@pytest.mark.parametrize(
    "chart",
    [
        Lanes("l", [0.0, 10.0, 20.0], [0, 1, 0], ["a & b", "c"], ["red", "blue"], [(12.0, "green")]),
        Shares("s", ["1", "2"], [("a & b", "red", [0.4, 1.0]), ("c", "blue", [0.6, 0.0])], x_title="x"),
        Bars("b", "s", {"a & b": 1.0}, {"a & b": "red"}),
        Curves("c", [1, 5, 100], [Curve("a & b", [1, 2, 3], "red", dots=True)] * 2, even=True),
    ],
    ids=lambda chart: type(chart).__name__,
)
def test_every_kind_of_chart_shows_its_names(chart: Chart) -> None:
    svg = draw_sheet("a < b", [chart])
    assert {"a < b", "a & b"} <= set(texts(svg))
    assert float(ElementTree.fromstring(svg).get("height", "0")) > 80
