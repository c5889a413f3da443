"""Declares the pages of the HTTP API, and puts the service together from gate, forwarding, pages and subscriptions.

Every change of streams and jobs, also one with a structured body, is executed as SQL: so one guard suffices.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response

import penstock
from penstock.catalogue.code import bundle_source
from penstock.catalogue.code_requests import CreateOrAlterFrom
from penstock.catalogue.coordinators import Coordinators
from penstock.errors import PenstockError, UserError
from penstock.ingest.json_events import json_lines
from penstock.metrics import CONTENT_TYPE
from penstock.query.limits import cancel_when
from penstock.secret_store import redact
from penstock.server import audit as audit_log
from penstock.server import request_bodies as requests
from penstock.server import response_bodies as schemas
from penstock.server.access_pages import add_access_pages
from penstock.server.connections import Connections
from penstock.server.diagnostics import Limit, Name, add_diagnostic_pages
from penstock.server.forwarding import REQUEST, Forwarding
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.middleware import Gate
from penstock.server.peer_requests import PeerRequests
from penstock.server.problems import add_error_handlers, content_type, decode_text, wrong_content_type
from penstock.server.render_sql import (
    place_in_query,
    render_alter_job,
    render_command,
    render_create_job,
    render_create_stream,
)
from penstock.server.result_pages import add_result_pages
from penstock.server.sessions import Sessions
from penstock.server.statement_guard import check_name
from penstock.server.statement_threads import StatementThreads
from penstock.server.structured_log import RecentLines, log
from penstock.server.subscriptions import Hub
from penstock.server.tokens import CALLER, Caller, Role, Tokens, check_role
from penstock.server.wire import PROBLEM
from penstock.sql.parse import parse
from penstock.sql.statements import Explain, Select, Show

Check = Annotated[bool, Query(description="Return what would be returned, and change nothing.")]
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
    """The ASGI application of a host, with its gate and its subscriptions."""

    def __init__(
        self,
        host: Host,
        limits: Limits | None = None,
        tokens: Tokens | None = None,
        audit_file: str = audit_log.FILE,
    ) -> None:
        self.host, self.limits, self.tokens = host, limits or Limits(), tokens
        self.sessions = None if tokens is None else Sessions(tokens, host.state / "revoked-sessions.json")
        self.audit_log = audit_log.Audit(host.state / audit_file)
        #: whether it has the dashboard's pages, which need WebSockets
        self.has_pages = False
        #: those of the server that serves it
        self.connections: Connections | None = None
        self.hub, self.recent_lines = Hub(host, self.limits), RecentLines()
        if tokens is not None:
            self.hub.token_changes = lambda: tokens.changes
        self.statements = StatementThreads(self.limits)
        self.api = FastAPI(
            title="Penstock",
            version=penstock.__version__,
            description="Streams, jobs and results of a running engine.",
            lifespan=self._lifespan,
            docs_url=None,  # its pages load scripts from other servers
            redoc_url=None,
            responses=_PROBLEMS,
            separate_input_output_schemas=False,
        )
        add_error_handlers(self.api)
        _add_service_pages(self.api, self)
        _add_stream_pages(self.api, self)
        _add_job_pages(self.api, self)
        _add_job_commands(self.api, self)
        add_result_pages(self.api, self.host, self.hub, self.limits)
        add_diagnostic_pages(self.api, self.host, self.recent_lines)
        self.forwarding = Forwarding(self.api)
        add_access_pages(self.api, self.sessions, self.audit_log, self.audit)
        self.gate = Gate(self.forwarding, self.limits, tokens, self.sessions, self._cached_result, self.audit)

    def share_jobs(
        self, coordinators: Coordinators, peer_requests: PeerRequests, certificate: Path | None = None
    ) -> None:
        """Forward requests about jobs of other coordinators, and accept theirs; `certificate`: one to trust."""
        self.gate.peer_requests = peer_requests
        self.forwarding.share_jobs(coordinators, peer_requests, certificate)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.hub.start()
        self.recent_lines.start()
        yield
        self.recent_lines.stop()
        await self.hub.stop()
        self.statements.close()
        self.audit_log.close()

    def _cached_result(self, job: str) -> bytes | None:
        """A job's latest result if it is cached here; never where another coordinator may manage the job."""
        return self.host.cached_result(job) if self.forwarding.coordinators is None else None

    def audit(self, caller: Caller | None, did: str, **facts: object) -> None:
        """Record that somebody did something, once the state directory is the engine's."""
        if self.host.phase != "starting":
            self.audit_log.record(caller, did, **facts)

    def check_role(self, needed: Role) -> None:
        """Raise unless who sends the request has a role; record it if not."""
        if self.tokens is None and CALLER.get() is None:
            return
        try:
            check_role(CALLER.get(), needed)
        except UserError as error:
            self.audit(CALLER.get(), "refused", condition=error.condition)
            raise

    def execute(self, sql: str, check: bool = False) -> schemas.StatementReplies:
        """Execute statements, or only check them."""
        if len(sql) > self.limits.sql_characters:
            raise UserError(
                "QUERY_TOO_LONG",
                f"the statement has {len(sql):,} characters",
                hint=f"The limit over HTTP is {self.limits.sql_characters:,}.",
            )
        caller = CALLER.get()
        if (caller is None or not caller.role.includes(Role.operate)) and not _are_questions(sql):
            self.check_role(Role.operate)
        shown = redact(sql)
        try:
            replies = self.host.execute(sql, REQUEST.get(), check=check)
        except PenstockError as error:
            if not check:
                self.audit(caller, "failed", sql=shown, condition=error.condition)
            raise
        if not check and not all(one.question for one in replies):
            self.audit(caller, "executed", sql=shown)
        if not check:
            log(
                "executed",
                sql=shown[:2_000],
                answers=[one.message[:200] for one in replies if not one.question],
            )
        return schemas.StatementReplies(answers=[schemas.StatementReply(**one.to_json()) for one in replies])

    def create(self, body: requests.NewJob, check: bool = False) -> schemas.StatementReply:
        """Create a job."""
        with place_in_query():
            return self.execute(render_create_job(body), check).answers[0]

    def alter(self, name: str, body: requests.JobChange, check: bool = False) -> schemas.StatementReply:
        """Alter a job."""
        text = render_alter_job(name, body)
        with place_in_query():
            return self.execute(text, check).answers[0]

    def put_code(
        self, name: str, source: str, attribute: str, *, rebuild: bool = False, check: bool = False
    ) -> schemas.StatementReply:
        """Create or alter a job from Python source."""
        self.host.check_code()
        self.check_role(Role.administer)
        check_name(name, "job")
        code = bundle_source(f"{name}.py", source)
        reply = self.host.submit(CreateOrAlterFrom(name, code, attribute, rebuild), REQUEST.get(), check)[0]
        if not check:
            self.audit(CALLER.get(), "code", job=name, digest=code.digest, attribute=attribute)
            log("code", job=name, digest=code.digest, attribute=attribute, answers=[reply.message[:200]])
        return schemas.StatementReply(**reply.to_json())

    def create_stream(self, body: requests.NewStream) -> schemas.StatementReply:
        """Create a stream."""
        return self.execute(render_create_stream(body)).answers[0]

    def drop_stream(self, name: str) -> schemas.StatementReply:
        """Drop a stream."""
        return self.execute(render_command("drop", name, "STREAM")).answers[0]

    def change(self, verb: str, name: str) -> schemas.StatementReply:
        """Pause, resume, flush, empty or drop a job."""
        return self.execute(render_command(verb, name)).answers[0]

    def status(self) -> dict[str, Any]:
        """The values of `/status`."""
        return {
            **self.host.status(),
            "subscribers": self.hub.subscribers,
            "subscribers_dropped": dict(self.hub.dropped),
        }

    def connection_counts(self) -> dict[str, int]:
        """How many connections are open, and how many were ended, by reason."""
        return {} if self.connections is None else {"open": len(self.connections), **self.connections.ended}


def _are_questions(sql: str) -> bool:
    """Whether statements change nothing."""
    return all(isinstance(one, Show | Explain | Select) for one in parse(sql))


# -- pages ---------------------------------------------------------------------------------------


def _add_service_pages(api: FastAPI, service: Service) -> None:
    host = service.host

    @api.get("/health", tags=["service"])
    async def health() -> schemas.Health:
        """Whether the engine runs. Needs no token."""
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
        text = host.export_metrics(service.status(), service.gate.responses, service.connection_counts())
        return Response(text, media_type=CONTENT_TYPE)

    @api.get("/coordinators", tags=["service"])
    def coordinators() -> list[schemas.Coordinator]:
        """The coordinators that share the jobs; none if this process manages all of them."""
        return [schemas.Coordinator(**one) for one in host.coordinators()]

    @api.post("/sql", tags=["service"], openapi_extra=_SQL_BODY)
    async def sql(request: Request, check: Check = False) -> schemas.StatementReplies:
        """Execute statements: all of them, or none."""
        kind, body = content_type(request), await request.body()
        if kind not in ("application/json", "application/sql"):
            raise wrong_content_type("application/json or application/sql")
        text = decode_text(body) if kind == "application/sql" else requests.Sql.model_validate_json(body).sql
        async with _checks_while_connected(request):
            return await service.statements.run(service.execute, text, check)


@asynccontextmanager
async def _checks_while_connected(request: Request) -> AsyncIterator[None]:
    """A context in which a statement is not checked any further once its caller is gone. The body has been read."""
    gone = threading.Event()

    async def watch() -> None:
        if (await request.receive())["type"] == "http.disconnect":
            gone.set()

    watching = asyncio.create_task(watch())
    try:
        with cancel_when(gone.is_set):
            yield
    finally:
        watching.cancel()


def _add_stream_pages(api: FastAPI, service: Service) -> None:
    host = service.host

    @api.get("/streams", tags=["streams"])
    def streams() -> list[schemas.StreamFacts]:
        """All streams."""
        return [schemas.StreamFacts(**stream) for stream in host.streams()]

    @api.post("/streams", tags=["streams"], status_code=201)
    async def create_stream(body: requests.NewStream) -> schemas.StatementReply:
        """Create a stream. It may read files only below directories that the operator opened."""
        return await service.statements.run(service.create_stream, body)

    @api.get("/streams/{name}", tags=["streams"])
    def stream(name: Name) -> schemas.StreamFacts:
        """One stream."""
        host.stream(name)
        return schemas.StreamFacts(**next(one for one in host.streams() if one["name"] == name))

    @api.delete("/streams/{name}", tags=["streams"])
    async def drop_stream(name: Name) -> schemas.StatementReply:
        """Drop a stream that no job reads."""
        return await service.statements.run(service.drop_stream, name)

    @api.get("/streams/{name}/dead", tags=["streams"])
    def dead(name: Name, limit: Limit = 100) -> schemas.SideOutput:
        """Dead letters, the latest first."""
        return schemas.SideOutput(stream=name, rows=host.side_output(name, "dead", limit))

    @api.get("/streams/{name}/late", tags=["streams"])
    def late(name: Name, limit: Limit = 100) -> schemas.SideOutput:
        """Late events, the latest first, if the engine keeps them."""
        return schemas.SideOutput(stream=name, rows=host.side_output(name, "late", limit))

    @api.get("/streams/{name}/leaped", tags=["streams"])
    def leaped(name: Name, limit: Limit = 100) -> schemas.SideOutput:
        """Skipped partitions, from which offset on, and what was read when they came back; the latest first."""
        return schemas.SideOutput(stream=name, rows=host.side_output(name, "leaped", limit))

    @api.post("/streams/{name}/events", tags=["streams"], openapi_extra=_LINES_BODY)
    async def push(
        name: Name,
        request: Request,
        producer: Annotated[str | None, Query(max_length=100)] = None,
        sequence: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    ) -> schemas.Pushed:
        """Append events to the log of a stream, if it takes any: lines, or a JSON array of objects, which become lines.
        They are on disk before the response. A producer numbers its requests and sends one at a time; a request whose
        sequence is not above its last one is a repetition and is left out."""
        kind = content_type(request)
        if kind not in ("application/x-ndjson", "application/json"):
            raise wrong_content_type("application/x-ndjson or application/json")
        body = await request.body()
        if kind == "application/json":
            body = await asyncio.to_thread(json_lines, body)
        events, taken = await asyncio.to_thread(host.push, name, body, producer, sequence)
        return schemas.Pushed(events=events, taken=taken)


def _add_job_pages(api: FastAPI, service: Service) -> None:
    host = service.host

    @api.get("/jobs", tags=["jobs"])
    def jobs() -> list[schemas.JobFacts]:
        """All jobs and their state of life."""
        return [schemas.JobFacts(**job) for job in host.jobs()]

    @api.post("/jobs", tags=["jobs"], status_code=201)
    async def create_job(body: requests.NewJob, check: Check = False) -> schemas.StatementReply:
        """Create a job: it runs from the next epoch on."""
        return await service.statements.run(service.create, body, check)

    @api.get("/jobs/{name}", tags=["jobs"])
    def job(name: Name) -> schemas.JobDetails:
        """One job: its query, its columns, its plan."""
        return schemas.JobDetails(**host.job(name))

    @api.patch("/jobs/{name}", tags=["jobs"])
    async def alter(name: Name, body: requests.JobChange, check: Check = False) -> schemas.StatementReply:
        """Alter a job; the reply contains what becomes of its state."""
        return await service.statements.run(service.alter, name, body, check)

    @api.delete("/jobs/{name}", tags=["jobs"])
    async def drop(name: Name) -> schemas.StatementReply:
        """Drop a job that no other reads."""
        return await service.statements.run(service.change, "drop", name)

    @api.put("/jobs/{name}/code", tags=["jobs"], openapi_extra=_CODE_BODY)
    async def put_code(
        name: Name,
        request: Request,
        attribute: Annotated[
            str, Query(max_length=200, description="The name of the query in the source.")
        ] = "query",
        rebuild: bool = False,
        check: Check = False,
    ) -> schemas.StatementReply:
        """Create or alter a job from Python source. Only if the service was started with --allow-code: the code can do
        whatever the engine's user can do."""
        host.check_code()
        if content_type(request) not in ("text/x-python", "text/plain"):
            raise wrong_content_type("text/x-python")
        source = decode_text(await request.body())
        return await service.statements.run(
            service.put_code, name, source, attribute, rebuild=rebuild, check=check
        )

    @api.post("/jobs/{name}/messages", tags=["jobs"])
    def message(name: Name, body: Annotated[requests.Message, Body()]) -> JSONResponse:
        """The reply of a job to a message: the rows of its latest result with the values in the message, or what its
        own `deliver` function returns."""
        reply = host.send_message(name, body.message)
        return JSONResponse(json.loads(json.dumps({"answer": reply}, default=str)))


def _add_job_commands(api: FastAPI, service: Service) -> None:
    def add(verb: str, description: str) -> None:
        async def change(name: Name) -> schemas.StatementReply:
            return await service.statements.run(service.change, verb, name)

        api.post(f"/jobs/{{name}}/{verb}", tags=["jobs"], name=verb, description=description)(change)

    add("pause", "Pause a job: it reads no events and emits nothing until it is resumed.")
    add("resume", "Resume a job that is paused or has failed.")
    add("flush", "Emit the open windows of a job now, as they are.")
    add("empty", "Reset the state of a job.")
