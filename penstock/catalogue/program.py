"""What an engine runs: a catalogue of streams and jobs, changed by commands; a plan for every epoch comes of it.

An engine that starts with an app has the app's outputs as jobs, before the first command. They share one plan as long
as no command changes them. Jobs of SQL and Python come, change and go beside them.

Guarantees: the statements of one request are accepted as a whole or not at all, and what is accepted is on disk. It
takes effect at the boundary of the epoch whose offsets name it, in a repeated epoch too. A job that failed is left out
of the epoch in which it did, and that is kept as well. Other processes may accept commands for the same jobs (`join`):
each is checked against all before it, and a request that is sent again is executed once. An engine that follows another
(`start`) decides nothing itself: the other decides which commands an epoch takes in and which jobs fail in it.

What reads SQL is loaded with the first statement: it takes a while, which an engine of an app alone is spared.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from penstock.catalogue.accepted import Accepted
from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.broken_jobs import broken, failing, touched
from penstock.catalogue.catalogue import Catalogue, JobEntry, alike, code_in, named
from penstock.catalogue.code import CodeBundle
from penstock.catalogue.code_library import CodeLibrary
from penstock.catalogue.code_requests import CodeRequest, text_of
from penstock.catalogue.code_store import CodeStore
from penstock.catalogue.command import Answered, Command, FlushJob, RemoveJob
from penstock.catalogue.command_history import Known
from penstock.catalogue.epoch_failures import Failures
from penstock.catalogue.followed_results import FollowedResults
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations
from penstock.catalogue.messages import Deliver
from penstock.catalogue.open_sinks import Opening
from penstock.catalogue.planner import PlannedJob, plan_epoch
from penstock.catalogue.questions import Asking
from penstock.catalogue.repeated_requests import answering, repeated
from penstock.catalogue.reset_state import drop_state_in_app, own_state_bytes, reset_commands
from penstock.catalogue.results import Results, as_declared
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.query.physical import Plan, ScanPlan
from penstock.query.stream import Stream
from penstock.sql.scope import UserFunction
from penstock.state.generation import FencedDirectory
from penstock.state.ipc import stream_bytes
from penstock.state.manifest import Manifest

if TYPE_CHECKING:
    from penstock.catalogue.commands import Desk
    from penstock.catalogue.script import Script

#: starts the log of a stream of this name, unless it has started; raises if it cannot be read
StartLog = Callable[[str, ScanPlan], None]
#: how many plans are kept at hand
_AT_HAND = 8
#: how often an engine that follows tries an epoch in which jobs fail that have not failed where it was decided
_TRIES = 3


class Program(Asking):
    """The streams and jobs of one state directory. `app`: what the engine starts with; the results of its outputs are
    kept only if it `keeps_results`."""

    def __init__(
        self,
        name: str,
        state: Path,
        *,
        app: AppPlan | None = None,
        keeps_results: bool = True,
        streams: Mapping[str, Stream] | None = None,
        queries: Mapping[str, Stream] | None = None,
        functions: Mapping[str, UserFunction] | None = None,
        deliver: Mapping[str, Deliver] | None = None,
        begin: str = "",
        file: str | None = None,
        most: int = 10_000,
        fold_after: int = 1_000,
        follows: bool = False,
        shared: bool = False,
    ) -> None:
        self.name = name
        given = PythonDeclarations(streams or {}, queries or {}, functions or {}, deliver or {}, app)
        self._deliver, self._given, self._keeps_results = given.deliver, given, keeps_results
        self._lock = threading.RLock()
        base = Catalogue()
        if app is not None:
            outputs = {name: output.recovery for name, output in app.plan.outputs.items()}
            base = Catalogue.of_app(outputs, app.plan.scans)
        self._known, self._failures, self._code = Known(state, base), Failures(state), CodeStore(state)
        self._builder = JobBuilder(given, CodeLibrary(self._code))
        self._most, self._opening = most, Opening(self._builder)
        self._results: Results = FollowedResults(state) if follows else Results(state)
        self._fold_after, self._follows, self._shared = fold_after, follows, shared
        #: where what its engine decides is written: one that nobody has taken lets anybody
        self._fenced_directory = FencedDirectory(state / "generations")
        self._plans: dict[tuple[int, frozenset[tuple[int, bool]], frozenset[str]], Plan] = {}
        #: from so many commands on, every job of the catalogue can be made or is known to have failed
        self._sound = 0
        #: whether its engine decides; otherwise, how many commands the epochs take in that it was given, and the one
        #: that goes otherwise here than it did there, with how often it was tried
        self._leads, self._taken_in, self._astray = True, 0, (-1, 0)
        #: what was answered to the text it began with
        self.answers: list[Answered] = []
        self._first, self._file = begin, file

    # -- what it is ------------------------------------------------------------------------------

    @property
    def app_plan(self) -> Plan | None:
        """The plan of the app that the engine starts with; None: it starts with jobs."""
        return None if self._given.app is None else self._given.app.plan

    @property
    def fingerprint(self) -> str:
        """What the shape of its state depends on for life."""
        return f"jobs:{self.name}" if self.app_plan is None else self.app_plan.fingerprint

    @property
    def former_fingerprint(self) -> str:
        """The same in a state directory of format 1."""
        return f"jobs:{self.name}" if self.app_plan is None else self.app_plan.former_fingerprint

    @property
    def summary(self) -> str:
        """It, in a line."""
        return "jobs that come and go" if self.app_plan is None else self.app_plan.summary

    @cached_property
    def code(self) -> Mapping[str, str]:
        """The digests of the code that Python gave, by names: equal in engines that may be replicas of each other. That
        of statements is in the commands, which all engines have."""
        return self._given.code()

    @cached_property
    def _desk(self) -> Desk:
        from penstock.catalogue.commands import Desk

        return Desk(self._builder, self._given, self._most)

    def isolates_failures(self, commands: int) -> bool:
        """Whether a job of the catalogue after so many commands may fail alone. An error in the code of the app that an
        engine started with ends the engine."""
        if self.app_plan is None:
            return True
        with self._lock:
            if commands > self._known.count:
                self._follow()
            if commands > self._known.count:  # commands that this engine cannot see yet
                return True
            return any(
                not entry.in_app_plan or entry.code for entry in self._known.after(commands).jobs.values()
            )

    # -- commands --------------------------------------------------------------------------------

    @property
    def commands(self) -> int:
        with self._lock:
            if not self._leads:
                return self._taken_in
            self._follow()
            return self._known.count

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue with all commands so far."""
        with self._lock:
            self._follow()
            return self._known.latest

    def say(self, text: str, request: str | None = None) -> list[Answered]:
        """Take statements in, all or none; hands an answer to each. Said again under the same `request`, they are
        answered as they were and nothing else happens."""
        said = _script(text)

        def accepted(catalogue: Catalogue) -> Accepted:
            made = None if request is None else repeated(request, text, catalogue)
            if made is None:
                made = self._desk.accepted(said, catalogue)
                if request is not None and made.commands:
                    made.note(answering(request, text, made.answers, self._known.count + 1))
            return made

        return self._taken(accepted)

    def submit(self, request: CodeRequest, name: str | None = None, *, check: bool = False) -> list[Answered]:
        """Take in the Python of jobs, as a file has it: create or alter one, or deploy all of a file. What it brings is
        on disk when it is answered. Submitted again under the same `name`, it is answered as it was; with `check`
        nothing is changed."""
        with self._builder.library.considering(request.code):
            self._desk.submission.prepare(request)  # it runs the user's code: nothing waits for that

            def accepted(catalogue: Catalogue) -> Accepted:
                made = None if name is None else repeated(name, text_of(request), catalogue)
                if made is None:
                    made = self._desk.submitted(request, catalogue)
                    if name is not None and made.commands:
                        number = self._known.count + 1
                        made.note(answering(name, text_of(request), made.answers, number))
                return made

            if check:
                with self._lock:
                    return accepted(self.catalogue).answers
            return self._taken(accepted, code=request.code)

    def checked(self, text: str) -> list[Answered]:
        """What would be answered to statements; nothing is carried out."""
        said = _script(text)
        with self._lock:
            return self._desk.accepted(said, self.catalogue).answers

    def _decided(self, commands: Callable[[Catalogue], Sequence[Command]]) -> None:
        """Take in what this engine says because it leads; FENCED if another does by now."""
        self._taken(lambda now: Accepted(now).noted(commands(now)), self._fenced_directory)

    def _taken(
        self,
        accepted: Callable[[Catalogue], Accepted],
        on: FencedDirectory | None = None,
        code: CodeBundle | None = None,
    ) -> list[Answered]:
        """Take in what is accepted once all there is is known: asked again where others were first. The code it brings
        is there before the commands that need it."""
        with self._lock:
            while True:
                made = accepted(self.catalogue)
                if not made.commands:
                    return made.answers
                # where another may be first, nothing is opened before it is certain
                shared = self._shared or self._desk.carrier is not None
                self._opening.make_ready(
                    made.catalogue, touched(made.commands, made.catalogue), opens=not shared
                )
                brings = code is not None and code.digest in code_in(made.commands)
                if code is not None and brings:
                    self._code.put(code, on)
                number = self._known.log.append(made.commands, on)
                if number is not None:
                    if code is not None and brings:
                        self._code.put(
                            code, on
                        )  # an engine may have removed it that did not know of the command
                    self._add([made.commands], made.catalogue)
                    if shared:
                        self._admit(made.commands)
                    return [answer.numbered(number) for answer in made.answers]

    def _follow(self) -> None:
        """Take in what other processes have added to the log."""
        entries = self._known.log.news()
        if entries is None:
            self._known.load(ours=False)
        elif entries:
            self._add(entries)
            self._admit([command for entry in entries for command in entry])

    def _admit(self, commands: Sequence[Command]) -> None:
        """Open what commands that were taken in need; jobs that cannot be made here, or not opened, fail."""
        if self._opening.begun and self._leads:
            self._try(named(commands))

    def _try(self, names: Collection[str]) -> None:
        if not names:
            return
        after = self._known.latest
        said = [failing(after.jobs[job], error) for job, error in broken(self._builder, after).items()]
        known = {command.name for command in said}
        for name in (set(names) & after.jobs.keys()) - known:
            try:
                self._opening.open(after, [name])
            except PenstockError as error:
                said.append(failing(after.jobs[name], error))
        if said:
            self._decided(lambda now: said)

    def _add(self, entries: Sequence[Sequence[Command]], after: Catalogue | None = None) -> None:
        drops = any(isinstance(command, RemoveJob) for entry in entries for command in entry)
        gone = {entry.told_as for entry in self._known.latest.jobs.values()} if drops else set()
        self._known.add(entries, after)
        now = self._known.latest
        for job in gone - {entry.told_as for entry in now.jobs.values()} if drops else ():
            self._results.forget(job)
        if self._follows and len(self._known.entries) > self._fold_after:  # it repeats no epochs
            self._known.forget(self._known.count)

    # -- what the engine asks for ----------------------------------------------------------------

    def start(self, *, follows: bool = False, fenced_directory: FencedDirectory | None = None) -> None:
        """Have the streams and jobs of the text that the program starts with, whatever there is already: create what is
        missing, alter what is different now, leave what the text does not name. The first call of all: the state
        directory is this engine's now, and what the engine decides is written in this
        `fenced_directory`. Where other processes
        accept commands, one of those submits the text: an engine may have read another version of it. An engine that
        follows submits it once it leads."""
        with self._lock:
            self._leads, self._fenced_directory = not follows, fenced_directory or self._fenced_directory
            self._known.load(ours=self._leads)
            self._check_app()
            if self._leads:
                self._begin()
            self._load_results()

    def _load_results(self) -> None:
        self._results.load([entry.told_as for entry in self.catalogue.jobs.values() if self._keeps(entry)])

    def _keeps(self, entry: JobEntry) -> bool:
        """Whether the results of a job are kept."""
        return self._keeps_results or not entry.of_app

    def _check_app(self) -> None:
        """Raise where the app has got an output or a stream of a name that a command has given meanwhile."""
        app, now = self._given.app, self._known.latest
        if app is None:
            return
        taken = [
            n for n in app.plan.outputs if n in now.jobs and not now.jobs[n].of_app and n not in now.removed
        ]
        created = [n for n, entry in now.streams.items() if entry.text or entry.code is not None]
        streams = [n for n in app.plan.scans if n in created]
        for kind, name in [*(("job", name) for name in taken), *(("stream", name) for name in streams)]:
            raise UserError(
                "NAME_TAKEN",
                f"the app defines {name}, and a command has created a {kind} of that name",
                hint=f"Give the app's another name, or start with the app as it was and DROP {kind.upper()} {name}.",
            )

    def _begin(self) -> None:
        given = self._given
        if self._first or given.streams or given.queries or self._known.count:
            self._say_first(_script("" if self._shared else self._first, self._file), self._fenced_directory)
        self._sound = self.commands

    def _say_first(self, said: Script, fenced_directory: FencedDirectory | None = None) -> None:
        desk, known = self._desk, self._known
        self.answers = self._taken(lambda now: desk.begun(said, now, first=not known.count), fenced_directory)

    def join(self, *, begin: bool = False) -> None:
        """Know the jobs that an engine elsewhere runs, and accept commands for it; with `begin` first of all the text
        that the program starts with."""
        begin = begin and bool(self._first or self._given.streams or self._given.queries)
        with self._lock:
            self._known.load(ours=False)
            self._check_app()
            if begin:
                self._say_first(_script(self._first, self._file))
            self._load_results()

    def open(self, state: str, start_log: StartLog, commands: int = 0) -> None:
        """Open the sinks before anything runs, for the state of this id. `start_log` starts the logs of streams that
        come later; recorded epochs take in so many `commands`, or for one that follows those that it has done."""
        with self._lock:
            self._opening.begin(state, start_log)
            if not self._leads:
                self._open_as_led(commands, self._known.after(commands).jobs)
            else:
                self._open_all(commands if self._shared else self.commands)

    def _open_as_led(self, taken: int, names: Collection[str]) -> None:
        """Open jobs of the catalogue after so many commands, which are open with the engine that leads; those that do
        not run, once they are resumed."""
        then = self._known.after(taken)
        try:
            self._opening.open(then, then.jobs.keys() & set(names), asleep=False)
        except Exception as failure:  # the user's own code may raise anything
            raise _otherwise("cannot be made or opened here", failure) from failure
        self._taken_in = taken

    def _open_all(self, taken: int, but: Collection[str] = ()) -> None:
        """What other processes took in while no engine led, no engine has tried: where it cannot be opened, the job
        fails alone."""
        catalogue, known = self.catalogue, self._known
        then = known.after(min(max(taken, known.folded), known.count))
        jobs = {name: entry for name, entry in catalogue.jobs.items() if name not in but}
        tried = [name for name, entry in jobs.items() if alike(then.jobs.get(name), entry)]
        self._opening.open(catalogue, tried)
        self._try(jobs.keys() - set(tried))

    def _asleep(self) -> set[str]:
        """The jobs that run neither now nor in an epoch that is recorded and still to be carried out here."""
        if self._taken_in < self._known.folded:
            return set()
        then, said = self._known.after(self._taken_in), self._known.between(self._taken_in, self._known.count)
        return {name for name, entry in then.jobs.items() if entry.master.life != "running"} - named(said)

    def follow_commands(self, commands: int) -> None:
        """While it follows, before an epoch that takes in so many commands: open the sinks of new jobs."""
        with self._lock:
            if commands == self._taken_in:
                return
            self._follow()
            self._open_as_led(commands, named(self._known.between(self._taken_in, commands)))

    def lead(self, taken: int) -> None:
        """This engine followed and decides from now on; recorded epochs take in so many commands."""
        with self._lock:
            self._leads = True
            self._begin()
            self._open_all(taken, self._asleep())
            self._results.only({entry.told_as for entry in self.catalogue.jobs.values()})

    def close(self) -> None:
        """Close the sinks, last of all."""
        with self._lock:
            self._opening.close()

    def plan(
        self, commands: int, without: Mapping[int, bool] | None = None, resting: Collection[str] = ()
    ) -> Plan:
        """The plan once the commands up to this number are executed; `without` some jobs, which have failed: each with
        whether its state goes too. `resting` outputs get no events for state of their own; `Plan.idle_outputs` names
        those that have any. Nothing is different for other outputs."""
        with self._lock:
            key = commands, frozenset((without or {}).items()), frozenset(resting)
            if key not in self._plans:
                self._plans[key] = self._planned(commands, without or {}, resting)
                for old in list(self._plans)[:-_AT_HAND]:
                    del self._plans[old]
            return self._plans[key]

    def flushed_jobs(self, after: int, through: int) -> frozenset[int]:
        """The jobs that commands after one number, up to another, ask for their open windows."""
        if after == through:
            return frozenset()
        said = self._known.between(after, through)
        named = [command.name for command in said if isinstance(command, FlushJob)]
        if not named:
            return frozenset()
        jobs = self._known.after(through).jobs
        return frozenset(jobs[name].number for name in named if name in jobs)

    def previous_rows(self, epoch: int, commands: int, plan: Plan) -> Mapping[str, bytes]:
        """What jobs emitted in the epoch before this one, where the plan has others that read it (Arrow)."""
        found: dict[str, bytes] = {}
        if plan.jobs is None or not plan.jobs.previous:
            return found
        with self._lock:
            jobs = self._known.after(commands).jobs
        for job, columns in plan.jobs.previous.items():
            rows = self._results.of(jobs[job].told_as, epoch - 1) if job in jobs else None
            if rows is not None:
                found[job] = stream_bytes(as_declared(rows, columns)).to_pybytes()
        return found

    def failures(self, epoch: int, commands: int) -> Mapping[int, bool]:
        """The jobs without which an epoch that takes in so many commands is executed, and of each whether its state
        goes too: where it failed even without events, or cannot be made any more."""
        with self._lock:
            if commands < self._sound:  # an epoch that was begun before a restart
                catalogue = self._known.after(commands)
                errors = {catalogue.jobs[n].number: e for n, e in broken(self._builder, catalogue).items()}
                known = self._failures.of(epoch)
                unknown = {number: error for number, error in errors.items() if not known.get(number)}
                if unknown:
                    self._fail(epoch, commands, unknown, lost=unknown)
        return self._failures.of(epoch)

    def record_failures(self, epoch: int, commands: int, errors: Mapping[int, PenstockError]) -> None:
        """Jobs failed in an epoch, before it is executed without them. Kept for good."""
        with self._lock:
            if not self._leads:
                self._again(epoch, next(iter(errors.values())))
                return
            lives = {entry.number: entry.master.life for entry in self._known.after(commands).jobs.values()}
            known = self._failures.of(epoch)
            # it got no events and failed all the same: time alone is too much for what it keeps
            lost = [number for number in errors if number in known or lives.get(number) != "running"]
            self._fail(epoch, commands, errors, lost)

    def _again(self, epoch: int, error: PenstockError) -> None:
        """The epoch is committed elsewhere with the jobs that fail here: it is tried once more, or given up."""
        tries = self._astray[1] + 1 if self._astray[0] == epoch else 1
        self._astray = epoch, tries
        if tries >= _TRIES:
            raise _otherwise(f"fails in epoch {epoch} here", error) from error

    def pause_jobs(self, commands: int, errors: Mapping[int, PenstockError]) -> None:
        """Have jobs of the catalogue after so many commands paused, from a later epoch on."""
        if self._leads:
            self._note(commands, errors)

    def _fail(
        self, epoch: int, commands: int, errors: Mapping[int, PenstockError], lost: Collection[int]
    ) -> None:
        # in this order: killed in between, the epoch is decided again; the other way round nobody would say it failed
        self._note(commands, errors, lost)
        self._failures.put(self._fenced_directory, epoch, errors, lost)

    def _note(self, commands: int, errors: Mapping[int, PenstockError], lost: Collection[int] = ()) -> None:
        """Have a command say that jobs failed."""
        with self._lock:
            found = [entry for entry in self._known.after(commands).jobs.values() if entry.number in errors]
            said = [failing(entry, errors[entry.number], entry.number in lost) for entry in found]
            self._decided(lambda now: said)

    def drop_state(
        self, commands: int, plan: Plan, outputs: Collection[str], manifest: Manifest
    ) -> tuple[Manifest, Mapping[str, int]]:
        """Have the own state of outputs of a plan start empty: the manifest without it where they share the app's plan;
        for other jobs it is gone from a later epoch on. And its bytes, where they are known."""
        with self._lock:
            then = self._known.after(commands)
            in_app = {name for name in outputs if then.jobs[name].in_app_plan}
            sizes: dict[str, int] = {}
            if in_app:
                assert self.app_plan is not None
                manifest, sizes = drop_state_in_app(self.app_plan, in_app, manifest)
            if others := set(outputs) - in_app:
                self._decided(lambda now: reset_commands(others, then, now))
            return manifest, {**sizes, **own_state_bytes(others, plan, manifest)}

    def keep_results(
        self, epoch: int, commands: int, rows: Mapping[str, pl.DataFrame], last: Mapping[str, int]
    ) -> None:
        """Keep what an epoch that takes in so many commands has emitted, after its sinks have it and before it is
        committed; and how many of an output's rows, at their end, are its last answer, where that is not all."""
        with self._lock:
            jobs = self._known.after(commands).jobs
        kept = {name: frame for name, frame in rows.items() if self._keeps(jobs[name])}
        named = {jobs[name].told_as: count for name, count in last.items() if name in kept}
        self._results.put(epoch, {jobs[name].told_as: frame for name, frame in kept.items()}, named)

    def forget_commands_before(self, commands: int) -> None:
        """No epoch is executed or repeated any more that takes in fewer commands than so many."""
        with self._lock:
            if commands - self._known.folded > self._fold_after:
                if self._leads:
                    self._known.log.fold(commands, self._known.after(commands))
                self._known.forget(commands)
                self._forget_code()

    # -- inside ----------------------------------------------------------------------------------

    def _forget_code(self) -> None:
        """Remove the code that neither the catalogue that is folded nor a command after it needs."""
        needed = self._known.after(self._known.folded).code
        needed |= code_in([command for entry in self._known.entries for command in entry])
        if self._leads:
            self._code.keep_only(needed)
        self._builder.library.forget(needed)

    def _planned(self, commands: int, without: Mapping[int, bool], rest: Collection[str]) -> Plan:
        catalogue = self._known.after(commands)
        present = {
            name: entry
            for name, entry in catalogue.jobs.items()
            if not without.get(entry.number, entry.left_out)
        }
        in_app = [entry for entry in present.values() if entry.in_app_plan and entry.code is None]
        jobs = [
            PlannedJob(
                self._builder.job(name, catalogue),
                "failed" if entry.number in without else entry.master.life,
                self._builder.sinks(entry),
                entry.recovery,
            )
            for name, entry in present.items()
            if not entry.in_app_plan or entry.code is not None
        ]
        return plan_epoch(self.name, jobs, rest, self._given.app, in_app)


def _script(text: str, file: str | None = None) -> Script:
    from penstock.catalogue.script import script

    return script(text, file)


def _otherwise(what: str, failure: Exception) -> ExternalError:
    """What ends an engine that cannot follow."""
    return ExternalError(
        "FOLLOWS_OTHERWISE",
        f"a job {what}, unlike with the engine that leads",
        detail=failure.text()
        if isinstance(failure, PenstockError)
        else f"{type(failure).__name__}: {failure}",
        hint="That one goes on. Another engine is started, and takes over its state.",
    )


def __getattr__(name: str) -> type[Program]:
    """The former name of the program, for one version."""
    if name == "Jobs":
        warnings.warn("penstock.catalogue.program.Jobs is Program", DeprecationWarning, stacklevel=2)
        return Program
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
