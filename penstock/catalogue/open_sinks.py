"""Open what jobs need before they can run: their sinks, and the logs of their streams.

Each sink is registered once for delivery and stays so until its job is dropped and it has all rows that epochs emitted.
A job that is altered to emit other columns keeps its sinks: they are asked whether they accept those.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.job_builder import JobBuilder
from penstock.delivery.deliveries import Deliveries
from penstock.query.physical import ScanPlan


class OpenSinks:
    """The sinks and logs of one program's jobs."""

    def __init__(self, builder: JobBuilder, deliveries: Deliveries) -> None:
        self._builder, self._deliveries = builder, deliveries
        self._state: str | None = None
        self._start_log: Callable[[str, ScanPlan], None] = lambda stream, scan: None

    @property
    def is_started(self) -> bool:
        """Whether an engine executes the jobs: otherwise nothing is opened."""
        return self._state is not None

    def start(self, state: str, start_log: Callable[[str, ScanPlan], None]) -> None:
        """Open for an engine on a state directory of this id from now on."""
        self._state, self._start_log = state, start_log

    def open(
        self, catalogue: Catalogue, names: Collection[str], *, inactive: bool = True, waits: bool = False
    ) -> None:
        """Register the sinks of some jobs and start the logs of their streams, where they are not; raises if that
        fails. Without `inactive`, jobs that do not run are only built. With `waits` the sinks are opened at once."""
        for name in names:
            entry = catalogue.jobs[name]
            if entry.left_out:
                continue
            job = self._builder.job(name, catalogue)
            sinks = self._builder.sinks(entry)
            if not inactive and entry.master.life != "running":
                continue
            if not self._deliveries.is_registered(entry.result_key, sinks):
                suffix = "" if entry.of_app else f".{entry.created}"
                label = f"{entry.name}@{self._state}{suffix}"
                self._deliveries.register(entry.result_key, name, sinks, label, dict(job.schema), opens=waits)
            else:
                self._deliveries.check_columns(entry.result_key, dict(job.schema))
            for stream, scan in job.scans.items():
                self._start_log(stream, scan)

    def prepare(self, catalogue: Catalogue, names: Collection[str], *, opens: bool) -> None:
        """Where an engine runs, open what jobs need; without `opens`, only ask the sinks that are open whether they
        accept the columns that the jobs emit now. Raises if that fails."""
        if self.is_started and opens:
            self.open(catalogue, names, waits=True)
        elif self.is_started:
            for entry, job in self._registered(catalogue, names):
                self._deliveries.check_columns(entry.result_key, dict(job.schema))

    def _registered(self, catalogue: Catalogue, names: Collection[str]) -> list[tuple[JobEntry, CompiledJob]]:
        entries = [catalogue.jobs[name] for name in names]
        return [
            (entry, self._builder.job(entry.name, catalogue))
            for entry in entries
            if not entry.left_out
            and self._deliveries.is_registered(entry.result_key, self._builder.sinks(entry))
        ]

    def close_unused(self, *needed: Catalogue) -> None:
        """Close the sinks of jobs that are in none of these catalogues, once they have what was emitted."""
        self._builder.forget_unused(*needed)
        self._deliveries.retire({entry.result_key for one in needed for entry in one.jobs.values()})

    def resume(self, outputs: Collection[str]) -> None:
        """Try again to deliver outputs to sinks that have failed."""
        self._deliveries.resume(outputs)

    def close(self) -> None:
        """Close all sinks."""
        self._builder.forget_unused()
        self._state = None
