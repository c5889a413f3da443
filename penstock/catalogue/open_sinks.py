"""What jobs need opened before they can run: their sinks, and the logs of their streams.

Receives jobs of a catalogue, from the engine's start on; hands their sinks opened, each once, until all are closed.
A job that is altered to tell other columns keeps its sinks open: they are asked whether they take those.
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


class Opening:
    """The sinks and logs of one program's jobs."""

    def __init__(self, builder: JobBuilder) -> None:
        self._builder = builder
        self._state: str | None = None
        self._start_log: Callable[[str, ScanPlan], None] = lambda stream, scan: None
        #: by the number of the job's creation, with the columns they were last asked to take
        self._opened: dict[int, tuple[tuple[Sink, ...], dict[str, pl.DataType]]] = {}

    @property
    def begun(self) -> bool:
        """Whether an engine runs the jobs: otherwise nothing is opened."""
        return self._state is not None

    def begin(self, state: str, start_log: Callable[[str, ScanPlan], None]) -> None:
        """Open for an engine on a state directory of this id from now on."""
        self._state, self._start_log = state, start_log

    def open(self, catalogue: Catalogue, names: Collection[str], *, asleep: bool = True) -> None:
        """Open the sinks of some jobs and start the logs of their streams, where they are not; raises if that cannot
        be. Without `asleep`, those that do not run are made and no more."""
        for name in names:
            entry = catalogue.jobs[name]
            if entry.left_out:
                continue
            job = self._builder.job(name, catalogue)
            sinks = self._builder.sinks(entry)
            if not asleep and entry.master.life != "running":
                continue
            opened, columns = self._opened.get(entry.created, ((), {}))
            if opened is not sinks:
                apart = "" if entry.of_app else f".{entry.created}"
                for sink in sinks:
                    sink.open(f"{entry.name}@{self._state}{apart}", dict(job.schema))
            elif columns != job.schema:
                _check(sinks, job.schema)
            self._opened[entry.created] = sinks, dict(job.schema)
            for stream, scan in job.scans.items():
                self._start_log(stream, scan)

    def make_ready(self, catalogue: Catalogue, names: Collection[str], *, opens: bool) -> None:
        """Where an engine runs, open what jobs need; or only ask the sinks that are open whether they take the columns
        those tell now. Raises if that cannot be."""
        if self.begun and opens:
            self.open(catalogue, names)
        elif self.begun:
            self._ask(catalogue, names)

    def _ask(self, catalogue: Catalogue, names: Collection[str]) -> None:
        for name in names:
            entry = catalogue.jobs[name]
            if entry.created in self._opened and not entry.left_out:
                sinks, columns = self._opened[entry.created]
                schema = self._builder.job(name, catalogue).schema
                if columns != schema:
                    _check(sinks, schema)

    def close(self) -> None:
        """Close all sinks. They have all rows of committed epochs, so one that cannot be closed loses nothing."""
        for sinks in self._builder.forget_unused(Catalogue()):
            for sink in sinks:
                try:
                    sink.close()
                except Exception as failure:
                    _LOG.warning("%s could not be closed: %s", sink.describe(), failure)
        self._opened.clear()
        self._state = None


def _check(sinks: Collection[Sink], schema: Mapping[str, pl.DataType]) -> None:
    for sink in sinks:
        sink.check(dict(schema))
