"""A forwarded request is accepted once, soon, whole, and only from a process with the key of the state directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from penstock.catalogue.coordinators import Coordinator
from penstock.coordination.shared_key import SharedKey
from penstock.errors import UserError
from penstock.server.peer_requests import FORWARDED, SIGNATURE, PeerRequests
from tests.server import kit

KEY = SharedKey(b"the secret of a state directory")
HEADERS = ((b"accept", b"*/*"), (b"content-type", b"application/json"), (b"idempotency-key", b"k1"))
BODY = b'{"sql": "PAUSE JOB pages"}'


class Clock:
    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


def _signed(clock: Clock, receiver: str = "there", key: SharedKey = KEY) -> dict[bytes, bytes]:
    sender = PeerRequests(key, "here", clock)
    signed = sender.sign_request("POST", b"/sql?check=true", HEADERS, BODY, receiver, "ada", "operate")
    return {**dict(HEADERS), **signed}


def _refusal(
    there: PeerRequests, headers: dict[bytes, bytes], method: str = "POST", target: bytes = b"/sql?check=true"
) -> str:
    with pytest.raises(UserError) as refused:
        there.verify_request(method, target, headers.items())
    assert refused.value.condition == "PEER_NOT_VERIFIED"
    return refused.value.text()


def test_a_request_of_a_coordinator_is_accepted_once() -> None:
    clock = Clock()
    there, headers = PeerRequests(KEY, "there", clock), _signed(clock)
    envelope = there.verify_request("POST", b"/sql?check=true", headers.items()).envelope
    assert (envelope.sender, envelope.receiver, envelope.user) == ("here", "there", "ada")
    assert "received before" in _refusal(there, headers)
    clock.at += 61
    assert "was sent 61 s ago" in _refusal(there, headers)
    there.verify_request("POST", b"/sql?check=true", _signed(clock).items())
    assert len(there._seen) == 1, "old nonces are forgotten"


def test_a_request_is_not_accepted_again_after_a_restart() -> None:
    clock = Clock()
    there, headers = PeerRequests(KEY, "there", clock), _signed(clock)
    there.verify_request("POST", b"/sql?check=true", headers.items())
    clock.at += 1
    restarted = PeerRequests(KEY, "there", clock)
    assert "before this coordinator started" in _refusal(restarted, headers)
    restarted.verify_request("POST", b"/sql?check=true", _signed(clock).items())


def test_nothing_of_a_request_can_be_changed() -> None:
    clock = Clock()
    there = PeerRequests(KEY, "there", clock)
    right = _signed(clock)
    assert "signature" in _refusal(there, right, method="PUT")
    assert "signature" in _refusal(there, right, target=b"/sql")
    for name in (FORWARDED, SIGNATURE, b"accept", b"content-type", b"idempotency-key"):
        assert "signature" in _refusal(there, {**right, name: right[name] + b" "})
        assert "signature" in _refusal(there, {key: right[key] for key in right if key != name})
    with pytest.raises(UserError, match="signature"):
        there.verify_request(
            "POST", b"/sql?check=true", [(b"content-type", b"application/sql"), *right.items()]
        )
    assert "signature" in _refusal(there, _signed(clock, key=SharedKey(b"another")))
    assert "for elsewhere" in _refusal(there, _signed(clock, receiver="elsewhere"))
    there.verify_request("POST", b"/sql?check=true", right.items())


def test_a_response_belongs_to_its_request() -> None:
    here, clock = PeerRequests(KEY, "here"), Clock()
    one, two = (_signed(clock)[SIGNATURE].decode() for _ in range(2))
    headers = [(b"content-type", b"application/json"), (b"date", b"now")]
    signature = here.sign_response(one, 200, headers, b"{}")
    assert here.verifies_response(signature, one, 200, headers[:1], b"{}")
    assert not here.verifies_response(signature, two, 200, headers, b"{}")
    assert not here.verifies_response(signature, one, 201, headers, b"{}")
    assert not here.verifies_response(signature, one, 200, [], b"{}")
    assert not here.verifies_response(signature, one, 200, headers, b"[]")
    assert not here.verifies_response("\xff", one, 200, headers, b"{}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[kit.Site]:
    with kit.site(tmp_path / "state", token="a token of some length", events=30) as site:
        me = Coordinator("there", site.url)
        fixed: Any = SimpleNamespace(me=me, manager_of=lambda job: me)
        site.running.service.share_jobs(fixed, PeerRequests(KEY, "there"))
        yield site


def test_the_gate_accepts_the_signed_body_alone(site: kit.Site) -> None:
    def send(body: bytes, role: str = "operate", **changed: str) -> httpx.Response:
        signed = PeerRequests(KEY, "here").sign_request("POST", b"/sql", HEADERS, BODY, "there", None, role)
        headers = {name.decode(): value.decode() for name, value in {**dict(HEADERS), **signed}.items()}
        return httpx.post(f"{site.url}/sql", headers=headers | changed, content=body)

    done = send(BODY)
    assert done.status_code == 200, done.text
    assert SIGNATURE.decode() in done.headers
    for refused in (send(b'{"sql": "DROP JOB pages"}'), send(BODY, accept="text/html"), send(b"")):
        assert (refused.status_code, refused.json()["condition"]) == (401, "PEER_NOT_VERIFIED")
    assert site.get("/jobs/pages")["life"] == "paused"


def test_a_service_without_coordinators_accepts_no_forwarded_request(tmp_path: Path) -> None:
    with kit.site(tmp_path / "state") as site:
        refused = site.http.get("/jobs", headers={"penstock-forwarded": "1"})
        assert (refused.status_code, refused.json()["condition"]) == (401, "PEER_NOT_VERIFIED")
