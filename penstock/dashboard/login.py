"""Logs browsers in and out: a browser shows a token once, in a form or in the address that the service prints at its
start (`/?token=...`), and sends a session from then on.

The response to such an address leads to the dashboard, so the token is neither in the address bar nor in a Referer.
The session is in a cookie that scripts cannot read and that is sent to the dashboard's pages only. It ends with the
token, after a week, or when it is revoked; to log out revokes it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from penstock.server.api import Service
from penstock.server.middleware import LOGIN, PAGES, cookie_name, session_in
from penstock.server.security import check_origin, is_of_other_site
from penstock.server.sessions import WEEK_SECONDS, Sessions
from penstock.server.structured_log import log
from penstock.server.tokens import Token, Tokens

#: what the form says
_ENTER = "Enter a token of this service."
_ENTER_OWN = (
    "Enter the token of this service. Its user gets it with <code>penstock token</code> on its machine."
)
_WRONG = "That is no token of this service."
#: a browser that comes from elsewhere requests the dashboard as a page of its own only after this one
_FORWARD = (
    '<!doctype html><meta charset="utf-8"><title>Penstock</title><meta http-equiv="refresh" content="0;url={to}">'
    '<p><a href="{to}">Open the dashboard</a></p>'
)
_NO_STORE = {"cache-control": "no-store"}
_NO_TRACES = {"referrer-policy": "no-referrer", **_NO_STORE}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock</title><style>
:root {{ color-scheme: light dark; }}
body {{ font-family: system-ui, sans-serif; margin: 0; min-height: 100vh; display: grid; place-items: center;
  background: light-dark(#f4f6f9, #0f141b); color: light-dark(#18202c, #e4e9f0); }}
form {{ background: light-dark(#fff, #171e28); border: 1px solid light-dark(#e2e7ee, #2a3442); border-radius: 10px;
  padding: 26px; width: min(320px, 84vw); display: grid; gap: 12px; }}
h1 {{ font-size: 20px; margin: 0; }} code {{ color: light-dark(#18202c, #e4e9f0); }}
p {{ line-height: 1.5; margin: 0; font-size: 14px; color: light-dark(#667389, #93a1b5); }}
input, button {{ font: inherit; padding: 9px 11px; border-radius: 7px; }}
input {{ border: 1px solid light-dark(#cfd7e2, #3a4656); }}
button {{ background: #0b7285; color: #fff; border: 0; font-weight: 600; cursor: pointer; }}
.bad {{ color: light-dark(#c92a2a, #ff8787); }}
</style></head><body><form method="post" action="{login}"><h1>Penstock</h1>
{messages}
<input type="password" name="token" aria-label="token" placeholder="token" autofocus required
 autocomplete="current-password">
<button>Log in</button></form></body></html>"""


def add_login_pages(service: Service) -> None:
    """Add the pages to log in and out, and the front page, which takes a token in its address."""
    api, tokens, sessions = service.api, service.tokens, service.sessions

    @api.get("/", include_in_schema=False)
    async def front(request: Request) -> Response:
        text = request.query_params.get("token")
        if tokens is None or sessions is None or text is None:
            return RedirectResponse(f"{PAGES}/", 303)
        return _log_in_by_address(request, tokens, sessions, text)

    @api.get(LOGIN, include_in_schema=False)
    async def form(request: Request) -> Response:
        if tokens is None:
            return RedirectResponse(f"{PAGES}/", 303)
        if "wrong" in request.query_params:
            return _form(tokens, 401)
        return _form(tokens)

    @api.post(LOGIN, include_in_schema=False)
    async def login(request: Request) -> Response:
        if tokens is None or sessions is None:
            return RedirectResponse(f"{PAGES}/", 303)
        if "origin" in request.headers:  # nobody is logged in by a form of another site
            check_origin(request.headers.get("host"), request.headers["origin"])
        text = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0]
        token = tokens.find(f"Bearer {text}")
        if token is None:
            _log_refusal(request)
            return _form(tokens, 401)
        return _with_session(RedirectResponse(f"{PAGES}/", 303), request, sessions, token)

    @api.post(f"{PAGES}/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        session = session_in(request.headers.get("cookie", ""), request.scope)
        if sessions is not None and session is not None:
            await asyncio.to_thread(sessions.revoke, session)
        response = Response(status_code=204)
        response.delete_cookie(cookie_name(request.scope), path=PAGES)
        return response


def _log_in_by_address(request: Request, tokens: Tokens, sessions: Sessions, text: str) -> Response:
    """Log a browser in by the token in the address that it opens.

    A link on another site may do this only with the service's own token: with another one, its owner could make
    somebody work under that name.
    """
    headers = {name.lower(): value.decode("latin-1") for name, value in request.scope["headers"]}
    token, is_foreign = tokens.find(f"Bearer {text}"), is_of_other_site(headers)
    if token is None:
        _log_refusal(request)
        return RedirectResponse(f"{LOGIN}?wrong", 303, headers=_NO_TRACES)
    if is_foreign and not tokens.is_own:
        return RedirectResponse(LOGIN, 303, headers=_NO_TRACES)
    response: Response = RedirectResponse(f"{PAGES}/", 303, headers=_NO_TRACES)
    if is_foreign:
        response = HTMLResponse(_FORWARD.format(to=f"{PAGES}/"), headers=_NO_TRACES)
    return _with_session(response, request, sessions, token)


def _with_session(response: Response, request: Request, sessions: Sessions, token: Token) -> Response:
    response.set_cookie(
        cookie_name(request.scope),
        sessions.issue(token),
        max_age=WEEK_SECONDS,
        path=PAGES,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


def _log_refusal(request: Request) -> None:
    log("login refused", client=request.client.host if request.client else "unknown")


def _form(tokens: Tokens, status: int = 200) -> HTMLResponse:
    message, kind = (_ENTER, "") if status == 200 else (_WRONG, "bad")
    more = f"<p>{_ENTER_OWN}</p>" if tokens.is_own else ""
    shown = "" if more and status == 200 else f'<p class="{kind}">{message}</p>'
    return HTMLResponse(_PAGE.format(login=LOGIN, messages=shown + more), status, headers=_NO_STORE)
