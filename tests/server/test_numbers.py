"""Every number that comes over HTTP has bounds, and is refused beyond them with what they are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.dashboard.login import add_login_pages
from penstock.errors import UserError
from penstock.logs.rates import Shape
from penstock.server.number_bounds import BOUNDS, check_numbers
from penstock.sql import connectors
from penstock.sql.statements import Call
from tests.server import kit

STREAM = "CREATE STREAM s FROM {} FORMAT combined_log EVENT TIME time"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Site]:
    with kit.site(tmp_path_factory.mktemp("numbers") / "state") as found:
        yield found


@pytest.mark.parametrize(
    "log",
    [
        "generated(partitions => 1000000)",
        "generated(partitions => 2.5)",
        "generated(users => 2000000000)",
        "generated(rate => 100000000)",
        "generated(rate => TRUE)",
        "generated(rate => 'abc')",
        "generated(seed => 99999999999999999999999999)",
        "generated(total => 99999999999999999999999999)",
        "generated(zipf_users => 1e300)",
        "generated(disorder_seconds => -1)",
        "call_records(call_seconds => 1000000000)",
        "call_records(impossible => 2)",
    ],
)
def test_a_log_takes_no_number_out_of_its_bounds(site: kit.Site, log: str) -> None:
    reply = site.sql(STREAM.format(log), 422)
    assert reply["condition"] == "NUMBER_OUT_OF_BOUNDS"
    assert reply["hint"].startswith("Over HTTP it is a ")
    assert (reply["line"], reply["column"]) == (1, 22)
    (name, _, option) = log.rstrip(")").partition("(")
    key, _, text = option.partition(" => ")
    value = {"TRUE": True, "'abc'": "abc"}.get(text) or (
        float(text) if "." in text or "e" in text else int(text)
    )
    body = {"name": "s", "log": {"kind": name, "options": {key: value}}, "format": {"kind": "combined_log"}}
    assert site.post("/streams", body, 422)["condition"] in ("NUMBER_OUT_OF_BOUNDS", "BAD_REQUEST")


def test_a_sink_takes_no_number_out_of_its_bounds(site: kit.Site) -> None:
    text = "CREATE JOB j AS SELECT page FROM clicks INTO console(most_rows => 1000000000)"
    assert site.sql(text, 422)["condition"] == "NUMBER_OUT_OF_BOUNDS"
    for seconds in (-1, 1e9, float("inf"), float("nan"), True):
        with pytest.raises(UserError, match="NUMBER_OUT_OF_BOUNDS"):
            check_numbers(Call("http_push", (), {"patience_seconds": seconds}, (1, 1)))
    check_numbers(Call("http_push", (), {"patience_seconds": 5, "answer_seconds": 0.5}, (1, 1)))


def test_every_option_that_is_a_number_has_bounds() -> None:
    shape = {name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in Shape.__annotations__}
    for name, factory in [*connectors._LOGS.items(), *connectors._SINKS.items()]:
        parameters = dict(inspect.signature(factory).parameters)
        numbers = {one for one, facts in parameters.items() if facts.annotation in NUMBERS}
        numbers |= set(shape) if "shape" in parameters else set()
        assert numbers <= BOUNDS.get(name, {}).keys(), name


NUMBERS = ("int", "float", "int | None", "float | None")


@pytest.mark.parametrize("given", ["\xb2", "--5", "-2", "+1", "1_0", "99999999999999999999", "0x1"])
def test_the_id_of_an_event_is_an_epoch(site: kit.Site, given: str) -> None:
    response = site.http.get("/jobs/pages/events", headers={"last-event-id": given.encode("latin-1")})
    assert (response.status_code, response.json()["condition"]) == (422, "BAD_EVENT_ID")


@pytest.mark.parametrize(
    "path", ["/jobs/pages/results?since={}", "/jobs/pages/events?since={}", "/epochs?limit={}"]
)
@pytest.mark.parametrize("number", ["-1", "9" * 30, "9" * 5_000, "1e9", "nan", "²"])
def test_a_number_in_a_url_has_bounds(site: kit.Site, path: str, number: str) -> None:
    assert site.http.get(path.format(number)).status_code == 422


def test_a_number_in_a_body_has_bounds(site: kit.Site) -> None:
    query = "SELECT page FROM clicks WHERE status = $p"
    for number in (10**400, 2**63, -(2**63) - 1):
        body = {"name": "x", "query": query, "parameters": {"p": number}}
        assert site.post("/jobs", body, 422)["condition"] == "BAD_REQUEST"
    long = '{"message": {"n": ' + "9" * 5_000 + "}}"
    response = site.http.post(
        "/jobs/pages/messages", content=long, headers={"content-type": "application/json"}
    )
    assert 400 <= response.status_code < 500


def test_a_login_has_a_body_of_4_kb_at_most(tmp_path: Path) -> None:
    with kit.site(tmp_path / "state", token="a-token-of-24-characters") as site:
        add_login_pages(site.running.service)
        for content in (b"token=" + b"x" * 5_000, (b"x" * 1_000 for _ in range(5))):
            response = site.http.post("/ui/login", content=content)
            assert (response.status_code, response.json()["condition"]) == (413, "BODY_TOO_LARGE")
