"""Commands folded into a snapshot: what comes of it and the rest is what comes of all, wherever it is cut or killed."""

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


def command(draw: random.Random) -> Command:
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


def carried_out(catalogue: Catalogue, said: Command) -> Catalogue | None:
    """The catalogue after a command; None where it would not have been accepted."""
    known = said.name in (catalogue.jobs if isinstance(said, JobCommand) else catalogue.streams)
    anyway = isinstance(said, RememberText | RememberReplies | FailJob)
    if not anyway and known == isinstance(said, AddStream | AddJob):
        return None
    try:
        return catalogue.after(said)
    except UserError:
        return None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), cut=st.floats(0, 1))
def test_a_snapshot_and_the_rest_give_what_all_entries_give(seed: int, cut: float) -> None:
    draw, catalogue = random.Random(seed), Catalogue()
    entries: list[list[Command]] = []
    catalogues = [catalogue]
    while len(entries) < 30:
        entry = []
        for _ in range(draw.randrange(1, 4)):
            said = command(draw)
            after = carried_out(catalogue, said)
            if after is not None:
                catalogue = after
                entry.append(said)
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
    found = loaded.catalogue
    for entry in loaded.entries:
        for said in entry:
            found = found.after(said)
    assert found == catalogue
    assert list(found.jobs) == list(catalogue.jobs), "plans are made in this order"


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    whole = encode_catalogue(Catalogue().after(AddStream("s", "é")))
    for at in range(len(whole) - 1):
        torn = bytearray(whole)
        torn[at] ^= 1
        with pytest.raises(ValueError, match=r"."):
            decode_catalogue(bytes(torn))
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


def _said(epoch: int) -> str:
    """What is said before an epoch: some of it three times."""
    return (
        f"CREATE JOB j{epoch} AS SELECT user FROM clicks WHERE bytes > {epoch * 10}",
        f"ALTER JOB per_page SET WHERE bytes > {epoch}",
        "FLUSH JOB per_page",
    )[epoch % 3]


def _run(state: Path, found: list[kit.Event], *, fold_after: int, restarts: bool) -> Any:
    """All that is told, with a command before each epoch and manifests recycled after each."""
    while True:
        jobs = Program("test", state, streams={"clicks": kit.clicks(found)}, begin=SQL, fold_after=fold_after)
        engine = InlineEngine(jobs, state, epoch_units=10)
        try:
            while True:
                if engine.next_epoch < 16:
                    jobs.execute(_said(engine.next_epoch))
                report = engine.step()
                if report is None:
                    return {name: jobs.since(name, 0) for name in jobs.catalogue.jobs}, jobs.catalogue
                engine.recycle(3)
                if restarts and report.epoch % 4 == 3:
                    break
        finally:
            engine.close()


def _rows(told: Any) -> Any:
    return {name: [(a.epoch, a.rows.rows()) for a in answers] for name, answers in told.items()}


def _entries(state: Path) -> list[str]:
    return sorted(os.listdir(state / "commands"))


def test_jobs_go_on_from_a_snapshot_as_from_all_their_commands(tmp_path: Path) -> None:
    found = kit.events(170)
    told, catalogue = _run(tmp_path / "all", found, fold_after=1_000, restarts=True)
    assert not any(name.endswith(".snapshot") for name in _entries(tmp_path / "all"))
    folded, other = _run(tmp_path / "few", found, fold_after=4, restarts=True)
    assert _rows(folded) == _rows(told)
    assert other == catalogue
    snapshots = [name for name in _entries(tmp_path / "few") if name.endswith(".snapshot")]
    assert len(snapshots) == 1
    assert len(_entries(tmp_path / "few")) < len(_entries(tmp_path / "all"))


@pytest.mark.parametrize("back", [0, 1, 2])
def test_one_can_go_back_to_every_epoch_that_is_kept(back: int, tmp_path: Path) -> None:
    found = kit.events(170)
    _, catalogue = _run(tmp_path, found, fold_after=1, restarts=False)
    state = StateDirectory(tmp_path)
    before = {p.name: p.read_bytes() for p in (tmp_path / "results").iterdir()}
    target = state.manifests.epochs()[back]
    for path in (tmp_path / "results").iterdir():
        if int(path.stem) > target:
            path.unlink()
    with state.locked():
        roll_back(state, target)
    jobs = Program("test", tmp_path, streams={"clicks": kit.clicks(found)}, begin=SQL, fold_after=1)
    engine = InlineEngine(jobs, tmp_path, epoch_units=10)
    list(engine.steps())
    engine.close()
    assert {p.name: p.read_bytes() for p in (tmp_path / "results").iterdir()} == before
    assert jobs.catalogue == catalogue


@pytest.mark.parametrize("removed", [0, 1, 5])
def test_killed_before_all_folded_entries_are_removed(
    removed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, catalogue = CommandLog(tmp_path), Catalogue()
    for number in range(8):
        said = AddStream(f"s{number}", "")
        log.append([said])
        catalogue = catalogue.after(said) if number < 6 else catalogue
    unlink, left = Path.unlink, [removed]

    def killed(path: Path, missing_ok: bool = False) -> None:
        if not left[0]:
            raise kit.Killed
        left[0] -= 1
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(kit.Killed):
            log.fold(6, catalogue)
    assert len(list((tmp_path / "commands").glob("*.json"))) == 8 - removed
    again = CommandLog(tmp_path)
    loaded = again.load()
    assert (loaded.folded, loaded.catalogue, len(loaded.entries)) == (6, catalogue, 2)
    assert again.append([]) == 9
    assert json.loads((tmp_path / "commands" / "000000009.json").read_bytes()) == []
    assert len(list((tmp_path / "commands").glob("*.json"))) == 3
