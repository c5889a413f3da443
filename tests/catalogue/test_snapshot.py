"""Commands folded into a snapshot: with the later commands it gives the catalogue that all commands give, wherever the
log is folded or the engine killed."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import (
    AddJob,
    AddStream,
    ChangeQuery,
    ChangeRecovery,
    Command,
    EmptyJob,
    FailJob,
    FlushJob,
    JobCommand,
    PauseJob,
    RememberReplies,
    RememberText,
    RemoveJob,
    RemoveStream,
    Reply,
    ResumeJob,
    SinkCall,
)
from penstock.catalogue.command_log import CommandLog
from penstock.catalogue.program import Program
from penstock.catalogue.snapshot import decode_catalogue, encode_catalogue
from penstock.errors import InternalError, UserError
from penstock.ha.schemes import Semantics
from penstock.state.directory import StateDirectory
from penstock.state.rollback import roll_back
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit

NAMES = ["a", "b", "c", "d"]


def draw_command(draw: random.Random) -> Command:
    name, text, anew = draw.choice(NAMES), f"SELECT {draw.randrange(99)} AS é FROM s", draw.random() < 0.5
    sinks = (SinkCall("jsonl", ("out", 1), {"x": None}),)[: draw.randrange(2)]
    parameters = {"p": draw.choice([1, 0.5, "é", True, None])}
    create = AddJob(name, text, sinks, parameters, draw.choice([None, Semantics.gap]))
    return draw.choice(
        [
            AddStream(name, text),
            RemoveStream(name),
            create,
            create,
            ChangeQuery(name, text, parameters, draw.choice(["kept", "anew", "rebuilt"])),
            ChangeRecovery(name, draw.choice([None, Semantics.amnesia])),
            PauseJob(name),
            ResumeJob(name, anew),
            EmptyJob(name, anew),
            FlushJob(name),
            RemoveJob(name),
            FailJob(name, draw.randrange(1, 4), "broken", draw.choice([None, draw.randrange(1, 9)]), anew),
            RememberText(name, text),
            RememberReplies(name, text, (Reply("done", name, "kept", 7), Reply("2 jobs", question=True))),
        ]
    )


def apply_command(catalogue: Catalogue, command: Command) -> Catalogue | None:
    """The catalogue after a command; None if the command is not valid for it."""
    known = command.name in (catalogue.jobs if isinstance(command, JobCommand) else catalogue.streams)
    always_valid = isinstance(command, RememberText | RememberReplies | FailJob)
    if not always_valid and known == isinstance(command, AddStream | AddJob):
        return None
    try:
        return catalogue.after(command)
    except UserError:
        return None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), cut=st.floats(0, 1))
def test_a_snapshot_and_the_later_commands_give_the_catalogue_of_all_commands(seed: int, cut: float) -> None:
    draw, catalogue = random.Random(seed), Catalogue()
    entries: list[list[Command]] = []
    catalogues = [catalogue]
    while len(entries) < 30:
        entry = []
        for _ in range(draw.randrange(1, 4)):
            command = draw_command(draw)
            after = apply_command(catalogue, command)
            if after is not None:
                catalogue = after
                entry.append(command)
        if entry:
            entries.append(entry)
            catalogues.append(catalogue)
    with tempfile.TemporaryDirectory() as folder:
        log = CommandLog(Path(folder))
        for entry in entries:
            log.append(entry)
        number = round(cut * len(entries))
        log.fold(number, catalogues[number])
        loaded = CommandLog(Path(folder)).load()
    assert (loaded.folded, loaded.entries) == (number, entries[number:])
    restored = loaded.catalogue
    for entry in loaded.entries:
        for command in entry:
            restored = restored.after(command)
    assert restored == catalogue
    assert list(restored.jobs) == list(catalogue.jobs), "plans have the jobs in this order"


def test_a_changed_byte_in_a_snapshot_is_detected(tmp_path: Path) -> None:
    whole = encode_catalogue(Catalogue().after(AddStream("s", "é")))
    for at in range(len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with pytest.raises(ValueError, match=r"."):
            decode_catalogue(bytes(damaged))
    log = CommandLog(tmp_path)
    log.append([AddStream("s", "")])
    log.fold(1, Catalogue())
    path = tmp_path / "commands" / "000000001.snapshot"
    path.write_bytes(path.read_bytes().replace(b'"last":0', b'"last":1'))
    with pytest.raises(InternalError) as error:
        CommandLog(tmp_path).load()
    assert error.value.condition == "STATE_DAMAGED"
    assert "000000001.snapshot" in str(error.value)


SQL = "CREATE JOB per_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS"


def _statements(epoch: int) -> str:
    """The statement that is executed before an epoch."""
    return (
        f"CREATE JOB j{epoch} AS SELECT user FROM clicks WHERE bytes > {epoch * 10}",
        f"ALTER JOB per_page SET WHERE bytes > {epoch}",
        "FLUSH JOB per_page",
    )[epoch % 3]


def _run(state: Path, events: list[kit.Event], *, fold_after: int, restarts: bool) -> Any:
    """The results and the catalogue, with a command before each epoch and old manifests removed after each."""
    while True:
        jobs = Program(
            "test", state, streams={"clicks": kit.clicks(events)}, begin=SQL, fold_after=fold_after
        )
        engine = InlineEngine(jobs, state, epoch_units=10)
        try:
            while True:
                if engine.next_epoch < 16:
                    jobs.execute(_statements(engine.next_epoch))
                report = engine.step()
                if report is None:
                    return {name: jobs.since(name, 0) for name in jobs.catalogue.jobs}, jobs.catalogue
                engine.remove_old_state(3)
                if restarts and report.epoch % 4 == 3:
                    break
        finally:
            engine.close()


def _rows(results_by_job: Any) -> Any:
    return {name: [(a.epoch, a.rows.rows()) for a in results] for name, results in results_by_job.items()}


def _entries(state: Path) -> list[str]:
    return sorted(os.listdir(state / "commands"))


@pytest.mark.slow
def test_jobs_continue_from_a_snapshot_as_from_all_commands(tmp_path: Path) -> None:
    events = kit.events(170)
    unfolded, catalogue = _run(tmp_path / "all", events, fold_after=1_000, restarts=True)
    assert not any(name.endswith(".snapshot") for name in _entries(tmp_path / "all"))
    folded, other = _run(tmp_path / "few", events, fold_after=4, restarts=True)
    assert _rows(folded) == _rows(unfolded)
    assert other == catalogue
    snapshots = [name for name in _entries(tmp_path / "few") if name.endswith(".snapshot")]
    assert len(snapshots) == 1
    assert len(_entries(tmp_path / "few")) < len(_entries(tmp_path / "all"))


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1, 2])
def test_an_engine_can_be_rolled_back_to_every_manifest_that_is_kept(index: int, tmp_path: Path) -> None:
    events = kit.events(170)
    _, catalogue = _run(tmp_path, events, fold_after=1, restarts=False)
    state = StateDirectory(tmp_path)
    before = {p.name: p.read_bytes() for p in (tmp_path / "results").glob("*.arrow")}
    target = state.manifests.epochs()[index]
    for path in (tmp_path / "results").glob("*.arrow"):
        if int(path.stem) > target:
            path.unlink()
    with state.locked():
        roll_back(state, target)
    jobs = Program("test", tmp_path, streams={"clicks": kit.clicks(events)}, begin=SQL, fold_after=1)
    engine = InlineEngine(jobs, tmp_path, epoch_units=10)
    list(engine.steps())
    engine.close()
    assert {p.name: p.read_bytes() for p in (tmp_path / "results").glob("*.arrow")} == before
    assert jobs.catalogue == catalogue


@pytest.mark.parametrize("removed", [0, 1, 5])
def test_a_kill_before_all_folded_entries_are_removed_loses_no_command(
    removed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, catalogue = CommandLog(tmp_path), Catalogue()
    for number in range(8):
        command = AddStream(f"s{number}", "")
        log.append([command])
        catalogue = catalogue.after(command) if number < 6 else catalogue
    unlink, remaining = Path.unlink, [removed]

    def unlink_or_die(path: Path, missing_ok: bool = False) -> None:
        if not remaining[0]:
            raise kit.Killed
        remaining[0] -= 1
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink_or_die)
        with pytest.raises(kit.Killed):
            log.fold(6, catalogue)
    assert len(list((tmp_path / "commands").glob("*.json"))) == 8 - removed
    again = CommandLog(tmp_path)
    loaded = again.load()
    assert (loaded.folded, loaded.catalogue, len(loaded.entries)) == (6, catalogue, 2)
    assert again.append([]) == 9
    assert json.loads((tmp_path / "commands" / "000000009.json").read_bytes()) == []
    assert len(list((tmp_path / "commands").glob("*.json"))) == 3
