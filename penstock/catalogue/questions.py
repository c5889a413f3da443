"""Answer questions about jobs: which there are, what changed them, their plans, their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import polars as pl

from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.command import AddJob, ChangeQuery, ChangeRecovery, Command, JobCommand
from penstock.catalogue.command_checks import find_job
from penstock.catalogue.command_intake import CommandIntake
from penstock.catalogue.compiled_job import CompiledJob
from penstock.catalogue.messages import Deliver, deliver_message
from penstock.delivery.followed_results import FollowedResults
from penstock.delivery.result_log import JobResult, ResultLog
from penstock.query.logical import Source, StreamDefinition
from penstock.query.physical import Plan


@dataclass(frozen=True)
class JobVersion:
    """A command on a job, and the job from then on. `state`: what happened to its state when it was altered."""

    command: int
    did: str
    version: int
    life: str
    query: str
    parameters: Mapping[str, Any]
    state: str | None
    error: str | None


def versions(
    job: str, folded: int, catalogue: Catalogue, entries: Sequence[Sequence[Command]]
) -> list[JobVersion]:
    """The versions of the present job of this name, oldest first, without those of former jobs of the name."""
    history: list[JobVersion] = []
    if job in catalogue.jobs:
        history.append(_version(folded, "earlier" if folded else "started with its app", catalogue.jobs[job]))
    for number, entry in enumerate(entries, folded + 1):
        for command in entry:
            catalogue = catalogue.after(command)
            if command.name != job or not isinstance(command, JobCommand):
                continue
            if isinstance(command, AddJob):
                history.clear()
            if job in catalogue.jobs:
                state = command.state if isinstance(command, ChangeQuery) else None
                history.append(_version(number, _did(command), catalogue.jobs[job], state))
    return history


def _did(command: JobCommand) -> str:
    if isinstance(command, ChangeRecovery):
        return f"{command.did} {command.recovery or 'default'}"
    return command.did


def _version(number: int, did: str, entry: JobEntry, state: str | None = None) -> JobVersion:
    return JobVersion(
        number,
        did,
        entry.version,
        entry.master.life,
        entry.query,
        dict(entry.parameters),
        state,
        entry.master.error,
    )


class Questions:
    """What can be asked about the jobs of a program. `plan`: the newest plan."""

    def __init__(
        self,
        intake: CommandIntake,
        results: ResultLog,
        plan: Callable[[], Plan],
        deliver: Mapping[str, Deliver],
    ) -> None:
        self._intake, self._results, self._plan = intake, results, plan
        self._deliver = deliver

    # -- streams and jobs ------------------------------------------------------------------------

    def versions(self, job: str) -> list[tuple[float | None, JobVersion]]:
        """What changed a job, oldest first, each with its time where that is known."""
        with self._intake.lock:
            catalogue, history = self._intake.catalogue, self._intake.history
            find_job(job, catalogue)
            folded, entries = history.folded, list(history.entries)
            before = history.after(folded)
        return [(history.log.at(one.command), one) for one in versions(job, folded, before, entries)]

    def shared_stages(self) -> dict[str, int]:
        """How many jobs each shared stage works for."""
        jobs = self._plan().jobs
        members = {} if jobs is None else jobs.members
        return {group: len(names) for group, names in members.items() if group}

    def stream(self, name: str) -> StreamDefinition:
        """A stream of the catalogue."""
        with self._intake.lock:
            node = self._intake.builder.stream(name, self._intake.catalogue).node
        assert isinstance(node, Source)
        return node.stream

    def describe(self, job: str) -> dict[str, Any]:
        """A job, for people: its query, parameters, sinks and state of life."""
        with self._intake.lock:
            return self._intake.checker.describe(find_job(job, self._intake.catalogue))

    def compiled(self, job: str) -> CompiledJob:
        """A job of the catalogue, compiled."""
        with self._intake.lock:
            catalogue = self._intake.catalogue
            find_job(job, catalogue)
            return self._intake.builder.job(job, catalogue)

    def show_managers(self, manager_of: Callable[[str], str]) -> None:
        """From now on, SHOW JOBS shows which coordinator manages a job."""
        self._intake.checker.manager_of = manager_of

    # -- results ---------------------------------------------------------------------------------

    def ask(self, job: str) -> JobResult | None:
        """A job's latest result; None before its first."""
        return self._results.latest(self._result_key(job))

    def latest_epoch(self, job: str) -> JobResult | None:
        """All that a job emitted in the last epoch in which it emitted any rows."""
        return self._results.latest_epoch(self._result_key(job))

    def since(self, job: str, epoch: int, most: int | None = None) -> list[JobResult]:
        """A job's rows of the epochs from one on, as far as they are retained; of at `most` so many epochs."""
        return list(islice(self._results.since(self._result_key(job), epoch), most))

    @property
    def retained_from(self) -> int:
        """The rows of earlier epochs may be gone."""
        return self._results.retained_from

    def send_message(self, job: str, message: Any = None) -> Any:
        """A job's reply to a message: that of its `deliver` function, or the rows of its latest result that have the
        values in the message."""

        def latest(name: str) -> pl.DataFrame | None:
            result = self.ask(name)
            return None if result is None else result.rows

        return deliver_message(job, message, latest, self._deliver)

    def follow_results(self, committed: int) -> Counter[str]:
        """Where another process runs the epochs: read what it emitted up to a committed epoch. Returns how often each
        job has emitted something since the last call."""
        assert isinstance(self._results, FollowedResults)
        counts = self._results.follow(committed)
        keys = {name: entry.result_key for name, entry in self._intake.catalogue.jobs.items()}
        return Counter({name: counts[key] for name, key in keys.items() if counts[key]})

    def _result_key(self, job: str) -> str:
        return find_job(job, self._intake.catalogue).result_key
