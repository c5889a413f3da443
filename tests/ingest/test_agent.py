"""An agent never makes its writer wait while the spool has room, ships every line once, and reports dropped lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.ingest import pipe_reader
from penstock.ingest.spool import Spool
from tests.ingest.processes import Processes, numbered, token_file, until
from tests.metrics.text import parse

HEAVY = ("polars", "pyarrow", "pyspark", "numpy", "typer", "rich", "asyncio", "logging")


def write_lines(fd: int, lines: list[bytes]) -> int:
    """Write lines to a non-blocking pipe and return how many it took whole."""
    for count, line in enumerate(lines):
        data = line + b"\n"
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                return count
    return len(lines)


@pytest.mark.process
def test_an_agent_imports_no_heavy_library() -> None:
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


def test_an_agent_writes_its_metrics_for_prometheus(processes: Processes, tmp_path: Path) -> None:
    processes.gateway()
    (tmp_path / "input").write_bytes(b"\n".join(numbered(0, 1_000)) + b"\n")
    with open(tmp_path / "input", "rb") as file:
        assert processes.agent("--metrics-file", tmp_path / "agent.prom", stdin=file).wait() == 0
    arrived = {name: value for (name, _), value in parse((tmp_path / "agent.prom").read_text()).items()}
    assert arrived["penstock_agent_lines_total"] == 1_000
    assert arrived["penstock_agent_unacknowledged_bytes"] == 0
    assert [file.name for file in tmp_path.glob("agent.prom*")] == ["agent.prom"]


def test_an_agent_continues_when_its_metrics_cannot_be_written(processes: Processes, tmp_path: Path) -> None:
    processes.gateway()
    (tmp_path / "input").write_bytes(b"a\n")
    with open(tmp_path / "input", "rb") as file:
        agent = processes.agent("--metrics-file", tmp_path / "no" / "agent.prom", stdin=file)
        assert agent.wait() == 0
    assert agent.reports("metrics not written")
    assert processes.lines() == [b"a"]


def test_the_writer_never_waits_for_an_unreachable_gateway(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    agent = processes.agent("--spool", tmp_path / "spool", "--drain", "20s", stdin=out)
    sent = list(numbered(0, 100_000))
    with open(into, "wb", buffering=0) as pipe:
        pipe.write(b"\n".join(sent) + b"\n")  # far more than a pipe holds
    until(lambda: agent.reports("not connected"), what="a reported failure")
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


def test_an_agent_without_a_spool_reports_lines_not_shipped(processes: Processes, tmp_path: Path) -> None:
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
    lines, written = list(numbered(0, 100_000)), 0

    def is_blocked() -> bool:
        nonlocal written
        before, written = written, written + write_lines(into, lines[written:])
        return bool(written == before and agent.reports("spool full"))

    until(is_blocked, what="a full spool")
    assert written < len(lines)
    processes.gateway()
    # a line may have been written in part: write the rest, waiting for room
    os.set_blocking(into, True)
    with open(into, "wb") as pipe:
        pipe.write(b"\nlast\n")
    assert agent.wait() == 0
    arrived = processes.lines()
    assert arrived[:written] == lines[:written]
    assert arrived[-1] == b"last"
    assert len(arrived) - written <= 2


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
    arrived = processes.lines()
    assert 0 < len(arrived) < len(lines)
    assert arrived == lines[-len(arrived) :]
    assert agent.reports("ended")[0]["dropped_lines"] == len(lines) - len(arrived)
    assert gateway.stop() == 0
    given_up = gateway.reports("stopped")[0]["streams"]["logs"]["given_up_bytes"]
    assert given_up == sum(len(line) + 1 for line in lines[: -len(arrived)])


def test_a_full_spool_drops_the_newest(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    options = ("--spool-bytes", "200K", "--when-full", "drop-newest")
    agent = processes.agent("--spool", tmp_path / "spool", *options, "--drain", "20s", stdin=out)
    os.close(out)
    lines = [b"%d %s" % (n, os.urandom(20).hex().encode()) for n in range(50_000)]
    with open(into, "wb", buffering=0) as pipe:
        pipe.write(b"\n".join(lines) + b"\n")
        until(lambda: agent.reports("lines dropped"), what="lines dropped")
        gateway = processes.gateway()
        until(lambda: agent.reports("connected"), what="connected")
        until(lambda: _empty(tmp_path / "spool"), what="an empty spool")
        pipe.write(b"after\n")
    assert agent.wait() == 0
    arrived = processes.lines()
    assert arrived[-1] == b"after"
    assert set(arrived[:-1]) <= set(lines)  # whole lines only
    assert arrived[:1000] == lines[:1000]
    assert agent.reports("ended")[0]["dropped_lines"] == len(lines) + 1 - len(arrived)
    assert agent.reports("ended")[0]["unacknowledged_bytes"] == 0
    assert gateway.stop() == 0
    dropped = sum(map(len, lines)) + len(lines) - sum(len(line) + 1 for line in arrived[:-1])
    assert gateway.reports("stopped")[0]["streams"]["logs"]["given_up_bytes"] == dropped


def test_a_full_disk_is_reported_once_and_loses_nothing(
    processes: Processes, tmp_path: Path, small_disk: Path
) -> None:
    out, into = os.pipe()
    agent = processes.agent("--spool", small_disk, "--drain", "20s", stdin=out)
    os.close(out)
    os.set_blocking(into, False)
    lines = list(numbered(0, 100_000))
    written = 0

    def is_blocked() -> bool:
        nonlocal written
        before, written = written, written + write_lines(into, lines[written:])
        return bool(written == before and agent.reports("spool cannot be written"))

    until(is_blocked, what="a full disk")
    time.sleep(1)  # time for a second report, which must not come
    assert len(agent.reports("spool cannot be written")) == 1
    processes.gateway()
    os.set_blocking(into, True)
    with open(into, "wb") as pipe:
        pipe.write(b"\nlast\n")
    assert agent.wait() == 0
    arrived = processes.lines()
    assert (arrived[:written], arrived[-1]) == (lines[:written], b"last")


@pytest.mark.parametrize("tailing", [False, True])
def test_an_agent_refuses_to_start_on_a_full_disk(
    processes: Processes, tmp_path: Path, small_disk: Path, tailing: bool
) -> None:
    (small_disk / "spool").mkdir()
    with pytest.raises(OSError), open(small_disk / "filler", "wb", buffering=0) as filler:  # noqa: PT012
        while filler.write(b"x" * 4096):
            pass
    path = tmp_path / "access.log"
    path.write_bytes(b"a\n")
    agent = processes.agent("--spool", small_disk / "spool", *(("--tail", path) if tailing else ()))
    assert agent.wait() == 3
    assert "[SPOOL_UNWRITABLE]" in agent.text()
    assert "No space left" in agent.text()
    assert "Traceback" not in agent.text()


def test_lines_dropped_since_the_last_report_are_reported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipe_reader, "REPORT_SECONDS", 0.5)
    out, into = os.pipe()
    stop = threading.Event()
    spool = Spool(tmp_path)
    overflow = pipe_reader.Overflow(spool, 1, "drop-newest")
    spool.append(b"full\n")
    reader = pipe_reader.PipeReader(out, spool, overflow, stop)
    thread = threading.Thread(target=reader.run)
    thread.start()
    stderr = ""

    def dropped_line_counts() -> list[int]:
        nonlocal stderr
        stderr += capsys.readouterr().err
        return [json.loads(line)["dropped_lines"] for line in stderr.splitlines() if "lines dropped" in line]

    try:
        os.write(into, b"one\n")
        until(lambda: dropped_line_counts() == [1], what="the first report")
        os.write(into, b"two\nthree\n")  # nothing comes after it
        until(lambda: dropped_line_counts() == [1, 3], what="the second report")
    finally:
        os.close(into)
        thread.join(10)
        os.close(out)
        spool.close()


def _end(spool: Path) -> int:
    """The position after the newest byte."""
    newest = max((spool / "stdin").glob("*.raw"), default=None)
    return int(newest.stem) + newest.stat().st_size if newest else 0


def _empty(spool: Path) -> bool:
    return len(list((spool / "stdin").glob("*.raw"))) == 1 and not list((spool / "stdin").glob("*.seg"))


def test_a_wrong_token_is_reported_and_retried(processes: Processes, tmp_path: Path) -> None:
    token_file(tmp_path / "right", "sesame-sesame-sesame")
    token_file(tmp_path / "wrong", "barley-barley-barley")
    processes.gateway("--token-file", tmp_path / "right")
    (tmp_path / "input").write_bytes(b"a\n")
    with open(tmp_path / "input", "rb") as file:
        spool = ("--spool", tmp_path / "spool")
        agent = processes.agent(*spool, "--token-file", tmp_path / "wrong", "--drain", "1s", stdin=file)
    assert agent.wait() == 0
    assert "BAD_TOKEN" in agent.reports("not connected")[0]["reason"]
    assert processes.agent(*spool, "--token-file", tmp_path / "right").wait() == 0
    assert processes.lines() == [b"a"]


def test_two_agents_do_not_share_a_spool(processes: Processes, tmp_path: Path) -> None:
    out, into = os.pipe()
    first = processes.agent("--spool", tmp_path / "spool", stdin=out)
    until(lambda: first.reports("started"))
    second = processes.agent("--spool", tmp_path / "spool")
    assert second.wait() == 2
    assert "[SPOOL_TAKEN]" in second.text()
    os.close(into)


def test_every_report_of_an_agent_is_json(processes: Processes) -> None:
    agent = processes.agent("--drain", "0s")
    agent.wait()
    assert all(json.loads(line)["at"] for line in agent.text().splitlines())
