"""A real engine reads each line once, or says which file it is in doubt of, whatever happens to files."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from tests.logs.engine_reader import EngineReader, json_lines


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory


@pytest.fixture
def reader(logs: Path) -> Iterator[EngineReader]:
    reader = EngineReader(logs / "*", logs.parent / "state")
    yield reader
    reader.close()


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def assert_read_once(reader: EngineReader, *texts: bytes) -> None:
    reader.settle()
    assert sorted(reader.lines.elements()) == sorted(b"".join(texts).splitlines())


@pytest.mark.parametrize("count", [20, 60, 2000])
@pytest.mark.parametrize("moment", ["listed", "raced", "restarted"])
def test_a_copy_that_is_shorter_than_what_was_read_of_its_original_is_not_read(
    logs: Path, reader: EngineReader, count: int, moment: str
) -> None:
    """logrotate's copytruncate: lines come between cp and the truncation."""
    path, copy = logs / "a.log", logs / "a.log.1"
    path.write_bytes(old := json_lines("old", 0, count))
    if moment == "raced":  # the copy is made after the directory was listed and before the file was looked at
        reader.settle()
        append(path, between := json_lines("old", count, count + 9))
        partial = old + json_lines("old", count, count + 3)
        reader.settle()
        copy.write_bytes(partial)
    else:
        reader.settle()
        copy.write_bytes(old)
        append(path, between := json_lines("old", count, count + 9))
        reader.settle()
    if moment == "restarted":
        reader.restart()
    os.truncate(path, 0)
    append(path, new := json_lines("new", 0, 7))
    assert_read_once(reader, old, between, new)
    reader.restart()
    assert_read_once(reader, old, between, new)


def rotate(directory: Path, style: str, number: int) -> None:
    """What logrotate does once, in one of its styles; `number` counts the rotations."""
    path, first = directory / "a.log", directory / "a.log.1"
    if style == "dateext":
        path.rename(directory / f"a.log-202601{number + 10}")
        if number:
            compress(directory / f"a.log-202601{number + 9}")
        return
    for old in range(number, 0, -1):
        for suffix in ("", ".gz"):
            if (directory / f"a.log.{old}{suffix}").exists():
                (directory / f"a.log.{old}{suffix}").rename(directory / f"a.log.{old + 1}{suffix}")
    if style == "copytruncate":
        shutil.copyfile(path, first)
        os.truncate(path, 0)
    else:
        path.rename(first)
    if style == "delaycompress":
        compress(directory / "a.log.2")
    elif style != "create":
        compress(first)
    if style == "maxage" and number:
        (directory / f"a.log.{number + 1}.gz").unlink(missing_ok=True)


def compress(path: Path) -> None:
    if path.exists():
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


@pytest.mark.parametrize("pattern", ["*", "a.log"])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "style", ["create", "copytruncate", "delaycompress", "compress", "dateext", "maxage", "reopened late"]
)
def test_each_style_of_logrotate_gives_every_line_once(
    logs: Path, style: str, restarts: bool, pattern: str
) -> None:
    reader = EngineReader(logs / pattern, logs.parent / "state")
    texts = []
    for number in range(5):
        path = logs / "a.log"
        texts += [json_lines(f"n{number}", 0, 30), json_lines(f"n{number}", 30, 50)]
        append(path, texts[-2])
        reader.settle()
        if restarts:
            reader.restart()
        append(path, texts[-1])
        if style == "maxage":
            reader.settle()
        if style == "reopened late":  # mv, and lines still come before the writer gets its HUP
            rotate(logs, "create", number)
            texts.append(json_lines(f"late{number}", 0, 3))
            append(logs / "a.log.1", texts[-1])
        else:
            rotate(logs, style, number)
    assert_read_once(reader, *texts)
    reader.close()


def test_rotatelogs_and_a_link_to_the_current_file_give_every_line_once(
    logs: Path, reader: EngineReader
) -> None:
    texts, link = [], logs / "current"
    for number in range(4):
        path = logs / f"access.{number * 3600}"
        texts.append(json_lines(f"n{number}", 0, 30))
        path.write_bytes(texts[-1])
        link.unlink(missing_ok=True)
        (os.symlink if number % 2 else os.link)(path, link)
        reader.step()
        texts.append(json_lines(f"n{number}", 30, 50))
        append(link, texts[-1])
        if number == 2:
            reader.restart()
    assert_read_once(reader, *texts)


@pytest.mark.parametrize("cut", [0.95, 0.3])
@pytest.mark.parametrize("count", [40, 400, 5000])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_damaged_archive_that_is_shorter_than_what_was_read_of_its_file_is_not_read_again(
    logs: Path, reader: EngineReader, count: int, cut: float, restarted: bool
) -> None:
    path, archive = logs / "a.log", logs / "a.log.1.gz"
    path.write_bytes(old := json_lines("old", 0, count))
    reader.settle()
    if restarted:
        reader.restart()
    packed = gzip.compress(old)
    archive.write_bytes(packed[: int(len(packed) * cut)])
    path.unlink()
    assert_read_once(reader, old)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_file_with_the_inode_and_the_lines_of_a_removed_one_is_read(
    logs: Path, reader: EngineReader, restarted: bool
) -> None:
    one, two = logs / "inv-01.json", logs / "inv-02.json"
    text = json_lines("inv", 0, 100)
    one.write_bytes(text)
    reader.settle()
    if restarted:
        reader.restart()
    one.unlink()
    two.write_bytes(text)
    assert_read_once(reader, text, text)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_copied_to_an_unrelated_name_and_emptied_is_read_once(
    logs: Path, reader: EngineReader, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = logs / "a.log"
    path.write_bytes(text := json_lines("a", 0, 100))
    reader.settle()
    if restarted:
        reader.restart()
    (logs / "keep").write_bytes(text)
    os.truncate(path, 0)
    append(path, new := json_lines("new", 0, 10))
    assert_read_once(reader, text, new)
    assert f"{logs / 'keep'} starts with all that was read of {path}" in caplog.text


@pytest.mark.parametrize("was_text", [False, True])
@pytest.mark.parametrize("unpacked", [0.4, 1.0])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_unpacked_beside_its_archive_is_not_read_again(
    logs: Path, reader: EngineReader, restarted: bool, unpacked: float, was_text: bool
) -> None:
    """As `gunzip` does: the text grows while the archive is there."""
    text = json_lines("a", 0, 400)
    archive, path = logs / "a.log.1.gz", logs / "a.log.1"
    if was_text:
        path.write_bytes(text)
        reader.settle()
        path.unlink()
    archive.write_bytes(gzip.compress(text))
    reader.settle()
    if restarted:
        reader.restart()
    path.write_bytes(text[: int(len(text) * unpacked)])
    reader.settle()
    path.write_bytes(text)
    reader.settle()
    archive.unlink()
    assert_read_once(reader, text)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_truncated_to_a_part_of_what_was_read_is_an_error_that_names_it(
    logs: Path, reader: EngineReader, restarted: bool
) -> None:
    path = logs / "a.log"
    path.write_bytes(text := json_lines("a", 0, 400))
    reader.settle()
    if restarted:
        reader.restart()
    os.truncate(path, len(text) * 3 // 4)
    append(path, b"\n" + json_lines("new", 0, 10))
    with pytest.raises(ExternalError) as cut:
        reader.settle()
    assert cut.value.condition == "LOG_TRUNCATED"
    assert str(path) in str(cut.value)


def test_lines_that_are_written_into_preallocated_space_are_read(logs: Path, reader: EngineReader) -> None:
    path, texts = logs / "a.log", [json_lines("a", n * 40, n * 40 + 40) for n in range(5)]
    path.write_bytes(bytes(200_000))
    at = 0
    for text in texts:
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(text)
        at += len(text)
        reader.settle()
    assert_read_once(reader, *texts)


@pytest.mark.parametrize("hole", [300, 70_000])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_writer_that_continues_at_its_offset_after_a_truncation_leaves_a_hole(
    logs: Path, reader: EngineReader, restarted: bool, hole: int
) -> None:
    """copytruncate beside a writer that does not append: the file starts with NUL bytes."""
    path = logs / "a.log"
    path.write_bytes(old := json_lines("old", 0, 20))
    reader.settle()
    (logs / "a.log.1").write_bytes(old)
    os.truncate(path, 0)
    if restarted:
        reader.restart()
    texts = []
    for n in range(3):
        texts.append(json_lines("new", n * 5, n * 5 + 5))
        with open(path, "r+b") as file:
            file.seek(hole if n == 0 else 0, os.SEEK_SET if n == 0 else os.SEEK_END)
            file.write(texts[-1])
        reader.settle()
    assert_read_once(reader, old, *texts)
