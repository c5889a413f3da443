"""Subscribes to a job: yields a `Result` for each epoch, across broken connections and restarts of the service.

Guarantees: from the first epoch on, every epoch in which the job emits rows is yielded once and in order. It raises
where that is impossible: the results are no longer retained, or the job was dropped.
Does not guarantee: to keep up with the engine. The service drops a subscriber that falls far behind, which then
continues from the retained results.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx

from penstock.client.errors import error_of, unreachable
from penstock.client.result import Result
from penstock.errors import ExternalError, PenstockError, UserError

#: between attempts, in seconds: the first, and the longest
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0


class Subscription:
    """The results of a job as it emits them. `epoch` is that of the last one; a new subscription with
    `since=epoch + 1` continues after it."""

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
        self._wait, self._last_contact_at = _FIRST_WAIT, time.monotonic()

    def __iter__(self) -> Iterator[Result]:
        self._reset_wait()
        while True:
            try:
                with self._client.stream("GET", self._path, headers=self._headers()) as response:
                    if response.status_code != 200:
                        response.read()
                        raise error_of(response)
                    reader = EventReader()
                    for piece in response.iter_bytes():
                        for event in reader.read(piece):
                            if (result := self._read_result(event)) is not None:
                                yield result
                self._prepare_retry(None)
            except (httpx.TransportError, ExternalError) as failure:
                self._prepare_retry(failure)
            time.sleep(self._wait)

    async def __aiter__(self) -> AsyncIterator[Result]:
        self._reset_wait()
        async with self._open_async() as client:
            while True:
                try:
                    async with client.stream("GET", self._path, headers=self._headers()) as response:
                        if response.status_code != 200:
                            await response.aread()
                            raise error_of(response)
                        reader = EventReader()
                        async for piece in response.aiter_bytes():
                            for event in reader.read(piece):
                                if (result := self._read_result(event)) is not None:
                                    yield result
                    self._prepare_retry(None)
                except (httpx.TransportError, ExternalError) as failure:
                    self._prepare_retry(failure)
                await asyncio.sleep(self._wait)

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "text/event-stream"}
        return headers if self.epoch is None else {**headers, "last-event-id": str(self.epoch)}

    def _read_result(self, event: ServerEvent) -> Result | None:
        """The result in an event; None if it has none, or one that was yielded before."""
        self._reset_wait()
        if event.kind == "dropped":
            raise _drop_error(json.loads(event.data))
        epoch = int(event.id) if event.id is not None else -1
        if self.epoch is not None and epoch <= self.epoch:
            return None
        self.epoch = epoch
        return Result.from_json(json.loads(event.data)) if event.kind == "rows" else None

    def _reset_wait(self) -> None:
        self._wait, self._last_contact_at = _FIRST_WAIT, time.monotonic()

    def _prepare_retry(self, failure: Exception | None) -> None:
        """Wait longer before the next attempt; raise if the service has been away for too long."""
        away = time.monotonic() - self._last_contact_at
        if self._patience is not None and away > self._patience:
            if isinstance(failure, PenstockError):
                raise failure
            failure = failure or ExternalError("GONE", "the service closed the connection")
            raise unreachable(str(self._client.base_url), failure)
        self._wait = min(_LONGEST_WAIT, self._wait * 2)


class AsyncOpen:
    """Opens an asynchronous client with the settings of a synchronous one."""

    def __init__(self, client: httpx.Client, verify: bool | str) -> None:
        self._client, self._verify = client, verify

    def __call__(self) -> httpx.AsyncClient:
        client = self._client
        return httpx.AsyncClient(
            base_url=client.base_url,
            headers=client.headers,
            auth=client.auth,
            timeout=client.timeout,
            verify=self._verify,
        )


def _drop_error(data: dict[str, str]) -> PenstockError:
    """The error for the end of a subscription; after an `ExternalError` it reconnects."""
    reason, message = data["reason"], data["says"]
    if reason in ("slow", "ending", "stuck"):
        return ExternalError(f"SUBSCRIPTION_{reason.upper()}", message)
    return UserError(reason.upper(), message, hint="Subscribe again once that is fixed.")


# -- server-sent events --------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerEvent:
    """A complete server-sent event. `id` is None if it has none."""

    kind: str
    id: str | None
    data: str


class EventReader:
    """Puts server-sent events together from the pieces of a response. Pure."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def read(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that a piece completes."""
        self._parts.append(piece)
        if b"\n" not in piece:
            return
        text = b"".join(self._parts)
        *blocks, rest = text.split(b"\n\n")
        self._parts = [rest]
        for block in blocks:
            if (event := _parse_event(block)) is not None:
                yield event


def _parse_event(block: bytes) -> ServerEvent | None:
    fields: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\n"):
        name, colon, value = line.partition(":")
        if not colon or not name:  # a comment
            continue
        value = value.removeprefix(" ")
        fields[name] = f"{fields['data']}\n{value}" if name == "data" and name in fields else value
    if "data" not in fields:
        return None
    return ServerEvent(fields.get("event", "message"), fields.get("id"), fields["data"])
