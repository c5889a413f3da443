"""Renders parts of pages as HTML: tables, chips, figures. Pure.

Guarantees: whatever is not `Markup` already is escaped, so nothing from a log, a query or a row can become part of a
page. (NiceGUI sanitises once more in the browser.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from penstock.formatting import seconds

#: the longest text of a value
_MAX_CHARACTERS = 200


@dataclass(frozen=True)
class Column:
    """A column of a table: aligned as text or numbers; `wide` ones are hidden on a phone."""

    title: str
    number: bool = False
    wide: bool = False
    code: bool = False

    @property
    def classes(self) -> str:
        words = {"num": self.number, "wide": self.wide, "code": self.code}
        return " ".join(word for word, is_so in words.items() if is_so)


def table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], empty: str) -> Markup:
    """A table, or the text `empty` if it has no rows."""
    body = [
        Markup("<tr>")
        + Markup("").join(
            Markup('<td class="{}">{}</td>').format(column.classes, cell(value))
            for column, value in zip(columns, row, strict=True)
        )
        + Markup("</tr>")
        for row in rows
    ]
    if not body:
        return empty_note(empty)
    head = Markup("").join(
        Markup('<th class="{}">{}</th>').format(column.classes, column.title) for column in columns
    )
    return Markup(
        '<div class="pen-scroll"><table class="pen-table"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, Markup("").join(body))


def empty_note(text: str) -> Markup:
    """A text in the place of something that is empty."""
    return Markup('<div class="pen-empty">{}</div>').format(text)


def cell(value: Any) -> Markup:
    """A value of a table."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup('<span class="pen-dim">-</span>')
    if isinstance(value, bool):
        return escape(str(value).lower())
    if isinstance(value, int):
        return escape(f"{value:,}")
    if isinstance(value, float):
        return escape(f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,.5g}")
    text = str(value)
    return escape(text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…")


_CHIP_KINDS = {"running": "good", "ok": "good", "primary": "good", "helped": "good", "kept": "good"}
_CHIP_KINDS |= {"in force": "good", "too slow": "bad"}
_CHIP_KINDS |= {"paused": "dim", "failed": "bad", "did not help": "bad", "undone": "bad", "error": "bad"}
_CHIP_KINDS |= {
    "starting": "warn",
    "ending": "warn",
    "opened": "warn",
    "under way": "warn",
    "warning": "warn",
}


def chip(word: str, kind: str | None = None) -> Markup:
    """A state of life, a role or an outcome, in its colour; or in that of a `kind`."""
    return Markup('<span class="pen-chip {}">{}</span>').format(kind or _CHIP_KINDS.get(word, "plain"), word)


def link(to: str, text: str) -> Markup:
    """A link to another page."""
    return Markup('<a class="pen-link" href="{}">{}</a>').format(to, text)


def bar(share: float) -> Markup:
    """A fraction as a bar with its percentage."""
    filled = f"{min(max(share, 0.0), 1.0):.0%}"
    kind = "bad" if share > 0.9 else "warn" if share > 0.75 else "good"
    return Markup(
        '<span class="pen-share"><span class="pen-bar"><span class="{}" style="width:{}"></span></span> {}</span>'
    ).format(kind, filled, f"{share:.0%}")


def code(text: str) -> Markup:
    """A text in a fixed-width font."""
    return Markup('<code class="pen-code">{}</code>').format(text)


def rate(value: float | None) -> str:
    """A rate with three digits or so."""
    if value is None:
        return "-"
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 1 else f"{value:.2f}"


def clock(at: float | None) -> str:
    """An instant (seconds since 1970), in UTC; with its date unless that is today."""
    if at is None:
        return "-"
    instant = datetime.fromtimestamp(at, UTC)
    today = instant.date() == datetime.now(UTC).date()
    return f"{instant:{'%H:%M:%S' if today else '%Y-%m-%d %H:%M:%S'}}Z"


def duration(value: float | None) -> str:
    """A duration of so many seconds."""
    return "-" if value is None else seconds(value)
