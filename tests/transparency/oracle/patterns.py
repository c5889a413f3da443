"""Patterns: the matches of a key, each taken on by one event after the other."""

from __future__ import annotations

from dataclasses import dataclass

from tests.transparency import description as d
from tests.transparency.oracle.formulas import holds
from tests.transparency.oracle.nodes import Nodes
from tests.transparency.oracle.rows import Flows, Row


class Patterns(Nodes):
    """Patterns of steps."""

    def _pattern(self, node: d.Pattern) -> Flows:
        flows = self.flows(node.input)
        told = []
        for key, rows in self.in_order(flows, node.keys, self.names(node.input)).items():
            for time, taken, matched in _Matches(node).of(rows):
                values = dict(zip(node.keys, key, strict=True))
                for step in node.steps:
                    if not step.absent:
                        event = taken.get(step.name)
                        values[f"{step.name}_time"] = None if event is None else event.time
                        values |= {
                            f"{step.name}_{c}": None if event is None else event.values[c]
                            for c in node.columns
                        }
                told.append(Row(time, None, values | ({"matched": matched} if node.timeouts else {})))
        return [told]


@dataclass
class _Match:
    due: int
    taken: dict[str, Row]
    #: the number of the step that comes next
    next: int = 1
    failed: bool = False


class _Matches:
    """The matches among the rows of one key: (when told, the events taken, whether it is a match)."""

    def __init__(self, pattern: d.Pattern) -> None:
        self.pattern, self.steps = pattern, pattern.steps
        self.open: list[_Match] = []
        self.told: list[tuple[int, dict[str, Row], bool]] = []

    def of(self, rows: list[Row]) -> list[tuple[int, dict[str, Row], bool]]:
        for row in rows:
            self.time_passes(row.time)
            self.happens(row)
        self.time_passes(None)
        return self.told

    def time_passes(self, now: int | None) -> None:
        for match in list(self.open):
            if match in self.open and (now is None or match.due < now):
                self.open.remove(match)
                only_absent_left = all(step.absent for step in self.steps[match.next :])
                if self.steps[-1].absent and only_absent_left and not match.failed:
                    self.told.append((match.due, match.taken, True))
                    if self.pattern.skip:
                        self.open = []
                elif self.pattern.timeouts:
                    self.told.append((match.due, match.taken, False))

    def happens(self, row: Row) -> None:
        whole = [m for m in self.open if not m.failed and self.goes_on(m, row)]
        if whole and self.pattern.skip:
            self.told.append((row.time, whole[0].taken, True))
            self.open = []
            return
        self.told += [(row.time, match.taken, True) for match in whole]
        self.open = [m for m in self.open if m not in whole and (self.pattern.timeouts or not m.failed)]
        if holds(self.steps[0].condition, row.values):
            self.open.append(_Match(row.time + self.pattern.within, {self.steps[0].name: row}))

    def goes_on(self, match: _Match, row: Row) -> bool:
        """Feed an event to a match; whether that completes it."""
        unwanted = []
        wanted = None
        for number in range(match.next, len(self.steps)):
            if not self.steps[number].absent:
                wanted = number
                break
            unwanted.append(self.steps[number])
        if wanted is not None and holds(self.steps[wanted].condition, row.values, match.taken):
            match.taken = match.taken | {self.steps[wanted].name: row}
            match.next = wanted + 1
            return match.next == len(self.steps)
        if any(holds(step.condition, row.values, match.taken) for step in unwanted):
            match.failed = True
        elif self.pattern.contiguous:
            if wanted is not None:
                match.failed = True
            else:  # the next event was not the unwanted one: nothing can spoil it any more
                match.next = len(self.steps) + 1
        return False
