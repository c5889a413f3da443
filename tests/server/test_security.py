"""Who may use the service, and what statements over HTTP may name."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from penstock.catalogue.program import Program
from penstock.cli.commands import app as cli
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.http_server import Server
from penstock.server.security import (
    check_local_request,
    check_token_for_address,
    is_loopback,
    parse_address,
)
from penstock.server.statement_guard import StatementGuard
from penstock.server.tokens import Role, Token, Tokens, digest
from penstock.sql.parse import parse
from tests.server import kit
from tests.server.certificate import make_certificate

TOKEN = "a-token-of-24-characters"


# -- the token -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Site]:
    with kit.site(tmp_path_factory.mktemp("guarded") / "state", token=TOKEN) as found:
        yield found


@pytest.mark.parametrize(
    "given", [None, "", TOKEN, "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"]
)
@pytest.mark.parametrize("path", ["/status", "/jobs/pages/events", "/openapi.json", "/nowhere"])
def test_a_wrong_token_gets_nothing(guarded: kit.Site, given: str | None, path: str) -> None:
    headers = {} if given is None else {"authorization": given.encode("latin-1")}
    response = httpx.get(guarded.url + path, headers=headers)  # type: ignore[arg-type]
    assert (response.status_code, response.json()["condition"]) == (401, "NOT_AUTHORISED")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in response.text


def test_the_right_token_is_accepted_and_health_needs_none(guarded: kit.Site) -> None:
    assert guarded.get("/status")["name"] == "test"
    assert httpx.get(f"{guarded.url}/health").status_code == 200
    assert httpx.get(f"{guarded.url}/favicon.ico").status_code == 404, (
        "a browser asks for it unasked; no pages here"
    )


def test_a_token_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ExternalError, match="TOKEN_FILE_UNREADABLE"):
        Tokens.of_file(file)
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(UserError, match="TOKEN_FILE_OPEN"):
        Tokens.of_file(file)
    file.chmod(0o600)
    assert Tokens.of_file(file).find(f"Bearer {TOKEN}") == Token("token", Role.administer, digest(TOKEN))
    file.write_text("short")
    with pytest.raises(UserError, match="TOKEN_TOO_SHORT"):
        Tokens.of_file(file)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::", "example.com", "10.0.0.1"])
def test_an_address_reachable_by_others_requires_a_token(host: str) -> None:
    with pytest.raises(UserError, match="TOKEN_NEEDED"):
        check_token_for_address(host, None)
    check_token_for_address(host, Tokens.of_text(TOKEN))


def test_serve_refuses_to_start_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, condition in (
        (["serve", "--empty", "--listen", "0.0.0.0:0"], "TOKEN_NEEDED"),
        (["serve", "--empty", "--listen", "nowhere"], "BAD_OPTION"),
        (["serve"], "BAD_OPTION"),
        (["serve", "--empty", "--tls-cert", "no.pem"], "BAD_OPTION"),
        (["serve", "missing.sql"], "APP_FILE_MISSING"),
    ):
        failure = CliRunner().invoke(cli, arguments).exception
        assert isinstance(failure, PenstockError), arguments
        assert failure.condition == condition
    assert list(tmp_path.iterdir()) == []


def test_an_address_in_use_is_an_error(state: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ExternalError, match="ADDRESS_TAKEN"):
            Server(Service(Host(Program("x", state), state)), "127.0.0.1", other.getsockname()[1])


def test_addresses_are_parsed_and_loopback_is_recognised() -> None:
    assert parse_address("127.0.0.1:8080") == ("127.0.0.1", 8080)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert is_loopback("::1")
    assert is_loopback("127.9.9.9")
    assert not is_loopback("localhost.evil.com")


# -- pages of other sites ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "origin", "passes"),
    [
        ("127.0.0.1:8080", None, True),
        ("localhost:8080", "http://localhost:8080", True),
        ("[::1]:8080", None, True),
        ("evil.com", None, False),
        ("evil.com:8080", "http://evil.com:8080", False),
        ("127.0.0.1:8080", "http://evil.com", False),
        ("127.0.0.1:8080", "null", False),
        (None, None, False),
    ],
)
def test_without_a_token_only_this_machines_own_pages_pass(
    host: str | None, origin: str | None, passes: bool
) -> None:
    if passes:
        check_local_request(host, origin)
    else:
        with pytest.raises(UserError, match="FOREIGN_HOST"):
            check_local_request(host, origin)


def test_a_page_of_another_site_is_refused(tmp_path: Path) -> None:
    with kit.site(tmp_path / "state") as site:
        for headers in ({"host": "rebound.evil.com"}, {"origin": "http://evil.com"}):
            response = site.http.post("/jobs/pages/pause", headers=headers)
            assert (response.status_code, response.json()["condition"]) == (403, "FOREIGN_HOST")
        assert site.get("/jobs/pages")["life"] == "running"


@pytest.mark.parametrize("path", ["/status", "/ui/", "/jobs/pages/answer", "/health", "/"])
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_a_get_of_another_site_reaches_no_page(local: kit.Site, path: str, headers: dict[str, str]) -> None:
    response = local.http.get(path, headers=headers)
    assert (response.status_code, response.json()["condition"]) == (403, "FOREIGN_HOST")


def test_a_link_on_another_site_shows_a_link_and_builds_no_page(local: kit.Site) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    response = local.http.get("/ui/jobs/x%22%3Cb%3E", headers=link)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert 'href="/ui/jobs/x%22%3Cb%3E"' in response.text
    own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for headers in (own, {**own, "sec-fetch-site": "none"}, {}):
        assert local.http.get("/ui/jobs/x", headers=headers).status_code == 404, "no pages are mounted here"
    assert local.http.get("/openapi.json", headers=link).status_code == 200


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Site]:
    with kit.site(tmp_path_factory.mktemp("local") / "state") as found:
        yield found


# -- files ---------------------------------------------------------------------------------------

STREAM = "CREATE STREAM s FROM {} FORMAT combined_log EVENT TIME time"
JOB = "CREATE JOB j AS SELECT page FROM clicks INTO {}"


@pytest.fixture
def guard(tmp_path: Path) -> StatementGuard:
    for folder in ("open/in", "openly", "state", "open/state"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "open" / "out").symlink_to(tmp_path / "openly")
    return StatementGuard([tmp_path / "open"], tmp_path / "open" / "state")


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("{}/open/in/*.log", True),
        ("{}/open/in/a.log", True),
        ("{}/open/in/deeper/**/*.log", True),
        ("{}/openly/*.log", False),
        ("{}/open*/x", False),
        ("{}/*/x", False),
        ("{}/open/../openly/x", False),
        ("{}/open/in/../../openly/x", False),
        ("{}/open/out/x", False),
        ("{}/open/state/x", False),
        ("{}/open/*/x.json", False),
        ("/etc/passwd", False),
        ("/proc/self/environ", False),
        ("~/x", False),
        ("~root/.ssh/*", False),
        ("relative/x", False),
        ("", False),
        ("..", False),
        ("/", False),
        ("\\0", False),
    ],
)
def test_statements_name_only_files_below_the_allowed_folders(
    guard: StatementGuard, tmp_path: Path, path: str, passes: bool
) -> None:
    file_name = path.format(tmp_path)
    statements = [STREAM.format(f"files('{file_name}')")]
    if "*" not in file_name:
        statements += [
            JOB.format(f"jsonl('{file_name}')"),
            JOB.format(f"parquet(directory => '{file_name}')"),
            JOB.format(f"console, sqlite('{file_name}', 't')"),
        ]
    for text in statements:
        if passes:
            guard.check(parse(text))
        else:
            with pytest.raises(UserError, match="FILES_NOT_ALLOWED"):
                guard.check(parse(text))


def test_unknown_connectors_are_refused_over_http(tmp_path: Path) -> None:
    guard = StatementGuard([tmp_path], tmp_path / "state")
    guard.check(parse("CREATE STREAM s FROM generated(rate => 1) FORMAT combined_log; SHOW JOBS"))
    for text in (STREAM.format("pulsar('host')"), JOB.format("mongo('host')"), JOB.format("pickle('x')")):
        with pytest.raises(UserError, match="NOT_OVER_HTTP"):
            guard.check(parse(text))
    with pytest.raises(UserError, match="FILES_NOT_ALLOWED"):
        guard.check(parse(STREAM.format(f"files('{tmp_path}/ok.log', '/etc/passwd')")))


def test_sql_over_http_reads_and_writes_no_file_of_this_machine(tmp_path: Path) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text("a line nobody should see\n")
    with kit.site(tmp_path / "state") as site:
        body = {
            "name": "s",
            "log": {"kind": "files", "arguments": [str(secret)]},
            "format": {"kind": "combined_log"},
        }
        assert site.post("/streams", body, 403)["condition"] == "FILES_NOT_ALLOWED"
        assert site.sql(STREAM.format(f"files('{secret}')"), 403)["condition"] == "FILES_NOT_ALLOWED"
        query = f"SELECT page FROM clicks INTO jsonl('{tmp_path}/made')"
        assert site.post("/jobs", {"name": "j", "query": query}, 403)["condition"] == "FILES_NOT_ALLOWED"
        into = [{"kind": "sqlite", "arguments": [f"{tmp_path}/made", "t"]}]
        job = {"name": "j", "query": "SELECT page FROM clicks", "into": into}
        assert site.post("/jobs", job, 403)["condition"] == "FILES_NOT_ALLOWED"
        for reader in ("read_csv", "read_files", "load_file", "pg_read_file"):
            text = f"CREATE JOB j AS SELECT {reader}('{secret}') AS x FROM clicks"
            assert site.sql(text, 422)["condition"] != "UNEXPECTED"
        assert site.sql(f"CREATE JOB j AS SELECT * FROM `{secret}`", 422)["condition"]
    assert not (tmp_path / "made").exists()


def test_folders_that_the_operator_allows_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    with kit.site(tmp_path / "state", files=[tmp_path / "open"]) as site:
        into = [{"kind": "jsonl", "arguments": [f"{tmp_path}/open/rows"]}]
        site.post("/jobs", {"name": "j", "query": "SELECT page FROM clicks", "into": into}, 201)
        site.log.add("p0", *kit.lines(5))
        site.running.steps()
        (file,) = (tmp_path / "open" / "rows").glob("*.jsonl")
        assert len(file.read_text().splitlines()) == 5


# -- names ---------------------------------------------------------------------------------------

BAD_NAMES = [
    "../up",
    "a/b",
    "..",
    ".",
    "",
    "a`b",
    "a'b",
    "a\nb",
    "a b",
    "1a",
    "x" * 101,
    "a;b",
    "a\0b",
    "%2e%2e",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_cannot_be_a_path_or_a_statement(tmp_path: Path, name: str) -> None:
    body: dict[str, Any] = {"name": name, "query": "SELECT page FROM clicks"}
    stream = {"name": name, "log": {"kind": "generated"}, "format": {"kind": "combined_log"}}
    with kit.site(tmp_path / "state") as site:
        for reply in (site.post("/jobs", body, 422), site.post("/streams", stream, 422)):
            assert reply["condition"] in ("BAD_NAME", "BAD_REQUEST")
        if name and "`" not in name and "'" not in name:
            assert site.sql(f"CREATE JOB `{name}` AS SELECT page FROM clicks", 422)["condition"]
            assert site.sql(f"CREATE STREAM `{name}` FROM generated() FORMAT combined_log", 422)["condition"]
        assert [job["name"] for job in site.get("/jobs")] == ["pages"]


@pytest.mark.parametrize("name", ["..%2f..%2fetc", "%2e%2e", "..", "%00", "a%2fb", "%2e%2e%2fdead"])
def test_a_path_in_a_url_leads_nowhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "epoch-000000000000.jsonl").write_text(json.dumps({"secret": 1}))
    with kit.site(tmp_path / "state") as site:
        for page in ("dead", "late", ""):
            response = site.http.get(f"/streams/{name}/{page}".rstrip("/"))
            assert response.status_code in (404, 405, 307) or response.request.url.path == "/streams"
            assert "secret" not in response.text


def test_nothing_in_a_body_becomes_a_statement_of_its_own(tmp_path: Path) -> None:
    with kit.site(tmp_path / "state") as site:
        for body in (
            {"name": "x", "query": "SELECT page FROM clicks; DROP JOB pages"},
            {
                "name": "x",
                "query": "SELECT page FROM clicks WHERE page = $p",
                "parameters": {"p": "') ; DROP JOB pages --"},
            },
            {"name": "x", "query": "SELECT page FROM clicks --", "into": [{"kind": "console) ; DROP"}]},
        ):
            site.http.post("/jobs", json=body)
            assert "pages" in [job["name"] for job in site.get("/jobs")]
        columns = {"a": "STRING) ; DROP JOB pages; --"}
        stream = {"name": "s", "log": {"kind": "generated"}, "format": {"kind": "json", "columns": columns}}
        assert site.post("/streams", stream, 422)["condition"]
        assert site.http.patch("/jobs/pages", json={"where": "1 = 1; DROP JOB pages"}).status_code == 422
        assert site.get("/jobs/pages")["life"] == "running"


@pytest.mark.parametrize("text", ["it's", "back\\slash", "\\'", "''", "é\n\t\u2028", "--", "$x", "/*", "`"])
def test_any_text_can_be_a_parameter(tmp_path: Path, text: str) -> None:
    with kit.site(tmp_path / "state") as site:
        body = {"name": "x", "query": "SELECT page FROM clicks WHERE page = $p", "parameters": {"p": text}}
        response = site.http.post("/jobs", json=body)
        if response.status_code == 201:
            assert site.get("/jobs/x")["parameters"] == {"p": text}
        else:
            assert response.json()["condition"] == "BAD_SQL"


# -- TLS -----------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.skipif(
    not any(os.access(f"{p}/openssl", os.X_OK) for p in os.environ["PATH"].split(":")), reason="no openssl"
)
def test_the_service_works_over_https(tmp_path: Path) -> None:
    host = Host(Program("x", tmp_path / "state"), tmp_path / "state")
    tls = make_certificate(tmp_path)
    with Server(Service(host, tokens=Tokens.of_text(TOKEN)), "127.0.0.1", 0, tls) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        health = httpx.get(f"{server.url}/health", verify=trusted).json()
        assert health == {"status": "starting", "phase": "starting"}
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")
        waiting = httpx.get(
            f"{server.url}/jobs", verify=trusted, headers={"authorization": f"Bearer {TOKEN}"}
        )
        assert (waiting.status_code, waiting.json()["condition"]) == (503, "ENGINE_STARTING")
