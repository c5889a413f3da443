"""Peers' programs give the same answers on a tiny input, each in its own environment where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import data, feeder, growth
from bench.peers.comparison import Comparison, Size, chosen, commit
from bench.peers.environments import install, interpreter
from bench.peers.programs import program
from bench.peers.raw import Run, write_run
from bench.peers.roster import PEERS, PROGRAMS, WORKLOADS, Peer, left_out
from bench.peers.watched import watched

EVENTS = 4_000
OWN = ("duckdb", "bytewax", "pathway", "flink-sql", "flink-python")
CASES = ("patterns", "windows", "clients", "join", "taxi", "jobs")
KINDS: dict[str, data.Kind] = {"join": "calls", "taxi": "trips"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


def answered(peer: Peer, case: str, inputs: Path, place: Path, **env: str) -> dict[str, object]:
    """What a program says, run by itself."""
    python = interpreter(peer)
    if isinstance(python, str):
        pytest.skip(f"{peer.title}: {python}")
    source = data.made(KINDS.get(case, "clicks"), EVENTS, inputs)
    out = place / "out.json"
    command = [str(python), str(peer.path), case, str(source), str(out), "--jobs", "3"]
    own = {} if peer.packages else {"PYTHONPATH": os.pathsep.join(map(str, (PROGRAMS.parents[2], PROGRAMS)))}
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**variables, **own, **env},
        cwd=place,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    output = json.loads(out.read_text())
    assert output["seconds"] > 0
    return dict(output["answer"])


def right(case: str, inputs: Path) -> dict[str, object]:
    """The answer of the plain batch program."""
    known = inputs / f"{case}.json"
    if not known.exists():
        place = inputs / case
        place.mkdir(exist_ok=True)
        known.write_text(json.dumps(answered(PEERS["polars"], case, inputs, place)))
    return dict(json.loads(known.read_text()))


@pytest.mark.process
@pytest.mark.parametrize("case", CASES)
def test_penstock_agrees_with_the_plain_batch_program(case: str, inputs: Path, tmp_path: Path) -> None:
    expected = right(case, inputs)
    assert expected["rows"]
    assert answered(PEERS["penstock"], case, inputs, tmp_path, PEER_MASTER="inline") == expected


def agrees(name: str, case: str, inputs: Path, place: Path) -> None:
    workload = next(workload for workload in WORKLOADS.values() if workload.program == case)
    if (reason := left_out(PEERS[name], workload)) is not None:
        pytest.skip(f"{name} has no program for {case}: {reason}")
    assert answered(PEERS[name], case, inputs, place) == right(case, inputs)


@pytest.mark.may_skip("the environments of the peers")
@pytest.mark.parametrize("name", [name for name in OWN if "flink" not in name])
@pytest.mark.timeout(240)
def test_a_peer_agrees_where_its_environment_is(name: str, inputs: Path, tmp_path: Path) -> None:
    agrees(name, "patterns", inputs, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [*OWN, "pyspark"])
@pytest.mark.timeout(600)
def test_a_peer_agrees_in_all_cases(name: str, case: str, inputs: Path, tmp_path: Path) -> None:
    agrees(name, case, inputs, tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_comparison_goes_on_where_it_stopped(inputs: Path, tmp_path: Path) -> None:
    size = Size(events=EVENTS, runs=1, limit_seconds=250)
    comparison = Comparison(size, tmp_path, inputs, lambda _: None)
    (first,) = comparison.run(chosen(["windows:polars"]))
    assert (first.peer, first.status) == ("polars", "ok"), first
    pairs = chosen(["windows:polars", "windows:penstock"])
    (second,) = comparison.run(pairs)
    assert (second.peer, second.status) == ("penstock", "ok"), second
    assert second.wall > second.seconds > 0
    assert second.peak_bytes > 100_000_000
    assert list(comparison.run(pairs)) == []


@pytest.mark.process
def test_runs_on_a_busy_machine_are_made_again_where_that_is_wanted(inputs: Path, tmp_path: Path) -> None:
    def made(**how: bool) -> list[Run]:
        size = Size(events=EVENTS, runs=1, limit_seconds=250)
        return list(Comparison(size, tmp_path, inputs, lambda _: None, **how).run(chosen(["windows:polars"])))

    (first,) = made()
    calm, busy = (replace(first, others=others, began="2020-01-01T00:00:00+00:00") for others in (0.1, 0.9))
    write_run(busy, tmp_path)
    assert made() == []
    (again,) = made(busy_again=True)
    assert again.began >= first.began
    write_run(calm, tmp_path)
    assert made(busy_again=True) == []
    write_run(replace(busy, status="timeout"), tmp_path)
    assert [run.status for run in made(busy_again=True)] == ["ok"]


@pytest.mark.process
def test_a_wrong_answer_and_a_slow_program_are_caught(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PEERS["polars"].path.read_text()
    wrong = tmp_path / "programs"
    wrong.mkdir()
    for name in ("program.py", "taxi_routes.py"):
        (wrong / name).write_text((PROGRAMS / name).read_text())
    (wrong / "penstock_program.py").write_text(text.replace('pl.col("rank") <= TOP', 'pl.col("rank") < TOP'))
    (wrong / "pyspark_program.py").write_text("import time\ntime.sleep(60)\n")
    (wrong / "bytewax_program.py").write_text("raise SystemExit('not today')\n")
    (wrong / "duckdb_batch.py").write_text("raise SystemExit('no such thing')\n")

    def elsewhere(peer: Peer) -> Path:
        return PROGRAMS / peer.program if peer.name == "polars" else wrong / peer.program

    monkeypatch.setattr(Peer, "path", property(elsewhere))
    monkeypatch.setattr("bench.peers.comparison.interpreter", lambda peer: Path(sys.executable))
    monkeypatch.setattr("bench.peers.comparison.code_lines", lambda peer, workload: 1)
    quick = Comparison(
        Size(events=EVENTS, runs=2, limit_seconds=30), tmp_path / "raw", inputs, lambda _: None
    )
    runs = list(quick.run(chosen(["windows:polars", "windows:penstock", "windows:duckdb"])))
    assert [(run.peer, run.status) for run in runs][:3] == [
        ("polars", "ok"),
        ("duckdb", "failed"),
        ("penstock", "wrong"),
    ]
    assert "no such thing" in runs[1].reason
    slow = Comparison(Size(events=EVENTS, runs=2, limit_seconds=1), tmp_path / "raw", inputs, lambda _: None)
    found: list[Run] = list(slow.run(chosen(["windows:pyspark"])))
    assert [run.status for run in found] == ["timeout"]  # and no second run
    fewer = list(quick.run(chosen(["windows:bytewax"])))
    assert [(run.peer, run.events) for run in fewer] == [
        ("polars", EVENTS // 4),
        ("penstock", EVENTS // 4),
        ("bytewax", EVENTS // 4),
    ], "who gets fewer events is compared with Penstock on as many"
    assert {run.made_by for run in fewer} == {commit()}


def test_a_peer_that_cannot_be_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter(PEERS["bytewax"], tmp_path) == "it is not installed here; --install does it"
    assert interpreter(PEERS["polars"], tmp_path) == Path(sys.executable)
    monkeypatch.setattr(sys, "version_info", (3, 19))
    reason = interpreter(PEERS["bytewax"], tmp_path)
    assert reason == "it has packages for Python up to 3.12, here is 3.19"
    assert install(PEERS["bytewax"], lambda _: None, tmp_path) == reason


@pytest.mark.process
def test_all_processes_of_a_program_are_counted_and_ended(tmp_path: Path) -> None:
    child = (
        "import time; held = bytearray(60_000_000); held[::4096] = b'x' * len(held[::4096]); time.sleep(60)"
    )
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    )
    done = watched([sys.executable, "-c", parent], os.environ, tmp_path / "log", 3, tmp_path)
    assert done.code is None
    assert done.peak_bytes > 60_000_000
    mine = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
    assert child not in mine


def test_input_has_every_line_once_and_keys_in_one_part(inputs: Path) -> None:
    place = data.made("clicks", EVENTS, inputs)
    parts = [path.read_bytes().splitlines() for path in sorted((place / "parts").iterdir())]
    assert sum(map(len, parts)) == EVENTS
    keys = [{line.rpartition(b"=")[2] for line in part} for part in parts]
    assert not keys[0] & keys[1]
    pieces = [
        line for path in sorted((place / "pieces").iterdir()) for line in path.read_bytes().splitlines()
    ]
    assert sorted(pieces[:]) == sorted([*parts[0], *parts[1], data.recipe("clicks", EVENTS).closing.rstrip()])


def test_a_live_input_has_the_time_of_its_writing(inputs: Path, tmp_path: Path) -> None:
    source = data.made("clicks", EVENTS, inputs)
    feeder.prepared(tmp_path / "live")
    started_at = int(time.time())
    feeder.feed(source, tmp_path / "live", 1_000, 0.5)
    lines = [
        line for path in (tmp_path / "live" / "parts").iterdir() for line in path.read_text().splitlines()
    ]
    pieces = [
        line for path in (tmp_path / "live" / "pieces").iterdir() for line in path.read_text().splitlines()
    ]
    assert sorted(lines) == sorted(pieces)
    assert len(lines) == 500
    stamps = {line.partition("[")[2][:20] for line in lines}
    times = {time.strftime("%d/%b/%Y:%H:%M:%S", time.gmtime(started_at + more)) for more in range(60)}
    assert stamps <= times


def test_an_answer_does_not_depend_on_order() -> None:
    rows = [(1, "a", 3), (2, "b", 4)]
    assert program.answer(rows) == program.answer(reversed(rows))
    assert program.answer(rows) != program.answer([(1, "a", 3), (2, "b", 5)])
    assert program.answer([rows[0], rows[0]]) != program.answer([rows[0]])


@pytest.mark.process
def test_growth_is_measured_point_by_point(tmp_path: Path) -> None:
    found = list(growth.measure(["epoch"], True, tmp_path, lambda _: None))
    assert [point["at"] for point in found] == [1_000, 3_000]
    assert all(point["cost"] > 0 for point in found)
    assert growth.read(tmp_path) == found
