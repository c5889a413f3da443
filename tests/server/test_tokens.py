"""Tokens have names and roles, change without a restart, and who did what is in the audit log."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from penstock.client import connect
from penstock.dashboard.login import add_login_pages
from penstock.errors import UserError
from penstock.server.audit import FILES, Audit
from penstock.server.limits import Limits
from penstock.server.middleware import Gate
from penstock.server.sessions import WEEK_SECONDS, Sessions
from penstock.server.tokens import Caller, Role, Tokens, needed_role
from penstock.state.directory import StateDirectory
from tests.server import kit

READ, OPERATE, ADMINISTER = "r" * 20, "o" * 20, "a" * 20
FILE = f"""
# who may do what
rosa read {READ}
otto operate {OPERATE}

ada administer {ADMINISTER}
"""


def write_file(file: Path, text: str) -> Path:
    file.touch(0o600)
    file.chmod(0o600)
    file.write_text(text)
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_file(tmp_path / "tokens", FILE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Site]:
    folder = tmp_path_factory.mktemp("roles")
    with kit.site(folder / "state", token=write_file(folder / "tokens", FILE), code=True) as found:
        add_login_pages(found.running.service)
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def send(site: kit.Site, token: str, method: str, path: str, **options: object) -> tuple[int, str | None]:
    """The status and the condition of a response."""
    response = httpx.request(method, site.url + path, headers=bearer(token), timeout=60, **options)  # type: ignore[arg-type]
    is_json = "json" in response.headers.get("content-type", "") and response.status_code >= 400
    return response.status_code, response.json()["condition"] if is_json else None


# -- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"rosa read {READ}\nrosa operate {OPERATE}",
        f"rosa {READ}",
        f"rosa own {READ}",
        f"{READ}\n{OPERATE}",
        f"../x read {READ}",
        f"rosa read {READ} more",
        f"rosa read {READ}\notto operate {READ}",
    ],
)
def test_a_file_that_is_no_list_of_tokens_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="BAD_TOKEN_FILE"):
        Tokens.of_file(write_file(tmp_path / "tokens", text))


def test_every_token_of_a_file_is_long_enough(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "short", f"rosa read {READ}\notto operate short"):
        with pytest.raises(UserError, match="TOKEN_TOO_SHORT"):
            Tokens.of_file(write_file(tmp_path / "tokens", text))


def test_a_changed_file_is_in_force_without_a_restart(file: Path) -> None:
    now = [0.0]
    tokens = Tokens.of_file(file, clock=lambda: now[0])

    def role_of(token: str) -> Role | None:
        now[0] += 2.0
        found = tokens.find(f"Bearer {token}")
        return None if found is None else found.role

    assert [role_of(one) for one in (READ, OPERATE, ADMINISTER, "x" * 20)] == [*Role, None]
    write_file(file, f"rosa operate {READ}\nnew read {'n' * 20}")
    assert [role_of(one) for one in (READ, OPERATE, "n" * 20)] == [Role.operate, None, Role.read]
    write_file(file, "this is wrong")
    assert role_of(READ) is Role.operate, "the former tokens stay in force"
    file.unlink()
    assert role_of(READ) is Role.operate
    write_file(file, "z" * 20)
    assert [role_of("z" * 20), role_of(READ)] == [Role.administer, None]


# -- roles ---------------------------------------------------------------------------------------


def test_each_role_includes_those_before_it() -> None:
    roles = list(Role)
    assert [[one.includes(other) for other in roles] for one in roles] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_the_role_that_a_request_needs() -> None:
    for method, path, role in (
        ("GET", "/jobs", Role.read),
        ("POST", "/jobs/pages/messages", Role.read),
        ("POST", "/jobs", Role.operate),
        ("PATCH", "/jobs/pages", Role.operate),
        ("DELETE", "/streams/clicks", Role.operate),
        ("POST", "/streams/clicks/events", Role.operate),
        ("PUT", "/jobs/pages/code", Role.administer),
        ("GET", "/audit", Role.administer),
        ("DELETE", "/sessions", Role.administer),
        ("POST", "/anything/else", Role.operate),
    ):
        assert needed_role(method, path) is role, (method, path)


def test_a_role_may_do_what_it_is_for_and_no_more(site: kit.Site) -> None:
    refused = (403, "ROLE_NEEDED")
    code = {"content": "import penstock as ps", "params": {"check": "true"}}
    for token, statuses in (
        (READ, [(200, None), (200, None), refused, refused, refused, refused, refused]),
        (OPERATE, [(200, None), (200, None), (200, None), (200, None), (200, None), refused, refused]),
    ):
        assert [
            send(site, token, "GET", "/jobs"),
            send(site, token, "POST", "/sql", json={"sql": "SHOW JOBS; EXPLAIN JOB pages"}),
            send(site, token, "POST", "/sql", json={"sql": "SHOW JOBS; PAUSE JOB pages"}),
            send(site, token, "POST", "/jobs/pages/resume"),
            send(site, token, "POST", "/jobs/pages/flush"),
            send(site, token, "PUT", "/jobs/x/code", **code),
            send(site, token, "GET", "/audit"),
        ] == statuses, token
    assert send(site, ADMINISTER, "PUT", "/jobs/x/code", **code)[0] in (415, 422)
    assert send(site, ADMINISTER, "GET", "/audit") == (200, None)
    assert send(site, "nobody's token here", "GET", "/jobs") == (401, "NOT_AUTHORISED")


def test_the_audit_log_has_no_passwords(site: kit.Site) -> None:
    sql = "CREATE JOB x AS SELECT page FROM clicks INTO postgres('postgresql://me:hunter2@host/shop', 't')"
    assert send(site, ADMINISTER, "POST", "/sql", json={"sql": sql})[0] != 200
    (line,) = httpx.get(f"{site.url}/audit?limit=1", headers=bearer(ADMINISTER)).json()
    assert "me:***@host" in line["facts"]["sql"]
    assert "hunter2" not in site.running.service.audit_log.file.read_text()


def test_the_audit_log_says_who_did_what(site: kit.Site) -> None:
    send(site, OPERATE, "POST", "/sql", json={"sql": "FLUSH JOB pages"})
    send(site, OPERATE, "POST", "/sql", json={"sql": "SHOW JOBS"})
    send(site, OPERATE, "POST", "/sql", json={"sql": "PAUSE JOB nothing"})
    send(site, READ, "POST", "/jobs/pages/empty")
    send(site, "nobody's token here", "POST", "/jobs/pages/empty")
    lines = httpx.get(f"{site.url}/audit?limit=3", headers=bearer(ADMINISTER)).json()
    assert [(line["who"], line["role"], line["address"], line["did"]) for line in lines] == [
        ("rosa", "read", "127.0.0.1", "refused"),
        ("otto", "operate", "127.0.0.1", "failed"),
        ("otto", "operate", "127.0.0.1", "executed"),
    ]
    assert lines[0]["facts"] == {
        "method": "POST",
        "path": "/jobs/pages/empty",
        "condition": "ROLE_NEEDED",
    }
    assert lines[1]["facts"] == {"sql": "PAUSE JOB nothing", "condition": "UNKNOWN_JOB"}
    assert lines[2]["facts"] == {"sql": "FLUSH JOB pages"}
    file = site.running.service.audit_log.file
    assert file.name == "audit.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert READ not in file.read_text()


def test_the_audit_log_has_every_line_whatever_is_in_it(site: kit.Site) -> None:
    send(site, OPERATE, "POST", "/sql", json={"sql": "FLUSH JOB pages /* \u2028 \u0085 */"})
    send(site, READ, "POST", "/jobs/%E2%80%A81%E2%80%A8/pause")
    lines = httpx.get(f"{site.url}/audit?limit=2", headers=bearer(ADMINISTER)).json()
    assert [line["did"] for line in lines] == ["refused", "executed"]


def test_a_path_that_ends_otherwise_needs_the_same_role(site: kit.Site) -> None:
    for method, path in (("GET", "/audit%0A"), ("DELETE", "/sessions%0A"), ("DELETE", "/jobs/messages")):
        assert send(site, READ, method, path) == (403, "ROLE_NEEDED"), path


def test_sessions_that_several_coordinators_revoke_stay_revoked(file: Path, tmp_path: Path) -> None:
    one, two = (Sessions(Tokens.of_file(file), tmp_path / "revoked.json") for _ in range(2))
    token = Tokens.of_file(file).named("otto")
    assert token is not None
    sessions = [one.issue(token) for _ in range(2)]
    one.revoke(sessions[0])
    two.revoke(sessions[1])
    for service in (one, two, Sessions(Tokens.of_file(file), tmp_path / "revoked.json")):
        assert [service.find(session) for session in sessions] == [None, None]


def test_a_service_without_tokens_names_the_address(tmp_path: Path) -> None:
    with kit.site(tmp_path / "state") as site:
        site.sql("PAUSE JOB pages")
        (line,) = site.get("/audit")
        assert (line["who"], line["address"], line["facts"]) == (
            "anyone",
            "127.0.0.1",
            {"sql": "PAUSE JOB pages"},
        )


def test_the_audit_log_has_a_size(tmp_path: Path) -> None:
    audit, caller = Audit(tmp_path / "audit.jsonl", file_bytes=2_000), Caller("ada", Role.administer, "::1")
    for number in range(500):
        audit.record(caller, "executed", sql=f"statement {number} \ud800")
    files = sorted(tmp_path.iterdir())
    assert len(files) == FILES
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 and one.stat().st_size <= 2_000 for one in files)
    assert [line["sql"] for line in audit.lines(2)] == ["statement 499 \\ud800", "statement 498 \\ud800"]
    with audit.file.open("a") as half:
        half.write('{"at": "20')
    assert len(audit.lines(2)) == 2
    audit.close()
    (tmp_path / "away").write_text("")
    Audit(tmp_path / "away" / "audit.jsonl").record(caller, "executed")  # logged; the request is answered


def test_a_unit_may_write_both_files_before_its_first_engine_has_made_the_state(
    file: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    audit = Audit(state / "audit.jsonl", file_bytes=500)
    for number in range(100):
        audit.record(None, "executed", sql=f"statement {number}")
    audit.close()
    Sessions(Tokens.of_file(file), state / "revoked-sessions.json").revoke_all()
    assert len(list(state.iterdir())) == FILES + 2
    assert StateDirectory(state).read_facts() is None, "a new directory"


# -- sessions ------------------------------------------------------------------------------------


def test_a_session_is_valid_until_it_expires_and_for_its_token_only(file: Path, tmp_path: Path) -> None:
    now = [1_000.0]
    tokens, revoked = Tokens.of_file(file), tmp_path / "revoked.json"
    sessions = Sessions(tokens, revoked, clock=lambda: now[0])
    rosa = tokens.named("rosa")
    assert rosa is not None
    session = sessions.issue(rosa)
    assert READ not in session
    assert sessions.find(session) == rosa
    others = Sessions(Tokens.of_text(READ), revoked, clock=lambda: now[0])
    assert others.find(session) is None
    for wrong in (None, "", ":", session[:-1], f"x{session}", session.replace("rosa", "ada"), "é:1:2:3:4"):
        assert sessions.find(wrong) is None, wrong
    now[0] += WEEK_SECONDS
    assert sessions.find(session) is None


def test_a_revoked_session_stays_revoked_after_a_restart(file: Path, tmp_path: Path) -> None:
    now = [1_000.0]
    tokens, revoked = Tokens.of_file(file), tmp_path / "revoked.json"
    rosa, otto = tokens.named("rosa"), tokens.named("otto")
    assert rosa is not None
    assert otto is not None

    def start() -> Sessions:
        return Sessions(tokens, revoked, clock=lambda: now[0])

    sessions = start()
    one, two, three = sessions.issue(rosa), sessions.issue(rosa), sessions.issue(otto)
    sessions.revoke(one)
    assert [start().find(each) for each in (one, two, three)] == [None, rosa, otto]
    sessions.revoke_all("rosa")
    assert [start().find(each) for each in (one, two, three)] == [None, None, otto]
    now[0] += 1
    again = sessions.issue(rosa)
    assert start().find(again) == rosa
    start().revoke_all()
    assert [start().find(each) for each in (again, three)] == [None, None]
    revoked.write_text("{")
    now[0] += 1
    fourth = sessions.issue(rosa)
    assert start().find(fourth) is None, "what cannot be read revokes everything"


def test_a_browser_that_logs_out_has_no_session_left(site: kit.Site) -> None:
    response = httpx.post(f"{site.url}/ui/login", data={"token": READ})
    cookie = {"cookie": response.headers["set-cookie"].split(";")[0], "origin": site.url}
    assert httpx.get(f"{site.url}/ui/x", headers=cookie).status_code == 404, "no pages are mounted here"
    assert httpx.post(f"{site.url}/ui/logout", headers=cookie).status_code == 204
    assert httpx.get(f"{site.url}/ui/x", headers=cookie).status_code == 303, "back to the login"


def test_an_administrator_ends_the_sessions_of_a_token(site: kit.Site) -> None:
    response = httpx.post(f"{site.url}/ui/login", data={"token": OPERATE})
    cookie = {"cookie": response.headers["set-cookie"].split(";")[0]}
    assert httpx.get(f"{site.url}/ui/x", headers=cookie).status_code == 404
    assert send(site, OPERATE, "DELETE", "/sessions?name=otto") == (403, "ROLE_NEEDED")
    assert send(site, ADMINISTER, "DELETE", "/sessions?name=otto") == (204, None)
    assert httpx.get(f"{site.url}/ui/x", headers=cookie).status_code == 303


def page_scope(session: str) -> Scope:
    """The scope of the WebSocket of a page."""
    return {
        "type": "websocket",
        "path": "/ui/x",
        "server": ("127.0.0.1", 81),
        "headers": [
            (b"host", b"here"),
            (b"origin", b"http://here"),
            (b"cookie", f"penstock-81={session}".encode()),
        ],
    }


def test_an_open_page_ends_with_its_session(file: Path, tmp_path: Path) -> None:
    tokens = Tokens.of_file(file)
    sessions = Sessions(tokens, tmp_path / "revoked.json")
    rosa = tokens.named("rosa")
    assert rosa is not None
    received, sent = list[str](), list[str]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = "/elsewhere"  # as NiceGUI does
        while (message := await receive())["type"] == "websocket.receive":
            received.append(message["text"])
        received.append(message["type"])

    texts = iter(("one", "two", "three"))

    async def receive() -> Message:
        text = next(texts)
        if text == "two":
            sessions.revoke_all("rosa")
        return {"type": "websocket.receive", "text": text}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    scope = page_scope(sessions.issue(rosa))
    asyncio.run(Gate(app, Limits(), tokens, sessions)(scope, receive, send))
    assert received == ["one", "websocket.disconnect"]
    assert sent == ["websocket.close"]


def test_an_open_page_ends_with_its_session_also_if_it_sends_nothing(file: Path, tmp_path: Path) -> None:
    tokens = Tokens.of_file(file)
    sessions = Sessions(tokens, tmp_path / "revoked.json")
    rosa = tokens.named("rosa")
    assert rosa is not None
    received, sent = list[str](), list[str]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sessions.revoke_all("rosa")
        received.append((await receive())["type"])

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message["type"])

    scope = page_scope(sessions.issue(rosa))
    asyncio.run(asyncio.wait_for(Gate(app, Limits(), tokens, sessions)(scope, receive, send), 20))
    assert received == ["websocket.disconnect"]
    assert sent == ["websocket.close"]


# -- subscriptions -------------------------------------------------------------------------------


def test_a_subscription_ends_when_its_token_is_removed(tmp_path: Path) -> None:
    file = write_file(tmp_path / "tokens", FILE)
    with (
        kit.site(tmp_path / "state", kit.ALL, token=file) as site,
        connect(site.url, token=READ) as reader,
        connect(site.url, token=OPERATE) as operator,
    ):
        ended, continued = (iter(one.subscribe("seen", since=0)) for one in (reader, operator))
        site.epochs(1)
        assert next(ended).epoch == next(continued).epoch
        write_file(file, "".join(line for line in FILE.splitlines(keepends=True) if READ not in line))
        with pytest.raises(UserError) as revoked:  # the service reads the file once a second
            next(ended)
        assert revoked.value.condition == "TOKEN_REVOKED"
        assert "the token of the subscription was removed" in revoked.value.text()
        with pytest.raises(UserError, match="NOT_AUTHORISED"):
            next(iter(reader.subscribe("seen", since=0)))
        site.epochs(1)
        assert next(continued).epoch > 0
        assert site.running.service.hub.dropped == {"token_revoked": 1}
