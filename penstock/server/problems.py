"""Answers errors of any kind with problem documents, and reads type and text of a body.

Of a defect, the response contains only that it is one; the log has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.errors import InternalError, PenstockError, UserError
from penstock.server.middleware import CLIENT_GONE, Refusal, is_client_gone
from penstock.server.structured_log import log
from penstock.server.wire import PROBLEM, problem, status_of


def content_type(request: Request) -> str:
    """The media type of a body, in lower case and without parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def decode_text(body: bytes) -> str:
    """Decode a body as UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError as failure:
        raise UserError("BAD_REQUEST", "the body is not UTF-8", detail=str(failure)) from failure


def wrong_content_type(expected: str) -> UserError:
    """The error for a body of a type that a page does not take."""
    return UserError("WRONG_CONTENT_TYPE", f"the body must be {expected}", hint="Set Content-Type.")


def _problem_response(
    error: PenstockError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    document = problem(error)
    document["status"] = status or status_of(error)
    return JSONResponse(document, document["status"], headers, PROBLEM)


def add_error_handlers(api: FastAPI) -> None:
    """Answer every error of an API with a problem document."""

    def handle(kind: type[Exception]) -> Callable[[Any], Any]:
        return api.exception_handler(kind)

    @handle(PenstockError)
    async def penstock_error(_: Request, error: PenstockError) -> Response:
        return _problem_response(error)

    @handle(Refusal)
    async def refusal(_: Request, error: Refusal) -> Response:
        return _problem_response(error.error, headers=error.headers)

    @handle(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> Response:
        return _problem_response(_bad_request(error.errors()))

    @handle(ValueError)
    async def value_error(_: Request, error: ValueError) -> Response:
        errors = getattr(error, "errors", None)  # pydantic's, of a body that a page validates itself
        if errors is None:
            return _unexpected(error)
        return _problem_response(_bad_request(errors()))

    @handle(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        condition = "NO_SUCH_PAGE" if error.status_code == 404 else "BAD_REQUEST"
        return _problem_response(UserError(condition, str(error.detail)), error.status_code, error.headers)

    @handle(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        if request.scope.get(CLIENT_GONE) and is_client_gone(error):
            return Response(status_code=400)  # the gate does not send it
        return _unexpected(error)


def _bad_request(errors: Any) -> UserError:
    details = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in list(errors)[:5]]
    return UserError(
        "BAD_REQUEST",
        "the request does not match the API",
        detail="; ".join(details),
        hint="See /openapi.json.",
    )


def _unexpected(error: Exception) -> Response:
    log("unexpected", 40, error=f"{type(error).__name__}: {error}"[:2_000])
    return _problem_response(
        InternalError("UNEXPECTED", f"{type(error).__name__}; this is a defect of Penstock"), 500
    )
