"""The interface of a benchmark: its cases by name, and what is reported beside their findings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator

from bench.findings import Finding

#: shows people what is being done
ShowProgress = Callable[[str], None]


class Benchmark(ABC):
    """One run of a benchmark."""

    def __init__(self, show_progress: ShowProgress) -> None:
        self._show_progress = show_progress
        #: for people: where Penstock's time went, by case, in seconds of its last run summed over tasks
        self.stages: dict[str, dict[str, float]] = {}

    @abstractmethod
    def cases(self) -> dict[str, Callable[[], Iterator[Finding]]]:
        """Every case by its name."""

    def left_out(self, names: Collection[str]) -> list[str]:
        """Say which parts of these cases are not measured and why, a line each."""
        return []
