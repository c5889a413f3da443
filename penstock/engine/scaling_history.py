"""Stores what the elastic loop of an engine has decided, and what changes have cost, for the next engine.

Two files of the state directory, each replaced as a whole: `elastic.jsonl`, a line for each decision with times in
seconds since 1970, and `elastic-costs.json`.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from penstock.scaling.cost import Costs
from penstock.scaling.record import Record
from penstock.state.durable import open_private

DECISIONS, COSTS = "elastic.jsonl", "elastic-costs.json"


class ScalingHistory:
    """The files in a state directory. `now` is the time by the loop's clock."""

    def __init__(self, folder: Path, now: float) -> None:
        self._decisions, self._costs = folder / DECISIONS, folder / COSTS
        self._written: dict[Path, str] = {}
        self._now = now
        #: by how many seconds the wall clock is ahead of the loop's
        self.ahead = time.time() - now

    def record(self) -> Record:
        """The decisions of earlier engines."""
        return Record.from_lines(_read(self._decisions), self.ahead, self._now)

    def costs(self) -> Costs:
        """What changes have cost earlier engines."""
        return Costs.from_json(_read(self._costs))

    def write(self, record: Record, costs: Costs) -> None:
        """Write what is new."""
        self._write(self._decisions, record.lines(self.ahead))
        if costs != Costs():
            self._write(self._costs, costs.to_json() + "\n")

    def _write(self, file: Path, text: str) -> None:
        if self._written.get(file, "") != text:
            self._written[file] = text
            temporary = file.with_suffix(".new")
            with open(temporary, "w", opener=open_private) as opened:
                opened.write(text)
            temporary.replace(file)


def _read(file: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text()
    return ""
