"""Problems as a client meets them: the service's own errors again, and those of the way to it.

Receives responses; hands the error that the service raised, with its condition, place and hint.
"""

from __future__ import annotations

import httpx

from penstock.errors import ExternalError, InternalError, PenstockError, UserError

#: statuses after which the same request may succeed later
_LATER = frozenset({429, 502, 503, 504})


def error_of(response: httpx.Response) -> PenstockError:
    """What a response says is wrong. Its body has been read."""
    try:
        told = response.json()
        condition, primary = told["condition"], told["primary"]
    except (ValueError, KeyError, TypeError):
        return ExternalError(
            "NOT_PENSTOCK",
            f"{response.request.url} answered {response.status_code}, and not as Penstock does",
            detail=response.text[:200],
        )
    kind: type[PenstockError] = UserError
    if response.status_code in _LATER:
        kind = ExternalError
    elif response.status_code >= 500:
        kind = InternalError
    return kind(condition, primary, detail=told.get("detail"), hint=told.get("hint"), where=told.get("where"))


def unreachable(url: str, failure: Exception) -> ExternalError:
    """The service cannot be reached."""
    return ExternalError(
        "SERVICE_UNREACHABLE",
        f"there is no answer from {url}",
        detail=f"{type(failure).__name__}: {failure}".rstrip(": "),
        hint="Is it running? penstock serve FILE starts one.",
    )
