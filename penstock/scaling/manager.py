"""The place for the user's own judgement: a manager is asked every period what to do.

Receives a `Situation`: the measurements, their history, the settings, the past; hands decisions. What a manager hands
is held to the cool-down, the budget and the largest step like the default's; it cannot break anything.

A manager that adds one executor whenever more than five seconds of work wait:

    class Simple:
        def decide(self, now):
            if now.snapshot.backlog_seconds > 5:
                return [Provision(1, "work waits")]
            return []

`simulate(..., manager=Simple())` tries it on a day of load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.scaling.decide import Situation, decide
from penstock.scaling.decisions import Decision


class Manager(Protocol):
    """Measurements in, decisions out."""

    def decide(self, now: Situation) -> Sequence[Decision]:
        """What to do now; nothing at all is fine. Several are carried out together if they do not collide."""


class DefaultManager:
    """StreamCloud's rules, as `decide` has them."""

    def decide(self, now: Situation) -> Sequence[Decision]:
        """One decision at a time."""
        return [decide(now)]
