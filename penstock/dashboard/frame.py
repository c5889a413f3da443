"""Builds what all pages share: the header with the navigation, the theme, the refresh every second, cards and tiles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.backend import Backend
from penstock.dashboard.markup import chip
from penstock.errors import PenstockError
from penstock.server.middleware import PAGES

T = TypeVar("T")

#: how often an open page refreshes, in seconds
REFRESH_SECONDS = 1.0
#: the cookie that has light or dark
_THEME_COOKIE = "penstock-shade"
_PAGES = {
    "": "Overview",
    "elasticity": "Elasticity",
    "recovery": "Fault tolerance",
    "logs": "Logs and dead letters",
}
#: a page whose session has ended leads to the login instead of trying to connect again
_LEAVE = (
    f'window.socket.on("connect_error", () => fetch("{PAGES}/", {{redirect: "manual"}})'
    '.then(reply => reply.type === "opaqueredirect" && location.reload()).catch(() => {}))'
)
_STYLE = (Path(__file__).parent / "pages.css").read_text()


class Theme:
    """Light or dark: as the cookie of the browser has it, or else as the browser's machine is set."""

    def __init__(self, request: Request) -> None:
        theme = request.cookies.get(_THEME_COOKIE, "")
        self.mode = ui.dark_mode({"dark": True, "light": False}.get(theme))

    async def is_dark(self) -> bool:
        """Whether the page is dark in the browser."""
        return bool(await evaluate("Quasar.Dark.isActive", False))

    async def toggle(self) -> None:
        """Switch between light and dark, from now on."""
        dark = not await self.is_dark()
        self.mode.set_value(dark)
        theme = "dark" if dark else "light"
        ui.run_javascript(
            f'document.cookie = "{_THEME_COOKIE}={theme};path={PAGES};max-age=31536000;samesite=lax";'
            "setTimeout(() => location.reload(), 150)"
        )


async def evaluate(expression: str, default: T) -> T:
    """Evaluate an expression in the browser; return the default if it does not respond."""
    try:
        value: T = await ui.run_javascript(f"return {expression}", timeout=5.0)
        return value
    except TimeoutError:
        return default


@contextmanager
def page_frame(backend: Backend, request: Request, current: str) -> Iterator[Theme]:
    """The header of a page; the content goes inside."""
    ui.add_css(_STYLE)
    ui.colors(primary="#0b7285")
    theme = Theme(request)
    with ui.element("header").classes("pen-head"), ui.element("div").classes("pen-head-in"):
        ui.link("Penstock", "/").classes("pen-brand")
        phase = html()
        name = ui.label().classes("pen-engine")
        ui.button(icon="dark_mode", on_click=theme.toggle).props(
            'flat dense round color=white aria-label="light or dark"'
        ).classes("at-shade")
        if backend.service.tokens is not None:
            ui.run_javascript(_LEAVE)
            ui.button(icon="logout", on_click=_log_out).props(
                'flat dense round color=white aria-label="log out"'
            )
        with ui.element("nav").classes("pen-nav"):
            for page, title in _PAGES.items():
                ui.link(title, f"/{page}").classes("here" if page == current else "")

    def show() -> None:
        status = backend.status()
        name.set_text(f"{status['name']}  ·  epoch {status['epoch']:,}")
        update_html(phase, chip(status["phase"]))

    refresh(show)
    with ui.element("main").classes("pen-page"):
        yield theme


def _log_out() -> None:
    ui.run_javascript(f'fetch("{PAGES}/logout", {{method: "POST"}}).then(() => location.reload())')


# -- refresh -------------------------------------------------------------------------------------


def refresh(show: Callable[[], None] | Callable[[], Awaitable[None]]) -> None:
    """Call a function now, and once a second while the page is open."""

    async def call() -> None:
        awaitable = show()
        if awaitable is not None:
            await awaitable

    ui.timer(REFRESH_SECONDS, call)


async def run(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function on a thread, so that pages never delay the API."""
    return await asyncio.to_thread(function, *arguments)


async def run_or_notify(function: Callable[..., T], *arguments: Any) -> T | None:
    """Call a function on a thread; show its error on the page."""
    try:
        return await run(function, *arguments)
    except PenstockError as error:
        ui.notify(error.text(), type="negative", multi_line=True, timeout=8_000)
        return None


# -- parts ---------------------------------------------------------------------------------------


def html(markup: Markup | None = None) -> ui.html:
    """An element that shows markup."""
    return ui.html(str(markup or ""))


def update_html(element: ui.html, markup: Markup) -> None:
    """Show other markup in an element."""
    if element.content != str(markup):
        element.set_content(str(markup))


def update_chart(chart: ui.echart, options: dict[str, Any] | None) -> None:
    """Show other options in a chart; hide it without any."""
    chart.set_visibility(options is not None)
    if options is not None and options != chart.options:
        chart.options.clear()
        chart.options.update(options)
        chart.update()


@contextmanager
def card(title: str, note: str = "") -> Iterator[ui.element]:
    """A card with a title; yields its head, for buttons."""
    with ui.element("section").classes("pen-card"):
        with ui.element("div").classes("pen-card-head") as head:
            ui.html(title, tag="h2").classes("pen-title")
            if note:
                ui.label(note).classes("pen-note")
        yield head


class Tile:
    """A value with its name, and a smaller text below."""

    def __init__(self, label: str) -> None:
        with ui.element("div").classes("pen-tile"):
            ui.label(label).classes("label")
            self._value = ui.label("-").classes("value")
            self._sub = ui.label("").classes("sub")

    def set(self, value: str, sub: str = "") -> None:
        """Show another value."""
        self._value.set_text(value)
        self._sub.set_text(sub)


def button(
    text: str, action: Callable[..., Any], *, kind: str = "outline", icon: str | None = None
) -> ui.button:
    """A button in the style of the pages."""
    return ui.button(text, on_click=action, icon=icon).props(f"no-caps dense {kind} padding='4px 12px'")
