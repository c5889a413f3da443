"""What was decided and what came of it: a decision's inputs, its reason, its outcome; one JSON line each.

Receives decisions and their ends; hands the past to the deciding stage, which does not repeat what did not help, and
lines to a file, from which the next engine reads them back.

Invariants:
- A `Record` is a value: `added`, `over` and `judged` hand a new one. Only the outcome of an entry ever changes.
- A `Nothing` is not recorded; there is one every few seconds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.scaling.decisions import (
    Decision,
    Decommission,
    Move,
    Provision,
    about,
    from_plain,
    to_plain,
)
from penstock.scaling.evaluate import slices_of
from penstock.scaling.history import History
from penstock.scaling.settings import ElasticSettings

#: circumstances that differ by this share are others: what did not help then may help now
OTHER = 0.2
#: so many entries of earlier engines are kept
MOST_KEPT = 1_000
#: what did not help is tried again after this long even if nothing has changed, in seconds
FORGOTTEN_SECONDS = 3600.0


class Outcome(StrEnum):
    """What came of a decision."""

    under_way = "under way"
    watched = "watched"
    helped = "helped"
    did_not_help = "did not help"
    failed = "failed"
    undone = "undone"
    #: the engine ended before anything could be said of it
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
    #: what waited when the change was done: the outcome is judged against it
    backlog_seconds: float = 0.0

    def to_json(self) -> str:
        """The entry as one line."""
        told = {"number": self.number, "at": round(self.at, 3), **to_plain(self.decision)}
        told |= {"outcome": str(self.outcome), "outcome_at": round(self.outcome_at, 3)}
        told |= {"changed_at": round(self.changed_at, 3)}
        return json.dumps(told | ({"why": self.why} if self.why else {}))

    @staticmethod
    def from_json(line: str) -> Entry:
        """The entry of a line."""
        told = json.loads(line)
        return Entry(
            told["number"],
            float(told["at"]),
            from_plain(told),
            Outcome(told["outcome"]),
            float(told["outcome_at"]),
            told.get("why", ""),
            float(told.get("changed_at", told["outcome_at"])),
        )

    def later(self, seconds: float) -> Entry:
        """The entry by a clock that is so many seconds ahead."""
        return replace(
            self,
            at=self.at + seconds,
            outcome_at=self.outcome_at + seconds,
            changed_at=self.changed_at + seconds,
        )


@dataclass(frozen=True)
class Record:
    """All entries, oldest first."""

    entries: tuple[Entry, ...] = ()

    def added(self, decision: Decision, at: float, *, dry_run: bool = False) -> Record:
        """With a decision that begins to be realised, or would be but for the dry run."""
        outcome = Outcome.dry_run if dry_run else Outcome.under_way
        return Record((*self.entries, Entry(len(self.entries), at, decision, outcome, at, changed_at=at)))

    def over(self, number: int, outcome: Outcome, at: float, why: str, backlog_seconds: float) -> Record:
        """With a change that is done (and watched from now on), failed or undone."""
        return self._with(
            replace(
                self.entries[number],
                outcome=outcome,
                outcome_at=at,
                changed_at=at,
                why=why,
                backlog_seconds=backlog_seconds,
            )
        )

    def judged(self, number: int, outcome: Outcome, at: float, why: str) -> Record:
        """With the judgement of a change that was watched."""
        return self._with(replace(self.entries[number], outcome=outcome, outcome_at=at, why=why))

    def _with(self, entry: Entry) -> Record:
        return Record((*self.entries[: entry.number], entry, *self.entries[entry.number + 1 :]))

    @property
    def last_change_at(self) -> float | None:
        """When something last was or would have been changed, or an attempt at it ended."""
        return max((entry.changed_at for entry in self.entries[-8:]), default=None)

    def watched(self) -> Iterator[Entry]:
        """Entries that are done and whose effect is not judged yet."""
        return (entry for entry in self.entries[-8:] if entry.outcome == Outcome.watched)

    def in_vain(self, decision: Decision, at: float, settings: ElasticSettings) -> Entry | None:
        """An earlier attempt at the same, in the same circumstances, that did not help or did not succeed."""
        for entry in reversed(self.entries[-64:]):
            if about(entry.decision) != about(decision):
                if entry.outcome in (Outcome.watched, Outcome.helped):
                    return None  # something else was changed since
                continue
            if entry.outcome == Outcome.did_not_help:
                lasting = FORGOTTEN_SECONDS
            elif entry.outcome in (Outcome.failed, Outcome.undone):
                lasting = settings.horizon_seconds
            else:
                return None
            if at - entry.outcome_at < lasting and _alike(entry.decision, decision):
                return entry
            return None
        return None

    def cut_short(self) -> Record:
        """When the engine ends: what is under way or watched says nothing any more about whether it helps."""
        unsaid = (Outcome.under_way, Outcome.watched)
        return Record(
            tuple(
                replace(one, outcome=Outcome.cut_short, why="the run ended") if one.outcome in unsaid else one
                for one in self.entries
            )
        )

    def lines(self, ahead: float = 0.0) -> str:
        """All entries as JSON lines, their times by a clock that is `ahead` seconds ahead."""
        return "".join(entry.later(ahead).to_json() + "\n" for entry in self.entries)

    @staticmethod
    def from_lines(lines: str, ahead: float, now: float) -> Record:
        """What an earlier engine has decided, by this one's clock, on which it is `now`. Lines that cannot be read are
        left out; if it was killed it could not say that something was cut short."""
        found: list[Entry] = []
        for line in lines.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = Entry.from_json(line)
                found.append(entry.later(-max(ahead, max(entry.changed_at, entry.outcome_at) - now)))
        return Record(tuple(replace(one, number=at) for at, one in enumerate(found[-MOST_KEPT:]))).cut_short()


def _alike(one: Decision, other: Decision) -> bool:
    figure = "imbalance" if isinstance(one, Move) else "load_cores"
    before, now = one.inputs.get(figure), other.inputs.get(figure)
    if before is None or now is None:
        return True
    return abs(now - before) <= OTHER * abs(before)


def judge(entry: Entry, history: History, settings: ElasticSettings) -> tuple[Outcome, str] | None:
    """Whether a change that is done has helped; None while that cannot be said yet."""
    snapshot = history.latest
    if snapshot is None or snapshot.at < entry.outcome_at + 2 * settings.window_seconds:
        return None
    decision, behind = entry.decision, snapshot.backlog_seconds
    if isinstance(decision, Move):
        one, smoothed = snapshot.sub_queries.get(decision.sub_query), history.smoothed.get(decision.sub_query)
        if one is None or smoothed is None:
            return _told(True, "the sub-query is gone")
        slices = slices_of(one, smoothed, snapshot.fleet.ids, settings)
        # in shares of the mean: the load may have changed meanwhile
        now = slices.deviation() / max(slices.mean(), 1e-9)
        before = decision.inputs.get("imbalance", 0.0) / max(decision.inputs.get("utilisation", 1.0), 1e-9)
        helped = now <= before * (1 - settings.minimum_improvement / 2)
        return _told(helped, f"deviation {before:.0%} of the mean, then {now:.0%}")
    used = history.load(settings.window_seconds) / max(snapshot.fleet.all_cores, 1)
    if isinstance(decision, Provision):
        helped = behind <= settings.tolerated_backlog_seconds or behind < entry.backlog_seconds
        return _told(
            helped, f"backlog {entry.backlog_seconds:.0f} s, then {behind:.0f} s; utilisation {used:.0%}"
        )
    if isinstance(decision, Decommission):
        grown = history.load(settings.window_seconds) > 1.1 * decision.inputs.get("load_cores", 0.0)
        helped = grown or (
            behind <= settings.tolerated_backlog_seconds and used <= settings.upper_utilisation
        )
        return _told(helped, f"utilisation {used:.0%}, backlog {behind:.0f} s")
    return _told(True, "")


def _told(helped: bool, why: str) -> tuple[Outcome, str]:
    return (Outcome.helped if helped else Outcome.did_not_help), why
