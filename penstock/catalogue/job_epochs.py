"""The jobs as an engine's epochs execute them: the plan of an epoch, the jobs that fail in it, and its results.

Guarantees: an epoch executes the commands that its offsets name, in a repeated epoch too. A job that failed is left out
of the epoch in which it failed, and that is recorded. So is an output of an app, while another output or a job runs;
the error of the last one ends the engine. An engine that follows another decides nothing itself: the leader decides
which commands an epoch executes and which jobs fail in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from penstock.catalogue.app_plan import keep_outputs
from penstock.catalogue.broken_jobs import fail_command, find_broken_jobs
from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.command import FlushJob
from penstock.catalogue.command_intake import CommandIntake
from penstock.catalogue.job_builder import PythonDeclarations
from penstock.catalogue.planner import PlannedJob, plan_epoch
from penstock.catalogue.reset_state import drop_state_in_app, own_state_bytes, reset_commands
from penstock.delivery.result_log import ResultLog, cast_to_schema
from penstock.delivery.side_output import SIDE_OUTPUT
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ha.schemes import Semantics
from penstock.query.physical import Plan
from penstock.state.durable import make_private
from penstock.state.epoch_record import EpochRecord
from penstock.state.generation import FencedDirectory
from penstock.state.ipc import stream_bytes
from penstock.state.manifest import Manifest
from penstock.state.shared_records import list_epochs

_LOG = logging.getLogger(__name__)
_CACHED_PLANS = 8
#: before the key of an output in the result log: rows that neither sinks nor questions get
_UNSEEN = "#unseen:"
#: before the name of an output in the key of its failure
_OUTPUT = "output "
#: how often an engine that follows tries an epoch in which jobs fail that did not fail at the leader
_TRIES = 3


class Failures:
    """The jobs that failed in an epoch: it is executed without them, also when it is repeated.

    DIR/failures/EPOCH.json   by number, and of each whether its state was dropped

    They are kept as long as the epoch may be repeated (`remove_before`). Outputs in the plan of an app are there by
    `output NAME`: they may get other numbers when the app's file changes.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "failures"

    def of(self, epoch: int, catalogue: Callable[[], Catalogue]) -> dict[int, bool]:
        """The jobs of the epoch's catalogue that failed in it, by number, and whether their state was dropped."""
        facts = self._read(epoch)
        if not facts:
            return {}
        numbers = {failure_key(entry): entry.number for entry in catalogue().jobs.values()}
        return {
            # a text alone: written when the state was always dropped
            numbers.get(key) or int(key): isinstance(one, str) or one["lost"]
            for key, one in facts.items()
            if key in numbers or not key.startswith(_OUTPUT)
        }

    def put(
        self,
        fenced_directory: FencedDirectory,
        epoch: int,
        errors: Mapping[str, PenstockError],
        lost: Collection[str],
    ) -> None:
        """Record that jobs failed in an epoch, by their keys, besides earlier ones; FENCED if another engine leads by
        now."""
        new = {key: {"error": error.text(), "lost": key in lost} for key, error in errors.items()}
        make_private(self._folder)
        content = json.dumps({**self._read(epoch), **new})
        fenced_directory.write_whole(self._path(epoch), content.encode())

    def _read(self, epoch: int) -> dict[str, Any]:
        path = self._path(epoch)
        facts: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return facts

    def remove_before(self, epoch: int) -> None:
        """Remove what is recorded of earlier epochs: none of them is repeated any more, by any engine."""
        for old in list_epochs(self._folder):
            if old < epoch:
                self._path(old).unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.json"


def failure_key(entry: JobEntry) -> str:
    """The key of a job's failures."""
    return f"{_OUTPUT}{entry.name}" if entry.in_app_plan else str(entry.number)


class JobEpochs:
    """What the epochs of one engine need of a program."""

    def __init__(
        self,
        name: str,
        intake: CommandIntake,
        given: PythonDeclarations,
        results: ResultLog,
        failures: Failures,
    ) -> None:
        self._name, self._intake, self._given = name, intake, given
        self._results, self._failures = results, failures
        self._plans: dict[tuple[int, frozenset[tuple[int, bool]], frozenset[str]], Plan] = {}
        #: from so many commands on, every job of the catalogue can be built or is known to have failed
        self._verified_from = 0
        #: after so many commands nothing of dropped jobs is open any more
        self._closed_through = 0
        #: the epoch in which jobs fail here that did not fail at the leader, and how often it was tried
        self._diverging, self._tries = -1, 0
        #: why outputs of the app have failed since the engine started, by name
        self._errors_of_outputs: dict[str, PenstockError] = {}

    def mark_verified(self, commands: int) -> None:
        """After so many commands, every job can be built or has failed: the text that the program starts with was
        checked."""
        self._verified_from = commands

    def isolates_failures(self, commands: int) -> bool:
        """Whether a job of the catalogue after so many commands may fail alone. An error in the code of an app's only
        output ends the engine."""
        if self._given.app is None:
            return True
        history = self._intake.history
        with self._intake.lock:
            if commands > history.count:
                self._intake.read_new()
            if commands > history.count:  # commands that this engine cannot see yet
                return True
            jobs = history.after(commands).jobs.values()
            return len(jobs) > 1 or any(not entry.in_app_plan or entry.code for entry in jobs)

    def altered_outputs(self) -> list[str]:
        """The outputs of the app that were altered and have kept their state, which is part of the app's plan."""
        with self._intake.lock:
            jobs = self._intake.history.latest.jobs
        return [name for name, entry in jobs.items() if entry.in_app_plan and entry.code is not None]

    # -- plans -----------------------------------------------------------------------------------

    def plan(
        self, commands: int, without: Mapping[int, bool] | None = None, to_suspend: Collection[str] = ()
    ) -> Plan:
        """The plan once the commands up to this number are executed; `without` jobs that have failed, each with whether
        its state is dropped too. Outputs in `to_suspend` get no events for state of their own;
        `Plan.suspended_outputs` names those that have any. Other outputs do not notice."""
        with self._intake.lock:
            key = commands, frozenset((without or {}).items()), frozenset(to_suspend)
            if key not in self._plans:
                self._plans[key] = self._make_plan(commands, without or {}, to_suspend)
                for old in list(self._plans)[:-_CACHED_PLANS]:
                    del self._plans[old]
            return self._plans[key]

    def _make_plan(self, commands: int, without: Mapping[int, bool], to_suspend: Collection[str]) -> Plan:
        catalogue, builder = self._intake.history.after(commands), self._intake.builder
        present = {
            name: entry
            for name, entry in catalogue.jobs.items()
            if not without.get(entry.number, entry.left_out)
        }
        in_app = [
            replace(entry, master=replace(entry.master, life="failed")) if entry.number in without else entry
            for entry in present.values()
            if entry.shares_app_plan
        ]
        jobs = [
            PlannedJob(
                builder.job(name, catalogue),
                "failed" if entry.number in without else entry.master.life,
                builder.sinks(entry),
                entry.recovery,
            )
            for name, entry in present.items()
            if not entry.shares_app_plan
        ]
        app_alone = not jobs and not catalogue.last_number
        return plan_epoch(self._name, jobs, to_suspend, self._given.app, in_app, app_alone=app_alone)

    def flushed_jobs(self, after: int, through: int) -> frozenset[int]:
        """The numbers of the jobs that commands flush, after one command and up to another."""
        if after == through:
            return frozenset()
        history = self._intake.history
        names = [one.name for one in history.between(after, through) if isinstance(one, FlushJob)]
        if not names:
            return frozenset()
        jobs = history.after(through).jobs
        return frozenset(jobs[name].number for name in names if name in jobs)

    def previous_rows(self, epoch: int, commands: int, plan: Plan) -> Mapping[str, bytes]:
        """What jobs emitted in the epoch before this one, where other jobs of the plan read it (Arrow)."""
        found: dict[str, bytes] = {}
        if plan.jobs is None or not plan.jobs.previous:
            return found
        with self._intake.lock:
            jobs = self._intake.history.after(commands).jobs
        for job, columns in plan.jobs.previous.items():
            rows = self._emitted_rows(jobs[job].result_key, epoch - 1) if job in jobs else None
            if rows is not None:
                found[job] = stream_bytes(cast_to_schema(rows, columns)).to_pybytes()
        return found

    def _emitted_rows(self, output: str, epoch: int) -> pl.DataFrame | None:
        rows = self._results.of(output, epoch)
        return self._results.of(_UNSEEN + output, epoch) if rows is None else rows

    # -- failures --------------------------------------------------------------------------------

    def failures(self, epoch: int, commands: int) -> Mapping[int, bool]:
        """The jobs without which an epoch is executed, and of each whether its state is dropped too: where it failed
        even without events, or cannot be built any more."""
        with self._intake.lock:
            if commands < self._verified_from:  # the epoch started before a restart
                catalogue = self._intake.history.after(commands)
                broken = find_broken_jobs(self._intake.builder, catalogue)
                errors = {catalogue.jobs[name].number: error for name, error in broken.items()}
                known = self._known_failures(epoch, commands)
                unknown = {number: error for number, error in errors.items() if not known.get(number)}
                if unknown:
                    self._fail(epoch, commands, unknown, lost=unknown)
        return self._known_failures(epoch, commands)

    def _known_failures(self, epoch: int, commands: int) -> dict[int, bool]:
        return self._failures.of(epoch, lambda: self._intake.history.after(commands))

    def record_failures(self, epoch: int, commands: int, errors: Mapping[int, PenstockError]) -> None:
        """Record for good that jobs failed in an epoch, before it is executed without them. Raises the error of the
        outputs of an app that are the last to run."""
        with self._intake.lock:
            jobs, known = self._intake.history.after(commands).jobs, self._known_failures(epoch, commands)
            errors = _leave_out_last_outputs(jobs.values(), known, errors)
            if not self._intake.leads:
                self._count_divergence(epoch, next(iter(errors.values())))
                return
            lives = {entry.number: entry.master.life for entry in jobs.values()}
            # it got no events and failed all the same: time alone breaks its state
            lost = [number for number in errors if number in known or lives.get(number) != "running"]
            self._fail(epoch, commands, errors, lost)

    def _count_divergence(self, epoch: int, error: PenstockError) -> None:
        """The leader committed the epoch with jobs that fail here: try it once more, or give up."""
        self._tries = self._tries + 1 if self._diverging == epoch else 1
        self._diverging = epoch
        if self._tries >= _TRIES:
            raise diverging_error(f"fails in epoch {epoch} here", error) from error

    def pause_jobs(self, commands: int, errors: Mapping[int, PenstockError]) -> None:
        """Stop jobs of the catalogue after so many commands, from a later epoch on."""
        if self._intake.leads:
            self._decide_failed(commands, errors)

    def _fail(
        self, epoch: int, commands: int, errors: Mapping[int, PenstockError], lost: Collection[int]
    ) -> None:
        jobs = [
            entry for entry in self._intake.history.after(commands).jobs.values() if entry.number in errors
        ]
        errors = {entry.number: _with_hint(entry, errors[entry.number]) for entry in jobs}
        # in this order: killed in between, the epoch is decided again; otherwise the job's failure would get lost
        self._decide_failed(commands, errors, lost)
        self._failures.put(
            self._intake.fenced_directory,
            epoch,
            {failure_key(entry): errors[entry.number] for entry in jobs},
            {failure_key(entry) for entry in jobs if entry.number in lost},
        )
        for entry in jobs:
            if entry.of_app:
                _LOG.warning("the output %s fails in epoch %d: %s", entry.name, epoch, errors[entry.number])
        self._errors_of_outputs |= {entry.name: errors[entry.number] for entry in jobs if entry.of_app}

    def _decide_failed(
        self, commands: int, errors: Mapping[int, PenstockError], lost: Collection[int] = ()
    ) -> None:
        with self._intake.lock:
            jobs = self._intake.history.after(commands).jobs.values()
            failures = [
                fail_command(entry, errors[entry.number], entry.number in lost)
                for entry in jobs
                if entry.number in errors
            ]
            self._intake.decide(lambda now: failures)

    def failed_outputs(self) -> Iterator[PenstockError]:
        """Why outputs of the app that an engine started with have failed and were not resumed since."""
        for entry in self._intake.catalogue.jobs.values():
            if entry.of_app and entry.master.life == "failed":
                known = self._errors_of_outputs.get(entry.name)
                is_of_this_run = known is not None and known.text() == entry.master.error
                yield known if known is not None and is_of_this_run else _earlier_failure(entry)

    # -- state and results -----------------------------------------------------------------------

    def drop_state(
        self, commands: int, plan: Plan, outputs: Collection[str], manifest: Manifest
    ) -> tuple[Manifest, Mapping[str, int]]:
        """Drop the own state of outputs of a plan: return the manifest without it for those that share the app's plan;
        other jobs start empty from a later epoch on. And its bytes, where they are known."""
        with self._intake.lock:
            then = self._intake.history.after(commands)
            in_app = {name for name in outputs if then.jobs[name].in_app_plan}
            sizes: dict[str, int] = {}
            if in_app:
                assert self._given.app is not None
                present = [name for name, entry in then.jobs.items() if entry.in_app_plan]
                shared = keep_outputs(self._given.app.plan, present)
                manifest, sizes = drop_state_in_app(shared, in_app, manifest)
            if others := set(outputs) - in_app:
                self._intake.decide(lambda now: reset_commands(others, then, now))
            return manifest, {**sizes, **own_state_bytes(others, plan, manifest)}

    def emit(
        self,
        epoch: int,
        record: EpochRecord,
        rows: Mapping[str, pl.DataFrame],
        only_for_jobs: Mapping[str, pl.DataFrame],
        side_output: pl.DataFrame | None,
        last: Mapping[str, int],
    ) -> frozenset[str]:
        """Append what an epoch emits to the result log, before it is committed; returns the keys of the outputs with
        rows. `only_for_jobs`: rows that no sink gets; `last`: how many of an output's rows, at their end, are its
        latest result, where that is not all."""
        with self._intake.lock:
            jobs = self._intake.history.after(record.commands).jobs
        keys = {name: jobs[name].result_key for name in {*rows, *only_for_jobs}}
        emitted = {keys[name]: frame for name, frame in rows.items()}
        unseen = {_UNSEEN + keys[name]: frame for name, frame in only_for_jobs.items()}
        side = {} if side_output is None else {SIDE_OUTPUT: side_output}
        counts = {keys[name]: count for name, count in last.items() if name in rows}
        self._results.append(epoch, {**emitted, **unseen, **side}, counts, record.digest)
        return frozenset(name for name, frame in {**emitted, **side}.items() if frame.height)

    def recoveries(self, commands: int) -> Mapping[str, Semantics | None]:
        """The recovery that each job of the catalogue after so many commands declares, by its key in the result log."""
        with self._intake.lock:
            jobs = self._intake.history.after(commands).jobs.values()
        return {entry.result_key: entry.recovery for entry in jobs}

    def fail_job(self, entry: JobEntry, error: PenstockError) -> None:
        """Fail a job, whose state stays: it continues once it is resumed."""
        self._intake.decide(lambda now: [fail_command(entry, error, lost=False)])

    def close_unused(self, commands: int) -> None:
        """Close what no epoch needs any more, once one that executes so many commands is committed; deliver again
        to the sinks of jobs that are resumed."""
        if commands <= self._closed_through:
            return
        with self._intake.lock:
            history = self._intake.history
            latest = history.latest
            self._intake.sinks.close_unused(history.after(commands), latest)
        running = [one.result_key for one in latest.jobs.values() if one.master.life == "running"]
        self._intake.sinks.resume(running)
        self._closed_through = commands

    def forget_before(self, commands: int, epoch: int) -> None:
        """No epoch with fewer commands is executed or repeated any more here, and none before this one by any engine of
        the unit."""
        with self._intake.lock:
            self._intake.fold(commands)
            history = self._intake.history
            jobs = [*history.after(commands).jobs.values(), *history.latest.jobs.values()]
            if self._intake.leads:
                self._failures.remove_before(epoch)
        keys = {one.result_key for one in jobs}
        # an epoch that was under way when its job was dropped has brought a result of it back
        self._results.keep_only({SIDE_OUTPUT, *keys, *(_UNSEEN + key for key in keys)})


def _leave_out_last_outputs(
    jobs: Collection[JobEntry], known: Collection[int], errors: Mapping[int, PenstockError]
) -> Mapping[int, PenstockError]:
    """The errors of jobs that fail alone: all, but those of the outputs of an app without which nothing would run.
    Raises where only these are left."""
    running = [entry for entry in jobs if entry.master.life == "running" and entry.number not in known]
    last = [entry.number for entry in running if entry.shares_app_plan and entry.number in errors]
    if not last or any(entry.number not in errors for entry in running):
        return errors
    others = {number: error for number, error in errors.items() if number not in last}
    if not others:
        raise errors[last[0]]
    return others


def _with_hint(entry: JobEntry, error: PenstockError) -> PenstockError:
    """The error of a job that fails alone. An output of an app got one for the end of the engine."""
    if not entry.in_app_plan or (error.condition.startswith("JOB_") and error.hint):
        return error
    hint = f"Start again with its code fixed, and RESUME JOB {entry.name}: it continues without the events since."
    return type(error)(error.condition, error.primary, detail=error.detail, where=error.where, hint=hint)


def _earlier_failure(entry: JobEntry) -> UserError:
    return UserError(
        "OUTPUT_FAILED",
        f"the output {entry.name} has failed and was not resumed: it lacks results",
        detail=entry.master.error,
        hint=f"Run the app without `--drain`, and execute RESUME JOB {entry.name}.",
    )


def diverging_error(what: str, failure: Exception) -> ExternalError:
    """The error that ends an engine which cannot follow its leader."""
    return ExternalError(
        "FOLLOWS_OTHERWISE",
        f"a job {what}, unlike at the engine that leads",
        detail=failure.text()
        if isinstance(failure, PenstockError)
        else f"{type(failure).__name__}: {failure}",
        hint="The leader continues. Another engine is started and takes over its state.",
    )
