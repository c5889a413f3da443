"""Offsets forget files that are gone and fully read; one that comes back is recognised."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from penstock.logs.file_partitions import REMEMBERED
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
