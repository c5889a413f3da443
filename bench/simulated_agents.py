"""Many agents in one process: each sends a frame a second, and waits for its acknowledgement before the next.

They measure how much was acknowledged, and how soon. They speak the agents'
own protocol and send the same frames, but have no spool.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

from bench.ingest_processes import STREAM
from penstock.errors import ExternalError
from penstock.ingest.frames import Frame
from penstock.ingest.intake import Hello
from penstock.state.service_token import find_service_token


class SimulatedAgents:
    """Agents that connect within a second and send for a given time."""

    def __init__(self, port: int, count: int, lines: bytes, seconds: float) -> None:
        self._port, self._count, self._lines, self._seconds = port, count, lines, seconds
        self.acknowledged = 0
        #: lines acknowledged while all of them were sending
        self._steady = 0
        self._started_at = time.perf_counter()
        self.delays: list[float] = []

    @property
    def rate(self) -> float:
        """Lines a second acknowledged, while all of them were sending."""
        return self._steady / (self._seconds - 1)

    def send(self, on_second: Callable[[float], None]) -> None:
        """Send for the given time; call `on_second` each second with the seconds that have passed."""
        try:
            asyncio.run(self._run(on_second))
        except ExceptionGroup as failures:
            one = failures.exceptions[0]
            raise ExternalError(
                "BENCH_FAILED", "an agent could not continue", detail=f"{type(one).__name__}: {one}"
            ) from one

    async def _run(self, on_second: Callable[[float], None]) -> None:
        self._started_at = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            agents = [tasks.create_task(self._run_agent(number)) for number in range(self._count)]
            while not all(agent.done() for agent in agents):
                on_second(time.perf_counter() - self._started_at)
                await asyncio.sleep(1)

    async def _run_agent(self, number: int) -> None:
        await asyncio.sleep(number / self._count)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        name, position = f"agent-{number}", 0
        token = find_service_token(self._port) or ""
        writer.write(Hello(STREAM, name, token).encoded())
        _parse_reply(await reader.readline())
        until, due = time.perf_counter() + self._seconds, time.perf_counter()
        while time.perf_counter() < until:
            frame = Frame.of(name, position, self._lines)
            at = time.perf_counter()
            writer.write(frame.encoded())
            position = frame.end
            while _parse_reply(await reader.readline()).get("durable", 0) < position:
                pass
            now = time.perf_counter()
            self.delays.append(now - at)
            self.acknowledged += frame.count
            self._steady += frame.count if 1 <= now - self._started_at < self._seconds else 0
            due += 1
            await asyncio.sleep(max(due - now, 0))
        writer.close()


def _parse_reply(line: bytes) -> dict[str, int]:
    """Parse a reply of the gateway; raise if it refuses or has closed the connection."""
    reply: dict[str, int] = json.loads(line) if line else {"error": 0}
    if "error" in reply:
        raise ExternalError(
            "BENCH_FAILED", f"the gateway refused an agent: {line.decode() or 'connection closed'}"
        )
    return reply
