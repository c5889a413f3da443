"""Files that are beside the logs, and files that change while they are listed, neither stop nor confuse a reader."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from penstock.logs import FileLog
from tests.logs.file_reader import FileReader


def lines(name: str, first: int, last: int) -> bytes:
    return b"".join(b"%s,%d,%s\n" % (name.encode(), i, b"p" * (i % 50)) for i in range(first, last))


@pytest.mark.parametrize("name", ["loop", "loop.gz"])
def test_a_link_to_itself_beside_a_file_that_vanished_is_passed_over(tmp_path: Path, name: str) -> None:
    reader, path = FileReader(tmp_path / "a.log"), tmp_path / "a.log"
    path.write_bytes(text := lines("a", 0, 100))
    reader.step()
    (tmp_path / name).symlink_to(name)
    path.unlink()
    reader.settle()
    assert reader.lines.total() == len(text.splitlines())


@pytest.mark.parametrize("name", ["strange", "strange.gz"])
def test_an_unreadable_file_beside_one_that_vanished_is_passed_over(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, path = FileReader(tmp_path / "a.log"), tmp_path / "a.log"
    path.write_bytes(text := lines("a", 0, 100))
    reader.step()
    stranger = tmp_path / name
    stranger.write_bytes(gzip.compress(b"x\n"))
    open_any = os.open

    def refuse(opened: str, *arguments: int) -> int:
        if opened == str(stranger):
            raise PermissionError(13, "Permission denied")
        return open_any(opened, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    path.unlink()
    reader.settle()
    assert reader.lines.total() == len(text.splitlines())


def test_an_unreadable_archive_that_a_glob_matches_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"x\n"))
    open_any = os.open

    def refuse(opened: str, *arguments: int) -> int:
        if opened == str(path):
            raise PermissionError(13, "Permission denied")
        return open_any(opened, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ExternalError) as refused:
        FileLog(str(tmp_path / "*.gz"), gz_settle_seconds=0.0).partitions({})
    assert refused.value.condition == "LOG_UNREADABLE"


@pytest.mark.parametrize("is_shorter", [False, True])
def test_a_file_that_is_replaced_while_an_epoch_is_admitted_is_read_to_its_end_and_so_is_the_other(
    tmp_path: Path, is_shorter: bool
) -> None:
    header = b"time,user,page\n"
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(old := header + lines("old", 0, 300))
    new = header + lines("new", 0, 250 if is_shorter else 600)
    reader.step(units=2000)
    cut = reader.log.cut

    def cut_and_replace(partition: str, start: int, units: int) -> int:
        found = cut(partition, start, units)
        (tmp_path / "a.kept").write_bytes(old)
        path.write_bytes(new)
        return found

    reader.log.cut = cut_and_replace  # type: ignore[method-assign]
    reader.admit(2000)
    reader.log.cut = cut  # type: ignore[method-assign]
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted((old + new).splitlines())


def test_a_file_outside_the_glob_with_the_inode_of_a_log_is_not_read(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(text := lines("a", 0, 100))
    reader.step()
    path.rename(tmp_path / "private.key")
    (tmp_path / "private.key").write_bytes(b"a secret\nof others\n")
    (tmp_path / "b.log").write_bytes(other := lines("b", 0, 10))
    reader.settle()
    with open(tmp_path / "private.key", "ab") as file:
        file.write(b"more\n")
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted((text + other).splitlines())


def test_a_file_outside_the_glob_that_has_another_s_content_continues_it(tmp_path: Path) -> None:
    """Two logs are renamed out of the glob, and what is in them is exchanged."""
    reader = FileReader(tmp_path / "*.log")
    texts = [lines(name, 0, 100) for name in "ab"]
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.log").write_bytes(text)
    reader.step(units=1000)
    for name, text in zip("ab", reversed(texts), strict=True):
        (tmp_path / f"{name}.log").rename(tmp_path / f"{name}.out")
        (tmp_path / f"{name}.out").write_bytes(text)
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(b"".join(texts).splitlines())


def test_partitions_that_could_be_forgotten_and_are_kept_are_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = FileReader(tmp_path / "*.log")
    for name in "ab":
        (tmp_path / f"{name}.log").write_bytes(lines(name, 0, 100))
    reader.settle()
    (tmp_path / "a.log").unlink()
    at = dict(reader.reached.at["s"])
    reader.log.prune(at)
    for _ in range(3):
        reader.log.partitions(at)
    searched = [0]

    def count_calls(directories: object) -> dict[int, str]:
        searched[0] += 1
        return {}

    monkeypatch.setattr("penstock.logs.file_partitions.index_inodes", count_calls)
    for _ in range(5):
        reader.log.partitions(at)
        assert len(reader.log.forgettable(at)) == 1
        reader.log.identify(at)
    assert searched == [0]


def test_a_lost_file_is_reported_while_an_archive_elsewhere_is_written(tmp_path: Path) -> None:
    reader = FileReader(tmp_path / "*" / "*", settle_seconds=60.0)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    path, written = tmp_path / "one" / "a.log", tmp_path / "two" / "live.gz"
    path.write_bytes(lines("a", 0, 100))
    reader.step(units=1000)
    path.unlink()

    def write_and_step(number: int) -> None:
        with open(written, "ab") as file:
            file.write(gzip.compress(b"%d\n" % number))
        reader.step()

    write_and_step(0)
    with pytest.raises(ExternalError) as lost:
        write_and_step(1)
    assert lost.value.condition == "LOG_SPAN_GONE"


@pytest.mark.parametrize("name", ["one/x.gz", "two/a.log.1.gz"])
def test_a_file_that_an_archive_may_continue_is_not_lost_while_that_is_written(
    tmp_path: Path, name: str
) -> None:
    reader = FileReader(tmp_path / "*" / "*", settle_seconds=60.0)
    for directory in ("one", "two"):
        (tmp_path / directory).mkdir()
    path = tmp_path / "one" / "a.log"
    path.write_bytes(text := lines("a", 0, 100))
    reader.step(units=1000)
    (tmp_path / name).write_bytes(gzip.compress(text))
    path.unlink()
    for _ in range(5):
        reader.step()
    os.utime(tmp_path / name, (0, 0))
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(text.splitlines())


def test_an_archive_that_grows_is_remembered_as_it_is_now(tmp_path: Path) -> None:
    reader = FileReader(tmp_path / "*.gz", settle_seconds=60.0)
    for number in range(20):
        with open(tmp_path / "live.gz", "ab") as file:
            file.write(gzip.compress(b"%d\n" % number))
        reader.step()
    assert len(reader.log._file_partitions._copies._unchanged) == 1
