"""Turns responses and broken connections into Penstock's errors: those that the service raised, raised again."""

from __future__ import annotations

import httpx

from penstock.errors import ExternalError, InternalError, PenstockError, UserError

#: statuses after which the same request may succeed later
_RETRY_LATER = frozenset({429, 502, 503, 504})


def error_of(response: httpx.Response) -> PenstockError:
    """The error in a response whose body has been read."""
    try:
        problem = response.json()
        condition, primary = problem["condition"], problem["primary"]
    except (ValueError, KeyError, TypeError):
        return ExternalError(
            "NOT_PENSTOCK",
            f"{response.request.url} answered {response.status_code}, but not as Penstock does",
            detail=response.text[:200],
        )
    kind: type[PenstockError] = UserError
    if response.status_code in _RETRY_LATER:
        kind = ExternalError
    elif response.status_code >= 500:
        kind = InternalError
    where = problem.get("where")
    return kind(condition, primary, detail=problem.get("detail"), hint=problem.get("hint"), where=where)


def unreachable(url: str, failure: Exception) -> ExternalError:
    """The error for a service that does not respond."""
    return ExternalError(
        "SERVICE_UNREACHABLE",
        f"no response from {url}",
        detail=f"{type(failure).__name__}: {failure}".rstrip(": "),
        hint="Is it running? penstock serve FILE starts one.",
    )
