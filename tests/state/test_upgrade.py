"""Claiming a state directory of format 1 upgrades it to format 2, even if an upgrade is killed at any step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.errors import ExternalError, UserError
from penstock.state import durable
from penstock.state.directory import StateDirectory
from penstock.state.manifest import Manifest
from penstock.state.rollback import find_problems
from penstock.state.state_facts import FORMAT
from penstock.state.upgrade import BACKUP

FORMER, CURRENT, SUMMARY = "0123456789abcdef", "fedcba9876543210", "rows: clicks"
FACTS = {"format": 1, "id": "abcd", "query": FORMER, "summary": SUMMARY, "logs": {"clicks": {"x": 1}}}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory of format 1 with two epochs."""
    folder = tmp_path / "state"
    (folder / "manifests").mkdir(parents=True)
    (folder / "epochs").mkdir()
    for epoch in (6, 7):
        (folder / "manifests" / f"{epoch:012d}.json").write_bytes(Manifest(epoch=epoch, format=1).to_bytes())
        record = {"start": {}, "end": {"epoch": epoch, "at": {}}}
        (folder / "epochs" / f"{epoch:012d}.json").write_text(json.dumps(record))
    (folder / "penstock.json").write_text(json.dumps(FACTS, indent=1))
    return folder


def claim(folder: Path, generation: int | None = None) -> StateDirectory:
    state = StateDirectory(folder)
    state.claim(CURRENT, SUMMARY, generation, former=FORMER)
    return state


def read_files(folder: Path) -> dict[str, bytes]:
    names = ("penstock.json", "manifests/000000000006.json", "manifests/000000000007.json")
    return {name: (folder / name).read_bytes() for name in names}


def test_an_upgrade_changes_the_format_and_the_fingerprint_only(old: Path) -> None:
    claim(old).release()
    facts = StateDirectory(old).read_existing_facts()
    assert facts.to_json() == {**FACTS, "format": FORMAT, "query": CURRENT}


def test_penstock_json_and_the_newest_manifest_are_backed_up(old: Path) -> None:
    before = read_files(old)
    claim(old).release()
    for name in ("penstock.json", "manifests/000000000007.json"):
        assert (old / BACKUP / name).read_bytes() == before[name]
    assert not (old / BACKUP / "manifests/000000000006.json").exists()
    assert {name: data for name, data in read_files(old).items() if "manifests" in name} == {
        name: data for name, data in before.items() if "manifests" in name
    }


def test_an_upgraded_directory_is_not_upgraded_again(old: Path) -> None:
    claim(old).release()
    backup = (old / BACKUP / "penstock.json").stat().st_mtime_ns
    claim(old).release()
    assert (old / BACKUP / "penstock.json").stat().st_mtime_ns == backup


def test_the_state_of_another_query_is_refused_and_not_changed(old: Path) -> None:
    before = read_files(old)
    for drops_state in (False, True):
        with pytest.raises(UserError) as refused:
            StateDirectory(old).claim(CURRENT, SUMMARY, former="another", drops_state=drops_state)
        assert refused.value.condition == "STATE_OF_ANOTHER_QUERY"
    assert read_files(old) == before
    assert not (old / BACKUP).exists()


def test_once_upgraded_the_former_fingerprint_opens_nothing(old: Path) -> None:
    claim(old).release()
    with pytest.raises(UserError) as refused:
        StateDirectory(old).claim("another", SUMMARY, former=FORMER)
    assert refused.value.condition == "STATE_OF_ANOTHER_QUERY"


def test_readers_read_both_formats(old: Path) -> None:
    assert StateDirectory(old).read_existing_facts().format == 1
    assert find_problems(StateDirectory(old), 7) == []
    assert not (old / BACKUP).exists()  # reading changes nothing
    claim(old).release()
    assert find_problems(StateDirectory(old), 7) == find_problems(StateDirectory(old), 6) == []


def test_an_engine_that_was_replaced_upgrades_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(old)
    take_over = state._fenced_directory.take_over

    def take_over_and_be_fenced(generation: int | None = None) -> None:
        take_over(generation)
        StateDirectory(old)._fenced_directory.take_over(9)

    monkeypatch.setattr(state._fenced_directory, "take_over", take_over_and_be_fenced)
    with pytest.raises(ExternalError) as refused:
        state.claim(CURRENT, SUMMARY, 3, former=FORMER)
    assert refused.value.condition == "FENCED"
    assert StateDirectory(old).read_existing_facts().to_json() == FACTS


#: files that an upgrade replaces, each by a temporary file
STEPS = 3


@pytest.mark.kill
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
def test_the_next_engine_completes_an_upgrade_that_was_killed(old: Path, step: int, after: bool) -> None:
    before = read_files(old)
    child = os.fork()
    if not child:
        _exit_at(step, after)
        claim(old)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 9
    facts = StateDirectory(old).read_existing_facts()
    assert facts.format == (FORMAT if (step, after) == (STEPS - 1, True) else 1)
    assert StateDirectory(old).manifests.latest().epoch == 7
    claim(old).release()
    assert StateDirectory(old).read_existing_facts().to_json() == {
        **FACTS,
        "format": FORMAT,
        "query": CURRENT,
    }
    for name in ("penstock.json", "manifests/000000000007.json"):
        assert (old / BACKUP / name).read_bytes() == before[name]


def _exit_at(step: int, after: bool) -> None:
    replaced, replace = 0, os.replace

    def replace_or_exit(source: Path, target: Path) -> None:
        nonlocal replaced
        if replaced == step and not after:
            os._exit(9)
        replace(source, target)
        if replaced == step:
            os._exit(9)
        replaced += 1

    durable.os.replace = replace_or_exit  # type: ignore[attr-defined]


def test_files_that_an_older_engine_changed_after_a_killed_upgrade_are_backed_up(old: Path) -> None:
    (old / BACKUP / "manifests").mkdir(parents=True)
    (old / BACKUP / "manifests" / "000000000006.json").write_bytes(b"of the killed upgrade")
    (old / BACKUP / "penstock.json").write_bytes(b"of the killed upgrade")
    before = read_files(old)
    claim(old).release()
    assert [path.name for path in (old / BACKUP / "manifests").iterdir()] == ["000000000007.json"]
    assert (old / BACKUP / "penstock.json").read_bytes() == before["penstock.json"]


# -- newer formats ------------------------------------------------------------------------------------


def test_a_manifest_of_a_newer_format_is_refused(old: Path) -> None:
    newer = Manifest(epoch=8, format=FORMAT + 1)
    (old / "manifests" / "000000000008.json").write_bytes(newer.to_bytes())
    with pytest.raises(UserError) as refused:
        StateDirectory(old).manifests.latest()
    assert refused.value.condition == "STATE_OF_NEWER_FORMAT"


def test_an_epoch_record_of_a_newer_format_is_refused(old: Path) -> None:
    record = {"format": FORMAT + 1, "start": {}, "end": {"epoch": 8, "at": {}}}
    (old / "epochs" / "000000000008.json").write_text(json.dumps(record))
    with pytest.raises(UserError) as refused:
        StateDirectory(old).records.read(8)
    assert refused.value.condition == "STATE_OF_NEWER_FORMAT"
