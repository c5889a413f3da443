"""Prepares an engine that stands by, as the scheme asks: the leader's runs in its cache, and the input read once.

If the engine becomes the leader it finds the cache filled, and Python workers: Spark ends those that are idle for a
minute.
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

#: how often the Python workers get a small job, in seconds
_WARM_SECONDS = 20.0


class Standby:
    """Follows the leader's runs for one engine; `report` changes its record in the coordination store."""

    def __init__(
        self,
        name: str,
        unit: Unit,
        program: Callable[[], Program],
        settings: Settings,
        spark: SparkSession | None,
        report: Callable[..., None],
    ) -> None:
        self._name, self._unit, self._program, self._settings = name, unit, program, settings
        self._report = report
        self._spark, self._warmed_at = spark, time.monotonic()
        self._cache: StandbyCache | None = None
        self._directory = ""

    def look(self, record: UnitRecord) -> None:
        """Fetch what is new, if the scheme asks for it."""
        if self._spark is not None and time.monotonic() - self._warmed_at > _WARM_SECONDS:
            warm_up(self._spark.sparkContext, self._settings.master)
            self._warmed_at = time.monotonic()
        facts, directory = SCHEMES[record.scheme], Path(record.directory)
        if not facts.follows_runs or record.leader is None:
            return
        if self._cache is None or self._directory != record.directory:
            self._cache, self._directory = StandbyCache(self._host_cache(directory)), record.directory
            self._report(directory=record.directory)
        cache = self._cache
        if cache.follow(directory):
            if rate := cache.read_rate:
                self._unit.change(lambda now: now.add_measurements(load=rate))
            self._report(epoch=cache.epoch, cached_bytes=cache.cached_bytes)
        program = self._program()
        if (
            facts.has_spans and program.app_plan is not None
        ):  # only the leader knows which streams other jobs read
            logs = {name: scan.stream.log for name, scan in program.app_plan.scans.items()}
            cache.read_ahead(directory, logs)

    def complete(self) -> None:
        """Fetch the rest: the engine becomes the leader."""
        if self._cache is not None:
            self._cache.follow(Path(self._unit.record().directory))

    def _host_cache(self, directory: Path) -> HostCache | None:
        """The cache that the engine will have as the leader on a directory."""
        location = state_location(
            StateDirectory(directory),
            self._settings.cache_root,
            self._settings.cache_bytes,
            owner=self._name,
        )
        return None if location.cache is None else HostCache(Path(location.cache), location.cache_bytes)
