"""Clocks that tests turn, for code with a `clock` parameter (seconds since 1970)."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until a test turns it. Call it for the time; `turn` it to let time pass, or back."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self.now += seconds


class PassingClock(ManualClock):
    """A manual clock that advances by so many `seconds` whenever it is read, so that a wait on it ends."""

    def __init__(self, seconds: float = 0.02) -> None:
        super().__init__()
        self.seconds = seconds

    def __call__(self) -> float:
        self.turn(self.seconds)
        return self.now
