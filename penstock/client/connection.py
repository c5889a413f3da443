"""Calls the HTTP API of a service, with a method for each page and typed responses.

On failure it raises the `PenstockError` that the service reports.
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

from penstock.client.errors import error_of, unreachable
from penstock.client.own_token import OwnToken
from penstock.client.result import Result
from penstock.client.subscription import AsyncOpen, Subscription
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

    `token` (default: PENSTOCK_TOKEN) is one of the service. The one that a service of the same user on this machine has
    made for itself is found without it. `ca_file` has the certificates to trust, if the service has one of its own.
    """
    if not url.startswith(("http://", "https://")):
        raise UserError(
            "BAD_URL", f"{url!r} is no address of a service", hint='As in "http://127.0.0.1:8080".'
        )
    return Client(url, token or os.environ.get("PENSTOCK_TOKEN") or None, timeout_seconds, ca_file)


class Client:  # over 25 methods: one for each page of the API
    """A connection to a service. Safe for several threads. Close it, or use it with `with`."""

    def __init__(self, url: str, token: str | None, timeout_seconds: float, ca_file: str | None) -> None:
        headers = {"user-agent": "penstock-client"}
        self._own_token = None if token is not None else OwnToken(url)
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        verify: bool | str = ca_file if ca_file is not None else True
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            auth=self._own_token,
            timeout=timeout_seconds,
            transport=httpx.HTTPTransport(verify=cast(Any, verify), retries=2),
        )
        self._open_async = AsyncOpen(self._http, verify)
        self._producer, self._sequence = uuid.uuid4().hex, 0
        self._push_lock, self._timeout_seconds = threading.Lock(), timeout_seconds

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    # -- statements ------------------------------------------------------------------------------

    def sql(self, text: str, *, check: bool = False) -> list[schemas.StatementReply]:
        """Execute statements, all or none; return a reply to each. With `check`, return what they would return and
        change nothing."""
        replies = self._request_json("POST", "/sql", query=_check_query(check), body={"sql": text})
        return schemas.StatementReplies.model_validate(replies).answers

    def create(
        self,
        name: str,
        query: str,
        *,
        into: Sequence[requests.Connector | Mapping[str, Any]] = (),
        parameters: Mapping[str, requests.Value] | None = None,
        recovery: str | None = None,
        check: bool = False,
    ) -> schemas.StatementReply:
        """Create a job: it runs from the next epoch on. `recovery`: its recovery semantics, if not the engine's. With
        `check`, only return what would be returned."""
        body = {
            "name": name,
            "query": query,
            "into": list(map(_plain, into)),
            "parameters": dict(parameters or {}),
            "recovery": recovery,
        }
        return self._send_statement("POST", "/jobs", body, check=check)

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
    ) -> schemas.StatementReply:
        """Alter a job: its query, or its filter, limit, parameters or recovery. The reply has what becomes of its
        `state`. With `check`, only return what would be returned."""
        body = {"query": query, "where": where, "limit": limit, "parameters": dict(parameters or {})}
        return self._send_statement(
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
    ) -> schemas.StatementReply:
        """Create or alter a job from Python source, in which `attribute` is the name of the query. Only if the service
        takes code. With `check`, only return what would be returned."""
        query = {"attribute": attribute, "rebuild": str(rebuild).lower(), **(_check_query(check) or {})}
        headers = {"content-type": "text/x-python"}
        response = self._send(
            "PUT", _job(name, "code"), query=query, headers=headers, content=source.encode()
        )
        return schemas.StatementReply(**response.json())

    def drop(self, name: str) -> schemas.StatementReply:
        """Drop a job."""
        return self._send_statement("DELETE", _job(name))

    def pause(self, name: str) -> schemas.StatementReply:
        """Pause a job: it reads no events and emits nothing until it is resumed."""
        return self._send_statement("POST", _job(name, "pause"))

    def resume(self, name: str) -> schemas.StatementReply:
        """Resume a job that is paused or has failed."""
        return self._send_statement("POST", _job(name, "resume"))

    def flush(self, name: str) -> schemas.StatementReply:
        """Emit the open windows of a job now, as they are."""
        return self._send_statement("POST", _job(name, "flush"))

    def empty(self, name: str) -> schemas.StatementReply:
        """Reset the state of a job."""
        return self._send_statement("POST", _job(name, "empty"))

    def create_stream(self, stream: requests.NewStream | Mapping[str, Any]) -> schemas.StatementReply:
        """Create a stream."""
        return self._send_statement("POST", "/streams", _plain(stream))

    def drop_stream(self, name: str) -> schemas.StatementReply:
        """Drop a stream that no job reads."""
        return self._send_statement("DELETE", _stream(name))

    # -- streams, jobs, results ------------------------------------------------------------------

    def streams(self) -> list[schemas.StreamFacts]:
        """All streams."""
        return [schemas.StreamFacts(**one) for one in self._request_json("GET", "/streams")]

    def stream(self, name: str) -> schemas.StreamFacts:
        """One stream: its columns, allowed lateness and backlog."""
        return schemas.StreamFacts(**self._request_json("GET", _stream(name)))

    def jobs(self) -> list[schemas.JobFacts]:
        """All jobs and their state of life."""
        return [schemas.JobFacts(**one) for one in self._request_json("GET", "/jobs")]

    def job(self, name: str) -> schemas.JobDetails:
        """One job: its query, its columns, its plan."""
        return schemas.JobDetails(**self._request_json("GET", _job(name)))

    def graph(self, job: str) -> schemas.Graph:
        """The graph of a job's plan, with current rates."""
        return schemas.Graph(**self._request_json("GET", _job(job, "graph")))

    def versions(self, job: str) -> list[schemas.JobVersion]:
        """The changes of a job, oldest first; none for the outputs of an app."""
        return [schemas.JobVersion(**one) for one in self._request_json("GET", _job(job, "versions"))]

    def ask(self, job: str) -> pl.DataFrame:
        """The rows of a job's latest result as a Polars frame (as dicts if Polars is not installed); none before its
        first."""
        try:
            import polars as pl
        except ImportError:
            result = self.answer(job)
            return [] if result is None else result.dicts()  # type: ignore[return-value]
        response = self._send("GET", _job(job, "answer"), headers={"accept": _ARROW})
        return pl.read_ipc_stream(response.content) if response.content else pl.DataFrame()

    def answer(self, job: str) -> Result | None:
        """A job's latest result, with its epoch; None before its first."""
        return Result.from_json(self._request_json("GET", _job(job, "answer")))

    def message(self, job: str, message: Any) -> Any:
        """The reply of a job to a message."""
        return self._request_json("POST", _job(job, "messages"), body={"message": message})["answer"]

    def results(self, job: str, since: int = 0) -> Iterator[Result]:
        """The results of a job from an epoch on until now, as far as they are retained."""
        more = True
        while more:
            page = self._request_json("GET", _job(job, "results"), query={"since": since})
            for facts in page["results"]:
                if (result := Result.from_json(facts)) is not None:
                    yield result
            since, more = page["next"], page["more"]

    def subscribe(
        self, job: str, since: int | None = None, *, patience_seconds: float | None = 120.0
    ) -> Subscription:
        """Subscribe to the results of a job from an epoch on (default: from now on), for `for` and `async for`. It
        reconnects by itself, misses nothing and repeats nothing; after `patience_seconds` without the service it raises
        (None: never)."""
        path = _job(job, "events")
        return Subscription(job, path, self._http, self._open_async, since, patience_seconds)

    def dead_letters(self, stream: str, limit: int = 100) -> list[dict[str, Any]]:
        """The dead letters of a stream, the latest first."""
        return self._side_output(stream, "dead", limit)

    def late_events(self, stream: str, limit: int = 100) -> list[dict[str, Any]]:
        """The late events of a stream, the latest first, if the engine keeps them."""
        return self._side_output(stream, "late", limit)

    def leaped(self, stream: str, limit: int = 100) -> list[dict[str, Any]]:
        """The skipped partitions of a stream, and what was read when they came back, the latest first."""
        return self._side_output(stream, "leaped", limit)

    def _side_output(self, stream: str, kind: str, limit: int) -> list[dict[str, Any]]:
        page = self._request_json("GET", _stream(stream, kind), query={"limit": limit})
        return schemas.SideOutput(**page).rows

    # -- the service and its engine --------------------------------------------------------------

    def health(self) -> schemas.Health:
        """Whether the engine runs. Needs no token."""
        return schemas.Health(**self._request_json("GET", "/health"))

    def status(self) -> schemas.Status:
        """The engine in numbers."""
        return schemas.Status(**self._request_json("GET", "/status"))

    def metrics(self) -> str:
        """All metrics, as Prometheus reads them."""
        return self._send("GET", "/metrics").text

    def engine(self) -> schemas.EngineFacts:
        """The engine: its stages with their buckets, its executors, decisions of the elastic loop."""
        return schemas.EngineFacts(**self._request_json("GET", "/engine"))

    def epochs(self, limit: int = 300) -> list[schemas.EpochPoint]:
        """The latest epochs, oldest first."""
        return [
            schemas.EpochPoint(**one) for one in self._request_json("GET", "/epochs", query={"limit": limit})
        ]

    def recovery(self) -> schemas.RecoveryFacts:
        """The scheme of the engine, its restarts, and the HA unit of the service."""
        return schemas.RecoveryFacts(**self._request_json("GET", "/recovery"))

    def coordinators(self) -> list[schemas.Coordinator]:
        """The coordinators that share the jobs; none if one process manages all of them."""
        return [schemas.Coordinator(**one) for one in self._request_json("GET", "/coordinators")]

    def logs(self, limit: int = 100) -> list[schemas.LogLine]:
        """The latest lines of the service's log, the latest first."""
        return [schemas.LogLine(**one) for one in self._request_json("GET", "/logs", query={"limit": limit})]

    def audit(self, limit: int = 100) -> list[schemas.AuditLine]:
        """Who changed what, the latest first. Needs the role `administer`."""
        return [
            schemas.AuditLine(**one) for one in self._request_json("GET", "/audit", query={"limit": limit})
        ]

    def revoke_sessions(self, name: str | None = None) -> None:
        """End the sessions of browsers that logged in with the token of this name, or all of them. Needs the role
        `administer`."""
        self._send("DELETE", "/sessions", query=None if name is None else {"name": name})

    # -- events ----------------------------------------------------------------------------------

    def push(self, stream: str, events: Iterable[Mapping[str, Any] | str]) -> int:
        """Append events to the log of a stream, if it takes any: dicts as JSON, texts as they are. Returns how many,
        once they are on disk. If the connection breaks or the service is away, it retries until the client's timeout;
        the log has every event once. After an error, the last ones may be in the log or not."""
        pushed, lines, size = 0, list[str](), 0
        for event in events:
            line = event if isinstance(event, str) else json.dumps(event, default=str)
            if "\n" in line.rstrip("\n"):
                raise UserError("BAD_EVENT", "an event is one line", detail=line[:200])
            lines.append(line.rstrip("\n"))
            size += len(line)
            if size >= _PUSH_BYTES:
                pushed += self._push_lines(stream, lines)
                lines, size = [], 0
        return pushed + (self._push_lines(stream, lines) if lines else 0)

    def _push_lines(self, stream: str, lines: Sequence[str]) -> int:
        """Send lines until the service confirms that the log has them; a repetition has the same sequence."""
        with self._push_lock:  # a producer sends one request after the other
            self._sequence += 1
            until = time.monotonic() + self._timeout_seconds
            pause = 0.05
            while True:
                try:
                    response = self._send(
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

    def _send_statement(
        self, method: str, path: str, body: Any = None, *, check: bool = False
    ) -> schemas.StatementReply:
        return schemas.StatementReply(
            **self._request_json(method, path, query=_check_query(check), body=body)
        )

    def _request_json(self, method: str, path: str, *, query: Any = None, body: Any = None) -> Any:
        if body is None:
            return self._send(method, path, query=query).json()
        content = json.dumps(body).encode()
        return self._send(
            method, path, query=query, content=content, headers={"content-type": "application/json"}
        ).json()

    def _send(
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
            if self._own_token is not None:
                self._own_token.forget()
            raise unreachable(self.url, failure) from failure
        if response.is_error:
            raise error_of(response)
        return response


def _plain(body: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    return body.model_dump() if isinstance(body, BaseModel) else dict(body)


def _check_query(check: bool) -> dict[str, str] | None:
    return {"check": "true"} if check else None


def _job(name: str, *more: str) -> str:
    return "/".join(["/jobs", quote(name, safe=""), *more])


def _stream(name: str, *more: str) -> str:
    return "/".join(["/streams", quote(name, safe=""), *more])
