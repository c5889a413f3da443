"""Epochs that are recorded and cannot be executed continue after a decision, which every repetition repeats."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from pathlib import Path

import pytest

import penstock as ps
from penstock.catalogue.program_of import program_of
from penstock.errors import ExternalError
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitRecord
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.testing.inline import InlineEngine, run_inline
from tests.catalogue import kit
from tests.cli.kit import run_in_process
from tests.crash import Crashed, crash_at

LINES = {"a": range(0, 40), "b": range(40, 80)}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, numbers in LINES.items():
        text = "".join(json.dumps({"t": f"2026-03-01T12:00:{n % 60:02d}Z", "n": n}) + "\n" for n in numbers)
        (folder / f"{name}.log").write_text(text)
    return folder


def app(logs: Path, out: Path) -> ps.App:
    decoder = ps.json_lines({"t": ps.Datetime("us", "UTC"), "n": ps.Int64()})
    events = ps.stream(
        "events", ps.files(f"{logs}/*.log", finished=True), decoder, time="t", lateness="1h", idle_after=None
    )
    return ps.app("numbers", ps.output("numbers", events.select("n"), ps.jsonl(out)))


def numbers(out: Path) -> list[int]:
    return sorted(
        json.loads(line)["n"] for path in out.glob("*.jsonl") for line in path.read_text().splitlines()
    )


@pytest.mark.parametrize("checkpoint_every", [1, 4])
def test_an_epoch_continues_without_a_file_that_is_gone(
    checkpoint_every: int, logs: Path, tmp_path: Path
) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    options = {"epoch_units": 400, "checkpoint_every": checkpoint_every}
    with crash_at("recorded", 2), pytest.raises(Crashed):
        run_inline(app(logs, out), state, **options)
    delivered = numbers(out)
    (logs / "b.log").unlink()
    for _ in range(2):  # each start ends in the same epoch
        with pytest.raises(ExternalError) as gone:
            run_inline(app(logs, out), state, **options)
    assert gone.value.condition == "LOG_SPAN_GONE"
    (command,) = re.findall("`(penstock recover .*?)`", str(gone.value.hint))

    shown = run_in_process("recover", "show", str(state))
    assert "events" in shown.stdout
    done = run_in_process(*shlex.split(command)[1:])
    assert (done.returncode, done.stderr) == (0, "")
    assert "skipped" in run_in_process("recover", "show", str(state)).stdout
    with crash_at("emitted", 2), pytest.raises(Crashed):
        run_inline(app(logs, out), state, **options)
    run_inline(app(logs, out), state, **options)

    found = numbers(out)
    assert len(found) == len(set(found))
    assert set(found) >= {*LINES["a"], *delivered}
    assert not set(found) >= set(LINES["b"]), "nothing was skipped"
    side = "".join(path.read_text() for path in (state / "leaped").rglob("*.jsonl"))
    assert "no longer has it" in side


@pytest.mark.parametrize("name", ["per_page", "sessions"])
def test_an_epoch_continues_without_an_excluded_job(name: str, tmp_path: Path) -> None:
    events, state = kit.events(120), tmp_path / "state"
    whole = kit.run_all(tmp_path / "whole", kit.clicks(events), kit.STEADY_JOBS, epoch_units=40)
    with (
        kit.running(state, kit.clicks(events), kit.STEADY_JOBS, epoch_units=40) as (_, engine),
        crash_at("recorded", 1),
    ):
        first = engine.step()
        with pytest.raises(Crashed):
            engine.step()
    done = run_in_process("recover", "exclude-job", str(state), name)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"epoch 1 without {name}" in done.stdout
    with kit.running(state, kit.clicks(events), kit.STEADY_JOBS, epoch_units=40) as (jobs, engine):
        rest = [engine.step()]
        assert kit.life(jobs, name) == "failed"
        assert "JOB_EXCLUDED" in str(jobs.catalogue.jobs[name].master.error)
        reply = jobs.execute(f"RESUME JOB {name}")[0]
        assert reply.state == "kept"
        rest += list(engine.steps())
    found = kit.emitted_rows([report for report in [first, *rest] if report is not None])
    others = whole.keys() - {name}
    assert {other: found[other] for other in others} == {other: whole[other] for other in others}
    assert found[name] != whole[name], "it did not see the events of the epoch"


def test_an_epoch_continues_without_an_excluded_output_of_an_app(logs: Path, tmp_path: Path) -> None:
    state, sinks = tmp_path / "state", (tmp_path / "all", tmp_path / "even")

    def two() -> ps.App:
        decoder = ps.json_lines({"t": ps.Datetime("us", "UTC"), "n": ps.Int64()})
        events = ps.stream(
            "events", ps.files(f"{logs}/*.log", finished=True), decoder, time="t", lateness="1h"
        )
        even = events.filter(ps.col("n") % 2 == 0)
        return ps.app(
            "two",
            ps.output("all", events.select("n"), ps.jsonl(sinks[0])),
            ps.output("even", even.select("n"), ps.jsonl(sinks[1])),
        )

    with crash_at("recorded", 1), pytest.raises(Crashed):
        run_inline(two(), state, epoch_units=400)
    before = numbers(sinks[1])
    unknown = run_in_process("recover", "exclude-job", str(state), "odd")
    assert (unknown.returncode, "UNKNOWN_JOB" in unknown.stderr) == (2, True)
    done = run_in_process("recover", "exclude-job", str(state), "even")
    assert (done.returncode, done.stderr) == (0, "")
    assert "epoch 1 without even" in done.stdout
    run_inline(two(), state, epoch_units=400, epochs=2)
    program = program_of(two(), state)
    engine = InlineEngine(program, state, epoch_units=400)
    assert "JOB_EXCLUDED" in str(program.catalogue.jobs["even"].master.error)
    assert numbers(sinks[1]) == before
    assert program.execute("RESUME JOB even")[0].state == "kept"
    list(engine.steps())
    engine.close()
    assert numbers(sinks[0]) == list(range(80))
    assert len(before) < len(numbers(sinks[1])) < 40, "without the epochs in which it was left out"


def test_what_no_waiting_epoch_has_is_refused(logs: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run_inline(app(logs, tmp_path / "out"), state, epoch_units=400)
    assert "No epoch waits" in run_in_process("recover", "show", str(state)).stdout
    no_span = run_in_process("recover", "skip-span", str(state), "--stream", "events", "--partition", "x")
    assert (no_span.returncode, "NO_SUCH_SPAN" in no_span.stderr) == (2, True)
    no_job = run_in_process("recover", "exclude-job", str(state), "numbers")
    assert (no_job.returncode, "UNKNOWN_JOB" in no_job.stderr) == (2, True)
    no_state = run_in_process("recover", "show", str(tmp_path / "nothing"))
    assert (no_state.returncode, "NOT_A_STATE_DIRECTORY" in no_state.stderr) == (2, True)


def test_a_unit_skips_in_the_records_that_its_engines_share(tmp_path: Path) -> None:
    root = tmp_path / "state"
    launch = Launch("paper", str(tmp_path / "store"), "app.py", str(tmp_path))
    with contextlib.closing(Unit.create(root, launch)) as unit:
        unit.create_record(UnitRecord(Scheme.active_standby, str(root)))
        unit.shared_records.take_over(1)
        unit.shared_records.write(0, EpochRecord(Offset(), Offset(0, at={"events": {"x": 5}})))
        for name in ("state", "state/ha/replicas/second"):
            done = run_in_process(
                "recover", "skip-span", str(tmp_path / name), "--stream", "events", "--partition", "x"
            )
            assert done.returncode == (0 if name == "state" else 2), "it is skipped once"
        record = StateDirectory(root, unit.shared_records).records.read(0)
    assert record is not None
    assert list(record.spans) == []
    refused = run_in_process("recover", "exclude-job", str(root), "job")
    assert "UNKNOWN_JOB" in refused.stderr, "its leader is not interrupted for that"


def test_nothing_is_decided_while_an_engine_runs(logs: Path, tmp_path: Path) -> None:
    engine = InlineEngine(app(logs, tmp_path / "out"), tmp_path / "state", epoch_units=400)
    refused = run_in_process(
        "recover", "skip-span", str(tmp_path / "state"), "--stream", "events", "--partition", "x"
    )
    engine.close()
    assert refused.returncode == 3
    assert "STATE_IN_USE" in refused.stderr
