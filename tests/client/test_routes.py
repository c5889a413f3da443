"""The client has a method for every route of the service; each exception has a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Match, Route

from penstock.client import Client, connect
from penstock.errors import UserError
from tests.server import kit

#: routes without a method, and why
LEFT_OUT = {("GET", "/openapi.json"): "the API's own description, for tools that generate clients"}
#: parameters of a route that no method sends, and why
NOT_SENT = {
    ("GET", "/jobs/{name}/results", "limit"): "results() reads page after page by itself",
    ("GET", "/jobs/{name}/events", "since"): "subscribe() sends it as Last-Event-ID, first and after a break",
}
STREAM = {"name": "made", "log": {"kind": "generated"}, "format": {"kind": "combined_log"}, "time": "time"}
SOURCE = "import penstock as ps\nquery = ps.job('pages', {'page': ps.String()})"
SEEN = "SELECT page FROM clicks"


def first(items: Any) -> Any:
    """The first item of an iterator, which is then closed."""
    with closing(iter(items)) as iterator:
        return next(iterator)


#: every public method, called so that the service executes it
CALLS: dict[str, Callable[[Client], Any]] = {
    "sql": lambda client: client.sql("SHOW JOBS", check=True),
    "create": lambda client: [client.create("new", SEEN, check=check) for check in (True, False)],
    "alter": lambda client: client.alter("new", where="status = 200", check=True),
    "put_code": lambda client: client.put_code("coded", SOURCE, check=True),
    "pause": lambda client: client.pause("new"),
    "resume": lambda client: client.resume("new"),
    "drop": lambda client: client.drop("new"),
    "create_stream": lambda client: client.create_stream(STREAM),
    "drop_stream": lambda client: client.drop_stream("made"),
    "streams": lambda client: client.streams(),
    "stream": lambda client: client.stream("clicks"),
    "jobs": lambda client: client.jobs(),
    "job": lambda client: client.job("pages"),
    "graph": lambda client: client.graph("pages"),
    "versions": lambda client: client.versions("pages"),
    "audit": lambda client: client.audit(),
    "revoke_sessions": lambda client: [client.revoke_sessions(), client.revoke_sessions("token")],
    "ask": lambda client: client.ask("pages"),
    "answer": lambda client: client.answer("pages"),
    "message": lambda client: client.message("pages", {"page": "/a"}),
    "results": lambda client: list(client.results("pages")),
    "subscribe": lambda client: first(client.subscribe("pages", since=0)),
    "dead_letters": lambda client: client.dead_letters("clicks"),
    "late_events": lambda client: client.late_events("clicks"),
    "leaped": lambda client: client.leaped("clicks"),
    "push": lambda client: client.push("clicks", kit.lines(1)),
    "health": lambda client: client.health(),
    "status": lambda client: client.status(),
    "metrics": lambda client: client.metrics(),
    "engine": lambda client: client.engine(),
    "epochs": lambda client: client.epochs(),
    "recovery": lambda client: client.recovery(),
    "coordinators": lambda client: client.coordinators(),
    "logs": lambda client: client.logs(),
    "flush": lambda client: client.flush("pages"),
    "empty": lambda client: client.empty("pages"),
}


@pytest.fixture
def site(state: Path) -> Iterator[kit.Site]:
    with kit.site(state, events=100, code=True) as running:
        yield running


@pytest.fixture
def client(site: kit.Site) -> Iterator[Client]:
    with connect(site.url) as connected:
        yield connected


def routes(site: kit.Site) -> list[tuple[str, Route]]:
    """All routes of the service with their methods."""
    known = site.running.service.api.routes
    assert all(isinstance(route, Route) for route in known), "a kind of route that this test does not know"
    return [
        (method, route)
        for route in known
        if isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]


def match_route(request: httpx.Request, known: list[tuple[str, Route]]) -> tuple[str, str]:
    """The route that serves a request."""
    scope = {"type": "http", "method": request.method, "path": request.url.path}
    for method, route in known:
        if method == request.method and route.matches(scope)[0] is Match.FULL:
            return method, route.path
    raise AssertionError(f"{request.method} {request.url} has no route")


def test_every_route_has_a_method_in_the_client(site: kit.Site, client: Client) -> None:
    public = {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert public == set(CALLS), "CALLS calls every method"
    sent: list[httpx.Request] = []
    client._http.event_hooks = {"request": [sent.append]}
    for call in CALLS.values():
        call(client)
    known = routes(site)
    parameters: dict[tuple[str, str], set[str]] = {}
    for request in sent:
        parameters.setdefault(match_route(request, known), set()).update(request.url.params)
    existing = {(method, route.path) for method, route in known}
    assert existing - parameters.keys() == LEFT_OUT.keys(), "a route without a method, and without a reason"
    paths = site.get("/openapi.json")["paths"]
    missing = {
        (method, path, parameter["name"])
        for method, path in existing & parameters.keys()
        for parameter in paths[path][method.lower()].get("parameters", ())
        if parameter["in"] == "query" and parameter["name"] not in parameters[method, path]
    }
    assert missing == NOT_SENT.keys(), "a parameter that no method takes, and without a reason"


def test_the_client_reads_the_diagnostics_of_the_engine(site: kit.Site, client: Client) -> None:
    assert client.health().status == "ok"
    assert client.stream("clicks") == client.streams()[0]
    assert "stream" in {node.kind for node in client.graph("pages").nodes}
    client.alter("pages", where="status = 200")
    assert [version.did for version in client.versions("pages")] == ["created", "altered"]
    assert client.engine().epoch == client.status().epoch == 0
    site.epochs(3)
    assert [point.epoch for point in client.epochs(limit=2)] == [2, 3]
    recovery = client.recovery()
    assert (recovery.starts, recovery.restarts, recovery.unit) == (1, [], None)
    assert client.coordinators() == []
    assert len(client.logs(limit=1)) == 1
    assert f"penstock_events_total {client.status().events}\n" in client.metrics()
    for call in (client.stream, client.graph, client.versions):
        with pytest.raises(UserError, match="UNKNOWN_"):
            call("nobody")
    with pytest.raises(UserError):
        client.epochs(limit=0)


def test_a_check_changes_nothing(client: Client) -> None:
    created = client.create("few", SEEN, check=True)
    assert (created.says, created.command) == ("created job few; it runs from the next epoch on", None)
    altered = client.alter("pages", where="status = 200", check=True)
    assert (altered.state, altered.command) == ("kept", None)
    paused, dropped = client.sql("PAUSE JOB pages; DROP JOB pages", check=True)
    assert (paused.name, dropped.says) == ("pages", "dropped job pages")
    (job,) = client.jobs()
    assert (job.name, job.life, job.version) == ("pages", "running", 1)
    with pytest.raises(UserError, match="UNKNOWN_COLUMN"):
        client.create("x", "SELECT nope FROM clicks", check=True)
