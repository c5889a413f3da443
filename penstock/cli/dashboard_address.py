"""Shows a person where the dashboard is: its address with the token of the service, printed and opened in a browser.

Guarantees: the token goes to a terminal only, never into a log or a file that others may read; and into no argument of
a process: a browser is started on a file that only its user can read, and that leads to the address.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from penstock.server.http_server import Server
from penstock.server.middleware import PAGES
from penstock.state.durable import write_whole
from penstock.state.service_token import own_folder, read_service_token

_FORWARD = (
    '<!doctype html><meta charset="utf-8"><title>Penstock</title><meta name="referrer" content="no-referrer">'
    '<meta http-equiv="refresh" content="0;url={address}"><p><a href="{address}">Open the dashboard</a></p>'
)


def dashboard_address(server: Server, *, on_terminal: bool) -> str:
    """The address that a person opens."""
    tokens = server.service.tokens
    if tokens is None or not tokens.is_own or tokens.file is None:
        return f"{server.url}{PAGES}/"
    return address_with_token(server.url, tokens.file, on_terminal=on_terminal)


def address_with_token(url: str, file: Path, *, on_terminal: bool) -> str:
    """The address of a dashboard; on a terminal one that logs the browser in with the token in a file."""
    if on_terminal:
        return f"{url}/?token={read_service_token(file)}"
    return f"{url}{PAGES}/   (its token: penstock token --state {file.parent})"


@contextlib.contextmanager
def opened_in_browser(address: str) -> Iterator[None]:
    """Open an address in the browser of this desktop, if there is one, within a `with` block."""
    if not _has_desktop():
        yield
        return
    file = own_folder() / f"dashboard-{urlsplit(address).port}.html"
    write_whole(file, _FORWARD.format(address=address).encode())
    try:
        # a browser in the terminal returns only when it is left
        threading.Thread(target=_open, args=(file.as_uri(),), name="penstock-browser", daemon=True).start()
        yield
    finally:
        file.unlink(missing_ok=True)


def _open(uri: str) -> None:
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(uri)


def _has_desktop() -> bool:
    is_remote = "SSH_CONNECTION" in os.environ
    has_display = sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
    return has_display and not is_remote
