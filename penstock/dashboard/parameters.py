"""A job's parameters as a form: each `$name` with its value, what would come of another one, and a button.

Receives values as people type them; hands the changed ones to the service as one ALTER JOB ... SET, to be checked while
one types and to be carried out once somebody says so.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from penstock.dashboard.board import Board
from penstock.dashboard.editor import Checked
from penstock.dashboard.frame import tried
from penstock.errors import UserError
from penstock.server.request_bodies import Value
from penstock.server.response_bodies import Answered

_WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}


class Draft:
    """What stands in the form: the values in force, and what is typed in their place. What somebody types stays until
    it is set, also when the job is altered elsewhere meanwhile."""

    def __init__(self) -> None:
        self.known: dict[str, Value] = {}
        self.typed: dict[str, str] = {}

    def seen(self, parameters: Mapping[str, Value]) -> None:
        """Told the values in force."""
        touched = {name for name, text in self.typed.items() if text != text_of(self.known[name])}
        self.typed = {
            name: self.typed[name] if name in touched else text_of(value)
            for name, value in parameters.items()
        }
        self.known = dict(parameters)

    def changed(self) -> dict[str, Value]:
        """The values that are not what they were; raises where something is none."""
        values = {name: value_of(name, text, self.known[name]) for name, text in self.typed.items()}
        return {name: value for name, value in values.items() if _differ(value, self.known[name])}

    def check(self, board: Board, job: str) -> Answered | None:
        """What would be answered; None where nothing is changed."""
        values = self.changed()
        return board.set_parameters(job, values, True) if values else None

    def set(self, board: Board, job: str) -> Answered:
        """Have it carried out."""
        values = self.changed()
        answer = board.set_parameters(job, values)
        self.known |= values
        return answer


class Parameters:
    """The form on a page."""

    def __init__(self, board: Board, job: str) -> None:
        self._board, self._job, self._draft = board, job, Draft()
        self._inputs: dict[str, ui.input] = {}
        with ui.element("div").classes("at-parameters pen-form w-full") as self._place:
            ui.label("Parameters").classes("pen-note")
            self._rows = ui.element("div").classes("pen-params")
            self._checked = Checked(lambda: self._draft.check(board, job), self._set, "Set", "set")

    def show(self, parameters: Mapping[str, Value]) -> None:
        """Show the values in force."""
        self._draft.seen(parameters)
        if list(self._inputs) != list(parameters):
            self._rows.clear()
            with self._rows:
                self._inputs = {name: self._input(name) for name in parameters}
        for name, field in self._inputs.items():
            if field.value != self._draft.typed[name]:
                field.set_value(self._draft.typed[name])
        self._place.set_visibility(bool(parameters))

    def _input(self, name: str) -> ui.input:
        def typed(event: ValueChangeEventArguments[str | None]) -> Awaitable[None]:
            self._draft.typed[name] = event.value or ""  # at once: the page may be read anew in between
            return self._checked.look()

        field = ui.input(f"${name}", value=self._draft.typed[name], on_change=typed)
        return field.props("dense outlined autocomplete=off").classes("at-parameter")

    async def _set(self) -> None:
        answer = await tried(self._draft.set, self._board, self._job)
        if answer is not None:
            ui.notify(answer.says, type="positive")
            self._checked.say(answer.says, "dim")


def text_of(value: Value) -> str:
    """A value as it stands in the form: text as it is, without quotes."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_of(name: str, typed: str, now: Value) -> Value:
    """The value that somebody typed, in place of another: of a text a text, else a number, true, false or null."""
    if isinstance(now, str):
        return typed
    word = typed.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if (number := _number(word)) is not None:
        return number
    if now is None and word:
        return typed
    raise UserError(
        "BAD_VALUE",
        f"${name} is {text_of(now)}, and {typed[:100]!r} is no number, true, false or null",
        hint="Text in its place is set in SQL: ALTER JOB ... SET $name = '...'.",
    )


def _number(word: str) -> int | float | None:
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _differ(one: Value, other: Value) -> bool:
    """Whether two values are not the same; 1, 1.0 and true are three."""
    return type(one) is not type(other) or one != other
