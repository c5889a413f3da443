"""Many agents in one process: each sends a frame a second, and waits for its acknowledgement before the next.

Receives a gateway's port and how many for how long; hands what was acknowledged, and how soon. They speak the agents'
own protocol and send the same frames; what they leave out is the spool.
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


class Crowd:
    """Agents that come within a second, and go after the time asked for."""

    def __init__(self, port: int, count: int, lines: bytes, seconds: float) -> None:
        self._port, self._count, self._lines, self._seconds = port, count, lines, seconds
        self.acknowledged = 0
        #: lines acknowledged while all of them were sending
        self._steady = 0
        self._began = time.perf_counter()
        self.delays: list[float] = []

    @property
    def rate(self) -> float:
        """Lines a second acknowledged, while all of them were sending."""
        return self._steady / (self._seconds - 1)

    def send(self, look: Callable[[float], None]) -> None:
        """Send for the time asked for; `look` is called each second with the seconds that have passed."""
        try:
            asyncio.run(self._run(look))
        except ExceptionGroup as failures:
            one = failures.exceptions[0]
            raise ExternalError(
                "BENCH_FAILED", "an agent could not go on", detail=f"{type(one).__name__}: {one}"
            ) from one

    async def _run(self, look: Callable[[float], None]) -> None:
        self._began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            agents = [tasks.create_task(self._one(number)) for number in range(self._count)]
            while not all(agent.done() for agent in agents):
                look(time.perf_counter() - self._began)
                await asyncio.sleep(1)

    async def _one(self, number: int) -> None:
        await asyncio.sleep(number / self._count)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        name, position = f"agent-{number}", 0
        writer.write(Hello(STREAM, name).encoded())
        _checked(await reader.readline())
        until, due = time.perf_counter() + self._seconds, time.perf_counter()
        while time.perf_counter() < until:
            frame = Frame.of(name, position, self._lines)
            at = time.perf_counter()
            writer.write(frame.encoded())
            position = frame.end
            while _checked(await reader.readline()).get("durable", 0) < position:
                pass
            now = time.perf_counter()
            self.delays.append(now - at)
            self.acknowledged += frame.count
            self._steady += frame.count if 1 <= now - self._began < self._seconds else 0
            due += 1
            await asyncio.sleep(max(due - now, 0))
        writer.close()


def _checked(line: bytes) -> dict[str, int]:
    """What the gateway says; raises if it refuses, or has hung up."""
    said: dict[str, int] = json.loads(line) if line else {"error": 0}
    if "error" in said:
        raise ExternalError("BENCH_FAILED", f"the gateway refused an agent: {line.decode() or 'it hung up'}")
    return said
