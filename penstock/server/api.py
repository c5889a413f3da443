"""The API: every page, what it takes and what it answers.

Receives requests that passed the gate; hands answers, or problems in Penstock's words. Statements of every kind go
through SQL, so there is one door to guard.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response

import penstock
from penstock.catalogue.code import bundle_of
from penstock.catalogue.code_requests import HaveFrom
from penstock.errors import UserError
from penstock.ingest.json_events import json_lines
from penstock.metrics import CONTENT_TYPE
from penstock.server import request_bodies as requests
from penstock.server import response_bodies as schemas
from penstock.server import statements
from penstock.server.diagnostics import insight
from penstock.server.forwarding import REQUEST, Forwarding
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.middleware import Gate, client_of
from penstock.server.problems import kind_of, tell_errors, text_of, wrong_kind
from penstock.server.security import Token, check_name
from penstock.server.structured_log import Latest, log
from penstock.server.subscriptions import Hub
from penstock.server.wire import ARROW, PROBLEM, answer_json, rows_arrow

Name = Annotated[str, Path(max_length=200, description="Its name.")]
Since = Annotated[int | None, Query(ge=0, le=2**62, description="The first epoch wanted.")]
Most = Annotated[int, Query(ge=1, le=1_000)]
Check = Annotated[bool, Query(description="Only say what would be answered; nothing is carried out.")]
#: epochs of results that are read at once
_AT_ONCE = 16
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "model": schemas.Problem,
        "description": "What went wrong.",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
_SQL_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Sql"}},
            "application/sql": {"schema": {"type": "string"}},
        },
    }
}
_CODE_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"text/x-python": {"schema": {"type": "string"}}}}
}
_LINES_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
        },
    }
}


class Service:
    """An app on a host, with its gate and its subscriptions."""

    def __init__(self, host: Host, limits: Limits | None = None, token: Token | None = None) -> None:
        self.host, self.limits, self.token = host, limits or Limits(), token
        #: whether the dashboard's pages are there; they speak over WebSockets
        self.has_pages = False
        self.hub, self.logged = Hub(host, self.limits), Latest()
        self.api = FastAPI(
            title="Penstock",
            version=penstock.__version__,
            description="Streams, jobs and answers of a running engine.",
            lifespan=self._life,
            docs_url=None,  # its pages load scripts from elsewhere
            redoc_url=None,
            responses=_PROBLEMS,
            separate_input_output_schemas=False,
        )
        tell_errors(self.api)
        _general(self.api, self)
        _streams(self.api, self)
        _jobs(self.api, self)
        _answers(self.api, self)
        insight(self.api, self.host, self.logged)
        self.forwarding = Forwarding(self.api)
        self.gate = Gate(self.forwarding, self.limits, token, self._at_hand)
        self._asking: dict[tuple[object, ...], asyncio.Task[bytes]] = {}

    @asynccontextmanager
    async def _life(self, _: FastAPI) -> AsyncIterator[None]:
        self.hub.start()
        self.logged.listen()
        yield
        self.logged.rest()
        await self.hub.stop()

    def _at_hand(self, job: str) -> bytes | None:
        """A job's latest answer, where it is here and nobody else is to be asked."""
        return self.host.answered(job) if self.forwarding.coordinators is None else None

    async def answer(self, job: str) -> bytes:
        """A job's latest answer as JSON, made once for all who ask meanwhile."""
        key = (job, *self.host.moment)
        if key not in self._asking:
            self._asking[key] = asyncio.create_task(asyncio.to_thread(self.host.answer, job))
            self._asking[key].add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(self._asking[key])

    def say(self, sql: str, check: bool = False) -> schemas.Said:
        """Have statements carried out, or only checked."""
        if len(sql) > self.limits.sql_characters:
            raise UserError(
                "QUERY_TOO_LONG",
                f"the statement has {len(sql):,} characters",
                hint=f"At most {self.limits.sql_characters:,} are taken over HTTP.",
            )
        answers = self.host.say(sql, REQUEST.get(), check=check)
        if not check:
            said = [answer.says[:200] for answer in answers if not answer.question]
            log("said", sql=sql[:2_000], answers=said)
        return schemas.Said(answers=[schemas.Answered(**asdict(answer)) for answer in answers])

    def create(self, body: requests.NewJob, check: bool = False) -> schemas.Answered:
        """Create a job."""
        with statements.in_query():
            return self.say(statements.create_job(body), check).answers[0]

    def alter(self, name: str, body: requests.Change, check: bool = False) -> schemas.Answered:
        """Alter a job."""
        text = statements.alter_job(name, body)
        with statements.in_query():
            return self.say(text, check).answers[0]

    def put_code(
        self, name: str, source: str, attribute: str, *, rebuild: bool = False, check: bool = False
    ) -> schemas.Answered:
        """Have a job of a query in source text."""
        self.host.check_code()
        check_name(name, "job")
        code = bundle_of(f"{name}.py", source)
        answers = self.host.submit(HaveFrom(name, code, attribute, rebuild), REQUEST.get(), check)
        if not check:
            log("code", job=name, digest=code.digest, attribute=attribute, answers=[answers[0].says[:200]])
        return schemas.Answered(**asdict(answers[0]))

    def change(self, verb: str, name: str) -> schemas.Answered:
        """Pause, resume, flush, empty or drop a job."""
        return self.say(statements.change(verb, name)).answers[0]

    def status(self) -> dict[str, Any]:
        """The engine and the service in numbers."""
        return {
            **self.host.status(),
            "subscribers": self.hub.subscribers,
            "subscribers_dropped": dict(self.hub.dropped),
        }


# -- pages ---------------------------------------------------------------------------------------


def _general(api: FastAPI, service: Service) -> None:
    host = service.host

    @api.get("/health", tags=["service"])
    async def health() -> schemas.Health:
        """Whether the engine is at work. Needs no token."""
        status: Literal["ok", "ending", "starting"] = "starting"
        if host.phase in ("running", "ending"):
            status = "ok" if host.phase == "running" else "ending"
        return schemas.Health(status=status, phase=host.phase)

    @api.get("/status", tags=["service"])
    def status() -> schemas.Status:
        """The engine in numbers: epochs, rates, latency, backlog, state."""
        return schemas.Status(**service.status())

    @api.get("/metrics", tags=["service"], response_class=Response)
    def prometheus() -> Response:
        """All metrics for Prometheus."""
        return Response(host.exported(service.status(), service.gate.answers), media_type=CONTENT_TYPE)

    @api.get("/coordinators", tags=["service"])
    def coordinators() -> list[schemas.Coordinator]:
        """The coordinators that share the jobs' masters; none where this process carries all."""
        return [schemas.Coordinator(**one) for one in host.coordinators()]

    @api.post("/sql", tags=["service"], openapi_extra=_SQL_BODY)
    async def sql(request: Request, check: Check = False) -> schemas.Said:
        """Have statements carried out: all of them or none."""
        kind, body = kind_of(request), await request.body()
        if kind not in ("application/json", "application/sql"):
            raise wrong_kind("application/json or application/sql")
        text = text_of(body) if kind == "application/sql" else requests.Sql.model_validate_json(body).sql
        return await asyncio.to_thread(service.say, text, check)


def _streams(api: FastAPI, service: Service) -> None:
    host = service.host

    @api.get("/streams", tags=["streams"])
    def streams() -> list[schemas.StreamFacts]:
        """All streams."""
        return [schemas.StreamFacts(**stream) for stream in host.streams()]

    @api.post("/streams", tags=["streams"], status_code=201)
    def create_stream(body: requests.NewStream) -> schemas.Answered:
        """Create a stream. Files are named only below directories the operator opened."""
        return service.say(statements.create_stream(body)).answers[0]

    @api.get("/streams/{name}", tags=["streams"])
    def stream(name: Name) -> schemas.StreamFacts:
        """One stream."""
        host.stream(name)
        return schemas.StreamFacts(**next(one for one in host.streams() if one["name"] == name))

    @api.delete("/streams/{name}", tags=["streams"])
    def drop_stream(name: Name) -> schemas.Answered:
        """Drop a stream that no job reads."""
        return service.say(statements.change("drop", name, "STREAM")).answers[0]

    @api.get("/streams/{name}/dead", tags=["streams"])
    def dead(name: Name, limit: Most = 100) -> schemas.Aside:
        """Records that could not be read, the latest first."""
        return schemas.Aside(stream=name, rows=host.aside(name, "dead", limit))

    @api.get("/streams/{name}/late", tags=["streams"])
    def late(name: Name, limit: Most = 100) -> schemas.Aside:
        """Events that came too late, the latest first, where the state keeps them."""
        return schemas.Aside(stream=name, rows=host.aside(name, "late", limit))

    @api.get("/streams/{name}/leaped", tags=["streams"])
    def leaped(name: Name, limit: Most = 100) -> schemas.Aside:
        """Silent partitions that epochs passed over, from which offset on, and what was read when they came back; the
        latest first."""
        return schemas.Aside(stream=name, rows=host.aside(name, "leaped", limit))

    @api.post("/streams/{name}/events", tags=["streams"], openapi_extra=_LINES_BODY)
    async def push(
        name: Name,
        request: Request,
        producer: Annotated[str | None, Query(max_length=100)] = None,
        sequence: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    ) -> schemas.Pushed:
        """Append events to a stream's log, where it takes any: lines, or an array of objects as JSON, which become
        lines. They are on disk when this is answered. A producer counts its requests up and sends one at a time: what
        comes under a sequence that is not above its last was taken before, and is left out."""
        kind = kind_of(request)
        if kind not in ("application/x-ndjson", "application/json"):
            raise wrong_kind("application/x-ndjson or application/json")
        body = await request.body()
        if kind == "application/json":
            body = await asyncio.to_thread(json_lines, body)
        events, taken = await asyncio.to_thread(host.push, name, body, producer, sequence)
        return schemas.Pushed(events=events, taken=taken)


def _jobs(api: FastAPI, service: Service) -> None:
    host = service.host

    @api.get("/jobs", tags=["jobs"])
    def jobs() -> list[schemas.JobFacts]:
        """All jobs and how they are."""
        return [schemas.JobFacts(**job) for job in host.jobs()]

    @api.post("/jobs", tags=["jobs"], status_code=201)
    def create_job(body: requests.NewJob, check: Check = False) -> schemas.Answered:
        """Create a job: it runs from the next epoch on."""
        return service.create(body, check)

    @api.get("/jobs/{name}", tags=["jobs"])
    def job(name: Name) -> schemas.JobPage:
        """One job: its query, its columns, how it is carried out."""
        return schemas.JobPage(**host.job(name))

    @api.patch("/jobs/{name}", tags=["jobs"])
    def alter(name: Name, body: requests.Change, check: Check = False) -> schemas.Answered:
        """Alter a job; the answer says whether its state is kept."""
        return service.alter(name, body, check)

    @api.delete("/jobs/{name}", tags=["jobs"])
    def drop(name: Name) -> schemas.Answered:
        """Drop a job that no other reads."""
        return service.change("drop", name)

    @api.put("/jobs/{name}/code", tags=["jobs"], openapi_extra=_CODE_BODY)
    async def put_code(
        name: Name,
        request: Request,
        attribute: Annotated[
            str, Query(max_length=200, description="What the source calls the query.")
        ] = "query",
        rebuild: bool = False,
        check: Check = False,
    ) -> schemas.Answered:
        """Have a job of a query in Python source: created where there is none of this name, else altered. Only where
        the service was started with --allow-code: the code does whatever the engine's user can do."""
        host.check_code()
        if kind_of(request) not in ("text/x-python", "text/plain"):
            raise wrong_kind("text/x-python")
        source = text_of(await request.body())
        return await asyncio.to_thread(
            service.put_code, name, source, attribute, rebuild=rebuild, check=check
        )

    @api.post("/jobs/{name}/messages", tags=["jobs"])
    def message(name: Name, body: Annotated[requests.Message, Body()]) -> JSONResponse:
        """What a job answers to a message: the rows of its latest answer that have the values the message says, or what
        its own `deliver` function makes of it."""
        answer = host.message(name, body.message)
        return JSONResponse(json.loads(json.dumps({"answer": answer}, default=str)))

    def verb(word: str, says: str) -> None:
        def change(name: Name) -> schemas.Answered:
            return service.change(word, name)

        api.post(f"/jobs/{{name}}/{word}", tags=["jobs"], name=word, description=says)(change)

    verb("pause", "Let a job see no events and tell nothing until it is resumed.")
    verb("resume", "Let a job that was paused, or failed, run again.")
    verb("flush", "Have a job tell its open windows now, as they stand.")
    verb("empty", "Have a job forget what it knows and begin anew.")


def _answers(api: FastAPI, service: Service) -> None:
    host, hub = service.host, service.hub

    @api.get("/jobs/{name}/answer", tags=["answers"], responses={200: {"model": schemas.Told}})
    async def answer(name: Name, accept: Annotated[str | None, Header()] = None) -> Response:
        """A job's latest answer: what it told of its last window, or (where it has none) in the last epoch in which it
        told anything. As JSON, or as an Arrow stream if the Accept header says so."""
        if accept is not None and ARROW in accept:
            return await asyncio.to_thread(_arrow, host, name)
        told = host.answered(name) or await service.answer(name)
        return Response(told, media_type="application/json")

    @api.get("/jobs/{name}/results", tags=["answers"], responses={200: {"model": schemas.Results}})
    def results(name: Name, since: Since = 0, limit: Most = 100) -> Response:
        """What a job told from an epoch on, page by page."""
        return Response(_page(service, name, since or 0, limit), media_type="application/json")

    @api.get(
        "/jobs/{name}/events",
        tags=["answers"],
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(
        name: Name,
        request: Request,
        since: Since = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> Response:
        """Subscribe to a job (server-sent events). The id of an event is its epoch; a client that comes back with
        Last-Event-ID goes on after it. Without that or `since` it begins with the next epoch."""
        if last_event_id:
            if not last_event_id.lstrip("-").isdigit() or int(last_event_id) < -1:
                raise UserError("BAD_EVENT_ID", f"{last_event_id!r} is no epoch")
            since = int(last_event_id) + 1
        return await hub.subscribe(name, since, client_of(request.scope))


def _arrow(host: Host, name: str) -> Response:
    answer = host.ask(name)
    if answer is None:
        return Response(status_code=204)
    return Response(rows_arrow(answer.rows), media_type=ARROW, headers={"penstock-epoch": str(answer.epoch)})


def _page(service: Service, name: str, since: int, limit: int) -> bytes:
    """Results from an epoch on: so many epochs, or as many as a page holds."""
    told, size, more = list[bytes](), 0, True
    while more and len(told) < limit and size < service.limits.page_bytes:
        most = min(_AT_ONCE, limit - len(told))
        found = service.host.results(name, since, most)
        told += [answer_json(name, answer) for answer in found]
        size = sum(map(len, told))
        since = found[-1].epoch + 1 if found else since
        more = len(found) == most
    head = {"job": name, "next": since, "more": more}
    return json.dumps(head)[:-1].encode() + b', "results": [' + b", ".join(told) + b"]}"
