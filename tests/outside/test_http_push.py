"""The HTTP push sink: what it sends, how it tries again, when it gives up."""

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


def opened(url: str, **options: object) -> HttpPush:
    sink = HttpPush(url, **options)  # type: ignore[arg-type]
    sink.open("job", SCHEMA)
    return sink


def test_an_epoch_is_one_request_with_its_key(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    sink = opened(f"{receiver.url}/hook?x=1", token_file=tmp_path / "token", headers={"X-Team": "web"})
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
def test_what_passes_is_tried_again(receiver: Receiver, trouble: int | str) -> None:
    receiver.troubles = [trouble, trouble]
    opened(f"{receiver.url}/hook").write(0, ROWS)
    assert receiver.rows("/hook") == ROWS.to_dicts()
    assert receiver.seen['"job:0"'] == 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
def test_what_does_not_pass_is_told_at_once(receiver: Receiver, status: int) -> None:
    receiver.troubles = [status]
    sink = opened(f"{receiver.url}/hook")
    with pytest.raises(ExternalError, match=rf"SINK_REFUSED.*{status}"):
        sink.write(0, ROWS)
    assert receiver.seen['"job:0"'] == 1
    assert sink.write(0, ROWS)


def test_patience_ends(receiver: Receiver) -> None:
    receiver.troubles = [503] * 1000
    began = time.monotonic()
    with pytest.raises(ExternalError, match=r"SINK_UNWRITABLE.*503"):
        opened(f"{receiver.url}/hook", patience_seconds=1.0).write(0, ROWS)
    assert time.monotonic() - began < 20
    assert 3 <= receiver.seen['"job:0"'] <= 12


def test_nobody_listens() -> None:
    with pytest.raises(ExternalError, match="SINK_UNWRITABLE"):
        opened("http://127.0.0.1:1/hook", patience_seconds=0.3).write(0, ROWS)


def test_a_receiver_that_had_the_epoch_says_so(receiver: Receiver) -> None:
    assert opened(f"{receiver.url}/hook").write(0, ROWS)
    again = opened(f"{receiver.url}/hook")
    assert not again.write(0, ROWS)
    assert not again.write(0, ROWS)
    assert receiver.seen['"job:0"'] == 2
    assert receiver.rows("/hook") == ROWS.to_dicts()


@pytest.mark.parametrize("url", ["", "hook", "ftp://host/x", "http://", "file:///etc/passwd", "https://:80/"])
def test_nowhere_to_post_to(url: str) -> None:
    with pytest.raises(UserError, match="BAD_OPTION"):
        HttpPush(url)


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExternalError, match="TOKEN_FILE_UNREADABLE"):
        opened("http://127.0.0.1:1/", token_file=tmp_path / "none")
