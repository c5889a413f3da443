"""The state directory: it has one writer, no partial files, and removing old state leaves what is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.state.buckets import HASH, with_hash
from penstock.state.collection import Changes
from penstock.state.continuity import first_difference
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.state.manifest import Manifest
from penstock.state.rollback import find_problems
from penstock.state.run import RunEntry
from penstock.state.run_store import RunStore
from penstock.state.state_facts import FORMAT


def condition_of(error: pytest.ExceptionInfo[PenstockError]) -> str:
    return error.value.condition


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def write_run(folder: Path, epoch: int, through: int | None = None) -> RunEntry:
    rows = with_hash(pl.DataFrame({"k": ["a", "b"], "n": [epoch, epoch]}), ["k"]).sort(HASH)
    store = RunStore(folder / "runs", None)
    return store.write(rows, collection="op.t", epoch=epoch, through=through or epoch, buckets=4, time=None)


def commit_epochs(folder: Path, epochs: int) -> StateDirectory:
    """Commit so many epochs to a new directory; each writes a run that replaces the one before."""
    directory = StateDirectory(folder)
    manifest = Manifest()
    for epoch in range(epochs):
        directory.records.write(epoch, EpochRecord(Offset(epoch - 1), Offset(epoch, at={"s": {"p": epoch}})))
        old = tuple((entry.name, frozenset(entry.sections)) for entry in manifest.entries("op", "t"))
        manifest = manifest.advance(epoch, [("op", "t", Changes((write_run(folder, epoch),), old))])
        directory.manifests.commit(manifest)
    return directory


# -- the writer ------------------------------------------------------------------------------------------

CLAIM = """
import sys
from pathlib import Path
from penstock.state.continuity import first_difference
from penstock.state.directory import StateDirectory
StateDirectory(Path(sys.argv[1])).claim("query", "a summary")
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_a_directory_held_by_another_process_is_refused_until_that_process_ends(folder: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        with pytest.raises(ExternalError) as refused:
            StateDirectory(folder).claim("query", "a summary")
        assert condition_of(refused) == "STATE_IN_USE"
        assert f"process {holder.pid}" in str(refused.value)
    finally:
        holder.kill()
        holder.communicate()
    StateDirectory(folder).claim("query", "a summary")


def test_a_second_claim_in_one_process_is_refused_until_the_first_is_released(folder: Path) -> None:
    first = StateDirectory(folder)
    first.claim("query", "a summary")
    with pytest.raises(ExternalError) as refused:
        StateDirectory(folder).claim("query", "a summary")
    assert condition_of(refused) == "STATE_IN_USE"
    first.release()
    first.release()
    second = StateDirectory(folder)
    assert second.claim("query", "a summary").format == FORMAT
    second.release()


def test_the_state_of_another_query_is_refused_and_its_lock_released(folder: Path) -> None:
    owner = StateDirectory(folder)
    owner.claim("query", "the first query")
    owner.release()
    with pytest.raises(UserError) as refused:
        StateDirectory(folder).claim("other", "the second query")
    assert condition_of(refused) == "STATE_OF_ANOTHER_QUERY"
    assert "the first query" in str(refused.value)
    assert "the second query" in str(refused.value)
    StateDirectory(folder).claim("query", "the first query")


def test_a_newer_format_is_refused_and_its_lock_released(folder: Path) -> None:
    folder.mkdir()
    facts = {"format": FORMAT + 1, "query": "query", "logs": {}}
    (folder / "penstock.json").write_text(json.dumps(facts))
    for _ in range(2):
        with pytest.raises(UserError) as refused:
            StateDirectory(folder).claim("query", "a summary")
        assert condition_of(refused) == "STATE_OF_NEWER_FORMAT"


def test_a_directory_with_other_files_is_refused_and_not_changed(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.tex").write_text("precious")
    with pytest.raises(UserError) as refused:
        StateDirectory(folder).claim("query", "a summary")
    assert condition_of(refused) == "NOT_A_STATE_DIRECTORY"
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "one"}', '{"format": 1}'])
def test_damaged_facts_are_reported_as_damage(folder: Path, content: str) -> None:
    folder.mkdir()
    (folder / "penstock.json").write_text(content)
    with pytest.raises(InternalError) as damage:
        StateDirectory(folder).claim("query", "a summary")
    assert condition_of(damage) == "STATE_DAMAGED"


def test_a_file_at_the_path_of_the_directory_is_refused(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(ExternalError) as refused:
        StateDirectory(folder).claim("query", "a summary")
    assert condition_of(refused) == "STATE_UNWRITABLE"


# -- epochs ---------------------------------------------------------------------------------------------


def test_the_first_record_of_an_epoch_is_never_replaced(folder: Path) -> None:
    directory = StateDirectory(folder)
    first = EpochRecord(Offset(), Offset(0, at={"s": {"p": 7}}))
    assert directory.records.write(0, first) == first
    assert directory.records.write(0, EpochRecord(Offset(), Offset(0))) == first
    assert directory.records.read_end(0) == first.end
    assert directory.records.read_end(1) is None
    assert directory.records.last_offsets() == {"s": {"p": 7}}


def test_a_damaged_record_is_reported_as_damage(folder: Path) -> None:
    directory = commit_epochs(folder, 1)
    (folder / "epochs" / "000000000000.json").write_bytes(b'{"start": {}, "e')
    other = EpochRecord(Offset(), Offset(0))
    for read in (
        lambda: directory.records.write(0, other),
        lambda: directory.records.read_end(0),
        directory.records.last_offsets,
    ):
        with pytest.raises(InternalError) as damage:
            read()
        assert condition_of(damage) == "STATE_DAMAGED"


def test_an_epoch_is_committed_once(folder: Path) -> None:
    directory = commit_epochs(folder, 2)
    before = directory.manifests.latest()
    with pytest.raises(InternalError) as refused:
        directory.manifests.commit(Manifest(epoch=1))
    assert condition_of(refused) == "EPOCH_COMMITTED_TWICE"
    assert directory.manifests.latest() == before


def test_the_state_before_the_first_epoch_is_empty(folder: Path) -> None:
    directory = StateDirectory(folder)
    assert directory.manifests.latest() == Manifest()
    assert directory.manifests.epochs() == []
    assert directory.records.last_offsets() == {}
    assert directory.manifests.read(-1).epoch == -1


def test_a_damaged_manifest_is_named(folder: Path) -> None:
    directory = commit_epochs(folder, 2)
    (folder / "manifests" / "000000000001.json").write_bytes(b"{}\n00000000\n")
    with pytest.raises(InternalError) as damage:
        directory.manifests.latest()
    assert condition_of(damage) == "STATE_DAMAGED"
    assert "epoch 1" in damage.value.primary
    assert len(find_problems(directory, 1)) == 1
    assert find_problems(directory, 0) == []


# -- removal of old state -----------------------------------------------------------------------------------


def test_removing_old_state_retains_the_runs_of_the_retained_manifests(folder: Path) -> None:
    directory = commit_epochs(folder, 6)
    orphan = write_run(folder, 4)
    unfinished = write_run(folder, 6)
    needed = directory.manifests.read(4).runs() | directory.manifests.read(5).runs()
    removed = directory.remove_old_state(2)
    assert directory.manifests.epochs() == [4, 5]
    assert set(directory.list_runs()) == needed | {unfinished.name}
    assert orphan.name in removed
    assert len(removed) == 5
    assert [find_problems(directory, epoch) for epoch in (4, 5)] == [[], []]
    assert directory.records.read_end(3) is None
    assert directory.records.read_end(4) is not None
    assert directory.remove_old_state(2) == []


def test_removing_old_state_removes_the_partial_files_of_a_killed_writer(folder: Path) -> None:
    directory = commit_epochs(folder, 4)
    partial = folder / "runs" / "op.t" / ".000000000001-abc.run.1234.tmp"
    current = folder / "runs" / "op.t" / ".000000000004-abc.run.1234.tmp"
    for path in (partial, current):
        path.write_bytes(b"half")
    directory.remove_old_state(2)
    assert not partial.exists()
    assert current.exists(), "the current epoch may be writing it"


def test_with_few_manifests_no_old_state_is_removed(folder: Path) -> None:
    directory = commit_epochs(folder, 3)
    write_run(folder, 1)
    assert directory.remove_old_state(3) == []
    assert len(list(directory.list_runs())) == 4


def test_find_problems_names_the_damaged_run_and_no_other(folder: Path) -> None:
    directory = commit_epochs(folder, 3)
    (name,) = directory.manifests.read(1).runs()
    path = folder / "runs" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    (problem,) = find_problems(directory, 1)
    assert name in problem
    assert find_problems(directory, 0) == find_problems(directory, 2) == []
    path.unlink()
    (problem,) = find_problems(directory, 1)
    assert "missing" in problem


# -- full disks ------------------------------------------------------------------------------------------

WRITE_TO_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import polars as pl
from penstock.state.buckets import with_hash
from penstock.state.continuity import first_difference
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.state.manifest import Manifest
from penstock.state.run_store import RunStore
from penstock.errors import PenstockError

folder, kind = Path(sys.argv[1]), sys.argv[2]
rows = with_hash(pl.DataFrame({"k": [str(i * 7919) for i in range(50_000)]}), ["k"]).sort("_hash")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
folder.mkdir(exist_ok=True)
directory = StateDirectory(folder)
try:
    if kind == "run":
        RunStore(folder / "runs", None).write(
            rows, collection="op.t", epoch=0, through=0, buckets=4, time=None
        )
    elif kind == "manifest":
        directory.manifests.commit(Manifest(epoch=0, last_results={"top": "x" * 50_000}))
    else:
        directory.records.write(0, EpochRecord(Offset(), Offset(0, at={"s": {"x" * 50_000: 1}})))
except PenstockError as error:
    print(error.condition, error.retry)
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["run", "manifest", "record"])
def test_a_write_that_does_not_fit_leaves_no_file(folder: Path, kind: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", WRITE_TO_FULL_DISK, str(folder), kind],
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.split()[0] in ("STATE_UNWRITABLE", "STATE_DISK_FULL")
    assert child.stdout.split()[1] == "True"
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    directory = StateDirectory(folder)
    assert directory.manifests.epochs() == []
    assert directory.records.read_end(0) is None
    assert list(directory.list_runs()) == []


@pytest.mark.parametrize(
    ("stored", "query", "difference"),
    [
        ("a: s -> x -> y; b: t -> z", "a: s -> x -> w; b: t -> q", "after 'x' it has: y; this one has: w"),
        ("a: s -> x; b: t -> z", "a: s -> x; b: t", "after 'b: t' it has: z; this one has: nothing more"),
        ("a: s", "a: s; b: t", "it holds no b: t"),
        ("a: s; b: t", "a: s", "this one has no b: t"),
        ("a: s", "a: s", "both are a: s, but"),
    ],
)
def test_the_first_difference_between_two_queries(stored: str, query: str, difference: str) -> None:
    assert difference in first_difference(stored, query)
