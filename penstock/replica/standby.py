"""What an engine that stands by has at hand: as the scheme asks, the leader's runs in its cache, the input read once.

Receives the unit's record as it is looked at; hands a cache that the engine finds filled if it comes to lead, and
Python workers that are there: Spark ends those that had nothing to do for a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.catalogue.program import Program
from penstock.engine.state_location import state_location
from penstock.ha.schemes import SCHEMES
from penstock.ha.standby_cache import StandbyCache
from penstock.ha.unit import Unit, UnitRecord
from penstock.settings import Settings
from penstock.spark.session import SparkSession, warm_up
from penstock.state.cache import HostCache
from penstock.state.directory import StateDirectory

#: how often the Python workers are given something to do, in seconds
_WARM_SECONDS = 20.0


class Standby:
    """Follows the runs of whoever leads, for one engine; `say` tells the unit how far it is."""

    def __init__(
        self,
        name: str,
        unit: Unit,
        program: Callable[[], Program],
        settings: Settings,
        spark: SparkSession | None,
        say: Callable[..., None],
    ) -> None:
        self._name, self._unit, self._program, self._settings, self._say = name, unit, program, settings, say
        self._spark, self._warmed_at = spark, time.monotonic()
        self._follower: StandbyCache | None = None
        self._directory = ""

    def look(self, record: UnitRecord) -> None:
        """Bring in what is new, where the scheme asks for it."""
        if self._spark is not None and time.monotonic() - self._warmed_at > _WARM_SECONDS:
            warm_up(self._spark.sparkContext, self._settings.master)
            self._warmed_at = time.monotonic()
        facts, directory = SCHEMES[record.scheme], Path(record.directory)
        if not facts.follows_runs or record.leader is None:
            return
        if self._follower is None or self._directory != record.directory:
            self._follower, self._directory = StandbyCache(self._cache(directory)), record.directory
            self._say(directory=record.directory)
        follower = self._follower
        if follower.follow(directory):
            if rate := follower.read_rate:
                self._unit.change(lambda now: now.add_measurements(load=rate))
            self._say(epoch=follower.epoch, cached_bytes=follower.cached_bytes)
        program = self._program()
        if facts.has_spans and program.app_plan is not None:  # which streams jobs read, their leader knows
            logs = {name: scan.stream.log for name, scan in program.app_plan.scans.items()}
            follower.read_ahead(directory, logs)

    def complete(self) -> None:
        """Bring in the last of it: the engine comes to lead."""
        if self._follower is not None:
            self._follower.follow(Path(self._unit.record().directory))

    def _cache(self, directory: Path) -> HostCache | None:
        """The cache that the engine will have if it comes to lead on a directory."""
        location = state_location(
            StateDirectory(directory),
            self._settings.cache_root,
            self._settings.cache_bytes,
            owner=self._name,
        )
        return None if location.cache is None else HostCache(Path(location.cache), location.cache_bytes)
