"""A replicated log of folders of files: copies that lag, are cut, rotated or lost."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

from penstock.errors import ExternalError, UserError
from penstock.logs import FileLog, Log, ReplicatedLog, Span
from penstock.testing.log_contract import LogContract, read_all
from penstock.testing.manual_clock import ManualClock

LINES = [f"line {i} {'x' * (i * 7 % 90)}" for i in range(600)]


class TestFoldersOfFiles(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        text = "".join(f"{line}\n" for line in LINES)
        for copy, end in (("one", len(text)), ("two", len(text) // 3)):
            (tmp_path / copy).mkdir()
            (tmp_path / copy / "a.log").write_text(f"first of a\n{text}half a li")
            (tmp_path / copy / "b.log").write_text(f"first of b\n{text[:end]}\n")
        return ReplicatedLog(FileLog(str(tmp_path / "one/*.log")), FileLog(str(tmp_path / "two/*.log")))


def test_files_with_the_same_first_line_are_refused(tmp_path: Path) -> None:
    for name in ("one/a.log", "one/b.log", "two/a.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("header\nline\n")
    log = ReplicatedLog(FileLog(str(tmp_path / "one/*")), FileLog(str(tmp_path / "two/*")))
    with pytest.raises(UserError) as refused:
        log.partitions({})
    assert refused.value.condition == "COPIES_ALIKE"


def test_a_restart_continues_although_a_folder_is_lost(tmp_path: Path) -> None:
    for copy in ("one", "two"):
        (tmp_path / copy).mkdir()
        for name in ("a", "b"):
            (tmp_path / copy / f"{name}.log").write_text(f"first of {name}\nsecond\nthird\n")

    def make_log() -> ReplicatedLog:
        return ReplicatedLog(*(FileLog(str(tmp_path / copy / "*.log")) for copy in ("one", "two")))

    first = make_log()
    memory = first.start(None, {})
    parts = first.partitions({})
    ends = {one.id: first.cut(one.id, 0, 12) for one in parts}
    assert set(ends.values()) == {11}
    shutil.rmtree(tmp_path / "one")
    again = make_log()
    again.start(memory, ends)
    assert [one.latest for one in again.partitions(ends)] == [24, 24]
    assert again.cut(parts[0].id, 11, 100) == 24
    assert again.route(parts[0].id) == 1
    # a span that was recorded with the lost copy
    shipped = pickle.loads(pickle.dumps(again))
    for log in (again, shipped, make_log()):
        texts = {read_all(log, Span(one.id, 0, 11, 0)) for one in parts}
        assert texts == {b"first of a\n", b"first of b\n"}


def test_copies_that_lag_in_different_files_are_read(tmp_path: Path) -> None:
    """Neither copy is as far as was read of both files, which does not count as truncation."""
    text = {name: "".join(f"{name} {line}\n" for line in LINES[:50]) for name in "ab"}
    for copy, shorter in (("one", "b"), ("two", "a")):
        (tmp_path / copy).mkdir()
        for name, lines in text.items():
            end = lines.index("line 20") if name == shorter else len(lines)
            (tmp_path / copy / f"{name}.log").write_text(lines[:end])
    log = ReplicatedLog(*(FileLog(str(tmp_path / copy / "*.log")) for copy in ("one", "two")))
    parts = log.partitions({})
    ends = {one.id: log.cut(one.id, 0, 1 << 20) for one in parts}
    assert sorted(ends.values()) == sorted(len(lines) for lines in text.values())
    assert {log.route(one) for one in ends} == {0, 1}
    for _ in range(3):
        assert {one.id: one.latest for one in log.partitions(ends)} == ends
        assert not log.away
    texts = {read_all(log, Span(one, 0, end, log.route(one))).decode() for one, end in ends.items()}
    assert texts == set(text.values())


def test_a_truncated_file_is_no_copy_any_more(tmp_path: Path) -> None:
    for copy in ("one", "two"):
        (tmp_path / copy).mkdir()
        (tmp_path / copy / "a.log").write_text("first\nsecond\nthird\n")
    log = ReplicatedLog(*(FileLog(str(tmp_path / copy / "*.log")) for copy in ("one", "two")))
    (part,) = log.partitions({})
    end = log.cut(part.id, 0, 1 << 20)
    (tmp_path / "one" / "a.log").write_text("first\n")
    with open(tmp_path / "one" / "a.log", "a") as file:
        assert [one.latest for one in log.partitions({part.id: end})] == [end]
        file.write("other\nlines\nthan\nthere\nwere\n")
    with open(tmp_path / "two" / "a.log", "a") as file:
        file.write("fourth\n")
    assert [one.latest for one in log.partitions({part.id: end})] == [end + len("fourth\n")]
    assert log.route(part.id) == 1
    assert "truncated" in log.away[0]


@pytest.mark.parametrize("finished", [True, False])
def test_files_of_one_name_with_different_first_lines_are_refused(tmp_path: Path, finished: bool) -> None:
    """Copies in different orders: read as two partitions, every line would count twice."""
    for copy, lines in (("one", LINES[:10]), ("two", LINES[9::-1])):
        (tmp_path / copy).mkdir()
        (tmp_path / copy / "a.log").write_text("".join(f"{line}\n" for line in lines))
    log = ReplicatedLog(
        *(FileLog(str(tmp_path / copy / "*.log"), finished=finished) for copy in ("one", "two"))
    )
    clock = log.clock = ManualClock()
    if not finished:  # one of them may just have been rotated
        assert log.partitions({}) == []
        assert len(log.withheld) == 2
        clock.turn(6)
    with pytest.raises(UserError) as refused:
        log.partitions({})
    assert refused.value.condition == "COPIES_DIFFER"
    assert "a.log" in str(refused.value)


def test_a_file_that_is_rotated_in_one_copy_before_the_other_is_not_refused(tmp_path: Path) -> None:
    for copy in ("one", "two"):
        (tmp_path / copy).mkdir()
        (tmp_path / copy / "a.log").write_text("first\nsecond\n")
    log = ReplicatedLog(*(FileLog(str(tmp_path / copy / "a.log*")) for copy in ("one", "two")))
    clock = log.clock = ManualClock()
    ends = {one.id: one.latest for one in log.partitions({})}
    (tmp_path / "one" / "a.log").rename(tmp_path / "one" / "a.log.1")
    (tmp_path / "one" / "a.log").write_text("third\n")
    for _ in range(3):
        clock.turn(10)
        ends |= {one.id: one.latest for one in log.partitions(ends)}
    assert sorted(ends.values()) == [6, 13]


def test_a_start_without_any_copy_is_an_error_also_after_a_restart(tmp_path: Path) -> None:
    for copy in ("one", "two"):
        (tmp_path / copy).mkdir()
        (tmp_path / copy / "a.log").write_text("line\n")
    memory = ReplicatedLog(*(FileLog(str(tmp_path / copy / "*")) for copy in ("one", "two"))).start(None, {})
    for copy in ("one", "two"):
        shutil.rmtree(tmp_path / copy)
    with pytest.raises(ExternalError) as missing:
        ReplicatedLog(*(FileLog(str(tmp_path / copy / "*")) for copy in ("one", "two"))).start(memory, {})
    assert missing.value.condition == "LOG_PATH_MISSING"
