"""What the elastic loop of an engine has decided and what changes have cost, kept for the engine after it.

Receives the record and the costs; hands them back after a restart. Two files of the state directory, each replaced as a
whole: `elastic.jsonl`, a line a decision with times in seconds since 1970, and `elastic-costs.json`.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from penstock.scaling.cost import Costs
from penstock.scaling.record import Record

DECISIONS, COSTS = "elastic.jsonl", "elastic-costs.json"


class Past:
    """The files in a state directory. `now` is the time by the loop's clock."""

    def __init__(self, folder: Path, now: float) -> None:
        self._decisions, self._costs = folder / DECISIONS, folder / COSTS
        self._written: dict[Path, str] = {}
        self._now = now
        #: by how many seconds the wall clock is ahead of the loop's
        self.ahead = time.time() - now

    def record(self) -> Record:
        """What earlier engines have decided."""
        return Record.from_lines(_text(self._decisions), self.ahead, self._now)

    def costs(self) -> Costs:
        """What changes have cost them."""
        return Costs.from_json(_text(self._costs))

    def keep(self, record: Record, costs: Costs) -> None:
        """Have what is new for the next engine."""
        self._keep(self._decisions, record.lines(self.ahead))
        if costs != Costs():
            self._keep(self._costs, costs.to_json() + "\n")

    def _keep(self, file: Path, text: str) -> None:
        if self._written.get(file, "") != text:
            self._written[file] = text
            temporary = file.with_suffix(".new")
            temporary.write_text(text)
            temporary.replace(file)


def _text(file: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text()
    return ""
