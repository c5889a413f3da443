"""An agent never makes its writer wait while the spool has room, ships every line once, and follows rotated files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ingest.processes import Processes, numbered, until

HEAVY = ("polars", "pyarrow", "pyspark", "numpy", "typer", "rich", "asyncio", "logging")


def write_lines(fd: int, lines: list[bytes]) -> int:
    """Write lines to a pipe that does not wait; how many it took whole."""
    for count, line in enumerate(lines):
        data = line + b"\n"
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                return count
    return len(lines)


def test_it_imports_nothing_heavy() -> None:
    code = f"import sys, penstock.ingest.agent_command; print(sorted(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"


def test_lines_of_a_pipe_arrive_and_the_agent_ends_with_it(processes: Processes, tmp_path: Path) -> None:
    processes.gateway()
    sent = list(numbered(0, 20_000))
    (tmp_path / "input").write_bytes(b"\n".join(sent))  # the last line without its end
    with open(tmp_path / "input", "rb") as file:
        assert processes.agent(stdin=file).wait() == 0
    out, into = os.pipe()
    agent = processes.agent("--stream", "piped", stdin=out)
    os.close(out)
    with open(into, "wb") as pipe:
        pipe.write(b"\n".join(sent) + b"\n")
    assert agent.wait() == 0
    assert processes.lines() == processes.lines("piped") == sent


def test_the_writer_never_waits_for_a_gateway_that_is_away(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    agent = processes.agent("--spool", tmp_path / "spool", "--drain", "20s", stdin=out)
    sent = list(numbered(0, 100_000))
    with open(into, "wb", buffering=0) as pipe:
        pipe.write(b"\n".join(sent) + b"\n")  # far more than a pipe holds
    until(lambda: agent.said("not connected"), what="a failure told")
    processes.gateway()
    assert agent.wait() == 0
    assert processes.lines() == sent


def test_without_a_gateway_the_spool_waits_for_the_next_start(processes: Processes, tmp_path: Path) -> None:
    spool = ("--spool", tmp_path / "spool", "--drain", "0s")
    for part in range(2):
        (tmp_path / "input").write_bytes(b"part %d\n" % part)
        with open(tmp_path / "input", "rb") as file:
            assert processes.agent(*spool, stdin=file).wait() == 0
    processes.gateway()
    assert processes.agent("--spool", tmp_path / "spool").wait() == 0
    assert processes.lines() == [b"part 0", b"part 1"]


def test_without_a_spool_it_says_what_was_not_shipped(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"a\n")
    with open(tmp_path / "input", "rb") as file:
        agent = processes.agent("--drain", "100ms", stdin=file)
    assert agent.wait() == 3
    assert "[NOT_SHIPPED]" in agent.text()


def test_a_full_spool_blocks_the_writer_and_loses_nothing(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    agent = processes.agent("--spool", tmp_path / "spool", "--spool-bytes", "200K", stdin=out)
    os.close(out)
    lines, at = list(numbered(0, 100_000)), 0

    def stuck() -> bool:
        nonlocal at
        before, at = at, at + write_lines(into, lines[at:])
        return bool(at == before and agent.said("spool full"))

    until(stuck, what="a full spool")
    assert at < len(lines)
    processes.gateway()
    # a line may have been written in part: go on with the rest by waiting for room
    os.set_blocking(into, True)
    with open(into, "wb") as pipe:
        pipe.write(b"\nlast\n")
    assert agent.wait() == 0
    found = processes.lines()
    assert found[:at] == lines[:at]
    assert found[-1] == b"last"
    assert len(found) - at <= 2


def test_a_full_spool_drops_the_oldest(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    options = ("--spool-bytes", "200K", "--when-full", "drop-oldest")
    agent = processes.agent("--spool", tmp_path / "spool", *options, "--drain", "20s", stdin=out)
    os.close(out)
    lines = [b"%d %s" % (n, os.urandom(20).hex().encode()) for n in range(50_000)]
    with open(into, "wb") as pipe:
        pipe.write(b"\n".join(lines) + b"\n")
    total = sum(len(line) + 1 for line in lines)
    until(lambda: _end(tmp_path / "spool") == total, what="all read")
    gateway = processes.gateway()
    assert agent.wait() == 0
    found = processes.lines()
    assert 0 < len(found) < len(lines)
    assert found == lines[-len(found) :]
    assert agent.said("ended")[0]["dropped_lines"] == len(lines) - len(found)
    assert gateway.stop() == 0
    given_up = gateway.said("stopped")[0]["streams"]["logs"]["given_up_bytes"]
    assert given_up == sum(len(line) + 1 for line in lines[: -len(found)])


def test_a_full_spool_drops_the_newest(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    options = ("--spool-bytes", "200K", "--when-full", "drop-newest")
    agent = processes.agent("--spool", tmp_path / "spool", *options, "--drain", "20s", stdin=out)
    os.close(out)
    lines = [b"%d %s" % (n, os.urandom(20).hex().encode()) for n in range(50_000)]
    with open(into, "wb", buffering=0) as pipe:
        pipe.write(b"\n".join(lines) + b"\n")
        until(lambda: agent.said("lines dropped"), what="lines dropped")
        processes.gateway()
        until(lambda: agent.said("connected"), what="connected")
        until(lambda: _empty(tmp_path / "spool"), what="an empty spool")
        pipe.write(b"after\n")
    assert agent.wait() == 0
    found = processes.lines()
    assert found[-1] == b"after"
    assert set(found[:-1]) <= set(lines)  # whole lines only
    assert found[:1000] == lines[:1000]
    assert agent.said("ended")[0]["dropped_lines"] == len(lines) + 1 - len(found)


def _end(spool: Path) -> int:
    """The position after the newest byte."""
    newest = max((spool / "stdin").glob("*.raw"), default=None)
    return int(newest.stem) + newest.stat().st_size if newest else 0


def _empty(spool: Path) -> bool:
    return len(list((spool / "stdin").glob("*.raw"))) == 1 and not list((spool / "stdin").glob("*.seg"))


def test_a_wrong_token_is_told_and_tried_again(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "right").write_text("sesame")
    (tmp_path / "wrong").write_text("barley")
    processes.gateway("--token-file", tmp_path / "right")
    (tmp_path / "input").write_bytes(b"a\n")
    with open(tmp_path / "input", "rb") as file:
        spool = ("--spool", tmp_path / "spool")
        agent = processes.agent(*spool, "--token-file", tmp_path / "wrong", "--drain", "1s", stdin=file)
    assert agent.wait() == 0
    assert "BAD_TOKEN" in agent.said("not connected")[0]["reason"]
    assert processes.agent(*spool, "--token-file", tmp_path / "right").wait() == 0
    assert processes.lines() == [b"a"]


def test_two_agents_do_not_share_a_spool(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    first = processes.agent("--spool", tmp_path / "spool", stdin=out)
    until(lambda: first.said("started"))
    second = processes.agent("--spool", tmp_path / "spool")
    assert second.wait() == 2
    assert "[SPOOL_TAKEN]" in second.text()
    os.close(into)


class TestTail:
    """Following a file."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "www" / "access.log"

    @pytest.fixture
    def tail(self, processes: Processes, path: Path, tmp_path: Path) -> tuple[object, ...]:
        path.parent.mkdir()
        return ("--tail", path, "--spool", tmp_path / "spool", "--settle", "100ms")

    def test_it_follows_renaming_truncating_and_unfinished_lines(
        self, processes: Processes, path: Path, tail: tuple[object, ...]
    ) -> None:
        processes.gateway()
        agent = processes.agent(*tail)
        path.write_bytes(b"a 1\na 2\na 3 begun")
        until(lambda: len(processes.lines()) == 2)
        with open(path, "ab") as file:
            file.write(b" and ended\na 4 never ended")
        until(lambda: len(processes.lines()) == 3)
        path.rename(path.with_name("access.log.1"))
        path.write_bytes(b"b 1\nb 2\n")
        until(lambda: len(processes.lines()) == 6)
        path.write_bytes(b"c 1\n")  # as copytruncate does
        until(lambda: len(processes.lines()) == 7)
        path.write_bytes(b"d 1, in a file longer than the one before it was truncated\n")
        until(lambda: len(processes.lines()) == 8)
        assert agent.stop() == 0
        assert processes.lines() == [
            b"a 1",
            b"a 2",
            b"a 3 begun and ended",
            b"a 4 never ended",
            b"b 1",
            b"b 2",
            b"c 1",
            b"d 1, in a file longer than the one before it was truncated",
        ]

    def test_it_reads_what_was_rotated_while_it_was_away(
        self, processes: Processes, path: Path, tail: tuple[object, ...]
    ) -> None:
        processes.gateway()
        path.write_bytes(b"a 1\n")
        agent = processes.agent(*tail)
        until(lambda: len(processes.lines()) == 1)
        agent.kill()
        with open(path, "ab") as file:
            file.write(b"a 2\n")
        for number, name in ((2, "b"), (1, "c")):
            path.rename(path.with_name(f"access.log.{number}"))
            path.write_bytes(name.encode() + b" 1\n")
            os.utime(path, ns=(0, path.with_name(f"access.log.{number}").stat().st_mtime_ns + 10**6))
        path.with_name("access.log_ssl").write_bytes(b"another file\n")
        processes.agent(*tail)
        until(lambda: len(processes.lines()) == 4, what="four lines")
        assert processes.lines() == [b"a 1", b"a 2", b"b 1", b"c 1"]

    def test_a_file_waits_with_a_full_spool_also_when_it_is_rotated(
        self, processes: Processes, path: Path, tail: tuple[object, ...]
    ) -> None:
        sent = list(numbered(0, 10_000))
        path.write_bytes(b"\n".join(sent) + b"\n")
        agent = processes.agent(*tail, "--spool-bytes", "100K")
        until(lambda: agent.said("spool full"), what="a full spool")
        path.rename(path.with_name("access.log.1"))
        path.write_bytes(b"after\n")
        processes.gateway()
        until(lambda: len(processes.lines()) > len(sent), what="all lines")
        assert processes.lines() == [*sent, b"after"]

    def test_it_can_begin_at_the_end_and_end_at_the_end(
        self, processes: Processes, path: Path, tail: tuple[object, ...]
    ) -> None:
        processes.gateway()
        path.write_bytes(b"old\n")
        assert processes.agent(*tail, "--from-end", "--once").wait() == 0
        with open(path, "ab") as file:
            file.write(b"new\n")
        assert processes.agent(*tail, "--from-end", "--once").wait() == 0
        assert processes.agent(*tail, "--from-end", "--once").wait() == 0
        assert processes.lines() == [b"new"]

    def test_several_files_are_producers_of_their_own(
        self, processes: Processes, path: Path, tail: tuple[object, ...]
    ) -> None:
        gateway = processes.gateway()
        other = path.with_name("error.log")
        path.write_bytes(b"a 1\na 2\n")
        other.write_bytes(b"e 1\n")
        assert processes.agent(*tail, "--tail", other, "--once").wait() == 0
        assert sorted(processes.lines()) == [b"a 1", b"a 2", b"e 1"]
        assert gateway.stop() == 0
        assert gateway.said("stopped")[0]["streams"]["logs"]["producers"] == 2

    def test_it_needs_a_spool(self, processes: Processes, path: Path) -> None:
        agent = processes.agent("--tail", path)
        assert agent.wait() == 2
        assert "[SPOOL_NEEDED]" in agent.text()


def test_what_it_says_is_json(processes: Processes) -> None:
    agent = processes.agent("--drain", "0s")
    agent.wait()
    assert all(json.loads(line)["at"] for line in agent.text().splitlines())
