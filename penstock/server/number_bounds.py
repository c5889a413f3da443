"""Bounds the numbers that a statement over HTTP gives to logs and sinks.

In a file of SQL on the engine's machine they are the operator's own; over HTTP a number must not make the engine hold
more memory, or wait for longer, than one client may cause.

Guarantees: every option of a log or sink that is a number has bounds here, or cannot be named over HTTP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.errors import UserError
from penstock.sql.statements import Call, Scalar

#: least and most; whole numbers only, if these are
Bounds = tuple[int, int] | tuple[float, float]

_PROFILE: Mapping[str, Bounds] = {
    "period_seconds": (1.0, 1e6),
    "amplitude": (0.0, 1.0),
    "spike_factor": (1e-3, 1e3),
    "step_factor": (1e-3, 1e3),
    "at_seconds": (0.0, 1e5),
    "for_seconds": (0.0, 1e5),
}
_COMPACT: Mapping[str, Bounds] = {"compact_bytes": (0, 1 << 30), "compact_seconds": (1.0, 86_400.0)}
_GENERATED: Mapping[str, Bounds] = {
    "partitions": (1, 64),
    "seed": (0, (1 << 31) - 1),
    "rate": (1e-3, 1e6),
    "total": (0, 1 << 40),
    "disorder_seconds": (0.0, 86_400.0),
    **_PROFILE,
}
#: by log or sink and option
BOUNDS: Mapping[str, Mapping[str, Bounds]] = {
    "generated": {
        **_GENERATED,
        "users": (1, 1_000_000),
        "pages": (1, 1_000_000),
        "zipf_users": (0.0, 10.0),
        "zipf_pages": (0.0, 10.0),
    },
    "call_records": {
        **_GENERATED,
        "callers": (2, 1_000_000),
        "districts": (1, 1_000_000),
        "zipf_callers": (0.0, 10.0),
        "call_seconds": (1, 86_400),
        "impossible": (0.0, 1.0),
    },
    "files": {"gz_settle_seconds": (0.0, 3_600.0)},
    "redis": {"most_entries": (0, 1_000_000_000)},
    "console": {"most_rows": (0, 1_000)},
    "jsonl": _COMPACT,
    "parquet": _COMPACT,
    "http_push": {"patience_seconds": (0.0, 3_600.0), "answer_seconds": (0.1, 300.0)},
}


def check_numbers(call: Call) -> None:
    """Raise for a number of a log or sink that is out of its bounds."""
    for option, value in call.options.items():
        bounds = BOUNDS.get(call.name, {}).get(option)
        if bounds is not None and value is not None and not _is_within(value, bounds):
            kind = "a whole number" if isinstance(bounds[0], int) else "a number"
            raise UserError(
                "NUMBER_OUT_OF_BOUNDS",
                f"{option} of {call.name} cannot be {str(value)[:50]}",
                where=f"line {call.at[0]}, column {call.at[1]}",
                hint=f"Over HTTP it is {kind} from {bounds[0]:,} to {bounds[1]:,}.",
            )


def _is_within(value: Scalar, bounds: Bounds) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return bounds[0] <= value <= bounds[1] and (not isinstance(bounds[0], int) or isinstance(value, int))
