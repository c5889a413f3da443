"""Code over HTTP: refused unless the operator allowed it, and then a job like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.catalogue.program import Program
from penstock.cli.commands import main
from penstock.testing.serving import PushedLog, Serving, serving
from tests.catalogue.kit import of_log
from tests.server import kit

TOKEN = "a token of some length"
SOURCE = """
import polars as pl
import penstock as ps

def loud(rows):
    return rows.with_columns(pl.col("page").str.to_uppercase())

query = ps.job("seen", {"page": ps.String(), "status": ps.Int64()}).map_batches(loud)
"""


def _serving(state: Path, *, code: bool) -> Iterator[tuple[Serving, PushedLog]]:
    log = PushedLog({"p0": []})
    jobs = Program("test", state, streams={"clicks": of_log(log)}, begin=kit.ALL)
    with serving(jobs, state, by_itself=False, token=TOKEN, code=code) as running:
        yield running, log


@pytest.fixture
def allowed(tmp_path: Path) -> Iterator[tuple[Serving, PushedLog]]:
    yield from _serving(tmp_path / "state", code=True)


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[tuple[Serving, PushedLog]]:
    yield from _serving(tmp_path / "state", code=False)


def put(
    url: str, path: str, source: str, token: str = TOKEN, kind: str = "text/x-python", **more: Any
) -> Any:
    headers = {"authorization": f"Bearer {token}", "content-type": kind, **more}
    return httpx.put(f"{url}{path}", content=source, headers=headers)


def test_code_is_refused_unless_it_is_allowed(forbidden: tuple[Serving, PushedLog], tmp_path: Path) -> None:
    answer = put(forbidden[0].url, "/jobs/loud/code", f"open({str(tmp_path / 'ran')!r}, 'w')\n{SOURCE}")
    assert (answer.status_code, answer.json()["condition"]) == (403, "CODE_NOT_ALLOWED")
    assert not (tmp_path / "ran").exists(), "it was not executed either"
    assert not (tmp_path / "state" / "code").exists()


def test_source_becomes_a_job_and_is_altered_by_the_next(allowed: tuple[Serving, PushedLog]) -> None:
    running, log = allowed
    first = put(running.url, "/jobs/loud/code", SOURCE)
    assert first.status_code == 200, first.text
    assert first.json()["says"].startswith("created job loud")
    altered = put(running.url, "/jobs/loud/code", SOURCE.replace("upper", "lower"))
    assert altered.json()["says"] == "altered job loud; it needs no state"
    put(running.url, "/jobs/loud/code", SOURCE)
    for line in kit.LATER[:3]:
        log.add("p0", line)
        running.step()
    read = {"authorization": f"Bearer {TOKEN}"}
    rows = httpx.get(f"{running.url}/jobs/loud/answer", headers=read).json()["rows"]
    assert rows[0]["page"].startswith("/")
    assert rows[0]["page"].isupper()
    facts = httpx.get(f"{running.url}/jobs/loud", headers=read).json()
    assert facts["of_python"]
    assert facts["query"].startswith("loud.py:query (")


@pytest.mark.parametrize(
    ("path", "source", "more", "status", "condition"),
    [
        ("/jobs/loud/code", SOURCE, {"token": "another"}, 401, "NOT_AUTHORISED"),
        ("/jobs/loud/code", SOURCE, {"kind": "application/octet-stream"}, 415, "WRONG_CONTENT_TYPE"),
        ("/jobs/loud/code", "query = (\n", {}, 422, "APP_NOT_LOADED"),
        ("/jobs/loud/code", "import beside\n", {}, 422, "APP_NOT_LOADED"),
        ("/jobs/loud/code?attribute=other", SOURCE, {}, 422, "NO_SUCH_QUERY"),
        ("/jobs/..%2Fup/code", SOURCE, {}, 404, "NO_SUCH_PAGE"),
        ("/jobs/1a/code", SOURCE, {}, 422, "BAD_NAME"),
        ("/jobs/seen/code", SOURCE, {}, 422, "JOB_OF_SQL"),
    ],
)
def test_a_mistake_is_a_problem(
    path: str,
    source: str,
    more: dict[str, str],
    status: int,
    condition: str,
    allowed: tuple[Serving, PushedLog],
) -> None:
    answer = put(allowed[0].url, path, source, **more)
    assert (answer.status_code, answer.json()["condition"]) == (status, condition), answer.text


def test_the_same_request_is_executed_once_and_a_check_changes_nothing(
    allowed: tuple[Serving, PushedLog],
) -> None:
    url, key = allowed[0].url, {"idempotency-key": "one"}
    assert "created" in put(url, "/jobs/loud/code?check=true", SOURCE).json()["says"]
    first = put(url, "/jobs/loud/code", SOURCE, **key)
    again = put(url, "/jobs/loud/code", SOURCE, **key)
    assert again.json() == first.json()
    assert "created" in first.json()["says"]
    other = put(url, "/jobs/loud/code", SOURCE + "\n", **key)
    assert other.json()["condition"] == "REQUEST_REUSED"


def test_a_service_that_takes_code_needs_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exited:
        main(["serve", "--empty", "--allow-code", "--no-token"])
    assert exited.value.code == 2
    assert "[TOKEN_NEEDED]" in capsys.readouterr().err
