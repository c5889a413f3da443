"""Subscriptions: what a job tells, as server-sent events, epoch after epoch.

Receives news that epochs are committed; hands every subscriber the rows of each epoch once, in order.

An event's id is its epoch, so a client that comes back with `Last-Event-ID` goes on after it: what it missed is read
from the kept results, what follows comes from a *ring* that all subscribers of a job share. A subscriber is a cursor
and holds no rows of its own: so the slowest cannot slow the engine, or the others.

Guarantees: after the epoch a subscriber begins with, it gets every epoch in which the job told rows, once, in order; or
it is told why not (`event: dropped`), or cut off when it takes nothing. On failure: a client that resumes misses
nothing while the results are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from penstock.catalogue.results import Answer
from penstock.errors import PenstockError, UserError
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.structured_log import log
from penstock.server.wire import answer_json, problem

#: how many epochs a subscriber that catches up is given at a time
_AT_ONCE = 16
#: a large event travels in pieces of this size
_PIECE_BYTES = 1 << 16


def event(kind: str, epoch: int, data: bytes) -> bytes:
    """A server-sent event."""
    return f"id: {epoch}\nevent: {kind}\ndata: ".encode() + data + b"\n\n"


class Dropped(Exception):
    """A subscription ends, for a reason."""

    def __init__(self, reason: str, says: str) -> None:
        super().__init__(says)
        self.reason, self.says = reason, says


class Ring:
    """The latest events of one job, encoded once for all who listen: those of epochs after `begin`, up to `through`."""

    def __init__(self, job: str, identity: int, through: int, limits: Limits) -> None:
        self.job, self.identity, self._limits = job, identity, limits
        self.begin = self.through = through
        self.events: deque[tuple[int, bytes]] = deque()
        self.members = 0
        self.ended: Dropped | None = None
        self._bytes = 0
        self._news = asyncio.Event()

    def add(self, events: list[tuple[int, bytes]], through: int) -> None:
        """Take in what was told up to an epoch."""
        for epoch, text in events:
            self.events.append((epoch, text))
            self._bytes += len(text)
        while len(self.events) > self._limits.behind_epochs or (
            self._bytes > self._limits.behind_bytes and len(self.events) > 1
        ):
            self.begin, old = self.events.popleft()
            self._bytes -= len(old)
        self.through = through
        if events:
            self._wake()

    def end(self, why: Dropped) -> None:
        """Nothing more will come."""
        self.ended = why
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait(self, seconds: float) -> None:
        """Until there is news, or for so long."""
        news = self._news
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), seconds)


class Hub:
    """All subscriptions of a service. Lives on one event loop; `heard` may be called from any thread."""

    def __init__(self, host: Host, limits: Limits) -> None:
        self.host, self.limits = host, limits
        self.subscribers = 0
        self.dropped: Counter[str] = Counter()
        self._clients: Counter[str] = Counter()
        self._rings: dict[str, Ring] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def start(self) -> None:
        """Begin to listen, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._publish())
        self.host.listeners.append(self.heard)

    async def stop(self) -> None:
        """End all subscriptions."""
        if self.heard in self.host.listeners:
            self.host.listeners.remove(self.heard)
        for ring in self._rings.values():
            ring.end(Dropped("ending", "the service ends; resume when it is back"))
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def heard(self) -> None:
        """There are new epochs, or jobs have changed."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._news.set)

    # -- the rings -------------------------------------------------------------------------------

    async def _publish(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            for ring in list(self._rings.values()):
                try:
                    await self._fill(ring)
                except Dropped as why:
                    self._end(ring, why)
                except PenstockError as error:
                    gone = error.condition == "UNKNOWN_JOB"
                    self._end(ring, _job_dropped(ring.job) if gone else Dropped("failed", error.text()))
                except Exception as failure:
                    log("subscription failed", 40, job=ring.job, error=repr(failure))
                    self._end(ring, Dropped("failed", f"{type(failure).__name__}: {failure}"))
            if self.host.phase == "ending":
                for ring in list(self._rings.values()):
                    self._end(ring, Dropped("ending", "the service ends; resume when it is back"))

    async def _fill(self, ring: Ring) -> None:
        through = self.host.committed
        events = await asyncio.to_thread(self._new, ring, through)
        ring.add(events, through)

    def _new(self, ring: Ring, through: int) -> list[tuple[int, bytes]]:
        """What a job told after the ring's last epoch."""
        self.host.check_open()
        latest = self.host.program.whole(ring.job)
        if self.host.identity(ring.job) != ring.identity:
            raise _job_dropped(ring.job)
        if latest is None or latest.epoch <= ring.through or ring.through >= through:
            return []
        if ring.through + 1 == through == latest.epoch:
            return [_encoded(ring.job, latest)]
        found = self.host.program.since(ring.job, ring.through + 1)
        return [_encoded(ring.job, answer) for answer in found if answer.epoch <= through]

    def _end(self, ring: Ring, why: Dropped) -> None:
        ring.end(why)
        if self._rings.get(ring.job) is ring:
            del self._rings[ring.job]

    @contextlib.contextmanager
    def _joined(self, job: str, identity: int, client: str) -> Iterator[Ring]:
        most, each = self.limits.subscribers, self.limits.subscribers_per_client
        if self.subscribers >= most or self._clients[client] >= each:
            raise UserError(
                "TOO_MANY_SUBSCRIBERS",
                f"there are {self.subscribers} subscriptions, {self._clients[client]} of them yours",
                detail=f"at most {most} are open at once, and {each} of one client",
                hint="Close those nobody reads.",
            )
        ring = self._rings.get(job)
        if ring is None or ring.identity != identity:
            ring = self._rings[job] = Ring(job, identity, self.host.committed, self.limits)
        ring.members += 1
        self.subscribers += 1
        self._clients[client] += 1
        try:
            yield ring
        finally:
            ring.members -= 1
            self.subscribers -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            if not ring.members and self._rings.get(job) is ring:
                del self._rings[job]

    # -- one subscriber --------------------------------------------------------------------------

    async def subscribe(self, job: str, since: int | None, client: str) -> EventStream:
        """A subscription from an epoch on, or from now on. Raises what is wrong with it before it begins."""
        identity = await asyncio.to_thread(self._checked, job, since)
        joined = self._joined(job, identity, client)
        ring = joined.__enter__()
        return EventStream(self, ring, joined, ring.through if since is None else since - 1, client)

    def _checked(self, job: str, since: int | None) -> int:
        self.host.check_open()
        if since is not None:
            self.host.check_kept(job, since)
        return self.host.identity(job)

    async def told(self, ring: Ring, cursor: int) -> AsyncGenerator[bytes, None]:
        """A job's events after an epoch, for ever; an event without rows now and then says how far it is."""
        yield event("begun", cursor, json.dumps({"job": ring.job, "since": cursor + 1}).encode())
        live = cursor >= ring.begin
        while True:
            if cursor >= ring.begin:
                live = True
                waiting = [(epoch, text) for epoch, text in ring.events if epoch > cursor]
                for cursor, text in waiting:
                    yield text
                    if cursor < ring.begin:
                        break
                if waiting:
                    continue
                if ring.ended is not None:
                    raise ring.ended
                await ring.wait(self.limits.heartbeat_seconds)
                if ring.ended is not None or _after(ring, cursor):
                    continue
                if ring.through > cursor:
                    cursor = ring.through
                    yield event("position", cursor, b"{}")
                else:
                    yield b": nothing new\n\n"
            elif live:
                raise Dropped(
                    "slow", f"epoch {cursor + 1} was told too long ago for a subscriber that keeps up"
                )
            else:
                through = ring.through
                found = await asyncio.to_thread(self._missed, ring, cursor + 1)
                for epoch, text in found:
                    if epoch <= through:
                        cursor = epoch
                        yield text
                if len(found) < _AT_ONCE:
                    cursor = max(cursor, through)

    def _missed(self, ring: Ring, since: int) -> list[tuple[int, bytes]]:
        if self.host.identity(ring.job) != ring.identity:
            raise _job_dropped(ring.job)
        return [_encoded(ring.job, answer) for answer in self.host.results(ring.job, since, _AT_ONCE)]


class EventStream(Response):
    """The response that carries a subscription."""

    media_type = "text/event-stream"

    def __init__(
        self,
        hub: Hub,
        ring: Ring,
        joined: contextlib.AbstractContextManager[Ring],
        cursor: int,
        client: str,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._hub, self._ring, self._joined = hub, ring, joined
        self._cursor, self._client = cursor, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            sending.cancel()
            results = await asyncio.gather(sending, gone, return_exceptions=True)
            self._joined.__exit__(None, None, None)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _send(self, send: Send) -> None:
        await self._give(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async with contextlib.aclosing(self._hub.told(self._ring, self._cursor)) as told:
                async for text in told:
                    for at in range(0, len(text), _PIECE_BYTES):
                        piece = text[at : at + _PIECE_BYTES]
                        await self._give(
                            send, {"type": "http.response.body", "body": piece, "more_body": True}
                        )
        except Dropped as why:
            self._note(why.reason)
            last = _last(why.reason, why.says)
        except PenstockError as error:
            self._note(error.condition.lower())
            last = _last(error.condition.lower(), error.text(), problem(error))
        await self._give(send, {"type": "http.response.body", "body": last, "more_body": False})

    async def _give(self, send: Send, message: Message) -> None:
        """Send a piece; one that nobody takes in time ends the subscription."""
        try:
            await asyncio.wait_for(send(message), self._hub.limits.patience_seconds)
        except TimeoutError:
            self._note("stuck")
            raise asyncio.CancelledError from None  # nothing can be said to who does not listen

    def _note(self, reason: str) -> None:
        self._hub.dropped[reason] += 1
        log("subscriber dropped", job=self._ring.job, client=self._client, reason=reason)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _encoded(job: str, answer: Answer) -> tuple[int, bytes]:
    return answer.epoch, event("rows", answer.epoch, answer_json(job, answer))


def _after(ring: Ring, cursor: int) -> bool:
    return bool(ring.events) and ring.events[-1][0] > cursor


def _last(reason: str, says: str, more: object = None) -> bytes:
    told = {"reason": reason, "says": says, "problem": more}
    return b"event: dropped\ndata: " + json.dumps(told).encode() + b"\n\n"


def _job_dropped(job: str) -> Dropped:
    return Dropped("job_dropped", f"the job {job} is no longer there")
