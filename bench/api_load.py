"""The load of the API's benchmark: questions at a steady rate, and subscribers to one job.

Receives the port of a service whose job `popular` tells rows; hands what came of it. Questions are asked at the
instants a steady rate says: one that waits for others counts its waiting too. What subscribers had is held against the
service's own record of what there was.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.request
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.client.subscription import EventReader
from penstock.errors import ExternalError, InternalError

JOB = "popular"
#: how long subscribers are waited for after the last epoch that counts, in seconds
_PATIENCE_SECONDS = 15.0
T = TypeVar("T")


@dataclass
class Asked:
    """Questions that were asked. `delays`: seconds from when each was due to its answer."""

    delays: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second, from the first question to the last answer."""
        return len(self.delays) / self.seconds


@dataclass
class Heard:
    """What subscribers were told: the epochs of each as they came, with the instant. `epochs` are those there were, by
    the service's own record; what came after them does not count."""

    each: list[list[tuple[int, float]]]
    epochs: list[int]

    @property
    def right(self) -> list[list[tuple[int, float]]]:
        """Those who had every epoch once, and in order."""
        last = self.epochs[-1] if self.epochs else -1
        return [one for one in self.each if [epoch for epoch, _ in one if epoch <= last] == self.epochs]

    @property
    def share(self) -> float:
        """How many of them that are."""
        return len(self.right) / len(self.each)

    @property
    def spreads(self) -> list[float]:
        """Of each epoch, the seconds from who had it first to who had it last."""
        found = [dict(one) for one in self.right]
        return [max(one[e] for one in found) - min(one[e] for one in found) for e in self.epochs if found]


def loaded(load: Coroutine[Any, Any, T]) -> T:
    """Carry out a load; a service that hangs up is told as such."""
    try:
        return asyncio.run(load)
    except (OSError, asyncio.IncompleteReadError) as failure:
        raise ExternalError(
            "BENCH_FAILED", "the service hung up", detail=f"{type(failure).__name__}: {failure}"
        ) from failure


async def asked(port: int, per_second: int, seconds: float, connections: int) -> Asked:
    """Ask for a job's latest answer at a steady rate."""
    due = [number / per_second for number in range(int(seconds * per_second))]
    found, began = Asked(), time.perf_counter() + 0.5

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        last = -1
        for at in due[number::connections]:
            await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
            writer.write(f"GET /jobs/{JOB}/answer HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = await _head(reader)
            length = next(
                int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: ")
            )
            epoch = json.loads(await reader.readexactly(length))["epoch"]
            found.delays.append(time.perf_counter() - began - at)
            if epoch < last:
                raise InternalError("BENCH_WRONG", f"the answer of epoch {epoch} came after that of {last}")
            last = epoch
        writer.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    found.seconds = time.perf_counter() - began
    return found


async def subscribed(port: int, subscribers: int, seconds: float) -> Heard:
    """Subscribe so often, all from the same epoch on; listen for some time, and on until all have what was told in it,
    or nobody can hope for it any more."""
    since = await asyncio.to_thread(last_told, port) + 1
    each: list[list[tuple[int, float]]] = [[] for _ in range(subscribers)]

    async def one(had: list[tuple[int, float]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer):
            request = f"GET /jobs/{JOB}/events?since={since} HTTP/1.0\r\nHost: localhost\r\n\r\n"
            writer.write(request.encode())
            await _head(reader)
            events = EventReader()
            while piece := await reader.read(1 << 16):
                for event in events.read(piece):
                    if event.kind == "rows" and event.id is not None:
                        had.append((int(event.id), time.perf_counter()))

    listening = [asyncio.create_task(one(had)) for had in each]
    await asyncio.sleep(seconds)
    epochs = await asyncio.to_thread(told_since, port, since)
    deadline = time.perf_counter() + _PATIENCE_SECONDS
    while epochs and time.perf_counter() < deadline:
        if all(
            task.done() or (had and had[-1][0] >= epochs[-1])
            for task, had in zip(listening, each, strict=True)
        ):
            break
        await asyncio.sleep(0.05)
    for task in listening:
        task.cancel()
    for came in await asyncio.gather(*listening, return_exceptions=True):
        if isinstance(came, Exception):
            raise came
    return Heard(each, epochs)


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The head of a response; raises unless all is well."""
    head = await reader.readuntil(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0]
    if line.split()[1:2] != [b"200"]:
        raise ExternalError("BENCH_FAILED", f"the service answered {line.decode('latin-1')!r}")
    return head


# -- single questions ----------------------------------------------------------------------------


def got(port: int, path: str) -> Any:
    """What the service answers to a single question."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return json.load(answer)
    except OSError as failure:
        raise ExternalError("BENCH_FAILED", f"GET {path} was not answered", detail=str(failure)) from failure


def last_told(port: int) -> int:
    """The last epoch in which the job told rows; -1 before the first."""
    epoch = got(port, f"/jobs/{JOB}/answer")["epoch"]
    return -1 if epoch is None else int(epoch)


def told_since(port: int, since: int) -> list[int]:
    """The epochs from one on in which the job told rows, by the service's own record."""
    found: list[int] = []
    more = True
    while more:
        page = got(port, f"/jobs/{JOB}/results?since={since}")
        found += [one["epoch"] for one in page["results"]]
        since, more = page["next"], page["more"]
    return found
