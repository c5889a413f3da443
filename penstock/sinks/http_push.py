"""A sink that posts the rows of each epoch to a URL, as JSON lines, in one request, and retries.

    POST /hook
    Content-Type: application/x-ndjson
    Idempotency-Key: "JOB:EPOCH"      the same whenever the epoch is posted again
    Penstock-Job, Penstock-Epoch, Penstock-Generation

A response 2xx means accepted. After 408, 409, 425, 429, 5xx, or no response, it retries, with pauses that double or
last as long as `Retry-After` says, until `patience_seconds` are over. Any other response is final. A receiver that had
the key before returns 2xx with `Idempotency-Replayed: true`; one that knows a higher generation returns 412, with its
number in `Penstock-Generation`. Redirects are not followed.

Guarantees: at least once; exactly once with a receiver that stores the keys together with what it does, in one step.
On failure: `ExternalError` SINK_UNWRITABLE when the patience is over, SINK_REFUSED on a final response, FENCED on 412.
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
from penstock.sinks.portable import reorder_columns, to_portable
from penstock.state.generation import fenced_error

if TYPE_CHECKING:
    import httpx  # loaded on use only: every engine and every worker loads this module

_RETRIED = frozenset({408, 409, 425, 429})
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
                "BAD_OPTION", f"{url!r} is no URL to post to", hint="As in https://host.example/hook."
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
        """Prepare the client; nothing is sent before the first rows."""
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
        """Send this generation from now on, with the next rows."""
        self._generation = generation

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        """Post the rows until they are accepted. An epoch without rows is not posted."""
        if epoch <= self._last:
            return False
        if rows.is_empty():
            return True
        if self._client is None:
            self.open(self._job, {})
        plain = to_portable(reorder_columns(rows, self._columns))
        new = self._post(epoch, plain.write_ndjson().encode())
        self._last = epoch
        return new

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def describe(self) -> str:
        port = f":{self._url.port}" if self._url.port else ""
        return f"{self._url.scheme}://{self._url.host}{port}{self._url.path}"

    def _post(self, epoch: int, body: bytes) -> bool:
        """Post until accepted; returns whether the rows were new to the receiver, as far as it says so."""
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
                response = self._client.post(self._url, content=body, headers=headers)
            except httpx.TransportError as problem:
                why = f"{type(problem).__name__}: {problem}"
            else:
                if response.is_success:
                    return not (first and response.headers.get("Idempotency-Replayed", "").lower() == "true")
                why = f"The response was {response.status_code} {response.reason_phrase}"
                if response.status_code == 412:
                    newest = response.headers.get("Penstock-Generation", "")
                    raise fenced_error(
                        self.describe(), self._generation, int(newest) if newest.isdecimal() else -1
                    )
                if response.status_code not in _RETRIED and response.status_code < 500:
                    raise self._failure("SINK_REFUSED", f"{why}: {response.text[:200]!r}")
                wait = max(wait, _parse_retry_after(response.headers.get("Retry-After")))
            if time.monotonic() + wait > deadline:
                raise self._failure("SINK_UNWRITABLE", f"{why}, until patience was over")
            time.sleep(wait)
            first = False
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _failure(self, condition: str, why: str) -> ExternalError:
        return ExternalError(
            condition,
            f"could not post rows to {self.describe()}",
            detail=f"{why}.",
            hint="Fix the receiver. The rows wait for that, and are posted again with the same Idempotency-Key; RESUME "
            "the job if it has failed.",
            is_transient=condition == "SINK_UNWRITABLE",
        )


def _parse_retry_after(value: str | None) -> float:
    """The seconds of a Retry-After header; 0 if there is none or it is invalid."""
    if value is None:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
