"""The HTTP push sink: its requests, its retries, and when it fails."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
import pytest

from penstock.errors import ExternalError, UserError
from penstock.sinks import HttpPush
from tests.outside.receiver import Receiver

SCHEMA: dict[str, pl.DataType] = {"page": pl.String(), "visits": pl.Int64()}
ROWS = pl.DataFrame({"page": ["/a", "/ü"], "visits": [3, None]})


def open_sink(url: str, **options: object) -> HttpPush:
    sink = HttpPush(url, **options)  # type: ignore[arg-type]
    sink.open("job", SCHEMA)
    return sink


def test_an_epoch_is_one_request_with_its_key(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    sink = open_sink(f"{receiver.url}/hook?x=1", token_file=tmp_path / "token", headers={"X-Team": "web"})
    sink.take_over(7)
    assert sink.write(12, ROWS)
    assert receiver.rows("/hook?x=1") == ROWS.to_dicts()
    (headers,) = receiver.headers
    assert headers["Idempotency-Key"] == '"job:12"'
    assert (headers["Penstock-Job"], headers["Penstock-Epoch"], headers["Penstock-Generation"]) == (
        "job",
        "12",
        "7",
    )
    assert (headers["Authorization"], headers["X-Team"]) == ("Bearer secret", "web")
    assert headers["Content-Type"] == "application/x-ndjson"
    assert "secret" not in sink.describe()


@pytest.mark.parametrize("trouble", [408, 409, 425, 429, 500, 502, 503, "lost", "cut"])
def test_a_transient_failure_is_retried(receiver: Receiver, trouble: int | str) -> None:
    receiver.troubles = [trouble, trouble]
    open_sink(f"{receiver.url}/hook").write(0, ROWS)
    assert receiver.rows("/hook") == ROWS.to_dicts()
    assert receiver.seen['"job:0"'] == 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
def test_a_permanent_refusal_is_an_error_at_once(receiver: Receiver, status: int) -> None:
    receiver.troubles = [status]
    sink = open_sink(f"{receiver.url}/hook")
    with pytest.raises(ExternalError, match=rf"SINK_REFUSED.*{status}"):
        sink.write(0, ROWS)
    assert receiver.seen['"job:0"'] == 1
    assert sink.write(0, ROWS)


def test_retries_end_after_the_patience(receiver: Receiver) -> None:
    receiver.troubles = [503] * 1000
    started_at = time.monotonic()
    with pytest.raises(ExternalError, match=r"SINK_UNWRITABLE.*503"):
        open_sink(f"{receiver.url}/hook", patience_seconds=1.0).write(0, ROWS)
    assert time.monotonic() - started_at < 20
    assert 3 <= receiver.seen['"job:0"'] <= 12


def test_a_receiver_that_is_down_is_an_error() -> None:
    with pytest.raises(ExternalError, match="SINK_UNWRITABLE"):
        open_sink("http://127.0.0.1:1/hook", patience_seconds=0.3).write(0, ROWS)


def test_an_epoch_that_the_receiver_has_is_not_written_again(receiver: Receiver) -> None:
    assert open_sink(f"{receiver.url}/hook").write(0, ROWS)
    again = open_sink(f"{receiver.url}/hook")
    assert not again.write(0, ROWS)
    assert not again.write(0, ROWS)
    assert receiver.seen['"job:0"'] == 2
    assert receiver.rows("/hook") == ROWS.to_dicts()


@pytest.mark.parametrize("url", ["", "hook", "ftp://host/x", "http://", "file:///etc/passwd", "https://:80/"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="BAD_OPTION"):
        HttpPush(url)


def test_a_missing_token_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExternalError, match="TOKEN_FILE_UNREADABLE"):
        open_sink("http://127.0.0.1:1/", token_file=tmp_path / "none")
