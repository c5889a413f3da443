"""Which file continues which partition: each line is read once, whatever happens to names, inodes and content."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from penstock.logs.file_identity import Identity
from tests.logs.file_reader import FileReader

HEADER = b"time,user,page\n"


def lines(name: str, first: int, last: int) -> bytes:
    return b"".join(b"%s,%d,%s\n" % (name.encode(), i, b"p" * (i % 50)) for i in range(first, last))


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def copy_and_truncate(path: Path, copy: Path) -> None:
    copy.write_bytes(path.read_bytes())
    os.truncate(path, 0)


def assert_read_once(reader: FileReader, *texts: bytes) -> None:
    reader.settle()
    expected = sorted(b"".join(texts).splitlines())
    assert sorted(reader.lines.elements()) == expected


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_with_the_inode_and_the_header_of_a_removed_one_is_read_from_its_start(
    tmp_path: Path, restarted: bool
) -> None:
    """As after an inode was used again: the file is emptied and filled within one interval between epochs."""
    reader, path = FileReader(tmp_path / "*.csv"), tmp_path / "a.csv"
    old, new = HEADER + lines("old", 0, 40), HEADER + lines("new", 0, 80)
    path.write_bytes(old)
    reader.step()
    if restarted:
        reader.restart()
    path.write_bytes(new)
    assert_read_once(reader, old, new)


@pytest.mark.parametrize("restarted", [False, True])
def test_files_with_equal_first_lines_are_told_apart_when_they_are_compressed(
    tmp_path: Path, restarted: bool
) -> None:
    reader = FileReader(tmp_path / "*")
    texts = {name: HEADER + lines(name, 0, 40 + number) for number, name in enumerate("abc")}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_bytes(text)
    reader.step(units=1000)
    if restarted:
        reader.restart()
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").unlink()
        (tmp_path / f"archive-of-{name}.gz").write_bytes(gzip.compress(text))
    assert_read_once(reader, *texts.values())


@pytest.mark.parametrize("at_same_path", [True, False])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("units", [1200, 1 << 30])
def test_a_file_that_is_replaced_by_one_that_extends_it_continues(
    tmp_path: Path, restarted: bool, at_same_path: bool, units: int
) -> None:
    """As rsync does: a new inode under the same name."""
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    text = lines("a", 0, 100)
    path.write_bytes(text)
    reader.step(units)
    if restarted:
        reader.restart()
    more = text + lines("a", 100, 110)
    (tmp_path / ".a.log.tmp").write_bytes(more)
    (tmp_path / ".a.log.tmp").rename(path if at_same_path else tmp_path / "moved.log")
    if not at_same_path:
        path.unlink()
    assert_read_once(reader, more)


def test_a_file_that_is_replaced_by_another_is_followed_by_the_other(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    old, new = HEADER + lines("old", 0, 100), HEADER + lines("new", 0, 10)
    path.write_bytes(old)
    reader.step()
    (tmp_path / "tmp").write_bytes(new)
    (tmp_path / "tmp").rename(path)
    assert_read_once(reader, old, new)


def test_a_file_that_is_replaced_before_it_was_read_to_its_end_is_an_error_once(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(lines("old", 0, 100))
    reader.step(units=1500)
    (tmp_path / "tmp").write_bytes(lines("new", 0, 10))
    (tmp_path / "tmp").rename(path)
    with pytest.raises(ExternalError) as lost:
        reader.settle()
    assert lost.value.condition == "LOG_SPAN_GONE"
    assert str(path) in str(lost.value)
    reader.restart()
    reader.settle()
    assert all(reader.lines[line] == 1 for line in lines("new", 0, 10).splitlines())


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("first_line", [b"", HEADER])
def test_a_copied_and_truncated_file_is_read_once_with_what_was_added_last(
    tmp_path: Path, inside: bool, restarted: bool, packed: bool, first_line: bytes
) -> None:
    reader, path = FileReader(tmp_path / ("a.log*" if inside else "a.log")), tmp_path / "a.log"
    old = first_line + lines("old", 0, 100)
    path.write_bytes(old)
    reader.step()
    append(path, last := lines("old", 100, 103))
    copy = tmp_path / "a.log.1"
    copy_and_truncate(path, copy)
    if packed:
        (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(copy.read_bytes()))
        copy.unlink()
    append(path, new := first_line + lines("new", 0, 200))
    if restarted:
        reader.restart()
    assert_read_once(reader, old, last, new)


@pytest.mark.parametrize("inside", [True, False])
def test_a_file_truncated_between_record_and_reading_is_read_from_its_copy(
    tmp_path: Path, inside: bool
) -> None:
    reader, path = FileReader(tmp_path / ("a.log*" if inside else "a.log")), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 100))
    reader.admit()
    copy_and_truncate(path, tmp_path / "a.log.1")
    append(path, new := lines("new", 0, 200))
    assert_read_once(reader, old, new)


def test_a_file_truncated_between_record_and_reading_without_a_copy_is_an_error(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(HEADER + lines("old", 0, 100))
    reader.admit()
    path.write_bytes(HEADER + lines("new", 0, 200))
    with pytest.raises(ExternalError) as gone:
        reader.execute()
    assert gone.value.condition == "LOG_SPAN_GONE"
    assert str(path) in str(gone.value)
    assert f"bytes 0 to {reader.spans[0].end}" in str(gone.value)


def test_a_replayed_epoch_reads_the_same_bytes_from_a_file_that_was_replaced(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(text := lines("a", 0, 100))
    reader.admit(units=1500)
    first = reader.read_spans()
    (tmp_path / "a.log.old.gz").write_bytes(gzip.compress(text))
    path.write_bytes(lines("other", 0, 300))
    reader.restart()
    assert reader.read_spans() == first


def test_a_copy_that_is_still_written_waits_and_one_that_stays_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader, path = FileReader(tmp_path / "a.log*", settle_seconds=3600), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 200))
    reader.step()
    copy = tmp_path / "a.log.1"
    copy.write_bytes(old[: len(old) // 2])
    assert reader.step() == 0
    assert reader.log.withheld == {str(copy)}
    copy.write_bytes(old)
    os.utime(copy, (0, 0))
    assert reader.step() == 0
    assert not reader.log.withheld
    assert "a.log.1 has the same lines as" in caplog.text
    append(copy, lines("own", 0, 3))
    assert reader.step() == 3  # it is a log of its own after all
    append(path, lines("old", 200, 202))
    assert reader.step() == 2


def test_the_copy_of_a_file_that_is_truncated_later_continues_it(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "a.log*"), tmp_path / "a.log"
    path.write_bytes(old := lines("old", 0, 200))
    reader.step()
    (tmp_path / "a.log.1").write_bytes(old)
    reader.step()
    path.write_bytes(new := lines("new", 0, 20))
    assert_read_once(reader, old, new)


def test_small_files_with_the_same_lines_are_logs_of_their_own(tmp_path: Path) -> None:
    reader = FileReader(tmp_path / "*.log")
    for name in "abc":
        (tmp_path / f"{name}.log").write_bytes(HEADER)
    assert_read_once(reader, HEADER * 3)
    for name in "abc":
        append(tmp_path / f"{name}.log", lines(name, 0, 5))
    assert_read_once(reader, HEADER * 3, *(lines(name, 0, 5) for name in "abc"))


def test_archives_that_differ_after_their_start_are_both_read(tmp_path: Path) -> None:
    reader, start = FileReader(tmp_path / "*.gz"), b"the same line\n" * 6000
    for name in "ab":
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(start + lines(name, 0, 5)))
    assert_read_once(reader, start * 2, lines("a", 0, 5), lines("b", 0, 5))
    reader.restart()
    assert_read_once(reader, start * 2, lines("a", 0, 5), lines("b", 0, 5))


def test_equal_archives_are_read_once_and_said_to_be_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader, text = FileReader(tmp_path / "*.gz"), lines("a", 0, 100)
    for name in "ab":
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text))
    assert_read_once(reader, text)
    assert "b.gz has the same lines as" in caplog.text
    (tmp_path / "a.gz").unlink()
    assert_read_once(reader, text)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("units", [1200, 1 << 30])
def test_an_unpacked_archive_is_not_read_again(tmp_path: Path, restarted: bool, units: int) -> None:
    reader, text = FileReader(tmp_path / "*"), lines("a", 0, 100)
    path = tmp_path / "a.log"
    path.write_bytes(text)
    reader.step(units)
    for _ in range(2):
        (tmp_path / "a.log.gz").write_bytes(gzip.compress(text))
        path.unlink()
        if restarted:
            reader.restart()
        reader.settle()
        path.write_bytes(text)
        (tmp_path / "a.log.gz").unlink()
        reader.settle()
    assert_read_once(reader, text)


def test_offsets_of_former_versions_continue(tmp_path: Path) -> None:
    """They have no identities: a file with the inode and the first line continues where a line ends."""
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(text := HEADER + lines("a", 0, 100))
    reader.step(units=900)
    reader.reached = replace(reader.reached, identities={})
    reader.record = None
    reader.restart()
    path.rename(tmp_path / "b.log")
    append(tmp_path / "b.log", more := lines("a", 100, 120))
    assert_read_once(reader, text, more)


@pytest.mark.parametrize("hole", [300, 70_000])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_starts_with_a_hole_is_the_same_when_it_is_compressed(
    tmp_path: Path, hole: int, restarted: bool
) -> None:
    reader, path = FileReader(tmp_path / "*"), tmp_path / "a.log"
    path.write_bytes(bytes(hole) + (text := lines("a", 0, 100)))
    reader.step(units=1200)
    if restarted:
        reader.restart()
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    (tmp_path / "other.gz").write_bytes(gzip.compress(bytes(hole) + (other := lines("b", 0, 50))))
    assert_read_once(reader, text, other)


def test_identities_of_state_directories_without_times_of_birth_are_read() -> None:
    former = Identity.from_text("1f4.0000abcd.00000012:/logs/a:b.log")
    assert (former.path, former.length, former.edge_crc, former.birth) == ("/logs/a:b.log", 500, 18, 0)
    assert former.prefix.crc == 0xABCD
    assert Identity.from_text(former.to_text()) == former


_TWO_MOUNTS = """
    import sys
    from pathlib import Path
    from tests.logs.file_reader import FileReader
    one, two = (Path(path) for path in sys.argv[1:])
    text = {}
    for path in (one, two):
        text[path] = b"header\\n" + b"".join(b"%s %d\\n" % (path.name.encode(), i) for i in range(30))
        (path / "a.log").write_bytes(text[path])
    assert (one / "a.log").stat().st_ino == (two / "a.log").stat().st_ino
    reader = FileReader(one.parent / "*" / "a.log")
    for _ in range(3):
        reader.settle()
        reader.restart()
        for path in text:
            with open(path / "a.log", "ab") as file:
                file.write(b"more\\n")
            text[path] += b"more\\n"
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(b"".join(text.values()).splitlines())
    assert len(reader.names) == 2
    print("read once")
"""


def run_in_mounts(tmp_path: Path, text: str, mounted: list[str], others: list[str]) -> str:
    """What a program prints that is started with some directories, each a new file system, and others."""
    paths = [tmp_path / name for name in (*mounted, *others)]
    for path in paths:
        path.mkdir()
    mounts = " && ".join(f"mount -t tmpfs none {tmp_path / name}" for name in mounted)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(text))
    command = f"{mounts} && exec {sys.executable} {program} {' '.join(map(str, paths))}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    if "mount:" in done.stderr:
        pytest.skip(f"mounting is not possible here: {done.stderr}")
    return done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.may_skip("the right to mount file systems")
def test_two_file_systems_with_equal_inodes_are_told_apart(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting needs root and unshare")
    assert run_in_mounts(tmp_path, _TWO_MOUNTS, ["one", "two"], []) == "read once\n"


_REMOUNTED = """
    import subprocess, sys
    from pathlib import Path
    from tests.logs.file_reader import FileReader
    one, two, logs = (Path(path) for path in sys.argv[1:])
    text = b"".join(b"line %d\\n" % i for i in range(300))
    for path in (one, two):
        (path / "a.log").write_bytes(text)
        (path / "a.log.1").write_bytes(b"rotated\\n" + text)
    reader = FileReader(logs / "*")
    for number, path in enumerate((one, two, one, two)):
        subprocess.run(["mount", "--bind", path, logs], check=True)
        found = (logs / "a.log").stat()
        assert (found.st_dev, found.st_ino) == ((path / "a.log").stat().st_dev, (one / "a.log").stat().st_ino)
        more = b"more %d\\n" % number
        text += more
        for each in (one, two):  # what is on the disk stays, whatever its device is called
            with open(each / "a.log", "ab") as file:
                file.write(more)
        reader.settle()
        subprocess.run(["umount", logs], check=True)
        if number >= 2:
            reader.restart()
    assert sorted(reader.lines.elements()) == sorted(text.splitlines() + [b"rotated"] + text.splitlines()[:300])
    assert len(reader.names) == 2
    print("read once")
"""


@pytest.mark.process
@pytest.mark.may_skip("the right to mount file systems")
def test_a_file_system_that_has_another_device_number_after_a_mount_is_read_on(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting needs root and unshare")
    done = run_in_mounts(tmp_path, _REMOUNTED, ["one", "two"], ["logs"])
    assert done == "read once\n"
