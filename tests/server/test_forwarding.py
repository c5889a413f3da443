"""Requests about jobs of another coordinator are forwarded; commands that are sent again are executed once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.catalogue.coordinators import Coordinator
from penstock.catalogue.program import Program
from penstock.coordination.shared_key import SharedKey
from penstock.server import forwarding
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.peer_requests import PeerRequests
from penstock.server.statement_guard import StatementGuard
from penstock.server.tokens import Tokens
from tests.catalogue.kit import of_log
from tests.server import kit
from tests.server.test_tokens import bearer, write_file

TOKEN = "a token of some length"
KEY = SharedKey(b"the secret of a state directory")


@dataclass
class Fixed:
    """Coordinators with a fixed sequence of managers of every job; the last one stays."""

    me: Coordinator
    managers: list[Coordinator] = field(default_factory=list)
    lookups: int = 0

    def manager_of(self, job: str) -> Coordinator:
        self.lookups += 1
        return self.managers.pop(0) if len(self.managers) > 1 else self.managers[0]


@contextmanager
def other(site: kit.Site, state: Path, token: str | None = None) -> Iterator[tuple[Service, str]]:
    """A coordinator beside a site."""
    jobs = Program("test", state, streams={"clicks": of_log(site.log)}, follows=True)
    jobs.join()
    host = Host(jobs, state, StatementGuard((), state, code=True))
    service = Service(host, None, None if token is None else Tokens.of_text(token))
    with Server(service, "127.0.0.1", 0) as server:
        host.open(site.running.host.committed)
        host.enter_phase("running")
        yield service, server.url


def _share_jobs(service: Service, me: str, *managers: Coordinator) -> Fixed:
    fixed: Any = Fixed(Coordinator(me, ""), list(managers))
    service.share_jobs(fixed, PeerRequests(KEY, me))
    return fixed  # type: ignore[no-any-return]


def _by(response: httpx.Response) -> str:
    assert response.is_success, response.text
    return str(response.headers["penstock-coordinator"])


def test_each_page_about_a_job_is_answered_by_its_manager(state: Path) -> None:
    with (
        kit.site(state, token=TOKEN, events=30) as site,
        other(site, state, token=TOKEN) as (service, there),
    ):
        here = site.running.service
        away, me = Coordinator("there", there), Coordinator("here", site.url)
        _share_jobs(here, "here", away)
        _share_jobs(
            service, "there", me
        )  # each takes the other for the manager: a request is forwarded once and no further
        http = site.http
        assert _by(http.post("/sql", json={"sql": "PAUSE JOB pages"})) == "there"
        assert _by(http.post("/sql", content="RESUME JOB pages", headers=_SQL)) == "there"
        assert _by(http.post("/jobs", json={"name": "a", "query": "SELECT page FROM clicks"})) == "there"
        assert _by(http.patch("/jobs/a", json={"where": "status = 200"})) == "there"
        assert _by(http.post("/jobs/a/empty")) == "there"
        source = "import penstock as ps\nquery = ps.job('pages', {'page': ps.String()})"
        coded = http.put("/jobs/b/code", content=source, headers={"content-type": "text/x-python"})
        assert (_by(coded), coded.json()["name"]) == ("there", "b"), coded.text
        assert http.delete("/jobs/b").status_code == 200
        assert _by(http.get("/jobs/a")) == "there"
        assert _by(http.get("/jobs/pages/answer")) == "there"
        assert _by(http.get("/jobs/pages/results", params={"since": 0, "limit": 3})) == "there"
        assert _by(http.post("/jobs/pages/messages", json={"message": {"page": "/a"}})) == "there"
        assert _by(http.delete("/jobs/a")) == "there"
        for page in ("/jobs", "/streams", "/status", "/health", "/coordinators"):
            assert _by(http.get(page)) == "here"
        assert _by(http.post("/sql", json={"sql": "SHOW JOBS"})) == "here"
        problem = http.get("/jobs/nobody")
        assert (problem.status_code, problem.json()["condition"]) == (404, "UNKNOWN_JOB")
        assert problem.headers["content-type"] == "application/problem+json"
        bad = http.post("/sql", json={"sql": "CREATE JOB b AS SELECT nothing FROM clicks"})
        assert bad.json()["line"] == 1
        assert http.post("/sql", content=b"{", headers={"content-type": "application/json"}).is_error


_SQL = {"content-type": "application/sql"}


def test_a_manager_that_is_gone_is_followed_by_the_next(state: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = Coordinator("gone", f"http://127.0.0.1:{free.getsockname()[1]}")
    with kit.site(state, events=30) as site, other(site, state) as (service, there):
        fixed = _share_jobs(site.running.service, "here", gone, gone, Coordinator("there", there))
        _share_jobs(service, "there", Coordinator("there", there))
        assert _by(site.http.post("/jobs/pages/pause")) == "there"
        assert fixed.lookups == 3
        _share_jobs(site.running.service, "here", gone)
        assert _by(site.http.get("/jobs/pages/answer")) == "here", "a read does not wait"


def test_a_manager_that_never_responds_does_not_stop_a_command(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "MAX_FORWARD_SECONDS", 0.3)
    monkeypatch.setattr(forwarding, "_RESPONSE_SECONDS", 0.1)
    with socket.socket() as silent, kit.site(state, events=30) as site:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        stuck = Coordinator("stuck", f"http://127.0.0.1:{silent.getsockname()[1]}")
        _share_jobs(site.running.service, "here", stuck)
        response = site.http.post("/jobs/pages/pause")
        assert _by(response) == "here"
        assert site.get("/jobs/pages")["life"] == "paused"


def test_coordinators_need_no_token_of_each_other(state: Path) -> None:
    with (
        kit.site(state, token=TOKEN, events=30) as site,
        other(site, state, token="another token of some length") as (service, there),
    ):
        _share_jobs(site.running.service, "here", Coordinator("there", there))
        _share_jobs(service, "there", Coordinator("there", there))
        assert _by(site.http.post("/jobs/pages/pause")) == "there"
        assert httpx.post(f"{there}/jobs/pages/resume").status_code == 401


def test_a_coordinator_of_another_state_does_not_stop_a_command(state: Path) -> None:
    with kit.site(state, token=TOKEN, events=30) as site, other(site, state) as (service, there):
        _share_jobs(site.running.service, "here", Coordinator("there", there))
        fixed: Any = Fixed(Coordinator("there", there), [Coordinator("there", there)])
        service.share_jobs(fixed, PeerRequests(SharedKey(b"another secret"), "there"))
        assert _by(site.http.post("/jobs/pages/pause")) == "here"


def test_an_address_that_is_no_coordinators_gets_no_token_and_its_responses_are_not_relayed(
    state: Path,
) -> None:
    heard: list[tuple[str, dict[str, str]]] = []

    class Thief(BaseHTTPRequestHandler):
        def respond(self) -> None:
            heard.append((self.command, {name.lower(): value for name, value in self.headers.items()}))
            body = b'{"answers": [{"says": "all is well"}]}'
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = respond

        def log_message(self, *_: object) -> None:
            pass

    with (
        kit.site(state, token=TOKEN, events=30) as site,
        ThreadingHTTPServer(("127.0.0.1", 0), Thief) as thief,
    ):
        threading.Thread(target=thief.serve_forever, daemon=True).start()
        _share_jobs(
            site.running.service, "here", Coordinator("thief", f"http://127.0.0.1:{thief.server_port}")
        )
        site.http.cookies.set("penstock", "a login pass")
        assert _by(site.http.post("/sql", json={"sql": "PAUSE JOB pages"})) == "here"
        assert _by(site.http.get("/jobs/pages/answer")) == "here"
        thief.shutdown()
    assert [method for method, _ in heard] == ["POST", "GET"]
    for _, headers in heard:
        assert not {"authorization", "cookie"} & headers.keys()
        assert TOKEN not in str(headers)


def test_a_request_that_is_sent_again_is_executed_once(state: Path) -> None:
    with kit.site(state) as site:
        key = {"idempotency-key": "k1"}
        first = site.http.post("/jobs/pages/pause", headers=key).json()
        assert site.http.post("/jobs/pages/pause", headers=key).json() == first
        assert site.http.post("/jobs/pages/pause").status_code == 422
        assert site.get("/jobs/pages")["version"] == 2
        reused = site.http.post("/jobs/pages/resume", headers=key)
        assert reused.json()["condition"] == "REQUEST_REUSED"
        assert "penstock-coordinator" not in reused.headers
        assert site.http.post("/jobs/pages/resume", headers={"idempotency-key": "x y"}).is_error
        assert site.get("/coordinators") == []
        assert site.get("/jobs/pages")["coordinator"] is None


def test_a_forwarded_request_has_the_role_of_its_user(state: Path, tmp_path: Path) -> None:
    reader, operator = "r" * 20, "o" * 20
    tokens = f"rosa read {reader}\notto operate {operator}\n"
    with (
        kit.site(state, token=write_file(tmp_path / "tokens", tokens), events=30) as site,
        other(site, state, token="another token of some length") as (service, there),
    ):
        for one, name in ((site.running.service, "here"), (service, "there")):
            _share_jobs(one, name, Coordinator("there", there))

        def send(token: str, method: str, path: str, **options: Any) -> tuple[int, str | None]:
            response = httpx.request(method, site.url + path, headers=bearer(token), timeout=60, **options)
            return response.status_code, response.headers.get("penstock-coordinator")

        pause = {"json": {"sql": "PAUSE JOB pages"}}
        assert send(reader, "POST", "/sql", json={"sql": "SHOW JOBS"})[0] == 200
        assert send(reader, "POST", "/sql", **pause) == (403, "there")
        assert send(reader, "DELETE", "/jobs/messages")[0] == 403
        assert send(operator, "POST", "/sql", **pause) == (200, "there")
        assert send(operator, "PUT", "/jobs/b/code", content="import penstock as ps")[0] == 403
        assert [line["role"] for line in audit_lines(state)] == ["read", "read", "operate", "operate"]


def audit_lines(state: Path) -> list[Any]:
    lines = [
        json.loads(line) for file in state.glob("audit*.jsonl") for line in file.read_text().splitlines()
    ]
    return sorted(lines, key=lambda line: line["at"])
