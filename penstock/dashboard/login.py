"""Logs browsers in and out: a browser shows a token once, in a form, and sends a session from then on.

The session is in a cookie that scripts cannot read and that is sent to the dashboard's pages only. It ends with the
token, after a week, or when it is revoked; to log out revokes it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from penstock.server.api import Service
from penstock.server.middleware import COOKIE, LOGIN, PAGES, session_in
from penstock.server.sessions import WEEK_SECONDS
from penstock.server.structured_log import log

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock</title><style>
:root {{ color-scheme: light dark; }}
body {{ font-family: system-ui, sans-serif; margin: 0; min-height: 100vh; display: grid; place-items: center;
  background: light-dark(#f4f6f9, #0f141b); color: light-dark(#18202c, #e4e9f0); }}
form {{ background: light-dark(#fff, #171e28); border: 1px solid light-dark(#e2e7ee, #2a3442); border-radius: 10px;
  padding: 26px; width: min(320px, 84vw); display: grid; gap: 12px; }}
h1 {{ font-size: 20px; margin: 0; }} p {{ margin: 0; font-size: 14px; color: light-dark(#667389, #93a1b5); }}
input, button {{ font: inherit; padding: 9px 11px; border-radius: 7px; }}
input {{ border: 1px solid light-dark(#cfd7e2, #3a4656); }}
button {{ background: #0b7285; color: #fff; border: 0; font-weight: 600; cursor: pointer; }}
.bad {{ color: light-dark(#c92a2a, #ff8787); }}
</style></head><body><form method="post" action="{login}"><h1>Penstock</h1>
<p class="{kind}">{message}</p>
<input type="password" name="token" aria-label="token" placeholder="token" autofocus required
 autocomplete="current-password">
<button>Log in</button></form></body></html>"""


def add_login_pages(service: Service) -> None:
    """Add the pages to log in and out."""
    api, tokens, sessions = service.api, service.tokens, service.sessions

    @api.get(LOGIN, include_in_schema=False)
    async def form() -> Response:
        if tokens is None:
            return RedirectResponse(f"{PAGES}/", 303)
        return _form("A token of this service.", "", 200)

    @api.post(LOGIN, include_in_schema=False)
    async def login(request: Request) -> Response:
        if tokens is None or sessions is None:
            return RedirectResponse(f"{PAGES}/", 303)
        text = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0]
        token = tokens.find(f"Bearer {text}")
        if token is None:
            log("login refused", client=request.client.host if request.client else "unknown")
            return _form("That is no token of this service.", "bad", 401)
        response = RedirectResponse(f"{PAGES}/", 303)
        response.set_cookie(
            COOKIE,
            sessions.issue(token),
            max_age=WEEK_SECONDS,
            path=PAGES,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )
        return response

    @api.post(f"{PAGES}/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        session = session_in(request.headers.get("cookie", ""))
        if sessions is not None and session is not None:
            await asyncio.to_thread(sessions.revoke, session)
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path=PAGES)
        return response


def _form(message: str, kind: str, status: int) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(login=LOGIN, message=message, kind=kind), status)
