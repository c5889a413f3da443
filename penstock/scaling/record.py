"""Records decisions and their outcomes: inputs, reason and outcome, one JSON line each.

Receives decisions and their ends; returns the past to `decide`, which does not repeat what did not help, and lines for
a file, from which the next engine reads them.

Invariants:
- A `Record` is a value: `add`, `set_end` and `set_judgement` return a new one. Only an entry's outcome changes.
- A `Nothing` is not recorded; there is one every few seconds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.moved import former_names
from penstock.scaling.decisions import (
    Decision,
    Decommission,
    Move,
    Provision,
    from_plain,
    subject_of,
    to_plain,
)
from penstock.scaling.evaluate import build_slices
from penstock.scaling.history import History
from penstock.scaling.settings import ElasticSettings

#: loads that differ by this share are different: what did not help then may help now
CHANGED_SHARE = 0.2
#: how many entries are kept, the latest
MAX_ENTRIES = 1_000
#: a change that did not help is retried after this long even if the load is the same, in seconds
RETRY_AFTER_SECONDS = 3600.0


class Outcome(StrEnum):
    """The outcome of a decision."""

    under_way = "under way"
    watched = "watched"
    helped = "helped"
    did_not_help = "did not help"
    failed = "failed"
    undone = "undone"
    #: the engine ended before the outcome was known
    cut_short = "cut short"
    dry_run = "dry run"


@dataclass(frozen=True)
class Entry:
    """A decision, when it was made, and its outcome so far."""

    number: int
    at: float
    decision: Decision
    outcome: Outcome
    outcome_at: float
    why: str = ""
    #: when the change, or the attempt at it, was over; until then when it was decided
    changed_at: float = 0.0
    #: the backlog when the change was done: the outcome is judged against it
    backlog_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        plain = {"number": self.number, "at": round(self.at, 3), **to_plain(self.decision)}
        plain |= {"outcome": str(self.outcome), "outcome_at": round(self.outcome_at, 3)}
        plain |= {"changed_at": round(self.changed_at, 3)}
        return plain | ({"why": self.why} if self.why else {})

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Entry:
        return Entry(
            plain["number"],
            float(plain["at"]),
            from_plain(plain),
            Outcome(plain["outcome"]),
            float(plain["outcome_at"]),
            plain.get("why", ""),
            float(plain.get("changed_at", plain["outcome_at"])),
        )

    def shift_clock(self, seconds: float) -> Entry:
        """Shift the entry's times to a clock that is so many seconds ahead."""
        return replace(
            self,
            at=self.at + seconds,
            outcome_at=self.outcome_at + seconds,
            changed_at=self.changed_at + seconds,
        )


@former_names(
    added="add",
    cut_short="cut_short_open",
    in_vain="find_failed_attempt",
    judged="set_judgement",
    over="set_end",
    watched="find_watched",
)
@dataclass(frozen=True)
class Record:
    """The latest entries, oldest first; their numbers have no gaps."""

    entries: tuple[Entry, ...] = ()

    def add(self, decision: Decision, at: float, *, dry_run: bool = False) -> Record:
        """Add a decision whose execution starts, or would start but for the dry run."""
        outcome = Outcome.dry_run if dry_run else Outcome.under_way
        number = self.entries[-1].number + 1 if self.entries else 0
        kept = self.entries[1 - MAX_ENTRIES :]
        return Record((*kept, Entry(number, at, decision, outcome, at, changed_at=at)))

    def set_end(self, number: int, outcome: Outcome, at: float, why: str, backlog_seconds: float) -> Record:
        """Set the end of a change that is done (and watched from now on), failed or undone."""
        return self._replace_entry(
            replace(
                self._entry(number),
                outcome=outcome,
                outcome_at=at,
                changed_at=at,
                why=why,
                backlog_seconds=backlog_seconds,
            )
        )

    def set_judgement(self, number: int, outcome: Outcome, at: float, why: str) -> Record:
        """Set the judgement of a change that was watched."""
        return self._replace_entry(replace(self._entry(number), outcome=outcome, outcome_at=at, why=why))

    def _entry(self, number: int) -> Entry:
        return self.entries[number - self.entries[0].number]

    def _replace_entry(self, entry: Entry) -> Record:
        place = entry.number - self.entries[0].number
        return Record((*self.entries[:place], entry, *self.entries[place + 1 :]))

    @property
    def last_change_at(self) -> float | None:
        """When something was last changed (in a dry run: would have been), or an attempt ended."""
        return max((entry.changed_at for entry in self.entries[-8:]), default=None)

    def find_watched(self) -> Iterator[Entry]:
        """Find the entries that are done and whose effect is not judged yet."""
        return (entry for entry in self.entries[-8:] if entry.outcome == Outcome.watched)

    def find_failed_attempt(self, decision: Decision, at: float, settings: ElasticSettings) -> Entry | None:
        """Find an earlier attempt at the same change, under a similar load, that failed or did not help."""
        for entry in reversed(self.entries[-64:]):
            if subject_of(entry.decision) != subject_of(decision):
                if entry.outcome in (Outcome.watched, Outcome.helped):
                    return None  # something else was changed since
                continue
            if entry.outcome == Outcome.did_not_help:
                lasting = RETRY_AFTER_SECONDS
            elif entry.outcome in (Outcome.failed, Outcome.undone):
                lasting = settings.horizon_seconds
            else:
                return None
            if at - entry.outcome_at < lasting and _is_similar(entry.decision, decision):
                return entry
            return None
        return None

    def cut_short_open(self) -> Record:
        """Cut short the entries that are under way or watched when the engine ends: their effect stays unknown."""
        open_outcomes = (Outcome.under_way, Outcome.watched)
        return Record(
            tuple(
                replace(one, outcome=Outcome.cut_short, why="the run ended")
                if one.outcome in open_outcomes
                else one
                for one in self.entries
            )
        )

    def lines(self, ahead: float = 0.0) -> str:
        """All entries as JSON lines, their times by a clock that is `ahead` seconds ahead."""
        return "".join(json.dumps(entry.shift_clock(ahead).to_json()) + "\n" for entry in self.entries)

    @staticmethod
    def from_lines(lines: str, ahead: float, now: float) -> Record:
        """The record of an earlier engine, by this one's clock, on which it is `now`. Lines that cannot be read are
        left out. Open entries are cut short, which an engine that was killed could not do."""
        found: list[Entry] = []
        for line in lines.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = Entry.from_json(json.loads(line))
                found.append(entry.shift_clock(-max(ahead, max(entry.changed_at, entry.outcome_at) - now)))
        return Record(
            tuple(replace(one, number=at) for at, one in enumerate(found[-MAX_ENTRIES:]))
        ).cut_short_open()


def _is_similar(one: Decision, other: Decision) -> bool:
    name = "imbalance" if isinstance(one, Move) else "load_cores"
    before, now = one.inputs.get(name), other.inputs.get(name)
    if before is None or now is None:
        return True
    return abs(now - before) <= CHANGED_SHARE * abs(before)


def judge(entry: Entry, history: History, settings: ElasticSettings) -> tuple[Outcome, str] | None:
    """Judge whether a change that is done has helped; None while that is not known yet."""
    snapshot = history.latest
    if snapshot is None or snapshot.at < entry.outcome_at + 2 * settings.window_seconds:
        return None
    decision, behind = entry.decision, snapshot.backlog_seconds
    if isinstance(decision, Move):
        one, smoothed = snapshot.stages.get(decision.stage), history.smoothed.get(decision.stage)
        if one is None or smoothed is None:
            return _to_outcome(True, "the stage no longer exists")
        slices = build_slices(one, smoothed, snapshot.fleet.ids, settings)
        # relative to the mean: the load may have changed meanwhile
        now = slices.deviation() / max(slices.mean(), 1e-9)
        before = decision.inputs.get("imbalance", 0.0) / max(decision.inputs.get("utilisation", 1.0), 1e-9)
        helped = now <= before * (1 - settings.minimum_improvement / 2)
        return _to_outcome(helped, f"deviation {before:.0%} of the mean, then {now:.0%}")
    used = history.load(settings.window_seconds) / max(snapshot.fleet.all_cores, 1)
    if isinstance(decision, Provision):
        helped = behind <= settings.tolerated_backlog_seconds or behind < entry.backlog_seconds
        return _to_outcome(
            helped, f"backlog {entry.backlog_seconds:.0f} s, then {behind:.0f} s; utilisation {used:.0%}"
        )
    if isinstance(decision, Decommission):
        grown = history.load(settings.window_seconds) > 1.1 * decision.inputs.get("load_cores", 0.0)
        helped = grown or (
            behind <= settings.tolerated_backlog_seconds and used <= settings.upper_utilisation
        )
        return _to_outcome(helped, f"utilisation {used:.0%}, backlog {behind:.0f} s")
    return _to_outcome(True, "")


def _to_outcome(helped: bool, why: str) -> tuple[Outcome, str]:
    return (Outcome.helped if helped else Outcome.did_not_help), why
