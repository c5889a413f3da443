"""What a file is that continues no other: a copy of what was read, one that was cut, or a log of its own."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ExternalError, UserError
from penstock.logs import FileLog
from tests.logs.file_reader import FileReader

HEADER = b"time,user,page\n"


def lines(name: str, first: int, last: int) -> bytes:
    return b"".join(b"%s,%d,%s\n" % (name.encode(), i, b"p" * (i % 50)) for i in range(first, last))


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def assert_read_once(reader: FileReader, *texts: bytes) -> None:
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(b"".join(texts).splitlines())


@pytest.mark.parametrize("restarted", [False, True])
def test_a_copy_that_waits_is_known_after_its_original_was_truncated(tmp_path: Path, restarted: bool) -> None:
    """The usual case: less than `gz_settle_seconds` pass between cp and the truncation."""
    reader, path = FileReader(tmp_path / "*", settle_seconds=60.0), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 30))
    reader.settle()
    (tmp_path / "a.log.1").write_bytes(old)
    append(path, more := lines("old", 30, 40))
    reader.settle()
    if restarted:
        reader.restart()
    os.truncate(path, 0)
    append(path, new := lines("new", 0, 10))
    assert_read_once(reader, old, more, new)
    assert reader.log.count_doubts() > 0
    assert not reader.log.withheld


def test_a_short_copy_that_cannot_be_told_from_a_log_of_its_own_is_read_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader, path = FileReader(tmp_path / "*"), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 30))
    reader.settle()
    reader.restart()
    (tmp_path / "keep").write_bytes(old)
    path.unlink()
    assert_read_once(reader, old, old)
    assert f"{tmp_path / 'keep'} is read from its start, although" in caplog.text


def test_after_an_upgrade_the_copy_of_a_file_that_was_truncated_is_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Offsets of 0.1 have no identities."""
    reader, path = FileReader(tmp_path / "*"), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 100))
    reader.settle()
    reader.reached = replace(reader.reached, identities={})
    reader.record = None
    reader.restart()
    append(path, more := lines("old", 100, 110))
    (tmp_path / "a.log.1").write_bytes(old + more)
    os.truncate(path, 0)
    append(path, new := lines("new", 0, 10))
    assert_read_once(reader, old, more, new)
    assert f"{tmp_path / 'a.log.1'} starts with all that was read of {path}" in caplog.text


@pytest.mark.parametrize("on_rewrite", ["read", "skip"])
@pytest.mark.parametrize("way", ["truncated", "replaced"])
def test_a_file_that_was_cut_is_read_as_the_user_says(tmp_path: Path, on_rewrite: str, way: str) -> None:
    path, old = tmp_path / "a.log", lines("old", 0, 400)
    reader = FileReader(tmp_path / "*.log", on_rewrite=on_rewrite)  # type: ignore[arg-type]
    path.write_bytes(old)
    reader.settle()
    part = old[: old.index(b"\n", 6000) + 1]
    if way == "truncated":
        os.truncate(path, len(part))
    else:
        (tmp_path / "tmp").write_bytes(part)
        (tmp_path / "tmp").rename(path)
    reader.settle()
    append(path, new := lines("new", 0, 10))
    assert_read_once(reader, old, *([part] if on_rewrite == "read" else []), new)
    reader.restart()
    append(path, last := lines("last", 0, 10))
    assert_read_once(reader, old, *([part] if on_rewrite == "read" else []), new, last)


def test_a_file_that_was_cut_is_no_error_after_it_was_moved_away(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 400))
    reader.settle()
    os.truncate(path, 6000)
    with pytest.raises(ExternalError) as cut:
        reader.settle()
    assert cut.value.condition == "LOG_TRUNCATED"
    assert "on_rewrite='read'" in str(cut.value)
    reader.restart()
    path.unlink()
    path.write_bytes(new := lines("new", 0, 10))
    assert_read_once(reader, old, new)


def test_a_file_that_is_written_again_in_place_waits_until_it_is_whole(tmp_path: Path) -> None:
    """`cp` of a longer version over the file: it is short for a moment."""
    reader, path = FileReader(tmp_path / "*.log", settle_seconds=60.0), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 400))
    reader.settle()
    os.truncate(path, 6000)
    reader.settle()
    assert reader.log.withheld == {str(path)}
    path.write_bytes(old + lines("old", 400, 410))
    assert_read_once(reader, old, lines("old", 400, 410))


def test_an_unknown_way_to_continue_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        FileLog("*.log", on_rewrite="guess")  # type: ignore[arg-type]
    assert refused.value.condition == "BAD_OPTION"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_rotated_and_compressed_file_is_not_missed_where_the_next_one_starts_as_it_did(
    tmp_path: Path, restarted: bool
) -> None:
    """A banner of some KB, and no delaycompress."""
    banner = b"".join(b"banner %d\n" % n for n in range(800))
    reader, path = FileReader(tmp_path / "*"), tmp_path / "a.log"
    texts = []
    for number in range(4):
        texts.append(banner + lines(f"n{number}", 0, 20 * (5 - number)))
        path.write_bytes(texts[-1])
        reader.settle()
        if restarted:
            reader.restart()
        (tmp_path / f"a.log.{number}.gz").write_bytes(gzip.compress(texts[-1]))
        path.unlink()
    assert_read_once(reader, *texts)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_copy_that_is_shorter_than_what_was_read_is_not_read_when_it_is_compressed(
    tmp_path: Path, restarted: bool
) -> None:
    reader, path = FileReader(tmp_path / "*"), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 60))
    reader.settle()
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(old))
    append(path, more := lines("old", 60, 70))
    reader.settle()
    if restarted:
        reader.restart()
    os.truncate(path, 0)
    append(path, new := lines("new", 0, 10))
    assert_read_once(reader, old, more, new)


def test_the_archive_of_an_empty_file_is_no_error(tmp_path: Path) -> None:
    reader = FileReader(tmp_path / "*")
    (tmp_path / "a.log").write_bytes(text := lines("a", 0, 10))
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b""))
    assert_read_once(reader, text)
