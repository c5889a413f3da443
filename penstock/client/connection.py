"""A connection to a service.

Receives calls; hands what the service answers, typed, or raises the `PenstockError` it refused them with.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import httpx
from pydantic import BaseModel

from penstock.client.problems import error_of, unreachable
from penstock.client.subscription import AsyncOpen, Subscription
from penstock.client.told import Told
from penstock.errors import ExternalError, UserError
from penstock.server import request_bodies as requests
from penstock.server import response_bodies as schemas

if TYPE_CHECKING:
    import polars as pl

#: events are pushed in bodies of about this size
_PUSH_BYTES = 1 << 20
_ARROW = "application/vnd.apache.arrow.stream"


def connect(
    url: str,
    token: str | None = None,
    *,
    timeout_seconds: float = 30.0,
    ca_file: str | None = None,
) -> Client:
    """Connect to a service, as in `connect("http://127.0.0.1:8080")`.

    `token` is what a service that others can reach demands (by default what PENSTOCK_TOKEN says); `ca_file` are the
    certificates to trust, where the service has one of its own.
    """
    if not url.startswith(("http://", "https://")):
        raise UserError(
            "BAD_URL", f"{url!r} is no address of a service", hint='As in "http://127.0.0.1:8080".'
        )
    return Client(url, token or os.environ.get("PENSTOCK_TOKEN"), timeout_seconds, ca_file)


class Client:
    """A service, from here. Safe for several threads. To be closed, or used with `with`."""

    def __init__(self, url: str, token: str | None, timeout_seconds: float, ca_file: str | None) -> None:
        headers = {"user-agent": "penstock-client"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        verify: bool | str = ca_file if ca_file is not None else True
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=timeout_seconds,
            transport=httpx.HTTPTransport(verify=cast(Any, verify), retries=2),
        )
        self._open_async = AsyncOpen(self._http, verify)
        self._producer, self._sequence = uuid.uuid4().hex, 0
        self._pushing, self._patience_seconds = threading.Lock(), timeout_seconds

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    # -- statements ------------------------------------------------------------------------------

    def sql(self, text: str, *, check: bool = False) -> list[schemas.Answered]:
        """Have statements carried out, all or none; hands an answer to each. With `check` nothing is carried out: the
        answers are what they would be."""
        said = self._asked("POST", "/sql", query=_checking(check), body={"sql": text})
        return schemas.Said.model_validate(said).answers

    def create(
        self,
        name: str,
        query: str,
        *,
        into: Sequence[requests.Made | Mapping[str, Any]] = (),
        parameters: Mapping[str, requests.Value] | None = None,
        recovery: str | None = None,
        check: bool = False,
    ) -> schemas.Answered:
        """Create a job: it runs from the next epoch on. `recovery`: what it may lose or repeat after a crash.
        With `check`, only say what would be answered."""
        body = {
            "name": name,
            "query": query,
            "into": list(map(_plain, into)),
            "parameters": dict(parameters or {}),
            "recovery": recovery,
        }
        return self._answered("POST", "/jobs", body, check=check)

    def alter(
        self,
        name: str,
        query: str | None = None,
        *,
        where: str | None = None,
        limit: int | None = None,
        parameters: Mapping[str, requests.Value] | None = None,
        recovery: str | None = None,
        rebuild: bool = False,
        check: bool = False,
    ) -> schemas.Answered:
        """Alter a job: its query, or its filter, limit, parameters or recovery. The answer's `state` says what becomes
        of it. With `check`, only say what would be answered."""
        body = {"query": query, "where": where, "limit": limit, "parameters": dict(parameters or {})}
        return self._answered(
            "PATCH", _job(name), {**body, "recovery": recovery, "rebuild": rebuild}, check=check
        )

    def put_code(
        self,
        name: str,
        source: str,
        attribute: str = "query",
        *,
        rebuild: bool = False,
        check: bool = False,
    ) -> schemas.Answered:
        """Have a job of a query in Python source, which calls it `attribute`: created where there is none of this name,
        else altered. Only where the service takes code. With `check`, only say what would be answered."""
        query = {"attribute": attribute, "rebuild": str(rebuild).lower(), **(_checking(check) or {})}
        headers = {"content-type": "text/x-python"}
        response = self._sent(
            "PUT", _job(name, "code"), query=query, headers=headers, content=source.encode()
        )
        return schemas.Answered(**response.json())

    def drop(self, name: str) -> schemas.Answered:
        """Drop a job."""
        return self._answered("DELETE", _job(name))

    def pause(self, name: str) -> schemas.Answered:
        """Let a job see no events and tell nothing until it is resumed."""
        return self._answered("POST", _job(name, "pause"))

    def resume(self, name: str) -> schemas.Answered:
        """Let a job that was paused, or failed, run again."""
        return self._answered("POST", _job(name, "resume"))

    def flush(self, name: str) -> schemas.Answered:
        """Have a job tell its open windows now, as they stand."""
        return self._answered("POST", _job(name, "flush"))

    def empty(self, name: str) -> schemas.Answered:
        """Have a job forget what it knows and begin anew."""
        return self._answered("POST", _job(name, "empty"))

    def create_stream(self, stream: requests.NewStream | Mapping[str, Any]) -> schemas.Answered:
        """Create a stream."""
        return self._answered("POST", "/streams", _plain(stream))

    def drop_stream(self, name: str) -> schemas.Answered:
        """Drop a stream that no job reads."""
        return self._answered("DELETE", _stream(name))

    # -- questions -------------------------------------------------------------------------------

    def streams(self) -> list[schemas.StreamFacts]:
        """All streams."""
        return [schemas.StreamFacts(**one) for one in self._asked("GET", "/streams")]

    def stream(self, name: str) -> schemas.StreamFacts:
        """One stream: its columns, how late its events may come, what waits in its log."""
        return schemas.StreamFacts(**self._asked("GET", _stream(name)))

    def jobs(self) -> list[schemas.JobFacts]:
        """All jobs and how they are."""
        return [schemas.JobFacts(**one) for one in self._asked("GET", "/jobs")]

    def job(self, name: str) -> schemas.JobPage:
        """One job: its query, its columns, how it is carried out."""
        return schemas.JobPage(**self._asked("GET", _job(name)))

    def graph(self, job: str) -> schemas.Graph:
        """How a job's rows are made, and what passes at present."""
        return schemas.Graph(**self._asked("GET", _job(job, "graph")))

    def versions(self, job: str) -> list[schemas.JobVersion]:
        """What was done to a job, oldest first; none for the outputs of an app."""
        return [schemas.JobVersion(**one) for one in self._asked("GET", _job(job, "versions"))]

    def ask(self, job: str) -> pl.DataFrame:
        """The rows of a job's latest answer, as a Polars frame (as dicts where there is no Polars); none before its
        first."""
        try:
            import polars as pl
        except ImportError:
            told = self.answer(job)
            return [] if told is None else told.dicts()  # type: ignore[return-value]
        response = self._sent("GET", _job(job, "answer"), headers={"accept": _ARROW})
        return pl.read_ipc_stream(response.content) if response.content else pl.DataFrame()

    def answer(self, job: str) -> Told | None:
        """A job's latest answer, with its epoch; None before its first."""
        return Told.of(self._asked("GET", _job(job, "answer")))

    def message(self, job: str, message: Any) -> Any:
        """What a job answers to a message."""
        return self._asked("POST", _job(job, "messages"), body={"message": message})["answer"]

    def results(self, job: str, since: int = 0) -> Iterator[Told]:
        """What a job told from an epoch on until now, as far as it is kept."""
        more = True
        while more:
            page = self._asked("GET", _job(job, "results"), query={"since": since})
            for facts in page["results"]:
                if (told := Told.of(facts)) is not None:
                    yield told
            since, more = page["next"], page["more"]

    def subscribe(
        self, job: str, since: int | None = None, *, patience_seconds: float | None = 120.0
    ) -> Subscription:
        """What a job tells from an epoch on (by default from now on), for `for` and `async for`. A connection that
        breaks is made again, and nothing is missed or had twice; after `patience_seconds` without the service it raises
        (None: never)."""
        path = _job(job, "events")
        return Subscription(job, path, self._http, self._open_async, since, patience_seconds)

    def dead_letters(self, stream: str, limit: int = 100) -> list[dict[str, Any]]:
        """Records of a stream that could not be read, the latest first."""
        rows: list[dict[str, Any]] = self._asked("GET", _stream(stream, "dead"), query={"limit": limit})[
            "rows"
        ]
        return rows

    def late_events(self, stream: str, limit: int = 100) -> list[dict[str, Any]]:
        """Events of a stream that came too late, the latest first."""
        rows: list[dict[str, Any]] = self._asked("GET", _stream(stream, "late"), query={"limit": limit})[
            "rows"
        ]
        return rows

    def leaped(self, stream: str, limit: int = 100) -> list[dict[str, Any]]:
        """Silent partitions of a stream that were passed over, and what was read when they came back, the latest
        first."""
        rows: list[dict[str, Any]] = self._asked("GET", _stream(stream, "leaped"), query={"limit": limit})[
            "rows"
        ]
        return rows

    # -- the service and its engine --------------------------------------------------------------

    def health(self) -> schemas.Health:
        """Whether the engine is at work. Needs no token."""
        return schemas.Health(**self._asked("GET", "/health"))

    def status(self) -> schemas.Status:
        """The engine in numbers."""
        return schemas.Status(**self._asked("GET", "/status"))

    def metrics(self) -> str:
        """The same as the text that Prometheus reads."""
        return self._sent("GET", "/metrics").text

    def engine(self) -> schemas.EngineFacts:
        """The engine inside: sub-queries with their buckets, executors, what the elastic loop decided."""
        return schemas.EngineFacts(**self._asked("GET", "/engine"))

    def epochs(self, limit: int = 300) -> list[schemas.EpochPoint]:
        """The latest epochs, oldest first."""
        return [schemas.EpochPoint(**one) for one in self._asked("GET", "/epochs", query={"limit": limit})]

    def recovery(self) -> schemas.RecoveryFacts:
        """How the engine is protected, when it came back, and the HA unit that the service watches."""
        return schemas.RecoveryFacts(**self._asked("GET", "/recovery"))

    def coordinators(self) -> list[schemas.Coordinator]:
        """The coordinators that share the jobs' masters; none where one process carries all."""
        return [schemas.Coordinator(**one) for one in self._asked("GET", "/coordinators")]

    def logs(self, limit: int = 100) -> list[schemas.LogLine]:
        """The latest lines of the service's log, the latest first."""
        return [schemas.LogLine(**one) for one in self._asked("GET", "/logs", query={"limit": limit})]

    # -- events ----------------------------------------------------------------------------------

    def push(self, stream: str, events: Iterable[Mapping[str, Any] | str]) -> int:
        """Append events to a stream whose log takes any: dicts as JSON, texts as they are. Returns once they are on
        disk, and hands how many. A connection that breaks, or a service that is away, is tried again for as long as the
        client's timeout; the log has every event once. After an error, what was sent last may be in it or not."""
        taken, lines, size = 0, list[str](), 0
        for event in events:
            line = event if isinstance(event, str) else json.dumps(event, default=str)
            if "\n" in line.rstrip("\n"):
                raise UserError("BAD_EVENT", "an event is one line", detail=line[:200])
            lines.append(line.rstrip("\n"))
            size += len(line)
            if size >= _PUSH_BYTES:
                taken += self._pushed(stream, lines)
                lines, size = [], 0
        return taken + (self._pushed(stream, lines) if lines else 0)

    def _pushed(self, stream: str, lines: Sequence[str]) -> int:
        """Send lines until it is known that the log has them; repeating them under one sequence does no harm."""
        with self._pushing:  # a producer sends one after the other
            self._sequence += 1
            until = time.monotonic() + self._patience_seconds
            pause = 0.05
            while True:
                try:
                    response = self._sent(
                        "POST",
                        _stream(stream, "events"),
                        query={"producer": self._producer, "sequence": self._sequence},
                        headers={"content-type": "application/x-ndjson"},
                        content="\n".join(lines).encode(),
                    )
                except ExternalError as failure:
                    if not failure.retry or time.monotonic() + pause > until:
                        raise
                    time.sleep(pause)
                    pause = min(2 * pause, 2.0)
                else:
                    return schemas.Pushed(**response.json()).events

    # -- requests --------------------------------------------------------------------------------

    def _answered(self, method: str, path: str, body: Any = None, *, check: bool = False) -> schemas.Answered:
        return schemas.Answered(**self._asked(method, path, query=_checking(check), body=body))

    def _asked(self, method: str, path: str, *, query: Any = None, body: Any = None) -> Any:
        if body is None:
            return self._sent(method, path, query=query).json()
        content = json.dumps(body).encode()
        return self._sent(
            method, path, query=query, content=content, headers={"content-type": "application/json"}
        ).json()

    def _sent(
        self,
        method: str,
        path: str,
        *,
        query: Any = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        try:
            response = self._http.request(method, path, params=query, headers=headers, content=content)
        except httpx.TransportError as failure:
            raise unreachable(self.url, failure) from failure
        if response.is_error:
            raise error_of(response)
        return response


def _plain(body: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    return body.model_dump() if isinstance(body, BaseModel) else dict(body)


def _checking(check: bool) -> dict[str, str] | None:
    return {"check": "true"} if check else None


def _job(name: str, *more: str) -> str:
    return "/".join(["/jobs", quote(name, safe=""), *more])


def _stream(name: str, *more: str) -> str:
    return "/".join(["/streams", quote(name, safe=""), *more])
