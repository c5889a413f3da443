"""Sends the rows that a job emits to its subscribers as server-sent events, epoch after epoch.

The id of an event is its epoch, so a client that reconnects with `Last-Event-ID` continues after it. It reads what it
missed from the retained results, and what follows from a *ring* that all subscribers of a job share. A subscriber is a
cursor and holds no rows of its own, so the slowest cannot slow the engine, or the others.

Guarantees: from its first epoch on, a subscriber receives every epoch in which the job emitted rows, once and in order;
or it receives the reason why not (`event: dropped`), or is disconnected if it reads nothing. Within seconds after its
token was removed, it gets no more rows. On failure: a client that
reconnects misses nothing while the results are retained.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from penstock.delivery.result_log import JobResult
from penstock.errors import PenstockError, UserError
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.middleware import ALLOWED
from penstock.server.structured_log import log
from penstock.server.wire import problem, result_json

#: how many epochs a subscriber that catches up reads at a time
_CATCH_UP_EPOCHS = 16
#: how often it is checked whether subscribers still have a token, in seconds
_CHECK_SECONDS = 1.0
#: a large event is sent in pieces of this size
_PIECE_BYTES = 1 << 16


def encode_event(kind: str, epoch: int, data: bytes) -> bytes:
    """Encode a server-sent event."""
    return f"id: {epoch}\nevent: {kind}\ndata: ".encode() + data + b"\n\n"


class SubscriptionEnd(Exception):
    """A subscription ends, for a reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Ring:
    """The latest events of one job, encoded once for all its subscribers: those of epochs after `after_epoch`, up to
    `last_epoch`."""

    def __init__(self, job: str, identity: int, last_epoch: int, limits: Limits) -> None:
        self.job, self.identity, self._limits = job, identity, limits
        self.after_epoch = self.last_epoch = last_epoch
        self.events: deque[tuple[int, bytes]] = deque()
        self.subscribers = 0
        #: why no more events will come
        self.end: SubscriptionEnd | None = None
        self._bytes = 0
        self._news = asyncio.Event()

    def add(self, events: list[tuple[int, bytes]], last_epoch: int) -> None:
        """Add the events up to an epoch."""
        for epoch, text in events:
            self.events.append((epoch, text))
            self._bytes += len(text)
        while len(self.events) > self._limits.behind_epochs or (
            self._bytes > self._limits.behind_bytes and len(self.events) > 1
        ):
            self.after_epoch, old = self.events.popleft()
            self._bytes -= len(old)
        self.last_epoch = last_epoch
        if events:
            self.wake()

    def close(self, end: SubscriptionEnd) -> None:
        """End all subscriptions to the job."""
        self.end = end
        self.wake()

    def wake(self) -> None:
        """Let all subscribers look whether anything has changed."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait(self, seconds: float) -> None:
        """Wait for new events, for so long at most."""
        news = self._news
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), seconds)


class Hub:
    """All subscriptions of a service. Runs on one event loop; `wake` may be called from any thread."""

    def __init__(self, host: Host, limits: Limits) -> None:
        self.host, self.limits = host, limits
        self.subscribers = 0
        self.dropped: Counter[str] = Counter()
        self._clients: Counter[str] = Counter()
        self._rings: dict[str, Ring] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        #: how often the tokens of the service have changed
        self.token_changes: Callable[[], int] = lambda: 0
        self.streams: set[EventStream] = set()

    def start(self) -> None:
        """Start to publish, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._end_revoked())]
        self.host.listeners.append(self.wake)

    async def stop(self) -> None:
        """End all subscriptions."""
        if self.wake in self.host.listeners:
            self.host.listeners.remove(self.wake)
        for ring in self._rings.values():
            ring.close(_service_ends())
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def wake(self) -> None:
        """Publish new epochs and changes of jobs."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._news.set)

    async def _end_revoked(self) -> None:
        """End the subscriptions whose tokens were removed, whenever tokens have changed."""
        seen = self.token_changes()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if (changes := self.token_changes()) != seen:
                seen = changes
                for stream in list(self.streams):
                    stream.end_if_revoked()

    # -- the rings -------------------------------------------------------------------------------

    async def _publish(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            for ring in list(self._rings.values()):
                try:
                    await self._fill(ring)
                except SubscriptionEnd as end:
                    self._close(ring, end)
                except PenstockError as error:
                    is_dropped = error.condition == "UNKNOWN_JOB"
                    failed = SubscriptionEnd("failed", error.text())
                    self._close(ring, _job_dropped(ring.job) if is_dropped else failed)
                except Exception as failure:
                    log("subscription failed", 40, job=ring.job, error=repr(failure))
                    self._close(ring, SubscriptionEnd("failed", f"{type(failure).__name__}: {failure}"))
            if self.host.phase == "ending":
                for ring in list(self._rings.values()):
                    self._close(ring, _service_ends())

    async def _fill(self, ring: Ring) -> None:
        last_epoch = self.host.committed
        events = await asyncio.to_thread(self._read_new, ring, last_epoch)
        ring.add(events, last_epoch)

    def _read_new(self, ring: Ring, last_epoch: int) -> list[tuple[int, bytes]]:
        """Encode what a job emitted after the ring's last epoch."""
        self.host.check_open()
        latest = self.host.program.questions.latest_epoch(ring.job)
        if self.host.job_identity(ring.job) != ring.identity:
            raise _job_dropped(ring.job)
        if latest is None or latest.epoch <= ring.last_epoch or ring.last_epoch >= last_epoch:
            return []
        if ring.last_epoch + 1 == last_epoch == latest.epoch:
            return [_encode_result(ring.job, latest)]
        results = self.host.program.since(ring.job, ring.last_epoch + 1)
        return [_encode_result(ring.job, result) for result in results if result.epoch <= last_epoch]

    def _close(self, ring: Ring, end: SubscriptionEnd) -> None:
        ring.close(end)
        if self._rings.get(ring.job) is ring:
            del self._rings[ring.job]

    @contextlib.contextmanager
    def _join(self, job: str, identity: int, client: str) -> Iterator[Ring]:
        most, each = self.limits.subscribers, self.limits.subscribers_per_client
        if self.subscribers >= most or self._clients[client] >= each:
            raise UserError(
                "TOO_MANY_SUBSCRIBERS",
                f"there are {self.subscribers} subscriptions, {self._clients[client]} of them yours",
                detail=f"at most {most} are open at once, and {each} of one client",
                hint="Close those that nobody reads.",
            )
        ring = self._rings.get(job)
        if ring is None or ring.identity != identity:
            ring = self._rings[job] = Ring(job, identity, self.host.committed, self.limits)
        ring.subscribers += 1
        self.subscribers += 1
        self._clients[client] += 1
        try:
            yield ring
        finally:
            ring.subscribers -= 1
            self.subscribers -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            if not ring.subscribers and self._rings.get(job) is ring:
                del self._rings[job]

    # -- one subscriber --------------------------------------------------------------------------

    async def subscribe(self, job: str, since: int | None, client: str) -> EventStream:
        """Subscribe from an epoch on, or from now on. Raises before the response starts."""
        identity = await asyncio.to_thread(self._check, job, since)
        membership = self._join(job, identity, client)
        ring = membership.__enter__()
        return EventStream(self, ring, membership, ring.last_epoch if since is None else since - 1, client)

    def _check(self, job: str, since: int | None) -> int:
        self.host.check_open()
        if since is not None:
            self.host.check_retained(job, since)
        return self.host.job_identity(job)

    async def events(self, ring: Ring, cursor: int) -> AsyncGenerator[bytes, None]:
        """Yield the events of a job after an epoch, without end; when there are none, its position now and then."""
        yield encode_event("begun", cursor, json.dumps({"job": ring.job, "since": cursor + 1}).encode())
        live = cursor >= ring.after_epoch
        while True:
            if cursor >= ring.after_epoch:
                live = True
                pending = [(epoch, text) for epoch, text in ring.events if epoch > cursor]
                for cursor, text in pending:
                    yield text
                    if cursor < ring.after_epoch:
                        break
                if pending:
                    continue
                if ring.end is not None:
                    raise ring.end
                await ring.wait(self.limits.heartbeat_seconds)
                if ring.end is not None or _after(ring, cursor):
                    continue
                if ring.last_epoch > cursor:
                    cursor = ring.last_epoch
                    yield encode_event("position", cursor, b"{}")
                else:
                    yield b": nothing new\n\n"
            elif live:
                raise SubscriptionEnd(
                    "slow", f"the subscriber is too far behind: epoch {cursor + 1} has left the buffer"
                )
            else:
                last_epoch = ring.last_epoch
                missed = await asyncio.to_thread(self._read_missed, ring, cursor + 1)
                for epoch, text in missed:
                    if epoch <= last_epoch:
                        cursor = epoch
                        yield text
                if len(missed) < _CATCH_UP_EPOCHS:
                    cursor = max(cursor, last_epoch)

    def _read_missed(self, ring: Ring, since: int) -> list[tuple[int, bytes]]:
        if self.host.job_identity(ring.job) != ring.identity:
            raise _job_dropped(ring.job)
        return [
            _encode_result(ring.job, result)
            for result in self.host.results(ring.job, since, _CATCH_UP_EPOCHS)
        ]


class EventStream(Response):
    """The response that carries a subscription."""

    media_type = "text/event-stream"

    def __init__(
        self,
        hub: Hub,
        ring: Ring,
        membership: contextlib.AbstractContextManager[Ring],
        cursor: int,
        client: str,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._hub, self._ring, self._membership = hub, ring, membership
        self._cursor, self._client = cursor, client
        self._is_allowed: Callable[[], bool] = lambda: True
        self._is_revoked = False

    def end_if_revoked(self) -> None:
        """End the subscription with the next event, or at once if it waits, unless its token is still in force."""
        if not self._is_allowed():
            self._is_revoked = True
            self._ring.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._is_allowed = scope.get(ALLOWED, self._is_allowed)
        self._hub.streams.add(self)
        self.end_if_revoked()  # meanwhile
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            sending.cancel()
            results = await asyncio.gather(sending, gone, return_exceptions=True)
            self._hub.streams.discard(self)
            self._membership.__exit__(None, None, None)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _send(self, send: Send) -> None:
        await self._send_in_time(
            send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        )
        try:
            async with contextlib.aclosing(self._hub.events(self._ring, self._cursor)) as events:
                async for text in events:
                    if self._is_revoked:
                        raise SubscriptionEnd("token_revoked", "the token of the subscription was removed")
                    for at in range(0, len(text), _PIECE_BYTES):
                        piece = text[at : at + _PIECE_BYTES]
                        await self._send_in_time(
                            send, {"type": "http.response.body", "body": piece, "more_body": True}
                        )
        except SubscriptionEnd as end:
            self._count_drop(end.reason)
            last = _final_event(end.reason, end.message)
        except PenstockError as error:
            self._count_drop(error.condition.lower())
            last = _final_event(error.condition.lower(), error.text(), problem(error))
        await self._send_in_time(send, {"type": "http.response.body", "body": last, "more_body": False})

    async def _send_in_time(self, send: Send, message: Message) -> None:
        """Send a piece; end the subscription if the client does not receive it in time."""
        try:
            await asyncio.wait_for(send(message), self._hub.limits.patience_seconds)
        except TimeoutError:
            self._count_drop("stuck")
            raise asyncio.CancelledError from None  # no message would arrive

    def _count_drop(self, reason: str) -> None:
        self._hub.dropped[reason] += 1
        log("subscriber dropped", job=self._ring.job, client=self._client, reason=reason)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _encode_result(job: str, result: JobResult) -> tuple[int, bytes]:
    return result.epoch, encode_event("rows", result.epoch, result_json(job, result))


def _after(ring: Ring, cursor: int) -> bool:
    return bool(ring.events) and ring.events[-1][0] > cursor


def _final_event(reason: str, message: str, problem: object = None) -> bytes:
    data = {"reason": reason, "says": message, "problem": problem}
    return b"event: dropped\ndata: " + json.dumps(data).encode() + b"\n\n"


def _service_ends() -> SubscriptionEnd:
    return SubscriptionEnd("ending", "the service ends; reconnect when it is back")


def _job_dropped(job: str) -> SubscriptionEnd:
    return SubscriptionEnd("job_dropped", f"the job {job} was dropped")
