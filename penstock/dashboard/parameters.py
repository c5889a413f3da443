"""Edits the parameters of a job in a form, and executes the changed ones as one ALTER JOB ... SET.

The service checks the statement while somebody types.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping

from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from penstock.dashboard.backend import Backend
from penstock.dashboard.editor import CheckedButton
from penstock.dashboard.frame import run_or_notify
from penstock.errors import UserError
from penstock.server.request_bodies import Value
from penstock.server.response_bodies import StatementReply

_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}


class Inputs:
    """The current values of the parameters, and the texts in their fields. An input stays until it is set, also if the
    job is altered elsewhere in between."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.texts: dict[str, str] = {}

    def update(self, parameters: Mapping[str, Value]) -> None:
        """Replace the current values, and the texts that nobody has changed."""
        edited = {name for name, text in self.texts.items() if text != format_value(self.values[name])}
        self.texts = {
            name: self.texts[name] if name in edited else format_value(value)
            for name, value in parameters.items()
        }
        self.values = dict(parameters)

    def changes(self) -> dict[str, Value]:
        """The values that differ from the current ones; raises for a text that is no value."""
        values = {name: parse_value(name, text, self.values[name]) for name, text in self.texts.items()}
        return {name: value for name, value in values.items() if _differ(value, self.values[name])}

    def check(self, backend: Backend, job: str) -> StatementReply | None:
        """Return what setting the changes would return; None if there are none."""
        changes = self.changes()
        return backend.set_parameters(job, changes, True) if changes else None

    def set(self, backend: Backend, job: str) -> StatementReply:
        """Set the changes."""
        changes = self.changes()
        reply = backend.set_parameters(job, changes)
        self.values |= changes
        return reply


class Parameters:
    """The form on the page of a job."""

    def __init__(self, backend: Backend, job: str) -> None:
        self._backend, self._job, self._inputs = backend, job, Inputs()
        self._fields: dict[str, ui.input] = {}
        with ui.element("div").classes("at-parameters pen-form w-full") as self._form:
            ui.label("Parameters").classes("pen-note")
            self._rows = ui.element("div").classes("pen-params")
            self._button = CheckedButton(lambda: self._inputs.check(backend, job), self._set, "Set", "set")

    def show(self, parameters: Mapping[str, Value]) -> None:
        """Show the current values."""
        self._inputs.update(parameters)
        if list(self._fields) != list(parameters):
            self._rows.clear()
            with self._rows:
                self._fields = {name: self._field(name) for name in parameters}
        for name, field in self._fields.items():
            if field.value != self._inputs.texts[name]:
                field.set_value(self._inputs.texts[name])
        self._form.set_visibility(bool(parameters))

    def _field(self, name: str) -> ui.input:
        def change(event: ValueChangeEventArguments[str | None]) -> Awaitable[None]:
            self._inputs.texts[name] = event.value or ""  # at once: the page may refresh in between
            return self._button.check()

        field = ui.input(f"${name}", value=self._inputs.texts[name], on_change=change)
        return field.props("dense outlined autocomplete=off").classes("at-parameter")

    async def _set(self) -> None:
        reply = await run_or_notify(self._inputs.set, self._backend, self._job)
        if reply is not None:
            ui.notify(reply.says, type="positive")
            self._button.set_message(reply.says, "dim")


def format_value(value: Value) -> str:
    """Format a value for its field: text as it is, without quotes."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_value(name: str, text: str, current: Value) -> Value:
    """Parse the text of a field: a text if the current value is one, else a number, true, false or null."""
    if isinstance(current, str):
        return text
    word = text.strip()
    if word.lower() in _CONSTANTS:
        return _CONSTANTS[word.lower()]
    if (number := _number(word)) is not None:
        return number
    if current is None and word:
        return text
    raise UserError(
        "BAD_VALUE",
        f"${name} is {format_value(current)}, and {text[:100]!r} is no number, true, false or null",
        hint="To set a text in its place, use SQL: ALTER JOB ... SET $name = '...'.",
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
    """Whether two values differ; 1, 1.0 and true are three values."""
    return type(one) is not type(other) or one != other
