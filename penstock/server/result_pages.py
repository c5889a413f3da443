"""The pages of the API with the results of a job: the latest one, all that are retained, and the subscription."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Annotated

from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import Response

from penstock.errors import UserError
from penstock.server import response_bodies as schemas
from penstock.server.diagnostics import Limit, Name
from penstock.server.host import Host
from penstock.server.limits import Limits
from penstock.server.middleware import client_of
from penstock.server.subscriptions import Hub
from penstock.server.wire import ARROW, result_json, rows_arrow

Since = Annotated[int | None, Query(ge=0, le=2**62, description="The first epoch.")]
_EPOCH = re.compile(r"-1|[0-9]{1,18}")
#: epochs of results that are read at once
_EPOCHS_PER_READ = 16


def add_result_pages(api: FastAPI, host: Host, hub: Hub, limits: Limits) -> None:
    """Add these pages to an API."""
    encoding: dict[tuple[object, ...], asyncio.Task[bytes]] = {}

    async def encode_latest(job: str) -> bytes:
        """Encode a job's latest result once for all concurrent requests."""
        key = (job, *host.result_version)
        if key not in encoding:
            encoding[key] = asyncio.create_task(asyncio.to_thread(host.encode_latest_result, job))
            encoding[key].add_done_callback(lambda _: encoding.pop(key, None))
        return await asyncio.shield(encoding[key])

    @api.get("/jobs/{name}/answer", tags=["answers"], responses={200: {"model": schemas.Result}})
    async def answer(name: Name, accept: Annotated[str | None, Header()] = None) -> Response:
        """A job's latest result: that of its last window or, without windows, of its last epoch with rows. As JSON, or
        as an Arrow stream if the Accept header requests it."""
        if accept is not None and ARROW in accept:
            return await asyncio.to_thread(_arrow, host, name)
        result = host.cached_result(name) or await encode_latest(name)
        return Response(result, media_type="application/json")

    @api.get("/jobs/{name}/results", tags=["answers"], responses={200: {"model": schemas.Results}})
    def results(name: Name, since: Since = 0, limit: Limit = 100) -> Response:
        """The rows that a job emitted from an epoch on, page by page."""
        return Response(
            _page(host, name, since or 0, limit, limits.page_bytes), media_type="application/json"
        )

    @api.get(
        "/jobs/{name}/events",
        tags=["answers"],
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(
        name: Name,
        request: Request,
        since: Since = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> Response:
        """Subscribe to a job (server-sent events). The id of an event is its epoch; a client that reconnects with
        Last-Event-ID continues after it. Without that header and `since`, it starts with the next epoch."""
        if last_event_id:
            if not _EPOCH.fullmatch(last_event_id):
                raise UserError(
                    "BAD_EVENT_ID",
                    f"{last_event_id!r} is no epoch",
                    hint="Send the id of the last event that arrived.",
                )
            since = int(last_event_id) + 1
        return await hub.subscribe(name, since, client_of(request.scope))


def _arrow(host: Host, name: str) -> Response:
    result = host.latest_result(name)
    if result is None:
        return Response(status_code=204)
    return Response(rows_arrow(result.rows), media_type=ARROW, headers={"penstock-epoch": str(result.epoch)})


def _page(host: Host, name: str, since: int, limit: int, max_bytes: int) -> bytes:
    """A page of results from an epoch on: so many epochs, or as many as fit."""
    encoded, size, more = list[bytes](), 0, True
    while more and len(encoded) < limit and size < max_bytes:
        count = min(_EPOCHS_PER_READ, limit - len(encoded))
        results = host.results(name, since, count)
        encoded += [result_json(name, result) for result in results]
        size = sum(map(len, encoded))
        since = results[-1].epoch + 1 if results else since
        more = len(results) == count
    head = {"job": name, "next": since, "more": more}
    return json.dumps(head)[:-1].encode() + b', "results": [' + b", ".join(encoded) + b"]}"
