"""The columns of windows and of joined rows."""

from __future__ import annotations

from typing import Any

from tests.transparency import description as d
from tests.transparency.oracle.rows import Row, Values


def window_columns(window: Any) -> list[str]:
    if isinstance(window, d.Running):
        return ["as_of"]
    when = ["as_of"] if isinstance(window, d.TimeWindow) and window.emit != "close" else []
    when += ["closed"] if isinstance(window, d.LandmarkWindow) and window.longest is not None else []
    return ["window_start", "window_end", *when]


class Joined:
    """The columns and the row of a pair."""

    def __init__(
        self,
        left: list[str],
        right: list[str],
        keys: d.Names,
        right_keys: d.Names,
        suffix: str,
        dropped: str | None = None,
    ) -> None:
        self.left = left
        self.shared = {mine for mine, theirs in zip(keys, right_keys, strict=True) if mine == theirs}
        self.named = {
            name: name + suffix if name in self.left else name
            for name in right
            if name not in self.shared and name != dropped
        }

    def names(self) -> list[str]:
        return [*self.left, *self.named.values()]

    def values(self, one: Row | None, other: Row | None) -> Values:
        made: Values = {name: None if one is None else one.values[name] for name in self.left}
        if one is None and other is not None:
            made |= {name: other.values[name] for name in self.shared}
        return made | {
            named: None if other is None else other.values[name] for name, named in self.named.items()
        }
