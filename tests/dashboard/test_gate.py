"""Who may see the pages of a service with a token, tested without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.dashboard import kit

TOKEN = "onlyforthistest0123456789"
LINE = "/ui/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Served]:
    folder: Path = tmp_path_factory.mktemp("served")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    one = kit.Served(folder, "--token-file", "token", token=TOKEN)
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def cookie(served: kit.Served) -> dict[str, str]:
    """The cookie of a browser that logged in."""
    answer = httpx.post(f"{served.url}/ui/login", data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    given = answer.headers["set-cookie"]
    assert {"httponly", "samesite=lax", "path=/ui"} <= {part.strip().lower() for part in given.split(";")}
    assert TOKEN not in given
    return {"cookie": given.split(";")[0]}


def test_a_browser_without_a_pass_is_sent_to_the_login(served: kit.Served) -> None:
    for path in ("/ui/", "/ui/jobs/pages", "/ui/nowhere"):
        answer = httpx.get(served.url + path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login"), path
    assert httpx.get(f"{served.url}/").headers["location"] == "/ui/"
    assert httpx.get(f"{served.url}/ui/login").status_code == 200
    assert httpx.get(f"{served.url}/ui/_nicegui/x").status_code == 401
    assert httpx.post(f"{served.url}/ui/logout").status_code == 401
    wrong = httpx.post(f"{served.url}/ui/login", data={"token": "no"})
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)


def test_a_pass_is_valid_for_pages_and_nothing_else(served: kit.Served, cookie: dict[str, str]) -> None:
    page = httpx.get(f"{served.url}/ui/", headers=cookie)
    assert page.status_code == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert httpx.get(f"{served.url}/status", headers=cookie).status_code == 401
    assert httpx.post(f"{served.url}/sql", headers=cookie, json={"sql": "SHOW JOBS"}).status_code == 401
    foreign = {**cookie, "origin": "http://elsewhere.example"}
    assert httpx.get(f"{served.url}/ui/", headers=foreign).status_code == 403
    forged = {"cookie": cookie["cookie"][:-1] + ("0" if cookie["cookie"][-1] != "0" else "1")}
    assert httpx.get(f"{served.url}/ui/", headers=forged).status_code == 303
    assert httpx.get(f"{served.url}/ui/", headers={"cookie": "penstock=;=;\x01"}).status_code == 303
    assert httpx.get(f"{served.url}/ui/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_websocket_is_checked_as_a_page_is(served: kit.Served, cookie: dict[str, str]) -> None:
    there = served.url.replace("http:", "ws:")
    with connect(there + LINE, additional_headers=cookie, origin=served.url) as line:  # type: ignore[arg-type]
        assert str(line.recv(20)).startswith("0{")
    for path, headers, origin in (
        (LINE, {}, served.url),
        (LINE, cookie, "http://elsewhere.example"),
        (LINE, cookie, None),
        ("/jobs", cookie, served.url),
        ("/jobs", {"authorization": f"Bearer {TOKEN}"}, served.url),
    ):
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(there + path, additional_headers=headers, origin=origin),  # type: ignore[arg-type]
        ):
            pass
        assert refused.value.response.status_code == 403, (path, origin)
