"""Open what jobs need before they can run: their sinks, and the logs of their streams.

Each sink is opened once and stays open until its job is dropped and no epoch can have rows of it any more. A job that
is altered to emit other columns keeps its sinks: they are asked whether they accept those.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

import polars as pl

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.job_builder import JobBuilder
from penstock.query.physical import ScanPlan
from penstock.sinks.contract import Sink

_LOG = logging.getLogger(__name__)


class OpenSinks:
    """The sinks and logs of one program's jobs."""

    def __init__(self, builder: JobBuilder) -> None:
        self._builder = builder
        self._state: str | None = None
        self._start_log: Callable[[str, ScanPlan], None] = lambda stream, scan: None
        #: by the number of the job's creation, with the columns they were last asked to accept
        self._opened: dict[int, tuple[tuple[Sink, ...], dict[str, pl.DataType]]] = {}

    @property
    def is_started(self) -> bool:
        """Whether an engine executes the jobs: otherwise nothing is opened."""
        return self._state is not None

    def start(self, state: str, start_log: Callable[[str, ScanPlan], None]) -> None:
        """Open for an engine on a state directory of this id from now on."""
        self._state, self._start_log = state, start_log

    def open(self, catalogue: Catalogue, names: Collection[str], *, inactive: bool = True) -> None:
        """Open the sinks of some jobs and start the logs of their streams, where they are not; raises if that fails.
        Without `inactive`, jobs that do not run are only built."""
        for name in names:
            entry = catalogue.jobs[name]
            if entry.left_out:
                continue
            job = self._builder.job(name, catalogue)
            sinks = self._builder.sinks(entry)
            if not inactive and entry.master.life != "running":
                continue
            opened, columns = self._opened.get(entry.created, ((), {}))
            if opened is not sinks:
                suffix = "" if entry.of_app else f".{entry.created}"
                for sink in sinks:
                    sink.open(f"{entry.name}@{self._state}{suffix}", dict(job.schema))
            elif columns != job.schema:
                _check_columns(sinks, job.schema)
            self._opened[entry.created] = sinks, dict(job.schema)
            for stream, scan in job.scans.items():
                self._start_log(stream, scan)

    def prepare(self, catalogue: Catalogue, names: Collection[str], *, opens: bool) -> None:
        """Where an engine runs, open what jobs need; without `opens`, only ask the sinks that are open whether they
        accept the columns that the jobs emit now. Raises if that fails."""
        if self.is_started and opens:
            self.open(catalogue, names)
        elif self.is_started:
            self._check_open_sinks(catalogue, names)

    def _check_open_sinks(self, catalogue: Catalogue, names: Collection[str]) -> None:
        for name in names:
            entry = catalogue.jobs[name]
            if entry.created in self._opened and not entry.left_out:
                sinks, columns = self._opened[entry.created]
                schema = self._builder.job(name, catalogue).schema
                if columns != schema:
                    _check_columns(sinks, schema)

    def is_open(self, created: int) -> bool:
        """Whether the sinks of the job of this creation are open."""
        return created in self._opened

    def close_unused(self, *needed: Catalogue) -> None:
        """Close the sinks of jobs that are in none of these catalogues. They have all rows of committed epochs, so one
        that cannot be closed loses nothing."""
        for created, sinks in self._builder.forget_unused(*needed).items():
            self._opened.pop(created, None)
            for sink in sinks:
                try:
                    sink.close()
                except Exception as failure:  # a sink of the user's own may raise anything
                    _LOG.warning("%s could not be closed: %s", sink.describe(), failure)

    def close(self) -> None:
        """Close all sinks."""
        self.close_unused()
        self._opened.clear()
        self._state = None


def _check_columns(sinks: Collection[Sink], schema: Mapping[str, pl.DataType]) -> None:
    for sink in sinks:
        sink.check(dict(schema))
