"""Agent and gateway are killed at random moments under load: every line is in the log once, in order."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from tests.ingest.processes import Processes, numbered, until

SEEDS = [int(seed) for seed in os.environ.get("PENSTOCK_KILL_SEEDS", "1").split()]


class Writer(threading.Thread):
    """Writes numbered lines into a pipe or file at a steady pace, as a web server does."""

    def __init__(self, fd: int, name: str, lines: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self.sent = list(numbered(0, lines, name))
        self._fd, self._pause = fd, seconds / lines
        self.done = False

    def run(self) -> None:
        for first in range(0, len(self.sent), 50):
            data = b"".join(line + b"\n" for line in self.sent[first : first + 50])
            while data:
                data = data[os.write(self._fd, data) :]
            time.sleep(self._pause * 50)
        self.done = True


@pytest.mark.kill
@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_of_a_pipe_is_in_the_log_once_and_in_order(
    processes: Processes, tmp_path: Path, seed: int
) -> None:
    """The pipe outlives the agents that read it, as Apache's does."""
    chance = random.Random(seed)
    out, into = os.pipe()
    options = ("--spool", tmp_path / "spool", "--drain", "30s")
    small = ("--segment-bytes", "30K", "--partitions", "1")
    gateway, agent = processes.gateway(*small), processes.agent(*options, stdin=out)
    writer = Writer(into, "n", 30_000, 3.0)
    writer.start()
    kills = 0
    while not writer.done:
        time.sleep(chance.uniform(0.02, 0.4))
        if chance.random() < 0.5:
            gateway.kill()
            gateway = processes.gateway(*small, ready=False)
        else:
            agent.kill()
            agent = processes.agent(*options, stdin=out)
        kills += 1
    os.close(into)
    os.close(out)
    assert agent.wait(60) == 0
    assert kills > 3
    assert processes.lines() == writer.sent
    assert gateway.stop() == 0


@pytest.mark.kill
@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_of_rotated_files_is_in_the_log_once_and_in_order(
    processes: Processes, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    path = tmp_path / "access.log"
    options = ("--spool", tmp_path / "spool", "--tail", path, "--settle", "50ms")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    gateway, agent = processes.gateway("--partitions", "1"), processes.agent(*options)
    until(lambda: list((tmp_path / "spool").glob("*/source.json")), what="the file found")
    writer = Writer(fd, "n", 20_000, 2.5)
    writer.start()
    rotated = 0
    while not writer.done:
        time.sleep(chance.uniform(0.05, 0.4))
        action = chance.random()
        if action < 0.35:
            gateway.kill()
            gateway = processes.gateway("--partitions", "1", ready=False)
        elif action < 0.7:
            agent.kill()
            agent = processes.agent(*options)
        else:
            rotated += 1
            path.rename(path.with_name(f"access.log.{rotated}"))
            new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(new, fd)  # the writer continues in the new file at once
            os.close(new)
    os.close(fd)
    until(lambda: len(processes.lines()) >= len(writer.sent), 40, what="all lines")
    assert processes.lines() == writer.sent
    until(lambda: agent.reports("started"))
    assert agent.stop() == 0


@pytest.mark.kill
def test_many_producers_keep_their_order_while_the_gateway_dies(processes: Processes, tmp_path: Path) -> None:
    chance = random.Random(3)
    gateway = processes.gateway("--partitions", "3")
    agents, writers, pipes = [], [], []
    for n in range(3):
        out, into = os.pipe()
        agents.append(processes.agent("--spool", tmp_path / f"spool{n}", "--drain", "30s", stdin=out))
        os.close(out)
        writers.append(Writer(into, f"w{n}", 4_000, 1.5))
        pipes.append(into)
        writers[-1].start()
    while not all(writer.done for writer in writers):
        time.sleep(chance.uniform(0.1, 0.6))
        gateway.kill()
        gateway = processes.gateway(ready=False)
    for into in pipes:
        os.close(into)
    assert [agent.wait(60) for agent in agents] == [0] * 3
    found: dict[bytes, list[bytes]] = {}
    for line in processes.lines():
        found.setdefault(line.split()[0], []).append(line)
    assert found == {b"w%d" % n: writer.sent for n, writer in enumerate(writers)}
