"""The pages of the API for who administers it: the audit log, and the sessions of browsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import Response

from penstock.server import response_bodies as schemas
from penstock.server.audit import Audit
from penstock.server.diagnostics import Limit
from penstock.server.sessions import Sessions
from penstock.server.tokens import CALLER

TokenName = Annotated[
    str | None, Query(max_length=64, description="The name of a token; without it, all sessions.")
]


def add_access_pages(
    api: FastAPI, sessions: Sessions | None, audit_log: Audit, record: Callable[..., None]
) -> None:
    """Add these pages to an API."""

    @api.get("/audit", tags=["service"])
    def audit(limit: Limit = 100) -> list[schemas.AuditLine]:
        """Who changed what, the latest first."""
        known = ("at", "who", "role", "address", "did")
        return [
            schemas.AuditLine(
                **{name: line[name] for name in known},
                facts={name: value for name, value in line.items() if name not in known},
            )
            for line in audit_log.lines(limit)
        ]

    @api.delete("/sessions", tags=["service"], status_code=204)
    def revoke_sessions(name: TokenName = None) -> Response:
        """End the sessions of browsers that logged in with a token, or all of them."""
        if sessions is not None:
            sessions.revoke_all(name)
        record(CALLER.get(), "sessions revoked", token=name)
        return Response(status_code=204)
