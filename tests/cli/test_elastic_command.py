"""`penstock elastic simulate` prints and draws a simulated run, and refuses invalid options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app
from penstock.cli.scaling_options import load_manager
from penstock.errors import UserError


def simulate(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["elastic", "simulate", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_spike_is_printed_as_tables_and_drawn(tmp_path: Path) -> None:
    svg = tmp_path / "spike.svg"
    output = simulate("--trace", "spike", "--hours", "0.5", "--svg", str(svg))
    assert "more executors" in output
    assert "executor hours" in output
    assert svg.read_text().startswith("<svg")


def test_json_is_one_object_a_line() -> None:
    lines = [
        json.loads(line) for line in simulate("--trace", "spike", "--hours", "0.5", "--json").splitlines()
    ]
    assert [line["decision"] for line in lines[:-1]] == ["provision", "decommission"]
    assert lines[-1]["figures"]["provisions"] == 1


def test_two_runs_are_compared() -> None:
    output = simulate("--trace", "step", "--hours", "0.2", "--against", "off", "--json")
    last = json.loads(output.splitlines()[-1])
    assert last["against"]["provisions"] == 0
    assert "largest_step=1" in simulate("--trace", "step", "--hours", "0.2", "--against", "largest_step=1")


def test_settings_may_be_repeated_or_listed(tmp_path: Path) -> None:
    options = ["--settings", "dry_run=true,cool_down_seconds=2m", "--settings", "largest_step=3"]
    output = simulate("--trace", "step", "--hours", "0.2", "--executors", "2..30", *options, "--json")
    first = json.loads(output.splitlines()[0])
    assert (first["outcome"], first["count"]) == ("dry run", 3)


def test_a_run_without_decisions_is_reported() -> None:
    assert "no decisions" in simulate("--trace", "steady", "--hours", "0.2", "--noise", "0.1")


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (("--trace", "none.csv"), "NO_SUCH_TRACE"),
        (("--settings", "upper_utilisation=0.3"), "BAD_ELASTIC_SETTINGS"),
        (("--executors", "some"), "BAD_OPTION"),
        (("--executors", "9..3"), "BAD_ELASTIC_SETTINGS"),
        (("--spread", "odd"), "NO_SUCH_SPREAD"),
        (("--manager", "none.py"), "NO_MANAGER"),
    ],
)
def test_invalid_options_of_a_simulation_are_refused(arguments: tuple[str, ...], condition: str) -> None:
    with pytest.raises(UserError) as caught:
        simulate(*arguments)
    assert caught.value.condition == condition


MINE = """
from penstock.scaling import Provision

class Mine:
    def decide(self, now):
        return [Provision(1, "as I like it")]
"""


def test_a_users_manager_is_loaded_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    assert "as I like it" in simulate("--hours", "0.1", "--manager", str(file))


@pytest.mark.parametrize(
    "text", ["x = 1", MINE + MINE.replace("Mine", "Other"), "raise ValueError(3)", "a b"]
)
def test_a_file_without_one_manager_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_manager(file)
    assert caught.value.condition == "NO_MANAGER"
