"""Jobs that come and go, as a program the engine runs: commands in, a plan for every epoch out.

Receives SQL statements and what Python gives; hands an answer to every command at once, and each epoch its plan.

Guarantees: what was said in one go is accepted as a whole or not at all, and what is accepted is on disk. It takes
effect at the boundary of the epoch whose offsets name it, in a repeated epoch too. A job that failed is left out of the
epoch in which it did, and that is kept as well. Other processes may take in commands for the same jobs (`joined`): each
is checked against all before it, whoever took those in, and what is said again under the same request is done once.
Where its engine follows another's epochs (`begun`), it says nothing itself: which commands an epoch takes in and which
jobs fail in it, that one has decided.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import polars as pl

from penstock.catalogue.accepted import Accepted
from penstock.catalogue.broken_jobs import broken, failing, touched
from penstock.catalogue.catalogue import Catalogue, alike, code_in, named
from penstock.catalogue.code import CodeBundle
from penstock.catalogue.code_library import CodeLibrary
from penstock.catalogue.code_requests import CodeRequest, text_of
from penstock.catalogue.code_store import CodeStore
from penstock.catalogue.command import Answered, Command, FlushJob, RemoveJob
from penstock.catalogue.command_history import Known
from penstock.catalogue.commands import Desk
from penstock.catalogue.epoch_failures import Failures
from penstock.catalogue.followed_results import FollowedResults
from penstock.catalogue.job_builder import Given, Workshop
from penstock.catalogue.messages import Deliver
from penstock.catalogue.open_sinks import Opening
from penstock.catalogue.planner import Placed
from penstock.catalogue.questions import Asking
from penstock.catalogue.repeated_requests import answering, repeated
from penstock.catalogue.results import Results, as_declared
from penstock.catalogue.script import Script, script
from penstock.catalogue.skipped_jobs import bytes_of, emptying, planned_resting
from penstock.errors import ExternalError, PenstockError
from penstock.query.physical import Plan, ScanPlan
from penstock.query.stream import Stream
from penstock.sql.scope import UserFunction
from penstock.state.generation import FencedDirectory
from penstock.state.ipc import stream_bytes
from penstock.state.manifest import Manifest

#: how many plans are kept at hand
_AT_HAND = 8
#: how often an engine that follows tries an epoch in which jobs fail that have not failed where it was decided
_TRIES = 3


class Jobs(Asking):
    """The jobs of one state directory."""

    def __init__(
        self,
        name: str,
        state: Path,
        *,
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
        self.name, self.fingerprint, self.summary = name, f"jobs:{name}", "jobs that come and go"
        self.former_fingerprint = self.fingerprint
        given = Given(streams or {}, queries or {}, functions or {}, deliver or {})
        self._deliver, self._given = given.deliver, given
        self._lock = threading.RLock()
        self._known, self._failures, self._code = Known(state), Failures(state), CodeStore(state)
        self._workshop = Workshop(given, CodeLibrary(self._code))
        self._desk, self._opening = Desk(self._workshop, given, most), Opening(self._workshop)
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

    @cached_property
    def code(self) -> Mapping[str, str]:
        """The digests of the code that Python gave; that of statements is in the commands, which all engines have."""
        return self._given.code()

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
        said = script(text)

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
        with self._workshop.library.considering(request.code):
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
        said = script(text)
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
        said = [failing(after.jobs[job], error) for job, error in broken(self._workshop, after).items()]
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

    def begun(self, *, follows: bool = False, fenced_directory: FencedDirectory | None = None) -> None:
        """Have the streams and jobs of the text it begins with, whatever there is already: create what is missing,
        alter what is said otherwise now. What the text does not name is left. Where other processes take in commands,
        one of those says the text: an engine may have read another version of it. Who follows says it once it leads."""
        with self._lock:
            self._leads, self._fenced_directory = not follows, fenced_directory or self._fenced_directory
            self._known.load(ours=self._leads)
            if self._leads:
                self._begin()
            self._results.load([entry.told_as for entry in self.catalogue.jobs.values()])

    def _begin(self) -> None:
        self._say_first(script("" if self._shared else self._first, self._file), self._fenced_directory)
        self._sound = self.commands

    def _say_first(self, said: Script, fenced_directory: FencedDirectory | None = None) -> None:
        desk, known = self._desk, self._known
        self.answers = self._taken(lambda now: desk.begun(said, now, first=not known.count), fenced_directory)

    def joined(self, *, begin: bool = False) -> None:
        """Know the jobs that an engine elsewhere runs, and take in commands for it; with `begin` first of all the text
        it begins with."""
        said = script(self._first if begin else "", self._file)
        with self._lock:
            self._known.load(ours=False)
            if begin:
                self._say_first(said)
            self._results.load([entry.told_as for entry in self.catalogue.jobs.values()])

    def opened(self, state: str, start_log: Callable[[str, ScanPlan], None], taken: int = 0) -> None:
        with self._lock:
            self._opening.begin(state, start_log)
            if not self._leads:
                self._open_as_led(taken, self._known.after(taken).jobs)
            else:
                self._open_all(taken if self._shared else self.commands)

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

    def caught_up(self, commands: int) -> None:
        with self._lock:
            if commands == self._taken_in:
                return
            self._follow()
            self._open_as_led(commands, named(self._known.between(self._taken_in, commands)))

    def led(self, taken: int) -> None:
        with self._lock:
            self._leads = True
            self._begin()
            self._open_all(taken, self._asleep())
            self._results.only({entry.told_as for entry in self.catalogue.jobs.values()})

    def closed(self) -> None:
        with self._lock:
            self._opening.close()

    def plan(
        self, commands: int, without: Mapping[int, bool] | None = None, resting: Collection[str] = ()
    ) -> Plan:
        with self._lock:
            key = commands, frozenset((without or {}).items()), frozenset(resting)
            if key not in self._plans:
                self._plans[key] = self._planned(commands, without or {}, resting)
                for old in list(self._plans)[:-_AT_HAND]:
                    del self._plans[old]
            return self._plans[key]

    def flushed(self, after: int, through: int) -> frozenset[int]:
        said = self._known.between(after, through)
        named = [command.name for command in said if isinstance(command, FlushJob)]
        if not named:
            return frozenset()
        jobs = self._known.after(through).jobs
        return frozenset(jobs[name].number for name in named if name in jobs)

    def previous(self, epoch: int, commands: int, plan: Plan) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        assert plan.jobs is not None
        if not plan.jobs.previous:
            return found
        with self._lock:
            jobs = self._known.after(commands).jobs
        for job, columns in plan.jobs.previous.items():
            rows = self._results.of(jobs[job].told_as, epoch - 1) if job in jobs else None
            if rows is not None:
                found[job] = stream_bytes(as_declared(rows, columns)).to_pybytes()
        return found

    def failures(self, epoch: int, commands: int) -> Mapping[int, bool]:
        with self._lock:
            if commands < self._sound:  # an epoch that was begun before a restart
                catalogue = self._known.after(commands)
                errors = {catalogue.jobs[n].number: e for n, e in broken(self._workshop, catalogue).items()}
                known = self._failures.of(epoch)
                unknown = {number: error for number, error in errors.items() if not known.get(number)}
                if unknown:
                    self._fail(epoch, commands, unknown, lost=unknown)
        return self._failures.of(epoch)

    def failed(self, epoch: int, commands: int, errors: Mapping[int, PenstockError]) -> None:
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

    def paused(self, commands: int, errors: Mapping[int, PenstockError]) -> None:
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

    def forgotten(
        self, commands: int, plan: Plan, outputs: Collection[str], manifest: Manifest
    ) -> tuple[Manifest, Mapping[str, int]]:
        with self._lock:
            then = self._known.after(commands)
            self._decided(lambda now: emptying(outputs, then, now))
            return manifest, bytes_of(outputs, plan, manifest)

    def delivered(
        self, epoch: int, commands: int, rows: Mapping[str, pl.DataFrame], last: Mapping[str, int]
    ) -> None:
        with self._lock:
            jobs = self._known.after(commands).jobs
        named = {jobs[name].told_as: count for name, count in last.items() if name in rows}
        self._results.put(epoch, {jobs[name].told_as: frame for name, frame in rows.items()}, named)

    def forget_commands_before(self, commands: int) -> None:
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
        self._workshop.library.forget(needed)

    def _planned(self, commands: int, without: Mapping[int, bool], rest: Collection[str]) -> Plan:
        catalogue = self._known.after(commands)
        jobs = [
            Placed(
                self._workshop.job(name, catalogue),
                "failed" if entry.number in without else entry.master.life,
                self._workshop.sinks(entry),
                entry.recovery,
            )
            for name, entry in catalogue.jobs.items()
            if not without.get(entry.number, entry.left_out)
        ]
        return planned_resting(self.name, jobs, rest)


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
