"""Which files are new, and which continue others: what it costs to find out, and what names say."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from penstock.logs.file_identity import Identity
from tests.logs.file_reader import FileReader

HEADER = b"time,user,page\n"


def lines(name: str, first: int, last: int) -> bytes:
    return b"".join(b"%s,%d,%s\n" % (name.encode(), i, b"p" * (i % 50)) for i in range(first, last))


def test_a_restart_compares_each_of_many_files_with_equal_first_lines_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, count = FileReader(tmp_path / "*.csv"), 2000
    for number in range(count):
        (tmp_path / f"{number}.csv").write_bytes(HEADER + lines(f"f{number}", 0, 10))
    reader.step()
    offsets = reader.reached.at["s"]
    reader.restart()
    compared, matches_text = [0], Identity.matches_text

    def count_calls(identity: Identity, fd: int) -> bool:
        compared[0] += 1
        return matches_text(identity, fd)

    monkeypatch.setattr(Identity, "matches_text", count_calls)
    found = {partition.id for partition in reader.log.partitions(offsets)}
    assert found == set(offsets)
    assert len(found) == count
    assert compared[0] <= count


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_file_with_the_lines_of_one_that_was_read_and_removed_is_read(
    tmp_path: Path, restarted: bool
) -> None:
    reader, text = FileReader(tmp_path / "inv-*.csv"), HEADER + lines("inv", 0, 100)
    (tmp_path / "inv-01.csv").write_bytes(text)
    reader.settle()
    with open(tmp_path / "inv-01.csv", "rb"):  # so that its inode is not used again
        (tmp_path / "inv-01.csv").unlink()
        reader.settle()
        if restarted:
            reader.restart()
        (tmp_path / "inv-02.csv").write_bytes(text)
        reader.settle()
    assert sorted(reader.lines.elements()) == sorted(2 * text.splitlines())


@pytest.mark.parametrize("is_touched", [False, True])
def test_a_file_that_was_away_is_the_same_under_any_name_and_time_of_change(
    tmp_path: Path, is_touched: bool
) -> None:
    reader, text = FileReader(tmp_path / "*.csv"), HEADER + lines("inv", 0, 100)
    path, elsewhere = tmp_path / "inv-01.csv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    path.write_bytes(text)
    reader.settle()
    path.rename(elsewhere / "file")
    reader.settle()
    if is_touched:
        os.utime(elsewhere / "file", (0, 0))
    (elsewhere / "file").rename(tmp_path / "inv-02.csv")
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(text.splitlines())


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_was_away_is_new_if_its_inode_was_used_again(tmp_path: Path, restarted: bool) -> None:
    reader, text = FileReader(tmp_path / "*.csv"), HEADER + lines("inv", 0, 100)
    path = tmp_path / "inv-01.csv"
    path.write_bytes(text)
    inode = path.stat().st_ino
    reader.settle()
    path.unlink()
    reader.settle()
    if restarted:
        reader.restart()
    create_with_inode(tmp_path / "inv-02.csv", text, inode)
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(2 * text.splitlines())


def create_with_inode(path: Path, text: bytes, inode: int) -> None:
    """Create a file that has the inode of a removed one, if the file system gives it again."""
    removed_at, deadline, probe = time.time_ns(), time.monotonic() + 10, path.with_name("probe")
    probe.touch()
    while probe.stat().st_mtime_ns <= removed_at:  # the clock of files ticks seldom
        assert time.monotonic() < deadline
        probe.touch()
    probe.unlink()
    others = []
    for number in range(50):
        path.write_bytes(text)
        if path.stat().st_ino == inode:
            break
        others.append(path.rename(path.with_name(f"other-{number}")))
    for other in others:
        other.unlink()
    if not path.exists():
        path.write_bytes(text)


def test_a_file_with_another_name_that_continues_one_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader, text = FileReader(tmp_path / "*.csv"), HEADER + lines("inv", 0, 100)
    (tmp_path / "inv-01.csv").write_bytes(text)
    reader.settle()
    with open(tmp_path / "inv-01.csv", "rb"):
        (tmp_path / "inv-01.csv").unlink()
        (tmp_path / "inv-02.csv").write_bytes(text + lines("inv", 100, 110))
        reader.settle()
    assert reader.lines.total() == 111
    assert (
        f"{tmp_path / 'inv-02.csv'} starts with all that was read of {tmp_path / 'inv-01.csv'}" in caplog.text
    )


@pytest.mark.parametrize("removed", [False, True])
def test_a_copy_under_another_name_that_was_seen_beside_its_original_is_not_read_again(
    tmp_path: Path, removed: bool
) -> None:
    reader, text = FileReader(tmp_path / "*.log", settle_seconds=60.0), HEADER + lines("a", 0, 300)
    path = tmp_path / "a.log"
    path.write_bytes(text)
    reader.settle()
    (tmp_path / "keep.log").write_bytes(text)
    reader.settle()
    with open(path, "rb"):
        if removed:
            path.unlink()
        else:
            os.truncate(path, 0)
        reader.settle()
    assert sorted(reader.lines.elements()) == sorted(text.splitlines())


@pytest.mark.parametrize(
    ("former", "name", "is_related"),
    [
        ("a.log", "a.log.1", True),
        ("a.log", "a-2026.log.gz", True),
        ("a.log.1.gz", "a.log", True),
        ("messages", "messages.1", True),
        ("a.log", "access.log", False),
        ("inv-1.csv", "inv-10.csv", False),
    ],
)
def test_a_name_is_related_to_those_that_a_rotation_gives(former: str, name: str, is_related: bool) -> None:
    assert Identity.of_offset(f"/logs/{former}", 10).is_related_to(f"/other/{name}") == is_related
