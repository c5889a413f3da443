"""What every benchmark is to the command that runs it: cases by name, and what is reported beside their findings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator

from bench.findings import Finding

#: says what is being done, for people who wait
Told = Callable[[str], None]


class Benchmark(ABC):
    """One run of a benchmark."""

    def __init__(self, told: Told) -> None:
        self._told = told
        #: for people: where Penstock's time went, by case, in seconds of its last run summed over tasks
        self.stages: dict[str, dict[str, float]] = {}

    @abstractmethod
    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""

    def left_out(self, wanted: Collection[str]) -> list[str]:
        """What is not measured of these cases and why, a line each."""
        return []
