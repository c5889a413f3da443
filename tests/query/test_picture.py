"""A query drawn and its strategies count_operators."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock import col
from penstock.cli.commands import app as cli
from penstock.errors import UserError
from penstock.query.compile import compile_app
from penstock.query.picture import draw_plan
from penstock.query.strategies import Cluster, count_operators, strategies

APP = """
import penstock as ps
rows = ps.stream("clicks", ps.generated(total=1, live=False), ps.combined_log(), time="time")
app = ps.app("a<b", ps.output("late", rows.late()), ps.output("hosts", rows.key_by("host").window("5s").count()))
"""


def shop() -> ps.App:
    events = ps.stream("clicks", ps.generated(total=1, live=False), ps.combined_log(), time="time")
    good = events.filter(col("status") == 200)
    last = good.key_by("host").last(3, "path").map(pattern=col("path").list.join(">"))
    sums = last.key_by("host").running("5s").count("patterns")
    top = last.key_by("pattern").running("10s").count().top(10)
    return ps.app("shop", ps.output("top", top), ps.output("sums", sums))


def test_a_picture_is_whole_and_names_every_part() -> None:
    drawn = draw_plan(compile_app(shop()))
    root = ElementTree.fromstring(drawn)
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for part in (
        "stream clicks",
        "1-last-n",
        "2-running-aggregate",
        "3-running-aggregate",
        "output top",
        "output sums",
    ):
        assert part in texts
    assert "forward" in texts
    assert "by pattern, reduced" in texts


def test_the_seeds_cost_model() -> None:
    """StreamCloud's Figure 1: six operators, two of them stateful, on 90 nodes."""
    app = shop()
    assert count_operators(app) == (6, 3)
    found = {s.name: (s.subclusters, s.fan_out, s.hops, s.cost) for s in strategies(app, Cluster(90, 1000))}
    assert found == {
        "query-cloud": (1, 90 * 89, 3, 90 * 89 + 3000),
        "operator-cloud": (6, 90 / 6 * 5, 5, 75 + 5000),
        "operator-set-cloud": (4, 90 / 4 * 3, 3, 67.5 + 3000),
    }


def test_a_cluster_without_nodes_is_refused() -> None:
    with pytest.raises(UserError, match="BAD_OPTION"):
        strategies(shop(), Cluster(0, 1))


def test_the_command_draws_and_counts(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(APP)
    drawn = tmp_path / "query.svg"
    result = CliRunner().invoke(
        cli, ["explain", str(tmp_path / "shown.py"), "--svg", str(drawn), "--strategies", "--nodes", "8"]
    )
    assert result.exit_code == 0, result.output
    assert "operator-set-cloud" in result.output
    assert "on 8 nodes" in result.output
    ElementTree.fromstring(drawn.read_text())
