"""The chart of a simulated run shows every panel and every decision."""

from __future__ import annotations

from xml.etree import ElementTree

from penstock.simulate.loads import Trace
from penstock.simulate.scaling import ScalingRun, simulate_scaling
from penstock.simulate.scaling_charts import draw_scaling

SVG = "{http://www.w3.org/2000/svg}"


def test_a_run_is_drawn_with_its_decisions() -> None:
    run = simulate_scaling(ScalingRun(Trace("spike"), hours=0.5))
    svg = ElementTree.fromstring(draw_scaling(run, "a < b & c"))
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert {"a < b & c", "load, events a second", "executors", "utilisation", "provision"} <= set(texts)
    titles = [title.text or "" for title in svg.iter(f"{SVG}title")]
    assert len(titles) == len(run.record.entries) == 2
    assert "more executors" in titles[0]


def test_a_second_run_is_drawn_with_dashes_and_its_name() -> None:
    run = ScalingRun(Trace("step"), hours=0.2)
    text = draw_scaling(simulate_scaling(run), "t", simulate_scaling(run), ("this", "that"))
    assert text.count(">that</text>") >= 2
    assert "stroke-dasharray" in text
