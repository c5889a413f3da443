"""Defines managers: the user's own decisions. A manager decides in every period.

Receives a `Situation`: the measurements, their history, the settings, the past; returns decisions. A manager's
decisions are limited by the cool-down, the budget and the largest step like the default's.

A manager that adds one executor whenever more than five seconds of work wait:

    class Simple:
        def decide(self, now):
            if now.snapshot.backlog_seconds > 5:
                return [Provision(1, "work waits")]
            return []

`simulate_scaling(..., manager=Simple())` tries it on a day of load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.scaling.decide import Situation, decide
from penstock.scaling.decisions import Decision


class Manager(Protocol):
    """Measurements in, decisions out."""

    def decide(self, now: Situation) -> Sequence[Decision]:
        """Decide what to change now; an empty list is fine. Several are executed together if they do not conflict."""


class DefaultManager:
    """StreamCloud's rules, as `decide` implements them."""

    def decide(self, now: Situation) -> Sequence[Decision]:
        """One decision at a time."""
        return [decide(now)]
