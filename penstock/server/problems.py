"""What is wrong with a request, told as a problem document.

Receives errors of any kind; hands answers with Penstock's own words. Nothing of a defect is told but that it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.errors import InternalError, PenstockError, UserError
from penstock.server.middleware import LEFT, Refused, for_nobody
from penstock.server.structured_log import log
from penstock.server.wire import PROBLEM, problem, status_of


def kind_of(request: Request) -> str:
    """The kind of a body, as its sender says."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def text_of(body: bytes) -> str:
    """A body as text."""
    try:
        return body.decode()
    except UnicodeDecodeError as failure:
        raise UserError("BAD_REQUEST", "the body is not UTF-8", detail=str(failure)) from failure


def wrong_kind(wanted: str) -> UserError:
    """A body is of another kind than a page takes."""
    return UserError("WRONG_CONTENT_TYPE", f"the body must be {wanted}", hint="Say so in Content-Type.")


def _answer(
    error: PenstockError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    told = problem(error)
    told["status"] = status or status_of(error)
    return JSONResponse(told, told["status"], headers, PROBLEM)


def tell_errors(api: FastAPI) -> None:
    """Have an API tell all that goes wrong."""

    def handle(kind: type[Exception]) -> Callable[[Any], Any]:
        return api.exception_handler(kind)

    @handle(PenstockError)
    async def ours(_: Request, error: PenstockError) -> Response:
        return _answer(error)

    @handle(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return _answer(error.error, headers=error.headers)

    @handle(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        return _answer(_bad_request(error.errors()))

    @handle(ValueError)
    async def unreadable(_: Request, error: ValueError) -> Response:
        found = getattr(error, "errors", None)  # pydantic's, of a body we read ourselves
        if found is None:
            return _unexpected(error)
        return _answer(_bad_request(found()))

    @handle(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        condition = "NO_SUCH_PAGE" if error.status_code == 404 else "BAD_REQUEST"
        return _answer(UserError(condition, str(error.detail)), error.status_code, error.headers)

    @handle(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        if request.scope.get(LEFT) and for_nobody(error):
            return Response(status_code=400)  # the gate lets nothing through
        return _unexpected(error)


def _bad_request(errors: Any) -> UserError:
    told = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in list(errors)[:5]]
    return UserError(
        "BAD_REQUEST", "the request is not as the API says", detail="; ".join(told), hint="See /openapi.json."
    )


def _unexpected(error: Exception) -> Response:
    log("unexpected", 40, error=f"{type(error).__name__}: {error}"[:2_000])
    return _answer(InternalError("UNEXPECTED", f"{type(error).__name__}; this is a defect of Penstock"), 500)
