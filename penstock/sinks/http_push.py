"""A sink that posts each epoch's rows to an address, as JSON lines, and tries again when it is not heard.

Receives an epoch's rows; hands them to whoever listens there, in one request:

    POST /hook
    Content-Type: application/x-ndjson
    Idempotency-Key: "JOB:EPOCH"      the same whenever the epoch is posted again
    Penstock-Job, Penstock-Epoch, Penstock-Generation

An answer 2xx means taken. 408, 409, 425, 429 and 5xx, and no answer at all, mean that it is tried again, after
pauses that double, or as long as `Retry-After` says, until `patience_seconds` are over. Any other answer is
final. A receiver that had the key before answers 2xx with `Idempotency-Replayed: true`; one that has heard of a
higher generation answers 412, with its number in `Penstock-Generation`. Redirections are not followed.

Guarantees: at least once; exactly once with a receiver that keeps the keys it has taken (with what it made of
them, in one step).
On failure: `ExternalError` SINK_UNWRITABLE when patience is over, SINK_REFUSED when the answer is final, FENCED on 412.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from penstock.errors import ExternalError, UserError
from penstock.sinks.contract import Sink
from penstock.sinks.portable import in_order, portable
from penstock.state.generation import fenced_error

if TYPE_CHECKING:
    import httpx  # loaded by who posts: every engine and every worker loads this module

_AGAIN = frozenset({408, 409, 425, 429})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class HttpPush(Sink):
    """Rows posted to `url`. `token_file` has the token of an `Authorization: Bearer` header."""

    def __init__(
        self,
        url: str,
        *,
        patience_seconds: float = 60.0,
        answer_seconds: float = 30.0,
        token_file: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        import httpx

        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UserError(
                "BAD_OPTION", f"{url!r} is nowhere to post to", hint="As in https://host.example/hook."
            )
        self._url = parsed
        self._patience, self._answer = float(patience_seconds), float(answer_seconds)
        self._token_file = None if token_file is None else Path(token_file)
        self._headers = dict(headers or {})
        self._job = ""
        self._generation = 0
        self._columns: list[str] = []
        self._last = -1
        self._client: httpx.Client | None = None

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        """Make ready; nothing is sent before the first rows."""
        import httpx

        self.close()
        self._job, self._generation, self._columns, self._last = job, 0, list(schema), -1
        headers = {"Content-Type": "application/x-ndjson", "User-Agent": "penstock"} | self._headers
        if self._token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token_file.read_text().strip()}"
            except OSError as problem:
                raise ExternalError(
                    "TOKEN_FILE_UNREADABLE",
                    f"the token file {self._token_file} cannot be read",
                    detail=f"{problem.strerror}.",
                ) from problem
        self._client = httpx.Client(headers=headers, timeout=self._answer, follow_redirects=False)

    def take_over(self, generation: int) -> None:
        """Tell the generation from now on; a receiver that keeps them learns it with the next rows."""
        self._generation = generation

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Post the rows until they are taken. An epoch without rows is not posted."""
        if epoch <= self._last:
            return False
        if rows.is_empty():
            return True
        if self._client is None:
            self.open(self._job, {})
        plain = portable(in_order(rows, self._columns))
        new = self._posted(epoch, plain.write_ndjson().encode())
        self._last = epoch
        return new

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def describe(self) -> str:
        port = f":{self._url.port}" if self._url.port else ""
        return f"{self._url.scheme}://{self._url.host}{port}{self._url.path}"

    def _posted(self, epoch: int, body: bytes) -> bool:
        """Whether the rows were new to the receiver, as far as it says: it may have had them from a try that failed."""
        import httpx

        assert self._client is not None
        headers = {
            "Idempotency-Key": f'"{self._job}:{epoch}"',
            "Penstock-Job": self._job,
            "Penstock-Epoch": str(epoch),
            "Penstock-Generation": str(self._generation),
        }
        deadline, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        first = True
        while True:
            wait = pause * random.uniform(0.5, 1.5)
            try:
                answer = self._client.post(self._url, content=body, headers=headers)
            except httpx.TransportError as problem:
                why = f"{type(problem).__name__}: {problem}"
            else:
                if answer.is_success:
                    return not (first and answer.headers.get("Idempotency-Replayed", "").lower() == "true")
                why = f"The answer was {answer.status_code} {answer.reason_phrase}"
                if answer.status_code == 412:
                    newest = answer.headers.get("Penstock-Generation", "")
                    raise fenced_error(
                        self.describe(), self._generation, int(newest) if newest.isdecimal() else -1
                    )
                if answer.status_code not in _AGAIN and answer.status_code < 500:
                    raise self._failed("SINK_REFUSED", f"{why}: {answer.text[:200]!r}")
                wait = max(wait, _asked_to_wait(answer.headers.get("Retry-After")))
            if time.monotonic() + wait > deadline:
                raise self._failed("SINK_UNWRITABLE", f"{why}, until patience was over")
            time.sleep(wait)
            first = False
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _failed(self, condition: str, why: str) -> ExternalError:
        return ExternalError(
            condition,
            f"could not post rows to {self.describe()}",
            detail=f"{why}.",
            hint="Mend the receiver, then start again: the epoch is posted again with the same Idempotency-Key.",
        )


def _asked_to_wait(told: str | None) -> float:
    """The seconds of a Retry-After header; 0 if there is none that makes sense."""
    if told is None:
        return 0.0
    if told.strip().isdecimal():
        return float(told)
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
