"""What jobs need opened before they can run: their sinks, and the logs of their streams.

Receives jobs of a catalogue, from the engine's start on; hands their sinks opened, each once, until all are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.jobs.catalogue import Catalogue
from penstock.jobs.workshop import Workshop
from penstock.query.physical import ScanPlan
from penstock.sinks.contract import Sink
from penstock.words.errors import UserError


class Opening:
    """The sinks and logs of one program's jobs."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._state: str | None = None
        self._start_log: Callable[[str, ScanPlan], None] = lambda stream, scan: None
        #: by the number of the job's creation
        self._opened: dict[int, tuple[Sink, ...]] = {}

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
            job = self._workshop.job(name, catalogue)
            sinks = self._workshop.sinks(entry)
            if not asleep and entry.master.life != "running":
                continue
            if self._opened.get(entry.created) is not sinks:
                for sink in sinks:
                    sink.open(f"{entry.name}@{self._state}.{entry.created}", dict(job.schema))
                self._opened[entry.created] = sinks
            for stream, scan in job.scans.items():
                self._start_log(stream, scan)

    def close(self) -> None:
        """Close all sinks."""
        for sinks in self._workshop.forget(Catalogue()):
            for sink in sinks:
                _close(sink)
        self._state = None


def _close(sink: Sink) -> None:
    try:
        sink.close()
    except Exception as failure:
        raise UserError("SINK_FAILED", f"a sink could not be closed: {failure}") from failure
