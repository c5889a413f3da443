"""Files that rotate, shrink, get compressed, move or are missing."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from penstock.errors import ExternalError, PenstockError, UserError
from penstock.logs import FileLog, Log, Partition, Span
from penstock.testing.log_contract import read_all, whole


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def only(log: Log, offsets: dict[str, int] | None = None) -> Partition:
    (partition,) = log.partitions(offsets or {})
    return partition


def condition_of(error: pytest.ExceptionInfo[PenstockError]) -> str:
    return error.value.condition


def compress(path: Path, data: bytes | None = None) -> Path:
    """Compress a file as gzip does: write an archive beside it and remove it."""
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes() if data is None else data))
    path.unlink()
    return target


def test_a_line_without_its_newline_waits(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*.log")), tmp_path / "a.log"
    path.write_bytes(b"no end")
    assert log.partitions({}) == []
    append(path, b" yet\nsecond, al")
    assert read_all(log, whole(only(log))) == b"no end yet\n"
    append(path, b"so\n")
    assert read_all(log, whole(only(log))) == b"no end yet\nsecond, also\n"


def test_a_finished_file_returns_its_last_line_with_a_newline(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo")
    (tmp_path / "empty.log").write_bytes(b"")
    log = FileLog(str(tmp_path / "*.log"), finished=True)
    partition = only(log)
    assert (partition.finished, partition.latest) == (True, 7)
    assert read_all(log, whole(partition)) == b"one\ntwo\n"


@pytest.mark.parametrize("suffix", ["log", "log.gz"])
def test_a_line_of_a_megabyte_is_one_record(tmp_path: Path, suffix: str) -> None:
    huge = b"<" + b"m" * (1 << 20) + b">\n"
    data = b"first\n" + huge + b"after\n" + huge
    (tmp_path / f"a.{suffix}").write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    log = FileLog(str(tmp_path / "a*"), gz_settle_seconds=0)
    partition = only(log)
    chunks = [chunk.data for chunk in log.read(whole(partition), chunk_bytes=100)]
    assert b"".join(chunks) == data
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    if suffix == "log":
        assert chunks == [b"first\n", huge, b"after\n", huge]
        assert log.cut(partition.id, 6, 10) == 6 + len(huge)
        assert log.cut(partition.id, 0, len(huge)) == 6


def test_a_file_keeps_its_identity_when_renamed_and_the_new_one_gets_another(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "a.log*")), tmp_path / "a.log"
    path.write_bytes(b"old one\n")
    before = only(log)
    path.rename(tmp_path / "a.log.1")
    append(tmp_path / "a.log.1", b"still to the old\n")
    path.write_bytes(b"new one\n")
    new, old = log.partitions({before.id: before.latest})
    assert old.id == before.id
    assert new.id != before.id
    assert read_all(log, Span(old.id, before.latest, old.latest)) == b"still to the old\n"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_renamed_out_of_the_glob_is_followed(tmp_path: Path, restarted: bool) -> None:
    pattern, path = str(tmp_path / "a.log"), tmp_path / "a.log"
    log = FileLog(pattern)
    path.write_bytes(b"one\n")
    before = only(log)
    append(path, b"two\n")
    path.rename(tmp_path / "elsewhere")
    if restarted:
        log = FileLog(pattern)
    after = only(log, {before.id: before.latest})
    assert read_all(log, Span(before.id, before.latest, after.latest)) == b"two\n"


@pytest.mark.parametrize("name", ["b.log", "out-of-the-glob"])
def test_a_rename_between_planning_and_reading_does_no_harm(tmp_path: Path, name: str) -> None:
    log, path = FileLog(str(tmp_path / "*.log")), tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    span = whole(only(log))
    path.rename(tmp_path / name)
    path.write_bytes(b"another file under the old name\n")
    assert read_all(log, span) == b"one\ntwo\n"


def test_a_file_removed_between_planning_and_reading_is_an_error(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*.log")), tmp_path / "a.log"
    path.write_bytes(b"one\n")
    span = whole(only(log))
    path.unlink()
    with pytest.raises(ExternalError) as error:
        read_all(log, span)
    assert condition_of(error) == "LOG_SPAN_GONE"
    assert str(path) in str(error.value)


def test_a_file_that_vanishes_unread_is_reported_once(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*.log")), tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    offsets = {only(log).id: 4}
    path.unlink()
    assert log.partitions(offsets) == []
    with pytest.raises(ExternalError) as error:
        log.partitions(offsets)
    assert condition_of(error) == "LOG_SPAN_GONE"
    assert log.partitions(offsets) == []


def test_truncation_in_place_starts_a_new_partition_and_loses_no_new_line(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*.log")), tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    before = only(log)
    os.truncate(path, 0)
    assert log.partitions({before.id: before.latest}) == []
    append(path, b"three\n")
    after = only(log, {before.id: before.latest})
    assert after.id != before.id
    assert read_all(log, whole(after)) == b"three\n"


def test_truncation_is_noticed_even_if_the_file_has_outgrown_its_old_size(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*.log")), tmp_path / "a.log"
    path.write_bytes(b"one\n")
    before = only(log)
    path.write_bytes(b"three, longer than before\n")
    after = only(log, {before.id: before.latest})
    assert read_all(log, whole(after)) == b"three, longer than before\n"


@pytest.mark.parametrize("content", [b"header\n", b"header\nall other lines, and longer\n"])
def test_a_file_written_over_with_the_same_first_line_is_another_partition(
    tmp_path: Path, content: bytes
) -> None:
    log, path = FileLog(str(tmp_path / "*.csv")), tmp_path / "a.csv"
    path.write_bytes(b"header\n1\n2\n")
    before = only(log)
    path.write_bytes(content)
    after = only(log, {before.id: before.latest})
    assert after.id != before.id
    assert read_all(log, whole(after)) == content
    with pytest.raises(ExternalError) as error:
        read_all(log, whole(before))
    assert condition_of(error) == "LOG_TRUNCATED"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("pattern", ["a.log*", "a.log"])
def test_a_rotated_file_that_is_compressed_keeps_its_identity(
    tmp_path: Path, restarted: bool, pattern: str
) -> None:
    log, path = FileLog(str(tmp_path / pattern), gz_settle_seconds=0), tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\nthree\nlast without end")
    before = only(log)
    path.rename(tmp_path / "a.log.1")
    compress(tmp_path / "a.log.1")
    if restarted and pattern.endswith("*"):
        log = FileLog(str(tmp_path / pattern), gz_settle_seconds=0)
    after = only(log, {before.id: 4})
    assert after.id == before.id
    assert log.cut(after.id, 4, 1) == after.latest
    assert read_all(log, Span(after.id, 4, after.latest)) == b"two\nthree\nlast without end\n"
    assert read_all(log, Span(after.id, 0, 8)) == b"one\ntwo\n"


def test_an_archive_waits_while_its_file_is_still_there(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*"), gz_settle_seconds=0), tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    before = only(log)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert only(log, {before.id: 4}).id == before.id
    path.unlink()
    after = only(log, {before.id: 4})
    assert (after.id, after.latest) == (before.id, 8)


def test_an_archive_that_only_shares_the_header_is_its_own_partition(tmp_path: Path) -> None:
    log = FileLog(str(tmp_path / "*"), gz_settle_seconds=0)
    (tmp_path / "monday.csv").write_bytes(b"time,user\n1,ann\n")
    before = only(log)
    compress(tmp_path / "monday.csv", b"time,user\n7,bob\n8,cy\n")
    after = only(log, {before.id: before.latest})
    assert after.id != before.id
    assert read_all(log, whole(after)) == b"time,user\n7,bob\n8,cy\n"


def test_an_archive_keeps_its_identity_when_it_is_renamed(tmp_path: Path) -> None:
    log = FileLog(str(tmp_path / "*.gz"), gz_settle_seconds=0)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    before = only(log)
    (tmp_path / "a.gz").rename(tmp_path / "b.gz")
    assert only(log) == before
    assert read_all(FileLog(str(tmp_path / "*.gz")), whole(before)) == b"one\ntwo\n"


def test_an_archive_is_left_alone_until_it_has_settled(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*"), gz_settle_seconds=60), tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    before = only(log)
    archive = compress(path)
    assert [log.partitions({before.id: 4}) for _ in range(3)] == [[], [], []]
    os.utime(archive, (time.time() - 100,) * 2)
    assert only(log, {before.id: 4}).id == before.id


def test_an_archive_that_gets_the_inode_of_a_removed_file_is_not_read_as_its_text(tmp_path: Path) -> None:
    log, path = FileLog(str(tmp_path / "*"), gz_settle_seconds=0), tmp_path / "a.old"
    path.write_bytes(b"one\n")
    text = only(log)
    log.partitions({text.id: 4})
    packed = next(
        data
        for n in range(1000)
        if b"\n" in (data := gzip.compress(b"other %d\n" % n)) and data[-1:] != b"\n"
    )
    path.rename(tmp_path / "b.old.gz")  # as if a new file had got the inode of the removed one
    (tmp_path / "b.old.gz").write_bytes(packed)
    archive = only(log, {text.id: 4})
    assert archive.id.startswith("gz-")
    assert read_all(log, whole(archive)) == gzip.decompress(packed)


@pytest.mark.parametrize("harm", ["cut short", "a byte changed", "a wrong checksum"])
def test_a_damaged_archive_returns_its_whole_lines_and_then_the_damage(tmp_path: Path, harm: str) -> None:
    text = b"".join(b"%d %d\n" % (i, i * i * 7919 % 10_007) for i in range(20_000))
    packed = bytearray(gzip.compress(text))
    if harm == "cut short":
        del packed[len(packed) // 2 :]
    else:
        packed[-5 if harm == "a wrong checksum" else len(packed) // 2] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(packed)
    log = FileLog(str(tmp_path / "*.gz"), gz_settle_seconds=0)
    partition = only(log)
    *chunks, last = log.read(whole(partition), chunk_bytes=4096)
    data = b"".join(chunk.data for chunk in chunks)
    assert data.endswith(b"\n")
    assert len(data) > len(text) // 4
    assert harm == "a byte changed" or text.startswith(data)
    assert last.data == b""
    assert last.damage
    assert "a.gz" in last.damage
    assert list(log.read(whole(partition), chunk_bytes=4096)) == [*chunks, last]


def test_an_archive_without_readable_lines_is_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"this is not gzip at all")
    log = FileLog(str(tmp_path / "*.gz"), gz_settle_seconds=0)
    (chunk,) = log.read(whole(only(log)))
    assert chunk.damage


def test_a_missing_directory_is_an_error_at_the_start(tmp_path: Path) -> None:
    log = FileLog(str(tmp_path / "nowhere" / "*.log"))
    assert log.partitions({}) == []
    with pytest.raises(ExternalError) as error:
        log.start(None, {})
    assert condition_of(error) == "LOG_PATH_MISSING"


def test_no_file_yet_is_an_error_only_for_a_finished_log(tmp_path: Path) -> None:
    assert FileLog(str(tmp_path / "*.log")).start(None, {}) == {}
    with pytest.raises(ExternalError) as error:
        FileLog(str(tmp_path / "*.log"), finished=True).start(None, {})
    assert condition_of(error) == "LOG_PATH_MISSING"


@pytest.mark.parametrize("kind", ["directory", "dangling link", "pipe"])
def test_something_that_cannot_be_read_is_an_error_at_the_start(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.log"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    with pytest.raises(ExternalError) as error:
        FileLog(str(tmp_path / "*.log")).start(None, {})
    assert condition_of(error) == "LOG_UNREADABLE"


def test_two_names_of_one_file_are_one_partition(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "current.log").symlink_to("a.log")
    assert only(FileLog(str(tmp_path / "*.log"))).latest == 4


def test_a_link_may_point_elsewhere_while_its_old_file_is_unread(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "0.log").write_bytes(b"old one\n")
    (tmp_path / "pods" / "1.log").write_bytes(b"new one\n")
    link, log = tmp_path / "current.log", FileLog(str(tmp_path / "*.log"))
    link.symlink_to("pods/0.log")
    before = only(log)
    link.unlink()
    link.symlink_to("pods/1.log")
    (tmp_path / "pods" / "0.log").rename(tmp_path / "pods" / "0.log.1")
    assert read_all(log, whole(before)) == b"old one\n"
    assert [read_all(log, whole(p)) for p in log.partitions({before.id: 0})] == [b"old one\n", b"new one\n"]


def test_a_file_that_comes_after_a_finished_log_was_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    pattern = str(tmp_path / "*.log")
    first = FileLog(pattern, finished=True)
    memory = first.start(None, {})
    reached = {partition.id: partition.latest for partition in first.partitions({})}
    assert FileLog(pattern, finished=True).start(memory, reached) == memory
    (tmp_path / "a.log").rename(tmp_path / "renamed.log")
    assert FileLog(pattern, finished=True).start(memory, reached) == memory
    (tmp_path / "b.log").write_bytes(b"two\n")
    with pytest.raises(UserError) as refused:
        FileLog(pattern, finished=True).start(memory, reached)
    assert refused.value.condition == "LOG_NOT_FINISHED"
    assert "b.log" in refused.value.primary
    assert (
        FileLog(pattern, finished=True).start({}, reached) == memory
    )  # the log was not declared finished before
    assert FileLog(pattern).start(memory, reached) == {}
