"""The dashboard in a real browser: a job is created, watched, altered and paused; a restart after a kill is shown."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from penstock.ha.schemes import Scheme
from penstock.ha.unit import Recovery
from tests.dashboard import kit
from tests.ha.paper import World

WHY_NOT = kit.why_no_browser()
pytestmark = [
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
    pytest.mark.kill,
    pytest.mark.timeout(300),
]
#: how long a page may take to show something
TIMEOUT_MILLISECONDS = 60_000
TOKEN = "onlyforthistest0123456789"
PAGES = ("", "jobs/pages", "elasticity", "recovery", "logs")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Served]:
    folder = tmp_path_factory.mktemp("served")
    service = kit.Served(folder, "--unit", str(unit(folder / "unit")))
    service.start()
    yield service
    service.end()


def unit(folder: Path) -> Path:
    """The state directory of a simulated unit whose controller has decided and that has recovered once."""
    world = World(folder, {"threshold_seconds": 10.0}, now=time.time())
    try:
        world.add_measurements(start=12.0, wire=0.5, load=80e6, fetch=100e6)
        world.turns()
        assert world.record.scheme is Scheme.deployed
        at = world.now
        lost = Recovery("e1", "e2", 2, "deployed", at, failed_at=at - 1, first_result_at=at + 3.5)
        world.unit.change(lambda now: replace(now, recoveries=(lost,)))
        world.turn()
        return world.unit.root
    finally:
        world.unit.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with kit.browser() as opened:
        yield opened


@pytest.fixture
def page(served: kit.Served, chromium: Any) -> Iterator[Any]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    page = context.new_page()
    log_in(served, page)
    yield page
    context.close()


def log_in(served: kit.Served, page: Any) -> None:
    """Open the address that the service prints."""
    page.goto(f"{served.url}/?token={served.token}")
    assert page.url == f"{served.url}/ui/"


def wait_for_text(page: Any, selector: str, text: str) -> None:
    """Wait until an element has a text."""
    page.locator(selector).filter(has_text=re.compile(text, re.S)).first.wait_for()


def write_query(page: Any, query: str) -> None:
    """Replace the query in the editor."""
    page.locator(".at-query .cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(query)


def test_a_job_is_created_watched_altered_paused_and_dropped(served: kit.Served, page: Any) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{served.url}/")
    wait_for_text(page, ".at-jobs", "pages.*running")
    page.locator(".at-rates canvas").first.wait_for()

    page.locator(".at-new").click()
    page.locator("input[aria-label=Name]").fill("errors")
    write_query(page, "SELECT status, COUNT(*) AS n FROM clikcs GROUP BY status WINDOWING 1 SECONDS")
    wait_for_text(page, ".at-do-message", "✗ line 1, column .*clikcs")
    write_query(page, "SELECT status, COUNT(*) AS n FROM clicks GROUP BY status WINDOWING 1 SECONDS")
    wait_for_text(page, ".at-do-message", "✓ created job errors")
    assert "errors" not in [job["name"] for job in served.get("/jobs")], "the query is only checked"
    page.locator(".at-do").click()

    page.wait_for_url("**/ui/jobs/errors")
    wait_for_text(page, ".at-life", "running")
    wait_for_text(page, ".at-answer", "status.*200")
    wait_for_text(page, ".at-graph svg", "clicks")
    wait_for_text(page, ".at-graph svg", "rows/s")

    write_query(
        page, "SELECT status, COUNT(*) AS n FROM clicks WHERE nope = 1 GROUP BY status WINDOWING 1 SECONDS"
    )
    wait_for_text(page, ".at-do-message", "✗ .*nope")
    assert page.locator(".at-do").is_disabled()
    write_query(
        page,
        "SELECT status, COUNT(*) AS n FROM clicks WHERE status >= 400 GROUP BY status WINDOWING 1 SECONDS",
    )
    wait_for_text(page, ".at-do-message", "✓ altered job errors; its state is kept")
    page.locator(".at-do").click()
    wait_for_text(page, ".at-versions", "altered.*kept.*status >= 400.*created")
    assert "status >= 400" in served.get("/jobs/errors")["query"]

    page.locator(".at-pause").click()
    wait_for_text(page, ".at-life", "paused")
    assert served.get("/jobs/errors")["life"] == "paused"
    page.locator(".at-resume").click()
    wait_for_text(page, ".at-life", "running")
    page.locator(".at-drop").click()
    page.locator(".at-really").click()
    page.wait_for_url("**/ui/")
    assert "errors" not in [job["name"] for job in served.get("/jobs")]
    foreign = [
        url for url in requested if not url.startswith((served.url, "data:", "blob:", "ws://127.0.0.1"))
    ]
    assert foreign == [], "pages load everything from the service"


def test_a_parameter_of_a_job_is_changed(served: kit.Served, page: Any) -> None:
    query = "SELECT status, COUNT(*) AS n FROM clicks WHERE status >= $least GROUP BY status"
    body = {"name": "least", "query": f"{query} WINDOWING 1 SECONDS", "parameters": {"least": 200}}
    assert httpx.post(f"{served.url}/jobs", json=body, headers=served.headers, timeout=20).status_code == 201
    page.goto(f"{served.url}/ui/jobs/least")
    field = page.locator('input[aria-label="$least"]')
    field.wait_for()
    assert field.input_value() == "200"
    assert page.locator(".at-set").is_disabled()
    field.fill("many")
    wait_for_text(page, ".at-set-message", "✗ .*no number")
    assert page.locator(".at-set").is_disabled()
    field.fill("400")
    wait_for_text(page, ".at-set-message", "✓ altered job least; its state is kept")
    assert served.get("/jobs/least")["parameters"] == {"least": 200}, "the query is only checked"
    page.locator(".at-set").click()
    wait_for_text(page, ".at-set-message", "^altered job least; its state is kept")
    wait_for_text(page, ".at-versions", "altered.*kept")
    assert served.get("/jobs/least")["parameters"] == {"least": 400}
    assert field.input_value() == "400"
    page.goto(f"{served.url}/ui/jobs/pages")
    wait_for_text(page, ".at-life", "running")
    assert not page.locator(".at-parameters").is_visible(), "the job has no parameters"


def test_estimates_of_a_unit_are_shown_beside_its_recoveries(served: kit.Served, page: Any) -> None:
    page.goto(f"{served.url}/ui/recovery")
    wait_for_text(page, ".at-estimates", "within 10 s, precise")
    wait_for_text(page, ".at-estimates tr", r"deployed.*4\.5 s.*detect.*load.*margin")
    wait_for_text(page, ".at-estimates tr", "passive-replication.*too slow")
    wait_for_text(page, ".at-recoveries", r"e1.*e2.*deployed.*4\.5 s.* s")
    page.locator(".at-bars canvas").first.wait_for()


def test_dead_letters_are_shown_escaped(served: kit.Served, page: Any) -> None:
    page.goto(f"{served.url}/ui/logs")
    wait_for_text(page, ".at-dead", "orders.*this is <b>no</b> order")
    wait_for_text(page, ".at-log", "running")


def test_a_sink_that_is_away_shows_how_far_its_job_is_behind(served: kit.Served, page: Any) -> None:
    page.goto(f"{served.url}/ui")
    wait_for_text(page, ".at-jobs tr", r"pushed.*running.*\d+ s behind")
    wait_for_text(page, ".at-jobs tr", "pages.*running")
    page.goto(f"{served.url}/ui/jobs/pushed")
    wait_for_text(page, ".pen-banner", r"127\.0\.0\.1:9.* lacks \d+ epochs after .*SINK_UNWRITABLE")


def test_the_heat_map_of_buckets_is_shown(served: kit.Served, page: Any) -> None:
    page.goto(f"{served.url}/ui/elasticity")
    page.locator(".at-heat canvas").first.wait_for()
    wait_for_text(page, ".at-decisions", "cannot scale its executors")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone(served: kit.Served, chromium: Any, scheme: str) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    page = context.new_page()
    log_in(served, page)
    for name in PAGES:
        page.goto(f"{served.url}/ui/{name}")
        wait_for_text(page, ".pen-head", "epoch \\d")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark == ("rgb(15, 20, 27)" if scheme == "dark" else "rgb(244, 246, 249)"), name
    context.close()


def test_a_page_shows_the_restart_of_a_killed_engine(served: kit.Served, page: Any) -> None:
    page.goto(f"{served.url}/ui/recovery")
    wait_for_text(page, ".at-restarts", "No restart after a crash")
    before = served.get("/status")["epoch"]
    served.kill()
    served.start()
    wait_for_text(page, ".at-restarts", r"Z.*Z.*Z.*\d → \d")  # the page reconnects by itself
    (restart,) = served.get("/recovery")["restarts"]
    assert restart["first_epoch"] == restart["last_epoch"] + 1
    assert restart["last_epoch"] >= before
    page.goto(f"{served.url}/ui/jobs/pages")
    wait_for_text(page, ".at-answer", "path.*n")


def test_a_service_with_a_token_requires_a_login(tmp_path: Any, chromium: Any) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    served = kit.Served(tmp_path, "--token-file", "token", token=TOKEN)
    served.start()
    try:
        context = chromium.new_context()
        context.set_default_timeout(TIMEOUT_MILLISECONDS)
        page = context.new_page()
        page.goto(f"{served.url}/ui/jobs/pages")
        assert page.url == f"{served.url}/ui/login"
        page.fill("input[name=token]", "not the token at all")
        page.click("button")
        wait_for_text(page, "form", "no token of this service")
        page.fill("input[name=token]", TOKEN)
        page.click("button")
        wait_for_text(page, ".at-jobs", "pages.*running")
        cookie = next(each for each in context.cookies() if each["name"] == f"penstock-{served.port}")
        assert cookie["httpOnly"]
        assert TOKEN not in cookie["value"]
        headers = {"cookie": f"{cookie['name']}={cookie['value']}"}
        assert httpx.get(f"{served.url}/status", headers=headers).status_code == 401, (
            "the cookie is valid for pages only"
        )
        context.close()
    finally:
        served.end()


def test_the_token_leaves_the_address_and_an_ended_session_leads_to_the_login(
    served: kit.Served, chromium: Any
) -> None:
    context = chromium.new_context()
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    page = context.new_page()
    requests: list[Any] = []
    page.on("request", lambda one: requests.append(one))
    page.goto(f"{served.url}/ui/jobs/pages")
    assert page.url == f"{served.url}/ui/login"
    wait_for_text(page, "form", "penstock token")
    log_in(served, page)
    wait_for_text(page, ".at-jobs", "pages.*running")
    with_token = [one for one in requests if served.token in one.url]
    assert [one.url for one in with_token] == [f"{served.url}/?token={served.token}"]
    assert not [one for one in requests if served.token in one.headers.get("referer", "")]
    assert page.evaluate("document.cookie + document.referrer + location.href").count(served.token) == 0
    page.go_back()
    assert page.url == f"{served.url}/ui/login", "the address with the token is not in the history"
    page.go_forward()
    wait_for_text(page, ".at-jobs", "pages.*running")
    assert httpx.delete(f"{served.url}/sessions", headers=served.headers).status_code == 204
    page.wait_for_url(f"{served.url}/ui/login")
    context.close()


def test_a_page_may_do_what_the_role_of_its_token_may(tmp_path: Any, chromium: Any) -> None:
    tokens = {"read": "r" * 20, "operate": "o" * 20, "administer": TOKEN}
    (tmp_path / "tokens").write_text("".join(f"{role}er {role} {text}\n" for role, text in tokens.items()))
    (tmp_path / "tokens").chmod(0o600)
    served = kit.Served(tmp_path, "--token-file", "tokens", token=TOKEN)
    served.start()
    try:
        for role, text in list(tokens.items())[:2]:
            context = chromium.new_context()
            context.set_default_timeout(TIMEOUT_MILLISECONDS)
            page = context.new_page()
            page.goto(f"{served.url}/ui/login")
            page.fill("input[name=token]", text)
            page.click("button")
            wait_for_text(page, ".at-jobs", "pages.*running")
            page.goto(f"{served.url}/ui/jobs/pages")
            page.locator(".at-pause").click()
            if role == "read":
                wait_for_text(page, ".q-notification", "ROLE_NEEDED")
                assert served.get("/jobs/pages")["life"] == "running"
            else:
                wait_for_text(page, ".at-life", "paused")
            context.close()
        lines = served.get("/audit")
        assert [(line["who"], line["did"]) for line in lines] == [
            ("operateer", "executed"),
            ("reader", "refused"),
        ]
    finally:
        served.end()


ATTACK = '<img src=x onerror="document.title=1234"><script>document.title=1234</script>'


def test_markup_in_events_names_and_queries_is_shown_and_not_executed(served: kit.Served, page: Any) -> None:
    query = f"SELECT concat('{ATTACK}', status) AS v, COUNT(*) AS `{ATTACK}` FROM clicks GROUP BY 1 WINDOWING 1 SECONDS"
    created = httpx.post(
        f"{served.url}/sql",
        json={"sql": f"CREATE JOB hostile AS {query}"},
        headers=served.headers,
        timeout=60,
    )
    assert created.status_code == 200, created.text
    # what is refused is in the lines of the log
    httpx.post(f"{served.url}/sql", json={"sql": f"DROP JOB `{ATTACK}`"}, headers=served.headers, timeout=60)
    hostile = {**served.headers, "user-agent": ATTACK}
    httpx.get(f"{served.url}/jobs/{quote(ATTACK, safe='')}", headers=hostile, timeout=60)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    try:
        for name in ("jobs/hostile", "", "logs", "elasticity", "recovery"):
            page.goto(f"{served.url}/ui/{name}")
            wait_for_text(page, ".pen-head", "epoch \\d")
            if name == "jobs/hostile":
                wait_for_text(page, ".at-answer", "<img src=x")
            page.wait_for_load_state("networkidle")
            assert page.locator("img[src=x]").count() == 0, name
            assert "1234" not in page.title(), name
        assert not dialogs
    finally:
        httpx.post(f"{served.url}/sql", json={"sql": "DROP JOB hostile"}, headers=served.headers, timeout=60)
