"""Encodes what goes over the wire: rows as JSON or Arrow, errors as problem documents.

Rows have the forms of the file sinks: times as ISO-8601 in UTC, durations in seconds, decimals as text, NaN and
infinity as null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from penstock.delivery.result_log import JobResult
from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.sinks.portable import to_portable
from penstock.state.ipc import dense_stream_bytes

ARROW = "application/vnd.apache.arrow.stream"
PROBLEM = "application/problem+json"

_PLACE = re.compile(r"line (\d+), column (\d+)")
#: conditions with an HTTP status of their own
_STATUS = {
    "UNKNOWN_JOB": 404,
    "UNKNOWN_STREAM": 404,
    "NO_SUCH_PAGE": 404,
    "NOT_AUTHORISED": 401,
    "PEER_NOT_VERIFIED": 401,
    "ROLE_NEEDED": 403,
    "FOREIGN_HOST": 403,
    "FILES_NOT_ALLOWED": 403,
    "NOT_OVER_HTTP": 403,
    "CODE_NOT_ALLOWED": 403,
    "NAME_TAKEN": 409,
    "STILL_READ": 409,
    "STREAM_DIFFERS": 409,
    "STREAM_TAKES_NO_EVENTS": 409,
    "NO_COMMANDS": 409,
    "RESULTS_GONE": 410,
    "QUERY_TOO_LONG": 413,
    "BODY_TOO_LARGE": 413,
    "WRONG_CONTENT_TYPE": 415,
    "TOO_MANY_REQUESTS": 429,
    "TOO_MANY_SUBSCRIBERS": 429,
    "ENGINE_STARTING": 503,
}


def columns_of(schema: Mapping[str, Any]) -> list[dict[str, str]]:
    """Columns with their types, as Polars names them."""
    return [{"name": name, "type": str(dtype)} for name, dtype in schema.items()]


def rows_json(rows: pl.DataFrame) -> bytes:
    """Rows as a JSON array of objects."""
    if not rows.height:
        return b"[]"
    try:
        lines = to_portable(rows).write_ndjson().encode()
    except pl.exceptions.PanicException as failure:  # no Exception: it would end what serves others too
        raise UserError(
            "NO_JSON",
            "the result has a value that JSON has no form for",
            detail=f"{str(failure).splitlines()[0]}.",
            hint="Dates go to the year 262,142. Get the rows as an Arrow stream, or alter the job.",
        ) from None
    return b"[" + lines.rstrip(b"\n").replace(b"\n", b",") + b"]"


def result_json(job: str, result: JobResult | None) -> bytes:
    """A job's rows of one epoch, as JSON; the epoch is null before the first result."""
    if result is None:
        return json.dumps({"job": job, "epoch": None, "columns": [], "rows": []}).encode()
    head = {"job": job, "epoch": result.epoch, "columns": columns_of(result.rows.schema)}
    return json.dumps(head)[:-1].encode() + b', "rows": ' + rows_json(result.rows) + b"}"


def rows_arrow(rows: pl.DataFrame) -> bytes:
    """Rows as an Arrow stream, with their own types."""
    return dense_stream_bytes(rows)


def status_of(error: PenstockError) -> int:
    """The HTTP status of an error."""
    if error.condition in _STATUS and not (_STATUS[error.condition] == 404 and error.where):
        return _STATUS[error.condition]  # an unknown name in a text is not an unknown address
    if isinstance(error, ExternalError):
        return 503
    return 500 if isinstance(error, InternalError) else 422


def problem(error: PenstockError) -> dict[str, Any]:
    """An error as a problem document (RFC 9457), with Penstock's own fields beside the standard ones."""
    place = _PLACE.search(error.where or "")
    return {
        "type": f"urn:penstock:{error.condition.lower()}",
        "title": f"{error.primary}.",
        "status": status_of(error),
        "condition": error.condition,
        "primary": error.primary,
        "detail": error.detail,
        "hint": error.hint,
        "where": error.where,
        "line": int(place[1]) if place else None,
        "column": int(place[2]) if place else None,
        "retry": error.retry,
    }
