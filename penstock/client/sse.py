"""Server-sent events, as a client reads them. Pure: bytes in, events out.

Receives the pieces of a response as they come; hands each event once it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """An event that is whole. `id` is None where it has none."""

    kind: str
    id: str | None
    data: str


class Reader:
    """Puts events together. What is half there when a connection breaks is forgotten with it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def read(self, piece: bytes) -> Iterator[Event]:
        """The events that a piece completes."""
        self._parts.append(piece)
        if b"\n" not in piece:
            return
        text = b"".join(self._parts)
        *whole, rest = text.split(b"\n\n")
        self._parts = [rest]
        for block in whole:
            if (event := _event(block)) is not None:
                yield event


def _event(block: bytes) -> Event | None:
    fields: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\n"):
        name, found, value = line.partition(":")
        if not found or not name:  # a comment
            continue
        value = value.removeprefix(" ")
        fields[name] = f"{fields['data']}\n{value}" if name == "data" and name in fields else value
    if "data" not in fields:
        return None
    return Event(fields.get("event", "message"), fields.get("id"), fields["data"])
