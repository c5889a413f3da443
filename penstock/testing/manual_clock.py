"""A clock that stands still until a test turns it, for code with a `clock` parameter (seconds since 1970)."""

from __future__ import annotations


class ManualClock:
    """Call it for the time; `turn` it to let time pass, or back."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self.now += seconds
