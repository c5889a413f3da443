"""Remember what was parsed while one request is served, so that no text is parsed twice.

A request is parsed by what guards it, by what executes it, and its queries again by what compiles them; for thousands
of branches each takes a third of a second. The trees are shared: nobody changes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from penstock.sql.statements import Statement

_PARSED: ContextVar[dict[str, tuple[Statement, ...]] | None] = ContextVar("parsed_texts", default=None)


@contextlib.contextmanager
def parse_once() -> Iterator[None]:
    """In this context, and in the contexts within it, each text is parsed once. It forgets them at its end."""
    if _PARSED.get() is not None:
        yield
        return
    token = _PARSED.set({})
    try:
        yield
    finally:
        _PARSED.reset(token)


def find_parsed(text: str) -> tuple[Statement, ...] | None:
    """The statements of a text, if it was parsed in this context."""
    parsed = _PARSED.get()
    return None if parsed is None else parsed.get(text)


def remember_parsed(text: str, statements: tuple[Statement, ...]) -> None:
    """Remember the statements of a text, if there is such a context."""
    parsed = _PARSED.get()
    if parsed is not None:
        parsed[text] = statements
