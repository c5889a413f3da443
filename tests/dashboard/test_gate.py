"""The login of a service with a token, tested without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.dashboard import kit

TOKEN = "onlyforthistest0123456789"
WEBSOCKET = "/ui/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Served]:
    folder: Path = tmp_path_factory.mktemp("served")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    service = kit.Served(folder, "--token-file", "token", token=TOKEN)
    service.start()
    yield service
    service.end()


@pytest.fixture(scope="module")
def cookie(served: kit.Served) -> dict[str, str]:
    """The cookie of a browser that logged in."""
    response = httpx.post(f"{served.url}/ui/login", data={"token": TOKEN})
    assert (response.status_code, response.headers["location"]) == (303, "/ui/")
    header = response.headers["set-cookie"]
    assert {"httponly", "samesite=lax", "path=/ui"} <= {part.strip().lower() for part in header.split(";")}
    assert TOKEN not in header
    return {"cookie": header.split(";")[0]}


@pytest.mark.slow
def test_a_request_without_a_cookie_is_redirected_to_the_login(served: kit.Served) -> None:
    for path in ("/ui/", "/ui/jobs/pages", "/ui/nowhere"):
        response = httpx.get(served.url + path)
        assert (response.status_code, response.headers["location"]) == (303, "/ui/login"), path
    assert httpx.get(f"{served.url}/").headers["location"] == "/ui/"
    assert httpx.get(f"{served.url}/ui/login").status_code == 200
    assert httpx.get(f"{served.url}/ui/_nicegui/x").status_code == 401
    assert httpx.post(f"{served.url}/ui/logout").status_code == 401
    wrong = httpx.post(f"{served.url}/ui/login", data={"token": "no"})
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)


def test_a_cookie_is_valid_for_pages_only(served: kit.Served, cookie: dict[str, str]) -> None:
    page = httpx.get(f"{served.url}/ui/", headers=cookie)
    assert page.status_code == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert httpx.get(f"{served.url}/status", headers=cookie).status_code == 401
    assert httpx.post(f"{served.url}/sql", headers=cookie, json={"sql": "SHOW JOBS"}).status_code == 401
    foreign = {**cookie, "origin": "http://elsewhere.example"}
    assert httpx.get(f"{served.url}/ui/", headers=foreign).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    foreign_page = httpx.get(f"{served.url}/ui/", headers={**cookie, **link})
    assert (foreign_page.status_code, "A page of another site" in foreign_page.text) == (200, True)
    assert len(foreign_page.text) < 300, "no page was built"
    image = {**cookie, "sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}
    assert httpx.get(f"{served.url}/ui/", headers=image).status_code == 403
    forged = {"cookie": cookie["cookie"][:-1] + ("0" if cookie["cookie"][-1] != "0" else "1")}
    assert httpx.get(f"{served.url}/ui/", headers=forged).status_code == 303
    assert (
        httpx.get(f"{served.url}/ui/", headers={"cookie": f"penstock-{served.port}=;=;\x01"}).status_code
        == 303
    )
    assert httpx.get(f"{served.url}/ui/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_websocket_requires_the_cookie_and_the_origin_of_a_page(
    served: kit.Served, cookie: dict[str, str]
) -> None:
    websocket_url = served.url.replace("http:", "ws:")
    with connect(websocket_url + WEBSOCKET, additional_headers=cookie, origin=served.url) as websocket:  # type: ignore[arg-type]
        assert str(websocket.recv(20)).startswith("0{")
        assert websocket.response is not None
        assert "sec-websocket-extensions" not in websocket.response.headers, "compression is off"
    for path, headers, origin in (
        (WEBSOCKET, {}, served.url),
        (WEBSOCKET, cookie, "http://elsewhere.example"),
        (WEBSOCKET, cookie, None),
        ("/jobs", cookie, served.url),
        ("/jobs", {"authorization": f"Bearer {TOKEN}"}, served.url),
    ):
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(websocket_url + path, additional_headers=headers, origin=origin),  # type: ignore[arg-type]
        ):
            pass
        assert refused.value.response.status_code == 403, (path, origin)
