"""Edits queries: the service checks a statement while somebody types, and executes it at the press of a button."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nicegui import ui
from pydantic import ValidationError

from penstock.dashboard.backend import Backend
from penstock.dashboard.frame import button, run, run_or_notify
from penstock.errors import PenstockError
from penstock.server.response_bodies import StatementReply

#: an input is checked after a pause of so many seconds
_PAUSE_SECONDS = 0.35
_FIRST_QUERY = (
    "SELECT path, COUNT(*) AS n\nFROM clicks\nGROUP BY path\nORDER BY n DESC LIMIT 10\nWINDOWING 5 SECONDS"
)


class CheckedButton:
    """A button that works while the check of an input succeeds, and a message with the outcome of the check.

    `check` runs on a thread and returns what the statement would return, or None if there is nothing to execute. `mark`
    names button and message for tests.
    """

    def __init__(
        self, check: Callable[[], StatementReply | None], action: Callable[[], Any], label: str, mark: str
    ) -> None:
        self._check, self._inputs, self._mark = check, 0, f"at-{mark}-message"
        self._message = ui.label("").classes(f"pen-message {self._mark} dim")
        self._button = button(label, action, kind="unelevated color=primary").classes(f"at-{mark}")
        self._button.disable()

    async def check(self) -> None:
        """Check the input after a pause, unless it changes in between."""
        self._inputs = number = self._inputs + 1
        await asyncio.sleep(_PAUSE_SECONDS)
        if number != self._inputs:
            return
        try:
            reply = await run(self._check)
            message, kind = ("", "dim") if reply is None else (f"✓ {reply.says}", "good")
        except PenstockError as error:
            place = f"{error.where}: " if error.where else ""
            hint = f" {error.hint}" if error.hint else ""
            message, kind = f"✗ {place}{error.primary}.{hint}", "bad"
        except ValidationError as error:
            message, kind = f"✗ {error.errors()[0]['msg']}", "bad"
        if number == self._inputs:
            self.set_message(message, kind)

    def set_message(self, text: str, kind: str) -> None:
        """Show a message; the button works if its kind is `good`."""
        self._message.set_text(text)
        self._message.classes(replace=f"pen-message {self._mark} {kind}")
        self._button.set_enabled(kind == "good")


class Editor:
    """An editor for a query, with a checked button that executes it."""

    def __init__(
        self,
        query: str,
        check: Callable[[str], StatementReply],
        action: Callable[[], Any],
        label: str,
        dark: bool,
    ) -> None:
        self._code = (
            ui.codemirror(
                query,
                language="SQL",
                theme="basicDark" if dark else "basicLight",
                line_wrapping=True,
                on_change=self.check,
            )
            .classes("pen-editor w-full")
            .classes("at-query")
        )
        self._button = CheckedButton(lambda: check(self.query), action, label, "do")

    @property
    def query(self) -> str:
        """The query in the editor."""
        return self._code.value or ""

    async def check(self) -> None:
        """Check the query after a pause, unless it changes in between."""
        await self._button.check()

    def set_message(self, text: str, kind: str) -> None:
        """Show a message below the editor; the button works if its kind is `good`."""
        self._button.set_message(text, kind)


def alter_editor(backend: Backend, name: str, query: str, dark: bool) -> None:
    """Show an editor that alters the query of a job."""

    async def alter() -> None:
        reply = await run_or_notify(backend.alter, name, editor.query)
        if reply is not None:
            ui.notify(reply.says, type="positive")
            editor.set_message(reply.says, "dim")

    def check(text: str) -> StatementReply:
        return backend.alter(name, text, True)

    editor = Editor(query, check, alter, "Alter", dark)


def create_dialog(backend: Backend, dark: bool) -> ui.dialog:
    """A dialog that creates a job."""
    streams = [stream["name"] for stream in backend.streams()]
    query = _FIRST_QUERY.replace("clicks", streams[0]) if streams else _FIRST_QUERY
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 720px"):
        ui.label("New job").classes("pen-title")
        name = ui.input("Name").props("dense outlined autofocus").classes("w-full").classes("at-name")

        async def create() -> None:
            reply = await run_or_notify(backend.create, name.value, editor.query)
            if reply is not None:
                ui.navigate.to(f"/jobs/{reply.name}")

        def check(text: str) -> StatementReply:
            return backend.create(name.value or "", text, True)

        editor = Editor(query, check, create, "Create", dark)
        name.on_value_change(editor.check)
        if streams:
            ui.label(f"Streams: {', '.join(streams[:12])}").classes("pen-note")
    return dialog
