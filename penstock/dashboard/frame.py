"""The frame all pages share: head, ways to the other pages, colours; and the parts they are put together from.

Receives the page's name; hands the place where its content goes. A page reads anew once a second while it is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.board import Board
from penstock.dashboard.markup import chip, nothing
from penstock.errors import PenstockError
from penstock.server.middleware import PAGES

T = TypeVar("T")

#: how often an open page reads anew, in seconds
READ_SECONDS = 1.0
#: the cookie that remembers light or dark
_SHADE = "penstock-shade"
_WAYS = {
    "": "Overview",
    "elasticity": "Elasticity",
    "recovery": "Fault tolerance",
    "logs": "Logs and dead letters",
}
_STYLE = (Path(__file__).parent / "pages.css").read_text()


class Shade:
    """Whether the page is dark, as far as this side knows: None is as the browser's machine has it."""

    def __init__(self, request: Request) -> None:
        said = request.cookies.get(_SHADE)
        self.mode = ui.dark_mode({"dark": True, "light": False}.get(said or ""))

    async def dark(self) -> bool:
        """Whether it is, in the browser."""
        return bool(await asked("Quasar.Dark.isActive", False))

    async def turn(self) -> None:
        """Have it the other way round from now on."""
        dark = not await self.dark()
        self.mode.set_value(dark)
        word = "dark" if dark else "light"
        ui.run_javascript(
            f'document.cookie = "{_SHADE}={word};path={PAGES};max-age=31536000;samesite=lax";'
            "setTimeout(() => location.reload(), 150)"
        )


async def asked(expression: str, otherwise: T) -> T:
    """What an expression is in the browser; something else where it does not answer."""
    try:
        found: T = await ui.run_javascript(f"return {expression}", timeout=5.0)
        return found
    except TimeoutError:
        return otherwise


@contextmanager
def framed(board: Board, request: Request, here: str) -> Iterator[Shade]:
    """A page: its head, and what is inside this."""
    ui.add_css(_STYLE)
    ui.colors(primary="#0b7285")
    shade = Shade(request)
    with ui.element("header").classes("pen-head"), ui.element("div").classes("pen-head-in"):
        ui.link("Penstock", "/").classes("pen-brand")
        phase = shown()
        name = ui.label().classes("pen-engine")
        ui.button(icon="dark_mode", on_click=shade.turn).props(
            'flat dense round color=white aria-label="light or dark"'
        ).classes("at-shade")
        if board.service.token is not None:
            ui.button(icon="logout", on_click=_log_out).props(
                'flat dense round color=white aria-label="log out"'
            )
        with ui.element("nav").classes("pen-nav"):
            for way, title in _WAYS.items():
                ui.link(title, f"/{way}").classes("here" if way == here else "")

    def head() -> None:
        status = board.status()
        name.set_text(f"{status['name']}  ·  epoch {status['epoch']:,}")
        put(phase, chip(status["phase"]))

    every(head)
    with ui.element("main").classes("pen-page"):
        yield shade


def _log_out() -> None:
    ui.run_javascript(f'fetch("{PAGES}/logout", {{method: "POST"}}).then(() => location.reload())')


# -- reading anew --------------------------------------------------------------------------------


def every(show: Callable[[], None] | Callable[[], Awaitable[None]]) -> None:
    """Have something shown now, and once a second while the page is open."""

    async def again() -> None:
        done = show()
        if done is not None:
            await done

    ui.timer(READ_SECONDS, again)


async def read(what: Callable[..., T], *given: Any) -> T:
    """Ask on a thread, so that pages never hold up the API."""
    return await asyncio.to_thread(what, *given)


async def tried(what: Callable[..., T], *given: Any) -> T | None:
    """Do what was asked for; what is wrong with it is told on the page."""
    try:
        return await read(what, *given)
    except PenstockError as error:
        ui.notify(error.text(), type="negative", multi_line=True, timeout=8_000)
        return None


# -- parts ---------------------------------------------------------------------------------------


def shown(markup: Markup | None = None) -> ui.html:
    """A place for markup."""
    return ui.html(str(markup or ""))


def put(place: ui.html, markup: Markup) -> None:
    """Show something else there."""
    if place.content != str(markup):
        place.set_content(str(markup))


@contextmanager
def card(title: str, note: str = "") -> Iterator[ui.element]:
    """A card with a title; hands its head, for buttons."""
    with ui.element("section").classes("pen-card"):
        with ui.element("div").classes("pen-card-head") as head:
            ui.html(title, tag="h2").classes("pen-title")
            if note:
                ui.label(note).classes("pen-note")
        yield head


class Tile:
    """A figure with its name, and something smaller below."""

    def __init__(self, label: str) -> None:
        with ui.element("div").classes("pen-tile"):
            ui.label(label).classes("label")
            self._value = ui.label("-").classes("value")
            self._sub = ui.label("").classes("sub")

    def put(self, value: str, sub: str = "") -> None:
        """Show a figure."""
        self._value.set_text(value)
        self._sub.set_text(sub)


def button(
    text: str, does: Callable[..., Any], *, kind: str = "outline", icon: str | None = None
) -> ui.button:
    """A button in the pages' manner."""
    return ui.button(text, on_click=does, icon=icon).props(f"no-caps dense {kind} padding='4px 12px'")


def missing(says: str) -> None:
    """What a page says that has nothing to show."""
    shown(nothing(says))
