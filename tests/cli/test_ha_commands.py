"""`penstock ha`: what it prints, draws and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import commands as cli

SHORT = ["--trace", "spikes", "--hours", "0.5", "--kills", "4"]


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(["ha", *arguments])
    return int(end.value.code or 0)


def test_a_simulated_run_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "run.svg"
    assert exit_code("simulate", *SHORT, "--compare", "--svg", str(picture)) == 0
    output = capsys.readouterr().out
    assert "4 of 4" in output
    assert "active-replication to deployed" in output
    assert "passive-replication" in output
    assert picture.read_text().startswith("<svg")


def test_a_simulated_run_as_json_ends_with_its_totals(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--costs",
        "cpu=1,engines=0.1",
        "--threshold",
        "6s",
        "--state",
        "20MB",
        "--checkpoint-every",
        "auto",
    ]
    assert exit_code("simulate", *SHORT, *options, "--json") == 0
    *decisions, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert decisions[0]["before"] == "active-replication"
    assert {"reason", "inputs", "considered"} <= set(decisions[0])
    assert last["figures"]["kept"] == last["figures"]["recoveries"] == 4


def test_a_sweep_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "sweep.svg"
    short = ["--hours", "0.1", "--kills", "1"]
    assert exit_code("sweep", "--by", "interval", *short, "--svg", str(picture)) == 0
    assert "passive-hot" in capsys.readouterr().out
    assert picture.exists()
    assert exit_code("sweep", "--by", "threshold", *short, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["threshold_seconds"] < rows[-1]["threshold_seconds"]


def test_the_schemes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("schemes") == 0
    assert "passive-cold" in capsys.readouterr().out
    assert exit_code("schemes", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert len(output["schemes"]) == 6
    assert set(output["semantics"]) == {"precise", "rollback", "gap", "amnesia"}


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (["--costs", "cheap"], "BAD_COST_WEIGHTS"),
        (["--threshold", "soon"], "BAD_DURATION"),
        (["--threshold", "0s"], "BAD_OPTION"),
        (["--threshold", "-5"], "BAD_DURATION"),
        (["--state", "huge"], "BAD_SIZE"),
        (["--trace", "holiday"], "NO_SUCH_TRACE"),
        (["--kills", "100000"], "TOO_MANY_KILLS"),
        (["--checkpoint-every", "0"], "BAD_OPTION"),
        (["--start-up", "0s"], "BAD_MODEL"),
    ],
    ids=str,
)
def test_invalid_options_of_a_failure_simulation_are_refused(
    arguments: list[str], condition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("simulate", *arguments) == 2
    assert f"[{condition}]" in capsys.readouterr().err


def test_an_unwritable_picture_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("simulate", *SHORT, "--svg", str(tmp_path / "no" / "where.svg")) == 3
    assert "[FILE_UNWRITABLE]" in capsys.readouterr().err
