"""Queries as they are written: an editor that says while one types whether it could be.

Receives a query; hands it to the service to be checked, and to be carried out once somebody says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nicegui import ui
from pydantic import ValidationError

from penstock.dashboard.board import Board
from penstock.dashboard.frame import button, read, tried
from penstock.errors import PenstockError
from penstock.server.response_bodies import Answered

#: what is typed is checked once nothing more comes for this long, in seconds
_PAUSE_SECONDS = 0.35
_BEGIN = (
    "SELECT path, COUNT(*) AS n\nFROM clicks\nGROUP BY path\nORDER BY n DESC LIMIT 10\nWINDOWING 5 SECONDS"
)


class Checked:
    """What would come of what is typed somewhere, and a button that has it carried out once all is well.

    `check` hands what would be answered, or None where there is nothing to be done; it runs on a thread. `mark` names
    the two for tests.
    """

    def __init__(
        self, check: Callable[[], Answered | None], does: Callable[[], Any], word: str, mark: str
    ) -> None:
        self._check, self._typed, self._mark = check, 0, f"at-{mark}-said"
        self._said = ui.label("").classes(f"pen-said {self._mark} dim")
        self._button = button(word, does, kind="unelevated color=primary").classes(f"at-{mark}")
        self._button.disable()

    async def look(self) -> None:
        """Check what stands there, once nobody types."""
        self._typed = mine = self._typed + 1
        await asyncio.sleep(_PAUSE_SECONDS)
        if mine != self._typed:
            return
        try:
            answer = await read(self._check)
            told, kind = ("", "dim") if answer is None else (f"✓ {answer.says}", "good")
        except PenstockError as error:
            place = f"{error.where}: " if error.where else ""
            hint = f" {error.hint}" if error.hint else ""
            told, kind = f"✗ {place}{error.primary}.{hint}", "bad"
        except ValidationError as error:
            told, kind = f"✗ {error.errors()[0]['msg']}", "bad"
        if mine == self._typed:
            self.say(told, kind)

    def say(self, text: str, kind: str) -> None:
        """Say something; the button works while all is well."""
        self._said.set_text(text)
        self._said.classes(replace=f"pen-said {self._mark} {kind}")
        self._button.set_enabled(kind == "good")


class Editor:
    """A query, what would come of it, and a button that has it carried out."""

    def __init__(
        self, query: str, check: Callable[[str], Answered], does: Callable[[], Any], word: str, dark: bool
    ) -> None:
        self._code = (
            ui.codemirror(
                query,
                language="SQL",
                theme="basicDark" if dark else "basicLight",
                line_wrapping=True,
                on_change=self.look,
            )
            .classes("pen-editor w-full")
            .classes("at-query")
        )
        self._checked = Checked(lambda: check(self.query), does, word, "do")

    @property
    def query(self) -> str:
        """What stands there."""
        return self._code.value or ""

    def set(self, query: str) -> None:
        """Have something else stand there."""
        self._code.set_value(query)

    async def look(self) -> None:
        """Check what stands there, once nobody types."""
        await self._checked.look()

    def say(self, text: str, kind: str) -> None:
        """Say something below it; the button works while all is well."""
        self._checked.say(text, kind)


def altering(board: Board, name: str, query: str, dark: bool) -> Editor:
    """An editor for a job's query."""

    async def alter() -> None:
        answer = await tried(board.alter, name, editor.query)
        if answer is not None:
            ui.notify(answer.says, type="positive")
            editor.say(answer.says, "dim")

    def check(text: str) -> Answered:
        return board.alter(name, text, True)

    editor = Editor(query, check, alter, "Alter", dark)
    return editor


def creating(board: Board, dark: bool) -> ui.dialog:
    """A dialog in which a job is written."""
    streams = [stream["name"] for stream in board.streams()]
    begin = _BEGIN.replace("clicks", streams[0]) if streams else _BEGIN
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 720px"):
        ui.label("New job").classes("pen-title")
        name = ui.input("Name").props("dense outlined autofocus").classes("w-full").classes("at-name")

        async def create() -> None:
            answer = await tried(board.create, name.value, editor.query)
            if answer is not None:
                ui.navigate.to(f"/jobs/{answer.name}")

        def check(text: str) -> Answered:
            return board.create(name.value or "", text, True)

        editor = Editor(begin, check, create, "Create", dark)
        name.on_value_change(editor.look)
        if streams:
            ui.label(f"Streams: {', '.join(streams[:12])}").classes("pen-note")
    return dialog
