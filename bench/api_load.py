"""The load of the API's benchmark: requests at a steady rate, and subscribers to one job.

The job `popular` of the service emits rows. Requests are sent at the
instants of a steady rate: one that waits for others counts its waiting too. What subscribers received is
compared with the results that the service keeps.
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
from penstock.state.service_token import find_service_token

JOB = "popular"
#: how long subscribers are waited for after the last epoch that counts, in seconds
_PATIENCE_SECONDS = 15.0
T = TypeVar("T")


@dataclass
class AnsweredRequests:
    """Requests and their replies. `delays`: seconds from when each was due to its reply."""

    delays: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Replies a second, from the first request to the last reply."""
        return len(self.delays) / self.seconds


@dataclass
class ReceivedEvents:
    """The epochs that each subscriber received, with the instant. `epochs` are those there were, by
    the results that the service keeps; what arrived after them does not count."""

    by_subscriber: list[list[tuple[int, float]]]
    epochs: list[int]

    @property
    def right(self) -> list[list[tuple[int, float]]]:
        """Those who received every epoch once, and in order."""
        last = self.epochs[-1] if self.epochs else -1
        return [
            one for one in self.by_subscriber if [epoch for epoch, _ in one if epoch <= last] == self.epochs
        ]

    @property
    def share(self) -> float:
        """The share of such subscribers."""
        return len(self.right) / len(self.by_subscriber)

    @property
    def spreads(self) -> list[float]:
        """The seconds from the first to the last subscriber that received an epoch, for each epoch."""
        found = [dict(one) for one in self.right]
        return [max(one[e] for one in found) - min(one[e] for one in found) for e in self.epochs if found]


def run_load(load: Coroutine[Any, Any, T]) -> T:
    """Run a load; a service that closes connections is an error."""
    try:
        return asyncio.run(load)
    except (OSError, asyncio.IncompleteReadError) as failure:
        raise ExternalError(
            "BENCH_FAILED", "the service closed the connection", detail=f"{type(failure).__name__}: {failure}"
        ) from failure


async def run_requests(port: int, per_second: int, seconds: float, connections: int) -> AnsweredRequests:
    """Request a job's latest result at a steady rate."""
    due_times = [number / per_second for number in range(int(seconds * per_second))]
    found, started_at = AnsweredRequests(), time.perf_counter() + 0.5

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        last, request = -1, _request(port, f"/jobs/{JOB}/answer")
        for at in due_times[number::connections]:
            await asyncio.sleep(max(0.0, started_at + at - time.perf_counter()))
            writer.write(request)
            head = await read_head(reader)
            length = next(
                int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: ")
            )
            epoch = json.loads(await reader.readexactly(length))["epoch"]
            found.delays.append(time.perf_counter() - started_at - at)
            if epoch < last:
                raise InternalError("BENCH_WRONG", f"the answer of epoch {epoch} came after that of {last}")
            last = epoch
        writer.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    found.seconds = time.perf_counter() - started_at
    return found


async def run_subscribers(port: int, subscribers: int, seconds: float) -> ReceivedEvents:
    """Subscribe so often, all from the same epoch on; listen for some time, and longer until all have what was emitted
    in it, or the wait is over."""
    since = await asyncio.to_thread(last_result_epoch, port) + 1
    by_subscriber: list[list[tuple[int, float]]] = [[] for _ in range(subscribers)]

    async def one(received: list[tuple[int, float]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer):
            writer.write(_request(port, f"/jobs/{JOB}/events?since={since}", "HTTP/1.0"))
            await read_head(reader)
            events = EventReader()
            while piece := await reader.read(1 << 16):
                for event in events.read(piece):
                    if event.kind == "rows" and event.id is not None:
                        received.append((int(event.id), time.perf_counter()))

    listening = [asyncio.create_task(one(received)) for received in by_subscriber]
    await asyncio.sleep(seconds)
    epochs = await asyncio.to_thread(result_epochs_since, port, since)
    deadline = time.perf_counter() + _PATIENCE_SECONDS
    while epochs and time.perf_counter() < deadline:
        if all(
            task.done() or (received and received[-1][0] >= epochs[-1])
            for task, received in zip(listening, by_subscriber, strict=True)
        ):
            break
        await asyncio.sleep(0.05)
    for task in listening:
        task.cancel()
    for outcome in await asyncio.gather(*listening, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
    return ReceivedEvents(by_subscriber, epochs)


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """Read the head of a response; raise unless its status is 200."""
    head = await reader.readuntil(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0]
    if line.split()[1:2] != [b"200"]:
        raise ExternalError("BENCH_FAILED", f"the service answered {line.decode('latin-1')!r}")
    return head


# -- single requests -----------------------------------------------------------------------------


def own_token_header(port: int) -> dict[str, str]:
    """The header with the token that the service has made for itself; none if it has none."""
    token = find_service_token(port)
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _request(port: int, path: str, version: str = "HTTP/1.1") -> bytes:
    """A request as it is sent."""
    headers = {"Host": "localhost", **own_token_header(port)}
    lines = [f"GET {path} {version}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def get_json(port: int, path: str) -> Any:
    """Return the reply of the service to a single request."""
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=own_token_header(port))
        with urllib.request.urlopen(request, timeout=20) as response:
            return json.load(response)
    except OSError as failure:
        raise ExternalError("BENCH_FAILED", f"GET {path} was not answered", detail=str(failure)) from failure


def last_result_epoch(port: int) -> int:
    """Return the last epoch in which the job emitted rows; -1 before the first."""
    epoch = get_json(port, f"/jobs/{JOB}/answer")["epoch"]
    return -1 if epoch is None else int(epoch)


def result_epochs_since(port: int, since: int) -> list[int]:
    """Return the epochs from one on in which the job emitted rows, by the results that the service keeps."""
    found: list[int] = []
    more = True
    while more:
        page = get_json(port, f"/jobs/{JOB}/results?since={since}")
        found += [one["epoch"] for one in page["results"]]
        since, more = page["next"], page["more"]
    return found
