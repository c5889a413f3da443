"""What an engine of an HA unit is there for: to lead on a state directory, or to follow on one of its own.

Receives what the unit's engines share; hands the engine its book, its cache, and while it follows what the leader
remembers of the logs and as which generation its rows may go to the sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.coordination.lease import read_lease
from penstock.ha.unit import Unit
from penstock.state.directory import StateDirectory
from penstock.state.shared_records import SharedRecords


@dataclass(frozen=True)
class Leader:
    """The engine that is followed, as its follower sees it."""

    #: the generation that leads now
    generation: Callable[[], int]
    #: what it remembers of the logs
    logs: Callable[[], Mapping[str, Any]]

    @staticmethod
    def of(unit: Unit) -> Leader:
        """Whoever leads a unit."""

        def logs() -> Mapping[str, Any]:
            remembered: Mapping[str, Any] = StateDirectory(
                Path(unit.record().directory)
            ).read_existing_facts()["logs"]
            return remembered

        return Leader(lambda: read_lease(unit.store, unit.leader_path).generation, logs)


@dataclass(frozen=True)
class Duty:
    """The duty of one engine."""

    #: its name in the unit, by which its cache differs from that of another engine on the same directory
    member: str
    shared_records: SharedRecords
    #: where what is put aside (dead letters, late events) lies for the whole unit
    aside: Path
    #: whom it follows; None: it leads
    follows: Leader | None = None
    #: whether it holds its rows back while it follows
    holds: bool = False
    #: whether its cache was filled before it came to lead
    warm_cache: bool = False
