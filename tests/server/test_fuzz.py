"""Whatever is sent, the service reports a mistake of the sender, and continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.server.api import Service
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.render_sql import render_alter_job, render_create_job, render_create_stream
from penstock.server.request_bodies import JobChange, NewJob, NewStream
from penstock.sql.parse import parse
from tests.server import kit

FREE = Limits(requests_per_second=1e6, request_burst=1_000_000, heartbeat_seconds=0.05, patience_seconds=1)
TEXT = """
SELECT FROM WHERE GROUP BY ORDER LIMIT WINDOWING SECONDS CREATE JOB STREAM AS ALTER SET DROP PAUSE RESUME FLUSH EMPTY
SHOW JOBS STREAMS EXPLAIN INTO WITH REBUILD FORMAT json csv combined_log EVENT TIME LATENESS files generated jsonl
clicks pages page user status ts COUNT SUM ( ) , ; * = == < > . $ $x ' ` " 1 0 -1 1e309 'a' '../../etc/passwd' NULL
TRUE => -- /* PREVIOUS LATEST JOIN ON UNION ALL CAST CASE WHEN THEN END IN LIKE BETWEEN AND OR NOT \\ \x00 é 💧
"""
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Site]:
    with kit.site(tmp_path_factory.mktemp("fuzz") / "state", events=50, limits=FREE) as found:
        yield found


sql = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=20).map(
        lambda words: f"CREATE JOB x AS SELECT {' '.join(words)}"
    ),
    st.lists(st.sampled_from(WORDS), max_size=20).map(
        lambda words: f"CREATE STREAM s FROM {' '.join(words)}"
    ),
    st.lists(st.sampled_from(WORDS), max_size=12).map(lambda words: f"ALTER JOB pages SET {' '.join(words)}"),
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=sql)
def test_any_sql_is_answered(site: kit.Site, text: str) -> None:
    response = site.http.post("/sql", json={"sql": text})
    assert response.status_code in (200, 403, 404, 409, 413, 422), f"{text!r}: {response.text}"
    assert response.status_code == 200 or response.json()["condition"] != "UNEXPECTED"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.binary(max_size=300),
    kind=st.sampled_from(["application/json", "application/sql", "application/x-ndjson", "text/plain", ""]),
    path=st.sampled_from(["/sql", "/jobs", "/streams", "/streams/clicks/events", "/jobs/pages/messages"]),
)
def test_any_bytes_are_answered(site: kit.Site, body: bytes, kind: str, path: str) -> None:
    response = site.http.post(path, content=body, headers={"content-type": kind})
    assert response.status_code < 500, response.text


texts = st.text(max_size=30)
values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts
)
words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
connectors = st.fixed_dictionaries(
    {
        "kind": words,
        "arguments": st.lists(values, max_size=3),
        "options": st.dictionaries(words, values, max_size=3),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    name=words | texts,
    query=texts | st.just("SELECT page FROM clicks"),
    into=st.lists(connectors, max_size=2),
    values=st.dictionaries(words, values, max_size=3),
)
def test_a_job_of_any_body_is_one_statement_with_the_same_meaning(
    name: str, query: str, into: Any, values: Any
) -> None:
    try:
        text = render_create_job(NewJob(name=name, query=query, into=into, parameters=values))
    except (UserError, ValueError):
        return
    (statement,) = parse(text)
    assert statement.name == name  # type: ignore[union-attr]


@settings(max_examples=60, deadline=None)
@given(
    name=words,
    log=connectors,
    columns=st.dictionaries(texts, texts | st.sampled_from(["STRING", "BIGINT"]), max_size=3),
    lateness=st.none() | texts | st.just("5s"),
)
def test_a_stream_of_any_body_is_one_statement_with_the_same_meaning(
    name: str, log: Any, columns: Any, lateness: Any
) -> None:
    body = {"name": name, "log": log, "format": {"columns": columns}, "lateness": lateness}
    try:
        text = render_create_stream(NewStream.model_validate(body))
    except (UserError, ValueError):
        return
    (statement,) = parse(text)
    assert statement.name == name  # type: ignore[union-attr]


@settings(max_examples=100, deadline=None)
@given(name=texts, where=texts, rebuild=st.booleans())
def test_a_change_of_any_body_is_one_statement(name: str, where: str, rebuild: bool) -> None:
    try:
        text = render_alter_job(name, JobChange(where=where, rebuild=rebuild))
    except (UserError, ValueError):
        return
    (statement,) = parse(text)
    assert statement.name == name  # type: ignore[union-attr]


# -- the OpenAPI ---------------------------------------------------------------------------------


@schemathesis.serializer("application/sql", "application/x-ndjson")
def as_text(_: Any, value: Any) -> bytes:
    return str(value).encode("utf-8", "replace")


def operations() -> list[Any]:
    """Return the operations of the OpenAPI description, without the one whose response never ends."""
    place = Path("nowhere")
    described = Service(Host(Program("x", place), place)).api.openapi()
    del described["paths"]["/jobs/{name}/events"]
    found = schemathesis.openapi.from_dict(described).get_all_operations()
    return [one.ok() for one in found]


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one.label)
def test_every_page_matches_the_openapi_description(operation: Any, site: kit.Site) -> None:
    checks = [not_a_server_error, response_schema_conformance, status_code_conformance]

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        response = case.call(base_url=site.url, timeout=20)
        case.validate_response(response, checks=checks)

    check()
