"""Questions about jobs that come and go: what there is, what was done to a job, and what it told.

Receives a job's name; hands its versions, its plan, its answers. What it knows is its program's (see `program`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.command_history import Known
from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.followed_results import FollowedResults
from penstock.catalogue.job_builder import JobBuilder
from penstock.catalogue.job_history import JobVersion, versions
from penstock.catalogue.messages import Deliver, routed
from penstock.catalogue.results import Answer, Results
from penstock.errors import UserError
from penstock.query.logical import Source, StreamDefinition
from penstock.query.physical import Plan

if TYPE_CHECKING:
    from penstock.catalogue.commands import Desk


class Asking(ABC):
    """What can be asked of the jobs of one state directory."""

    _lock: AbstractContextManager[bool]
    _known: Known
    _results: Results
    _builder: JobBuilder
    _deliver: Mapping[str, Deliver]

    @property
    @abstractmethod
    def _desk(self) -> Desk:
        """What checks statements."""

    @abstractmethod
    def _keeps(self, entry: JobEntry) -> bool:
        """Whether the results of a job are kept."""

    @property
    @abstractmethod
    def catalogue(self) -> Catalogue:
        """The catalogue with all commands so far."""

    @property
    @abstractmethod
    def commands(self) -> int:
        """The number of the newest command there is."""

    @abstractmethod
    def plan(
        self, commands: int, without: Mapping[int, bool] | None = None, resting: Collection[str] = ()
    ) -> Plan:
        """The plan once the commands up to this number are carried out."""

    # -- what there is ---------------------------------------------------------------------------

    def versions(self, job: str) -> list[tuple[float | None, JobVersion]]:
        """What was done to a job, oldest first, each with its time where that is known."""
        with self._lock:
            if job not in self.catalogue.jobs:
                raise self._desk.unknown(job, self.catalogue)
            folded, entries = self._known.folded, list(self._known.entries)
            before = self._known.after(folded)
        return [(self._known.log.at(one.command), one) for one in versions(job, folded, before, entries)]

    def sharing(self) -> dict[str, int]:
        """How many jobs each sub-query that is shared works for."""
        jobs = self.plan(self.commands).jobs
        return (
            {} if jobs is None else {group: len(members) for group, members in jobs.members.items() if group}
        )

    def stream(self, name: str) -> StreamDefinition:
        """A stream of the catalogue."""
        with self._lock:
            node = self._builder.stream(name, self.catalogue).node
        assert isinstance(node, Source)
        return node.stream

    def describe(self, job: str) -> dict[str, Any]:
        """A job, for people: its query, its parameters, where its rows go, how it is."""
        with self._lock:
            return self._desk.describe(self._desk.found(job, self.catalogue))

    def compiled(self, job: str) -> CompiledJob:
        """A job of the catalogue."""
        with self._lock:
            if job not in self.catalogue.jobs:
                raise self._desk.unknown(job, self.catalogue)
            return self._builder.job(job, self.catalogue)

    def carried_by(self, carrier: Callable[[str], str]) -> None:
        """Have it shown which coordinator carries a job's master, where there are several."""
        self._desk.carrier = carrier

    @property
    def kept_from(self) -> int:
        """What jobs told before this epoch may be gone."""
        return self._results.kept_from

    # -- questions -------------------------------------------------------------------------------

    def ask(self, job: str) -> Answer | None:
        """A job's latest answer; None before its first."""
        return self._results.latest(self._told_as(job))

    def whole(self, job: str) -> Answer | None:
        """All that a job told in the last epoch in which it did."""
        return self._results.whole(self._told_as(job))

    def route(self, job: str, message: Any = None) -> Any:
        """What a job answers to a message: what its `deliver` function says, or the rows of its latest answer that
        have the values the message says."""

        def latest(name: str) -> pl.DataFrame | None:
            answer = self.ask(name)
            return None if answer is None else answer.rows

        return routed(job, message, latest, self._deliver)

    def since(self, job: str, epoch: int, most: int | None = None) -> list[Answer]:
        """A job's rows of the epochs from one on, as far as they are kept; of at `most` so many epochs."""
        return list(islice(self._results.since(self._told_as(job), epoch), most))

    def _told_as(self, job: str) -> str:
        jobs = self.catalogue.jobs
        if job not in jobs:
            raise self._desk.unknown(job, self.catalogue)
        if not self._keeps(jobs[job]):
            raise UserError(
                "RESULTS_NOT_KEPT",
                f"this engine does not keep the results of {job}, an output of the app that it runs",
                hint="Read them where its sinks write them, or start the engine with `penstock serve`.",
            )
        return jobs[job].told_as

    def followed(self, committed: int) -> Counter[str]:
        """Where another process runs the epochs: take in what it told up to a committed one; hands how often each job
        has told something since."""
        assert isinstance(self._results, FollowedResults)
        told = self._results.follow(committed)
        return Counter({name: told[e.told_as] for name, e in self.catalogue.jobs.items() if told[e.told_as]})
