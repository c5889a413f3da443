"""Benchmarks are run from a checkout; what is installed has none of them and says where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from setuptools import find_packages
from typer.main import get_command
from typer.testing import CliRunner

from bench.benchmark import Benchmark, ShowProgress
from bench.cli import bench_app
from bench.peers import growth
from bench.peers.roster import PEERS, WORKLOADS, Peer, code_lines
from penstock.cli import commands as cli

ROOT = Path(__file__).resolve().parents[2]


def run_module(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `./run bench` starts, from any folder."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


#: those that have no cases: peers and growth take workloads, peers and axes by name
UNCASED = {"peers", "growth"}
CASED = sorted(set(get_command(bench_app).commands) - UNCASED)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CASED)
def test_a_benchmark_runs_exactly_the_cases_that_its_command_offers(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of them are wanted where none is named, so one that cannot be run ends a benchmark before its end."""
    offered: list[tuple[Benchmark, list[str]]] = []

    def report(make: Callable[[ShowProgress], Benchmark], wanted: list[str], json: bool) -> None:
        offered.append((make(lambda _: None), wanted))

    monkeypatch.setattr("bench.cli._report", report)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = CliRunner().invoke(bench_app, [name, "--quick"])
    assert done.exit_code == 0, done.output
    ((made, wanted),) = offered
    assert sorted(wanted) == sorted(made.cases())


def test_every_axis_of_growth_can_be_measured() -> None:
    assert set(growth.AXES) == set(growth.COSTS)


@pytest.mark.parametrize("peer", PEERS.values(), ids=lambda peer: peer.name)
def test_a_peer_has_a_program_for_every_workload_that_it_does_not_leave_out(peer: Peer) -> None:
    programs = {workload.program for workload in WORKLOADS.values()}
    assert set(peer.without) <= programs
    having = {workload.program for workload in WORKLOADS.values() if code_lines(peer, workload)}
    assert having >= programs - set(peer.without)


def test_the_packages_of_the_wheel_have_no_benchmarks() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    found = find_packages(str(ROOT), **config)
    assert "penstock.cli" in found
    assert [name for name in found if "bench" in name.split(".")] == []


def test_the_installed_command_says_where_the_benchmarks_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["bench", "clicks", "--json"])
    assert left.value.code == 2
    output = " ".join(capsys.readouterr().err.split())
    assert "[BENCH_MOVED]" in output
    assert "`./run bench clicks --json`" in output


@pytest.mark.process
def test_the_script_starts_a_benchmark_with_the_checkout_on_the_path(tmp_path: Path) -> None:
    shutil.copy(ROOT / "run", tmp_path / "run")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH" "$PENSTOCK_CALLED_AS" "$@"\n')
    python.chmod(0o755)
    for name in ("requirements.lock", "requirements-bench.lock", "pyproject.toml", ".venv/bench-ready"):
        (tmp_path / name).touch()
    sums = subprocess.run(["cksum"], input="", text=True, capture_output=True, check=True).stdout
    (tmp_path / ".venv" / "penstock-ready").write_text(f"{tmp_path}\n{sums}")
    called = [str(tmp_path / "run"), "bench", "clicks", "--json"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for before, path in (({}, f"{tmp_path}"), ({"PYTHONPATH": "/other"}, f"{tmp_path}:/other")):
        done = subprocess.run(called, env={**clean, **before}, capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == [path, called[0], "-m", "bench", "clicks", "--json"], done.stderr


@pytest.mark.process
def test_a_benchmark_s_help_and_errors_name_the_command_of_a_checkout(tmp_path: Path) -> None:
    helped = run_module("clicks", "--help", folder=tmp_path)
    assert helped.returncode == 0
    assert "Usage: ./run bench clicks" in helped.stdout
    unknown = run_module("peers", "--only", "nobody", folder=tmp_path)
    assert unknown.returncode == 2
    assert "[BENCH_UNKNOWN]" in unknown.stderr
