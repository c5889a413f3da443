"""A service without a token file makes a token for itself: programs of its user find it, and nobody else gets in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app as cli
from penstock.cli.state import remove_state_directory
from penstock.client import connect
from penstock.client.own_token import OwnToken
from penstock.dashboard.login import add_login_pages
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.tokens import Tokens
from penstock.state.directory import StateDirectory
from penstock.state.service_token import (
    CHALLENGE,
    FILE,
    PROOF,
    open_service_token,
    own_folder,
    publish_service_token,
    read_service_token,
    renew_service_token,
)
from tests.dashboard import kit as dashboard_kit
from tests.server import kit

LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
COMMAND = [sys.executable, "-c", "from penstock.cli.commands import main; main()"]


class Own:
    """A service with a token of its own, on the inline engine."""

    def __init__(self, site: kit.Site, server: Server, state: Path) -> None:
        self.site, self.url, self.state = site, server.url, state
        self.port = int(server.url.rpartition(":")[2])

    @property
    def token(self) -> str:
        return read_service_token(self.state / FILE)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def log_in(self, **headers: str) -> httpx.Response:
        """Open the address that the service prints."""
        return httpx.get(f"{self.url}/?token={self.token}", headers=headers)

    def session(self) -> dict[str, str]:
        return {"cookie": self.log_in().headers["set-cookie"].split(";")[0]}


@contextlib.contextmanager
def own_service(folder: Path, tokens: Tokens | None = None) -> Iterator[Own]:
    state = folder / "state"
    with kit.site(state) as site:
        host: Host = site.running.host
        service = Service(host, tokens=tokens or Tokens.of_directory(state))
        add_login_pages(service)
        with Server(service, "127.0.0.1", 0) as server:
            yield Own(site, server, state)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    with own_service(tmp_path) as found:
        yield found


# -- who gets in ---------------------------------------------------------------------------------


def test_nobody_gets_in_without_the_token(own: Own) -> None:
    for path in ("/jobs", "/status", "/metrics", "/openapi.json", "/audit"):
        response = httpx.get(own.url + path)
        assert (response.status_code, response.json()["condition"]) == (401, "NOT_AUTHORISED")
        assert "penstock token" in response.json()["hint"]
    assert httpx.post(f"{own.url}/sql", json={"sql": "DROP JOB pages"}).status_code == 401
    assert httpx.get(f"{own.url}/jobs", headers={"authorization": "Bearer " + "0" * 48}).status_code == 401
    assert httpx.get(f"{own.url}/jobs", headers=own.headers).status_code == 200
    assert httpx.get(f"{own.url}/health").status_code == 200


def test_another_host_in_a_request_is_refused_also_with_the_token(own: Own) -> None:
    for foreign in ({"host": "rebound.evil.example"}, {"origin": "http://evil.example"}):
        for path in ("/jobs", "/health", "/ui/login", f"/?token={own.token}"):
            response = httpx.get(own.url + path, headers={**own.headers, **foreign})
            assert (response.status_code, response.json()["condition"]) == (403, "FOREIGN_HOST")


def test_the_token_is_in_the_state_directory_and_goes_with_it(own: Own) -> None:
    assert (own.state / FILE).stat().st_mode & 0o777 == 0o600
    StateDirectory(own.state).read_facts()
    copy = own.state.with_name("copy")
    copy.mkdir()
    open_service_token(copy)
    assert StateDirectory(copy).read_facts() is None, (
        "a service may write it before its engine makes the state"
    )
    (copy / "penstock.json").write_bytes((own.state / "penstock.json").read_bytes())
    remove_state_directory(copy)
    assert not copy.exists()


def test_coordinators_of_one_state_directory_accept_the_same_token_and_follow_a_new_one(own: Own) -> None:
    now = [0.0]
    other = Tokens.of_directory(own.state, clock=lambda: now[0])
    assert other.find(own.headers["authorization"]) is not None
    former = own.headers
    renew_service_token(own.state)
    now[0] += 2
    assert other.find(former["authorization"]) is None
    assert other.find(own.headers["authorization"]) is not None
    kit.until(lambda: httpx.get(f"{own.url}/jobs", headers=own.headers).status_code == 200)
    assert httpx.get(f"{own.url}/jobs", headers=former).status_code == 401


# -- the client ----------------------------------------------------------------------------------


def test_the_client_finds_the_token(own: Own) -> None:
    for url in (own.url, own.url.replace("127.0.0.1", "localhost")):
        with connect(url) as client:
            assert [job.name for job in client.jobs()] == ["pages"]
            assert client.health().status
            renew_service_token(own.state)
            assert client.jobs(), "with the former token, which is in force for a moment, or the new one"
            with connect(url) as other:
                assert other.jobs(), "at once: the service reads its file again"


def test_asynchronous_subscriptions_find_it_too(own: Own) -> None:
    async def first() -> int:
        with connect(own.url) as client:
            async for result in client.subscribe("pages", since=0):
                return result.epoch
        raise AssertionError

    own.site.epochs(30)
    assert asyncio.run(asyncio.wait_for(first(), 30)) >= 0


def test_a_token_that_is_given_is_used(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(own.url, token="0" * 48) as client, pytest.raises(UserError, match="NOT_AUTHORISED"):
        client.jobs()
    monkeypatch.setenv("PENSTOCK_TOKEN", own.token)
    monkeypatch.setattr(tempfile, "tempdir", str(own.state))  # where nothing is found
    with connect(own.url) as client:
        assert client.jobs()


class _Squatter(BaseHTTPRequestHandler):
    """Another user's program at the port of a service that has ended. It passes challenges on, if it can."""

    seen: list[str]
    real: str | None

    def do_GET(self) -> None:
        self.seen.append(f"{self.path} {self.headers}")
        proof = ""
        if self.real is not None and (nonce := self.headers.get(CHALLENGE)):
            proof = httpx.get(f"{self.real}/health", headers={CHALLENGE: nonce}).headers.get(PROOF, "")
        self.send_response(401 if self.path != "/health" else 200)
        self.send_header(PROOF, proof)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("relays", [False, True])
def test_a_program_at_the_port_of_a_service_that_has_ended_gets_no_token(own: Own, relays: bool) -> None:
    seen: list[str] = []
    handler = type("Handler", (_Squatter,), {"seen": seen, "real": own.url if relays else None})
    squatter = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=squatter.serve_forever, daemon=True).start()
    try:
        with publish_service_token(
            own.state / FILE, squatter.server_port
        ):  # left by a service that was killed
            with connect(f"http://127.0.0.1:{squatter.server_port}") as client:
                with pytest.raises(ExternalError, match="NOT_PENSTOCK"):
                    client.jobs()
                with pytest.raises(ExternalError, match="NOT_PENSTOCK"):
                    next(iter(client.subscribe("pages", patience_seconds=0.1)))
            paths = [text.split()[0] for text in seen]
            assert paths[:4] == ["/health", "/jobs", "/health", "/jobs/pages/events"]
            assert own.token not in "".join(seen)
    finally:
        squatter.shutdown()
        squatter.server_close()


def test_a_request_that_a_service_gets_as_it_starts_finds_the_token_then(own: Own) -> None:
    """The connection is tried again while the service starts, and the token was not there before."""
    link = own_folder() / f"token-{own.port}"
    hidden = link.with_name("hidden")
    link.rename(hidden)
    flow = OwnToken(own.url).auth_flow(httpx.Request("GET", f"{own.url}/jobs"))
    first = next(flow)
    assert "authorization" not in first.headers
    hidden.rename(link)
    challenge = flow.send(httpx.Response(401))
    assert challenge.url.path == "/health"
    proof = httpx.get(challenge.url, headers=challenge.headers)
    assert flow.send(proof).headers["authorization"] == f"Bearer {own.token}"


def test_a_token_that_is_refused_leaves_the_caller_the_refusal(own: Own) -> None:
    flow = OwnToken(own.url).auth_flow(httpx.Request("GET", f"{own.url}/jobs"))
    challenge = next(flow)
    assert "authorization" in flow.send(httpx.get(challenge.url, headers=challenge.headers)).headers
    with pytest.raises(StopIteration):
        flow.send(httpx.Response(401))


def test_the_service_proves_itself_again_after_a_connection_has_failed(own: Own) -> None:
    auth = OwnToken(own.url)
    assert httpx.get(f"{own.url}/jobs", auth=auth).status_code == 200
    flow = auth.auth_flow(httpx.Request("GET", f"{own.url}/jobs"))
    assert "authorization" in next(flow).headers
    auth.forget()
    flow = auth.auth_flow(httpx.Request("GET", f"{own.url}/jobs"))
    assert next(flow).url.path == "/health"


def test_a_service_with_a_configured_token_proves_nothing(tmp_path: Path) -> None:
    """From a proof, a token that a person made could be guessed."""
    with own_service(tmp_path, Tokens.of_text("password-of-a-person")) as site:
        response = httpx.get(f"{site.url}/health", headers={CHALLENGE: "0" * 32})
        assert response.status_code == 200
        assert PROOF not in response.headers


# -- browsers ------------------------------------------------------------------------------------


def test_a_browser_is_logged_in_by_the_address_that_is_printed(own: Own) -> None:
    response = own.log_in()
    assert (response.status_code, response.headers["location"]) == (303, "/ui/")
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"
    assert own.token not in str(response.headers)
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"penstock-{own.port}=")
    assert {"httponly", "samesite=lax", "path=/ui"} <= {part.strip().lower() for part in cookie.split(";")}, (
        "scripts cannot read it, and other sites not send it"
    )
    assert httpx.get(f"{own.url}/ui/x", headers=own.session()).status_code == 404, "no pages are mounted here"
    assert httpx.get(f"{own.url}/jobs", headers=own.session()).status_code == 401, "it is for pages only"


def test_a_wrong_token_in_the_address_leads_to_the_form(own: Own) -> None:
    response = httpx.get(f"{own.url}/?token=wrong")
    assert (response.status_code, response.headers["location"]) == (303, "/ui/login?wrong")
    assert "set-cookie" not in response.headers
    form = httpx.get(f"{own.url}/ui/login?wrong")
    assert form.status_code == 401
    assert "That is no token of this service" in form.text
    assert "penstock token" in form.text


def test_a_page_of_another_site_leads_nobody_into_the_session_of_somebody_else(tmp_path: Path) -> None:
    """A link on another site, or its form, could else make a person work under the name of who made it."""
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(f"mallory read {'m' * 20}\nada administer {'a' * 20}\n")
    with own_service(tmp_path, Tokens.of_file(file)) as site:
        by_link = httpx.get(f"{site.url}/?token={'m' * 20}", headers=LINK)
        assert (by_link.status_code, by_link.headers["location"]) == (303, "/ui/login")
        assert "set-cookie" not in by_link.headers
        data = {"token": "m" * 20}
        for foreign in (LINK, {"origin": "http://evil.example"}, {"origin": "null"}):
            by_form = httpx.post(f"{site.url}/ui/login", data=data, headers=foreign)
            assert (by_form.status_code, "set-cookie" in by_form.headers) == (403, False)
        for ours in ({}, {"origin": site.url}, {"sec-fetch-site": "same-origin"}):
            assert httpx.post(f"{site.url}/ui/login", data=data, headers=ours).status_code == 303
        assert "set-cookie" in httpx.get(f"{site.url}/?token={'m' * 20}").headers


def test_the_file_that_the_demo_opens_logs_in_without_another_click(own: Own) -> None:
    """A browser calls it another site: a page of a file."""
    response = own.log_in(**LINK)
    assert response.status_code == 200
    assert 'content="0;url=/ui/"' in response.text
    assert "set-cookie" in response.headers
    frame = {**LINK, "sec-fetch-dest": "iframe"}
    assert own.log_in(**frame).status_code == 403
    image = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert own.log_in(**image).status_code == 403


def test_services_at_several_ports_leave_each_other_their_sessions(own: Own, tmp_path: Path) -> None:
    with own_service(tmp_path / "other") as other, httpx.Client() as browser:
        for one in (own, other):  # cookies of one host go to all of its ports
            browser.get(f"{one.url}/?token={one.token}")
        for one in (own, other):
            assert browser.get(f"{one.url}/ui/x").status_code == 404
        renew_service_token(other.state)
        kit.until(lambda: browser.get(f"{other.url}/ui/x").status_code == 303)
        assert browser.get(f"{own.url}/ui/x").status_code == 404


# -- as a process --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dashboard_kit.Served]:
    service = dashboard_kit.Served(tmp_path_factory.mktemp("served"))
    service.start()
    yield service
    service.end()


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.process
@pytest.mark.timeout(300)
def test_commands_on_the_same_machine_need_no_token_and_print_it(served: dashboard_kit.Served) -> None:
    assert _run(served.folder, "token", "--state", "state").stdout.strip() == served.token
    header = _run(served.folder, "token", "--state", "state", "--header").stdout.strip()
    assert header == f"Authorization: Bearer {served.token}"
    assert "running" in _run(served.folder, "jobs", "list", "--state", "state").stdout
    missing = _run(served.folder, "token", "--state", "nowhere")
    assert "[NO_TOKEN]" in missing.stderr


@pytest.mark.process
@pytest.mark.kill
@pytest.mark.timeout(300)
def test_the_token_is_in_no_log_and_no_argument_and_outlives_a_kill(served: dashboard_kit.Served) -> None:
    token = served.token
    session = httpx.get(f"{served.url}/?token={token}").headers["set-cookie"].split(";")[0]
    httpx.get(f"{served.url}/?token={token}wrong")
    httpx.post(f"{served.url}/ui/login", data={"token": token[:-1]})
    httpx.post(f"{served.url}/jobs/pages/pause", headers=served.headers)
    httpx.post(f"{served.url}/jobs/pages/resume", headers=served.headers)
    assert [line["did"] for line in served.get("/audit")][:2] == ["executed"] * 2
    shown = json.dumps([served.get("/logs?limit=500"), served.get("/audit"), served.get("/status")])
    log = (served.folder / "log").read_text()
    assert "request" in shown
    assert str(served.folder / "state" / FILE) in log.replace(
        "state/" + FILE, str(served.folder / "state" / FILE)
    )
    texts = [shown, log, (served.folder / "state" / "audit.jsonl").read_text()]
    assert served.process is not None
    texts.append(Path(f"/proc/{served.process.pid}/cmdline").read_text())
    for text in texts:
        assert token[:-1] not in text
    served.kill()
    served.start()
    assert served.token == token
    assert httpx.get(f"{served.url}/ui/", headers={"cookie": session}).status_code == 200
    with connect(served.url) as client:
        assert client.jobs()


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_service_can_be_started_without_a_token(tmp_path: Path) -> None:
    served = dashboard_kit.Served(tmp_path, "--no-token")
    served.start()
    try:
        assert httpx.get(f"{served.url}/jobs").status_code == 200
        assert httpx.get(f"{served.url}/?token=x").headers["location"] == "/ui/"
        assert not (tmp_path / "state" / FILE).exists()
        assert "every user and program of this machine may administer" in (tmp_path / "log").read_text()
        with connect(served.url) as client:
            assert client.jobs()
    finally:
        served.end()


def test_only_a_service_for_its_own_machine_can_be_started_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("t" * 20)
    for command in (["serve", "--empty"], ["coordinator", "--empty", "--coordination", "store"]):
        for options, condition in (
            (["--no-token", "--listen", "0.0.0.0:0"], "TOKEN_NEEDED"),
            (["--no-token", "--token-file", "token"], "BAD_OPTION"),
            (["--no-token", "--allow-code"], "TOKEN_NEEDED"),
        ):
            failure = CliRunner().invoke(cli, [*command, *options]).exception
            assert isinstance(failure, PenstockError), (command, options)
            assert failure.condition == condition
    assert list(tmp_path.iterdir()) == [file]
