"""Offsets forget files that are gone and fully read; one that comes back is recognised, also long after."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from penstock.logs.file_identity import Identity
from penstock.logs.file_partitions import REMEMBERED
from penstock.logs.forgotten_files import MOST_FORGOTTEN, ForgottenFiles
from penstock.logs.textfile import Prefix
from tests.logs.file_reader import STREAM, FileReader


def lines(name: int, count: int = 20) -> bytes:
    return b"".join(b"file %d line %d %s\n" % (name, i, b"x" * 20) for i in range(count))


def prune(reader: FileReader) -> None:
    """As an engine does after retention: no retained epoch needs more than what was reached."""
    reader.log.prune(dict(reader.reached.at[STREAM]))


def rotate(reader: FileReader, path: Path, number: int) -> None:
    path.write_bytes(lines(number))
    reader.step()
    path.unlink()
    if number % 10 == 9:
        reader.step()
        reader.step()
        prune(reader)


def test_offsets_do_not_grow_with_files_that_come_and_go(tmp_path: Path) -> None:
    reader, sizes = FileReader(tmp_path / "*.log"), []
    for number in range(3 * REMEMBERED):
        rotate(reader, tmp_path / f"{number}.log", number)
        sizes.append(reader.size)
    assert len(reader.names) < 30
    assert max(sizes[2 * REMEMBERED :]) < 1.2 * max(sizes[: 2 * REMEMBERED])
    assert reader.lines.total() == 3 * REMEMBERED * 20


def test_a_file_is_not_forgotten_while_a_retained_epoch_may_read_it(tmp_path: Path) -> None:
    reader, path = FileReader(tmp_path / "*.log"), tmp_path / "a.log"
    path.write_bytes(lines(1))
    reader.step(units=300)
    before = dict(reader.reached.at[STREAM])
    reader.settle()
    path.unlink()
    reader.settle()
    reader.log.prune(before)
    reader.step()
    assert len(reader.names) == 1
    prune(reader)
    reader.step()
    assert not reader.names


@pytest.mark.parametrize("form", ["renamed", "packed", "extended"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_forgotten_file_that_comes_back_is_not_read_again(
    tmp_path: Path, form: str, restarted: bool
) -> None:
    reader, path = FileReader(tmp_path / "*"), tmp_path / "a.log"
    path.write_bytes(lines(1))
    reader.step()
    path.unlink()
    reader.settle()
    prune(reader)
    reader.step()
    assert not reader.names
    if restarted:
        reader.restart()
    back = tmp_path / ("a.log.7.gz" if form == "packed" else "a.log.7")
    text = lines(1, 22 if form == "extended" else 20)
    back.write_bytes(gzip.compress(text) if form == "packed" else text)
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(text.splitlines())
    assert len(reader.names) == 1


@pytest.mark.parametrize("form", ["same", "renamed", "packed"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_comes_back_after_many_others_is_not_read_again_and_that_is_reported(
    tmp_path: Path, form: str, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reader = FileReader(tmp_path / "*")
    for number in range(REMEMBERED + 50):
        rotate(reader, tmp_path / f"{number}.log", number)
    if restarted:
        reader.restart()
    before = reader.lines.total()
    back = tmp_path / {"same": "3.log", "renamed": "3.log.1", "packed": "3.log.1.gz"}[form]
    back.write_bytes(gzip.compress(lines(3)) if form == "packed" else lines(3))
    reader.settle()
    assert reader.lines.total() == before
    assert f"{back} has all {len(lines(3))} bytes of a file of its name that was read" in caplog.text
    reader.restart()
    if form != "packed":
        with open(back, "ab") as file:
            file.write(b"more\n")
        reader.settle()
        assert reader.lines.total() == before + 1
    assert reader.lines.total() - before == (form != "packed")


def test_a_file_with_the_lines_of_one_that_was_forgotten_long_ago_is_read_under_a_name_of_its_own(
    tmp_path: Path,
) -> None:
    reader = FileReader(tmp_path / "*.log")
    for number in range(REMEMBERED + 50):
        rotate(reader, tmp_path / f"{number}.log", number)
    (tmp_path / "other.log").write_bytes(lines(3))
    assert reader.step() == 20


def test_fingerprints_are_bounded_and_survive_as_text() -> None:
    forgotten = ForgottenFiles()
    identities = [
        Identity(f"/logs/{n}.log", 1000 + n, Prefix(1000 + n, n), n) for n in range(2 * MOST_FORGOTTEN)
    ]
    forgotten.add(identities)
    read = ForgottenFiles(forgotten.to_text())
    assert [one for one in identities if read.has(one)] == identities[MOST_FORGOTTEN:]
    assert len(read.to_text()) < 7 * MOST_FORGOTTEN


@pytest.mark.slow
def test_offsets_stay_bounded_over_ten_thousand_rotated_files(tmp_path: Path) -> None:
    reader, sizes = FileReader(tmp_path / "*.log"), []
    for number in range(10_000):
        rotate(reader, tmp_path / f"{number}.log", number)
        if number % 100 == 50:
            sizes.append(reader.size)
    assert len(reader.names) < 30
    full = next(at for at, size in enumerate(sizes) if size > 0.9 * max(sizes))
    assert full < len(sizes) / 3
    assert max(sizes[full:]) < 1.2 * min(sizes[full:])
    assert reader.lines.total() == 200_000
