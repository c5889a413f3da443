"""A run's picture is whole SVG with every panel, every decision, and no more points than are needed."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np

from penstock.elastic.pictures import picture
from penstock.elastic.plot import Line, Mark, Panel, plotted
from penstock.elastic.simulate import Run, simulate
from penstock.elastic.traces import Trace

SVG = "{http://www.w3.org/2000/svg}"


def test_a_run_is_drawn_with_its_decisions() -> None:
    one = simulate(Run(Trace("spike"), hours=0.5))
    drawn = ElementTree.fromstring(picture(one, "a < b & c"))
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert {"a < b & c", "load, events a second", "executors", "utilisation", "provision"} <= set(texts)
    titles = [title.text or "" for title in drawn.iter(f"{SVG}title")]
    assert len(titles) == len(one.record.entries) == 2
    assert "more executors" in titles[0]


def test_a_second_run_is_dashed_and_named() -> None:
    run = Run(Trace("step"), hours=0.2)
    text = picture(simulate(run), "t", simulate(run), ("this", "that"))
    assert text.count(">that</text>") >= 2
    assert "stroke-dasharray" in text


def test_long_lines_keep_their_peaks_in_few_points() -> None:
    at = np.arange(100_000.0)
    values = np.ones(at.size)
    values[54_321] = 7
    text = plotted("t", at, [Panel("p", [Line("l", values, "red")])], [Mark(5, "k", "blue", "why")])
    assert len(text) < 40_000
    ElementTree.fromstring(text)
    assert plotted("t", at, [Panel("p", [Line("l", np.zeros(at.size), "red")])])


def test_steps_are_drawn_as_steps() -> None:
    at = np.arange(4.0)
    text = plotted("t", at, [Panel("p", [Line("l", np.array([1.0, 1, 3, 3]), "red", steps=True)])])
    path = next(part for part in text.splitlines() if part.startswith("<path"))
    assert "H" in path
    assert path.count("V") == 1
