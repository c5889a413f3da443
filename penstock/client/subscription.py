"""A subscription that comes back by itself: every epoch a job tells in, once, across broken connections and restarts.

Receives server-sent events; hands `Told`, one an epoch, to `for` and to `async for`.

Guarantees: after the epoch it begins with, every epoch once and in order; where that cannot be (the results are no
longer kept, the job was dropped) it raises. Does not guarantee: to be as fast as the engine; one that falls far behind
is dropped by the service and then goes on from the kept results.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import httpx

from penstock.client.problems import error_of, unreachable
from penstock.client.sse import Event, Reader
from penstock.client.told import Told
from penstock.errors import ExternalError, PenstockError, UserError

#: between attempts, in seconds: first, and at most
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0


class Subscription:
    """A job's rows as they are told. `epoch` is the last one had; a new subscription goes on with `since=epoch + 1`."""

    def __init__(
        self,
        job: str,
        path: str,
        client: httpx.Client,
        open_async: AsyncOpen,
        since: int | None,
        patience_seconds: float | None,
    ) -> None:
        self.job = job
        self.epoch: int | None = None if since is None else since - 1
        self._path, self._client, self._open_async = path, client, open_async
        self._patience = patience_seconds
        self._wait, self._since_when = _FIRST_WAIT, time.monotonic()

    # -- one after the other ---------------------------------------------------------------------

    def __iter__(self) -> Iterator[Told]:
        self._well()
        while True:
            try:
                with self._client.stream("GET", self._path, headers=self._headers()) as response:
                    if response.status_code != 200:
                        response.read()
                        raise error_of(response)
                    reader = Reader()
                    for piece in response.iter_bytes():
                        for event in reader.read(piece):
                            if (told := self._taken(event)) is not None:
                                yield told
                self._again(None)
            except (httpx.TransportError, ExternalError) as failure:
                self._again(failure)
            time.sleep(self._wait)

    async def __aiter__(self) -> AsyncIterator[Told]:
        self._well()
        async with self._open_async() as client:
            while True:
                try:
                    async with client.stream("GET", self._path, headers=self._headers()) as response:
                        if response.status_code != 200:
                            await response.aread()
                            raise error_of(response)
                        reader = Reader()
                        async for piece in response.aiter_bytes():
                            for event in reader.read(piece):
                                if (told := self._taken(event)) is not None:
                                    yield told
                    self._again(None)
                except (httpx.TransportError, ExternalError) as failure:
                    self._again(failure)
                await asyncio.sleep(self._wait)

    # -- events ----------------------------------------------------------------------------------

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "text/event-stream"}
        return headers if self.epoch is None else {**headers, "last-event-id": str(self.epoch)}

    def _taken(self, event: Event) -> Told | None:
        self._well()
        if event.kind == "dropped":
            raise _why(json.loads(event.data))
        epoch = int(event.id) if event.id is not None else -1
        if event.kind != "rows":
            if self.epoch is None or epoch > self.epoch:
                self.epoch = epoch
            return None
        if self.epoch is not None and epoch <= self.epoch:
            return None
        self.epoch = epoch
        return Told.of(json.loads(event.data))

    def _well(self) -> None:
        """Something came: the service is there."""
        self._wait, self._since_when = _FIRST_WAIT, time.monotonic()

    def _again(self, failure: Exception | None) -> None:
        """Try once more, unless that has gone on for too long."""
        away = time.monotonic() - self._since_when
        if self._patience is not None and away > self._patience:
            if isinstance(failure, PenstockError):
                raise failure
            raise unreachable(str(self._client.base_url), failure or ExternalError("GONE", "it hung up"))
        self._wait = min(_LONGEST_WAIT, self._wait * 2)


class AsyncOpen:
    """Opens an asynchronous client like another one."""

    def __init__(self, client: httpx.Client, verify: bool | str) -> None:
        self._client, self._verify = client, verify

    def __call__(self) -> httpx.AsyncClient:
        known = self._client
        return httpx.AsyncClient(
            base_url=known.base_url, headers=known.headers, timeout=known.timeout, verify=self._verify
        )


def _why(told: dict[str, str]) -> PenstockError:
    """Why a subscription was ended: some of it passes."""
    reason, says = told["reason"], told["says"]
    if reason in ("slow", "ending", "stuck"):
        return ExternalError(f"SUBSCRIPTION_{reason.upper()}", says)
    return UserError(reason.upper(), says, hint="Subscribe anew once that is mended.")
