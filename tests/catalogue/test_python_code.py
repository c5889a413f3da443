"""The code of Python jobs in the state directory: damaged, no longer needed, or open to others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.catalogue.code_requests import create_from
from penstock.catalogue.program import Program
from penstock.cli.state import remove_state_directory
from penstock.errors import PenstockError
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.kit import life
from tests.catalogue.python_kit import ERRORS, WINDOWS, Files, alter, create, own_file, running

EVENTS = kit.events(200)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "given", EVENTS)


def test_damaged_code_fails_its_job_alone(files: Files, tmp_path: Path) -> None:
    stay = "CREATE JOB stay AS SELECT page FROM clicks"
    with running(tmp_path / "s", stay, stream=files.stream) as (jobs, engine):
        create(jobs, "errors", files.write(ERRORS))
        engine.step()
    (stored,) = (tmp_path / "s" / "code").glob("*/app.py")
    stored.write_text(stored.read_text().replace("400", "200"))
    with running(tmp_path / "s", stay, stream=files.stream) as (jobs, engine):
        assert life(jobs, "errors") == "failed"
        assert "STATE_DAMAGED" in str(jobs.catalogue.jobs["errors"].master.error)
        assert kit.emitted_rows(list(engine.steps())).keys() == {"stay"}


def test_code_that_no_job_needs_is_removed_when_commands_are_folded(files: Files, tmp_path: Path) -> None:
    code = tmp_path / "s" / "code"

    def stored_digests() -> set[str]:
        return {place.name for place in code.iterdir() if place.is_dir()}

    with running(tmp_path / "s", stream=files.stream, fold_after=1) as (jobs, engine):
        create(jobs, "errors", files.write(ERRORS))
        alter(jobs, "errors", files.write(ERRORS.replace("400", "500")))
        create(jobs, "gone", files.write(WINDOWS))
        jobs.execute("DROP JOB gone")
        assert len(stored_digests()) == 3
        for _ in range(3):
            engine.step()
        engine.remove_old_state(1)
        assert len(stored_digests()) == 3, "a process may be about to write a command that needs it"
        for place in [*code.glob("*/*"), *code.iterdir()]:
            os.utime(place, (0, 0))
        jobs.execute("PAUSE JOB errors; RESUME JOB errors")
        create(jobs, "later", files.write(WINDOWS))
        needed = jobs.catalogue.code
        list(engine.steps())
        engine.remove_old_state(1)
        assert stored_digests() == needed
        assert len(needed) == 2
    with running(tmp_path / "s", stream=files.stream) as (jobs, _):
        assert life(jobs, "errors") == "running"


def test_an_engine_starts_with_code_that_was_submitted_before(tmp_path: Path) -> None:
    state, file = tmp_path / "state", own_file(tmp_path)
    first = Program("shop", state, shared=True)
    first.join(begin=True)
    first.submit(create_from("hits", file, "hits"))
    engine = InlineEngine(Program("shop", state, shared=True), state)
    assert sum(report.events for report in engine.steps()) == 1
    engine.close()
    remove_state_directory(state)
    assert not state.exists()


def test_stored_code_that_other_users_can_write_prevents_the_start_and_loses_no_state(tmp_path: Path) -> None:
    state, file = tmp_path / "state", own_file(tmp_path)
    jobs = Program("shop", state)
    engine = InlineEngine(jobs, state)
    jobs.submit(create_from("hits", file, "hits"))
    assert sum(report.events for report in engine.steps()) == 1
    engine.close()
    (stored,) = (state / "code").glob("*/*.py")
    stored.chmod(0o664)
    with pytest.raises(PenstockError) as refused:
        InlineEngine(Program("shop", state), state)
    assert refused.value.condition == "CODE_NOT_TRUSTED"
    stored.chmod(0o600)
    again = Program("shop", state)
    engine = InlineEngine(again, state)
    assert (again.catalogue.jobs["hits"].master.life, again.catalogue.jobs["hits"].lost) == ("running", False)
    engine.close()
