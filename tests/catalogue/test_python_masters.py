"""Code that other processes accept: coordinators of the same jobs, followers, an engine that was replaced."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.catalogue.code import read_bundle
from penstock.catalogue.code_requests import create_from
from penstock.catalogue.code_store import CodeStore
from penstock.catalogue.program import Program
from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.state.directory import StateDirectory
from penstock.state.generation import FencedDirectory
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.python_kit import Files, create

EVENTS = kit.events(120)
SQL = "CREATE JOB stay AS SELECT page FROM clicks"
LOUD = """
import marks

def loud(rows):
    return rows.with_columns(page=pl.col("page") + marks.MARK)

query = clicks.map_batches(loud).select("page")
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path / "given", EVENTS)
    files.write("MARK = '!'\n", "marks.py", head=False)
    return files


def build_program(state: Path, files: Files, *, follows: bool = False, shared: bool = False) -> Program:
    return Program("t", state, streams={"clicks": files.stream}, begin=SQL, follows=follows, shared=shared)


def test_an_engine_runs_the_code_that_a_coordinator_accepted(files: Files, tmp_path: Path) -> None:
    state, file = tmp_path / "state", files.write(LOUD)
    owner = build_program(state, files)
    engine = InlineEngine(owner, state, epoch_units=1800)
    first = engine.step()
    coordinator = build_program(state, files, follows=True)
    coordinator.join()
    create(coordinator, "loud", file)
    file.unlink()
    (files.folder / "marks.py").unlink()
    emitted = kit.emitted_rows([r for r in [first, *engine.steps()] if r])
    assert emitted["loud"]
    assert set(emitted["loud"]) <= {(f"/{page}!",) for page in "abcd"}
    assert kit.life(owner, "loud") == "running"
    third = build_program(state, files, follows=True)
    third.join()
    assert third.questions.compiled("loud").schema.keys() == {"page"}
    engine.close()


def test_a_promoted_follower_has_the_code(files: Files, tmp_path: Path) -> None:
    state = tmp_path / "state"
    leader = build_program(state, files)
    engine = InlineEngine(leader, state, epoch_units=1800)
    engine.step()
    commands = leader.commands
    follower = build_program(state, files)
    follower.start(follows=True)
    follower.open(StateDirectory(state).read_existing_facts().id, lambda name, scan: None, commands)
    create(leader, "loud", files.write(LOUD))
    follower.follow_commands(leader.commands)
    assert "loud" in follower.epochs.plan(leader.commands).outputs
    engine.close()
    follower.lead(leader.commands)
    assert kit.life(follower, "loud") == "running"
    follower.close()


def test_one_of_two_concurrent_creations_of_a_job_is_refused(files: Files, tmp_path: Path) -> None:
    state = tmp_path / "state"
    InlineEngine(build_program(state, files), state).close()
    both = [build_program(state, files, follows=True) for _ in range(2)]
    requests = []
    for number, one in enumerate(both):
        one.join()
        requests.append(create_from("loud", files.write(LOUD.replace("+", "+" + " " * number)), "query"))
    outcomes: list[str] = []
    ready = threading.Barrier(2)

    def submit(number: int) -> None:
        ready.wait()
        try:
            outcomes.append(both[number].submit(requests[number])[0].message.split(";")[0])
        except PenstockError as error:
            outcomes.append(error.condition)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["NAME_TAKEN", "created job loud"]
    with_code = build_program(state, files, follows=True)
    with_code.join()
    assert CodeStore(state).has(next(iter(with_code.catalogue.code)))


def test_an_engine_that_was_replaced_stores_no_code(files: Files, tmp_path: Path) -> None:
    bundle, store = read_bundle(files.write(LOUD)), CodeStore(tmp_path / "state")
    old, new = (FencedDirectory(tmp_path / "state" / "generations") for _ in range(2))
    old.take_over()
    store.put(bundle, old)
    assert store.get(bundle.digest).files.keys() == {"app.py", "marks.py"}
    store.keep_only([], grace_seconds=0)
    new.take_over()
    with pytest.raises(ExternalError, match="FENCED"):
        store.put(bundle, old)
    assert not store.has(bundle.digest)
    store.put(bundle, new)
    assert store.get(bundle.digest) == bundle


@pytest.mark.parametrize("damage", ["changed", "missing", "manifest", "another"])
def test_damaged_code_is_detected(damage: str, files: Files, tmp_path: Path) -> None:
    bundle, store = read_bundle(files.write(LOUD)), CodeStore(tmp_path / "state")
    store.put(bundle)
    place = store.place(bundle.digest)
    match damage:
        case "changed":
            (place / "marks.py").write_text("MARK = '?'\n")
        case "missing":
            (place / "marks.py").unlink()
        case "manifest":
            (place / "manifest.json").write_text("{")
        case "another":
            other = read_bundle(files.write(LOUD + "\n"))
            store.put(other)
            for file in place.iterdir():
                file.write_bytes((store.place(other.digest) / file.name).read_bytes())
    with pytest.raises(InternalError, match="STATE_DAMAGED"):
        store.get(bundle.digest)


def test_code_that_other_users_can_write_is_not_executed(files: Files, tmp_path: Path) -> None:
    bundle, store = read_bundle(files.write(LOUD)), CodeStore(tmp_path / "state")
    before = os.umask(0o002)
    try:
        store.put(bundle)
    finally:
        os.umask(before)
    assert store.get(bundle.digest) == bundle, "only its owner can write it, whatever the umask"
    for place in (tmp_path / "state" / "code", store.place(bundle.digest) / "marks.py"):
        mode = place.stat().st_mode
        place.chmod(0o777)
        with pytest.raises(UserError, match="CODE_NOT_TRUSTED"):
            store.get(bundle.digest)
        place.chmod(mode)
    assert store.get(bundle.digest) == bundle


def test_code_that_is_removed_while_its_command_is_written_is_stored_again(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = build_program(tmp_path / "state", files)
    engine = InlineEngine(owner, tmp_path / "state")
    append = owner._intake.history.log.append

    def remove_code_and_append(*arguments: object) -> int | None:
        CodeStore(tmp_path / "state").keep_only([], grace_seconds=0)
        return append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(owner._intake.history.log, "append", remove_code_and_append)
    create(owner, "loud", files.write(LOUD))
    assert CodeStore(tmp_path / "state").has(next(iter(owner.catalogue.code)))
    engine.close()
