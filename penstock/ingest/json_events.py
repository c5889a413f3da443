"""Converts events in JSON to lines.

Receives the body of a request: an array of objects, or one; returns a line for each.
On failure: `UserError` NOT_JSON; nothing of such a body is accepted.
"""

from __future__ import annotations

import json

from penstock.errors import UserError

_HINT = "Send an array of objects, or one; lines go as application/x-ndjson."


def json_lines(body: bytes) -> bytes:
    """Write each event in JSON as a line."""
    try:
        value = json.loads(body) if body.strip() else []
    except (ValueError, RecursionError):
        raise UserError("NOT_JSON", "the body is not JSON", hint=_HINT) from None
    events = value if isinstance(value, list) else [value]
    if not all(isinstance(event, dict) for event in events):
        raise UserError("NOT_JSON", "an event is a JSON object, and events are an array of them", hint=_HINT)
    try:
        return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
    except RecursionError:
        raise UserError("NOT_JSON", "the body is nested too deeply", hint=_HINT) from None
