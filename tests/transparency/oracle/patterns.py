"""Patterns: the matches of a key, each advanced by one event after the other."""

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
        results = []
        for key, rows in self.sort_by_key(flows, node.keys, self.names(node.input)).items():
            for time, events, matched in _Matches(node).find(rows):
                values = dict(zip(node.keys, key, strict=True))
                for step in node.steps:
                    if not step.absent:
                        event = events.get(step.name)
                        values[f"{step.name}_time"] = None if event is None else event.time
                        values |= {
                            f"{step.name}_{c}": None if event is None else event.values[c]
                            for c in node.columns
                        }
                results.append(Row(time, None, values | ({"matched": matched} if node.timeouts else {})))
        return [results]


@dataclass
class _Match:
    due: int
    events: dict[str, Row]
    #: the number of the next step
    next: int = 1
    failed: bool = False


class _Matches:
    """The matches among the rows of one key: (time of the result, matched events, whether the match is complete)."""

    def __init__(self, pattern: d.Pattern) -> None:
        self.pattern, self.steps = pattern, pattern.steps
        self.open: list[_Match] = []
        self.results: list[tuple[int, dict[str, Row], bool]] = []

    def find(self, rows: list[Row]) -> list[tuple[int, dict[str, Row], bool]]:
        for row in rows:
            self.expire_matches(row.time)
            self.process(row)
        self.expire_matches(None)
        return self.results

    def expire_matches(self, now: int | None) -> None:
        for match in list(self.open):
            if match in self.open and (now is None or match.due < now):
                self.open.remove(match)
                only_absent_left = all(step.absent for step in self.steps[match.next :])
                if self.steps[-1].absent and only_absent_left and not match.failed:
                    self.results.append((match.due, match.events, True))
                    if self.pattern.skip:
                        self.open = []
                elif self.pattern.timeouts:
                    self.results.append((match.due, match.events, False))

    def process(self, row: Row) -> None:
        completed = [m for m in self.open if not m.failed and self.advance_match(m, row)]
        if completed and self.pattern.skip:
            self.results.append((row.time, completed[0].events, True))
            self.open = []
            return
        self.results += [(row.time, match.events, True) for match in completed]
        self.open = [m for m in self.open if m not in completed and (self.pattern.timeouts or not m.failed)]
        if holds(self.steps[0].condition, row.values):
            self.open.append(_Match(row.time + self.pattern.within, {self.steps[0].name: row}))

    def advance_match(self, match: _Match, row: Row) -> bool:
        """Advance a match by an event; return whether that completes it."""
        absent_steps = []
        next_step = None
        for number in range(match.next, len(self.steps)):
            if not self.steps[number].absent:
                next_step = number
                break
            absent_steps.append(self.steps[number])
        if next_step is not None and holds(self.steps[next_step].condition, row.values, match.events):
            match.events = match.events | {self.steps[next_step].name: row}
            match.next = next_step + 1
            return match.next == len(self.steps)
        if any(holds(step.condition, row.values, match.events) for step in absent_steps):
            match.failed = True
        elif self.pattern.contiguous:
            if next_step is not None:
                match.failed = True
            else:  # the next event was not the absent one: nothing can fail it any more
                match.next = len(self.steps) + 1
        return False
