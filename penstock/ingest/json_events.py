"""Events that come as JSON rather than as lines.

Receives the body of a request: an array of objects, or one; hands a line for each.
On failure: `UserError` NOT_JSON; nothing of such a body is taken.
"""

from __future__ import annotations

import json

from penstock.errors import UserError

_HINT = "Send an array of objects, or one; lines go as application/x-ndjson."


def json_lines(body: bytes) -> bytes:
    """Events in JSON, a line each."""
    try:
        told = json.loads(body) if body.strip() else []
    except (ValueError, RecursionError):
        raise UserError("NOT_JSON", "the body is not JSON", hint=_HINT) from None
    events = told if isinstance(told, list) else [told]
    if not all(isinstance(event, dict) for event in events):
        raise UserError("NOT_JSON", "an event is a JSON object, and events are an array of them", hint=_HINT)
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
