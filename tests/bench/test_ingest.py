"""The ingest benchmark finds every line it sent before it says a figure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from bench.cli import IngestCase
from bench.ingest import Ingest, Size, _memory_growth
from bench.ingest_results import Throughput
from bench.simulated_agents import SimulatedAgents
from penstock.errors import ExternalError

#: these start Spark and send at full rate: for a quiet machine
WITH_ENGINE = ("result", "latency")


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in IngestCase if case not in WITH_ENGINE])
def test_a_case_tells_its_findings(case: str) -> None:
    progress: list[str] = []
    bench = Ingest(Size(lines=1_000, light_seconds=0.5, agents=5, agents_seconds=2, runs=1), progress.append)
    findings = list(bench.cases()[case]())
    assert findings
    assert progress
    #: a ratio or a difference, which may be nought on a run as short as this
    small = ("grown", "core", "slowest")
    assert all(
        finding.runs[0] > 0 for finding in findings if not any(word in finding.metric for word in small)
    )


def test_lines_take_from_when_they_were_due_to_the_commit_of_their_epoch() -> None:
    found = Throughput(lines=8, line_bytes=10.0)
    found.sent = [(0.0, 10), (1.0, 20), (2.0, 30), (3.0, 40)]
    found.committed = {
        "p0": [(0.5, 10), (1.75, 20), (3.5, 40)],
        "p1": [(2.0, 20), (4.0, 40)],
    }
    assert found.delays(1.0) == [0.75, 1.5, 0.5, 1.0, 2.0, 1.0]
    assert found.behind_seconds == 1.0


def test_the_rate_is_what_was_committed_between_the_warm_up_and_the_last_write() -> None:
    found = Throughput(line_bytes=10.0, sent=[(float(at), 100 * at) for at in range(11)])
    found.committed = {
        "p0": [(1.0, 1_000), (3.0, 2_000), (5.0, 4_000), (9.0, 8_000), (12.0, 9_000)],
        "p1": [(4.0, 0), (8.0, 4_000)],
    }
    assert found.rate(2.0) == 100.0 + 100.0


def test_memory_is_flat_when_its_second_half_is() -> None:
    assert _memory_growth([10.0] * 5 + [30.0] * 55 + [31.0] * 40) == 1.0
    assert _memory_growth([float(at) for at in range(100)]) == 40.0
    assert _memory_growth([7.0]) == 0.0


@pytest.fixture
def refusing() -> Iterator[int]:
    """The port of a gateway that refuses everybody."""
    loop, ready, port = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b'{"error": "TOO_MANY_CONNECTIONS", "reason": "full"}\n')
        writer.close()

    async def listen() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        ready.set()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(listen())
        loop.run_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(30)
    yield port[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)


def test_an_agent_that_is_refused_ends_the_case_with_the_reason(refusing: int) -> None:
    with pytest.raises(ExternalError, match="TOO_MANY_CONNECTIONS"):
        SimulatedAgents(refusing, 3, b"a line\n", 5.0).send(lambda passed: None)
