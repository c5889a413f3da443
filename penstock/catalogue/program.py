"""What an engine runs: a catalogue of streams and jobs that commands change, and a plan for every epoch.

An engine that starts with an app has the app's outputs as jobs, before the first command. They share one plan as long
as no command changes them. Jobs of SQL and Python are created, changed and dropped beside them.

    Program          who executes the jobs: an engine that leads or follows, or another process
      .execute ...   commands (`command_intake`)
      .epochs        what an engine needs for every epoch (`job_epochs`)
      .questions     streams, jobs and their results (`questions`)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path

from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.catalogue import Catalogue, has_same_query, names_in
from penstock.catalogue.code_requests import CodeRequest
from penstock.catalogue.command import Reply
from penstock.catalogue.command_intake import CommandIntake, parse_script
from penstock.catalogue.command_log import CommandHistory
from penstock.catalogue.job_builder import PythonDeclarations
from penstock.catalogue.job_epochs import Failures, JobEpochs, diverging_error
from penstock.catalogue.known_outputs import remember_outputs
from penstock.catalogue.messages import Deliver
from penstock.catalogue.questions import Questions
from penstock.delivery.deliveries import Deliveries
from penstock.delivery.followed_results import FollowedResults
from penstock.delivery.result_log import JobResult, ResultLog
from penstock.delivery.side_output import SIDE_OUTPUT, SideOutput, SideOutputLimits
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.moved import former_names, former_names_in, former_parameters
from penstock.query.limits import CheckLimits
from penstock.query.physical import Plan, ScanPlan
from penstock.query.stream import Stream
from penstock.sql.scope import UserFunction
from penstock.state.generation import FencedDirectory

_LOG = logging.getLogger(__name__)
#: how long a start waits for sinks that neither open nor fail, in seconds; they are opened later then
_OPEN_SECONDS = 5.0
#: starts the log of a stream of this name, unless it has started; raises if it cannot be read
StartLog = Callable[[str, ScanPlan], None]


# over 25 methods: it is the one surface of its parts for engines, services and the command line
@former_names(checked="check", say="execute")
class Program:
    """The streams and jobs of one state directory.

    `app`: what the engine starts with. `begin`: the statements that the program starts with, and the `file` they are
    from. `follows`: another process executes the epochs; `shared`: other processes accept commands too.
    `check_limits`: what the check of a request may take.
    """

    # over 8 parameters: all are keywords that describe what a file declares and how the process takes part
    @former_parameters(most="max_jobs")
    def __init__(
        self,
        name: str,
        state: Path,
        *,
        app: AppPlan | None = None,
        streams: Mapping[str, Stream] | None = None,
        queries: Mapping[str, Stream] | None = None,
        functions: Mapping[str, UserFunction] | None = None,
        deliver: Mapping[str, Deliver] | None = None,
        begin: str = "",
        file: str | None = None,
        max_jobs: int = 10_000,
        fold_after: int = 1_000,
        follows: bool = False,
        shared: bool = False,
        check_limits: CheckLimits | None = None,
    ) -> None:
        self.name = name
        self._given = given = PythonDeclarations(
            streams or {}, queries or {}, functions or {}, deliver or {}, app
        )
        self._state, self._initial_text, self._file = state, begin, file
        self._side_output = SideOutput(state)
        base = Catalogue()
        if app is not None:
            outputs = {name: output.recovery for name, output in app.plan.outputs.items()}
            base = Catalogue.of_app(outputs, app.plan.scans)
        self._history = CommandHistory(state, base)
        self._results: ResultLog = FollowedResults(state) if follows else ResultLog(state)
        #: how the results reach the sinks; of an engine
        self.deliveries = Deliveries(self._results)
        self.deliveries.on_failure = self._fail_delivery
        self._intake = CommandIntake(
            state,
            self._history,
            given,
            self._results,
            self.deliveries,
            max_jobs=max_jobs,
            fold_after=fold_after,
            runs_epochs=not follows,
            shared=shared,
            limits=check_limits,
        )
        self._lock = self._intake.lock
        self.epochs = JobEpochs(name, self._intake, given, self._results, Failures(state))
        self.questions = Questions(
            self._intake, self._results, lambda: self.epochs.plan(self.commands), given.deliver
        )
        #: how many commands the epochs have executed that an engine was given by its leader
        self._followed_commands = 0
        #: the replies to the text that the program starts with
        self.replies: list[Reply] = []

    # -- what it is ------------------------------------------------------------------------------

    @property
    def app_plan(self) -> Plan | None:
        """The plan of the app that the engine starts with; None if it starts with jobs."""
        return None if self._given.app is None else self._given.app.plan

    @property
    def fingerprint(self) -> str:
        """What the shape of its state depends on for life."""
        return f"jobs:{self.name}" if self.app_plan is None else self.app_plan.fingerprint

    @property
    def former_fingerprint(self) -> str:
        """The fingerprint in a state directory of format 1."""
        return f"jobs:{self.name}" if self.app_plan is None else self.app_plan.former_fingerprint

    @property
    def summary(self) -> str:
        """The program in one line."""
        return "jobs that come and go" if self.app_plan is None else self.app_plan.summary

    @cached_property
    def code(self) -> Mapping[str, str]:
        """The digests of the code that Python gave, by names: equal in engines that may be replicas of each other. The
        code of statements is in the commands, which all engines have."""
        return self._given.code()

    # -- commands --------------------------------------------------------------------------------

    @property
    def commands(self) -> int:
        """The number of the newest command; for an engine that follows, of the newest one it was given."""
        return self._intake.count if self._intake.leads else self._followed_commands

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue after all commands so far."""
        return self._intake.catalogue

    def execute(self, text: str, request: str | None = None) -> list[Reply]:
        """Execute statements, all or none, and return a reply to each (see `CommandIntake.execute`)."""
        return self._intake.execute(text, request)

    def check(self, text: str) -> list[Reply]:
        """The replies that statements would get; nothing changes."""
        return self._intake.check(text)

    def submit(self, request: CodeRequest, name: str | None = None, *, check: bool = False) -> list[Reply]:
        """Create or alter a job from a file, or deploy all jobs of a file (see `CommandIntake.submit`)."""
        return self._intake.submit(request, name, check=check)

    # -- results ---------------------------------------------------------------------------------

    def ask(self, job: str) -> JobResult | None:
        """A job's latest result; None before its first."""
        return self.questions.ask(job)

    def since(self, job: str, epoch: int, most: int | None = None) -> list[JobResult]:
        """A job's rows of the epochs from one on, as far as they are retained; of at `most` so many epochs."""
        return self.questions.since(job, epoch, most)

    @property
    def result_log_bytes(self) -> int:
        """The size of the results that are kept."""
        return self._results.bytes

    def prune_results(self, before: int, most_bytes: int) -> None:
        """Remove results of the epochs before one that nobody needs. Where sinks lack so much that the rest has over
        `most_bytes`, stop the running job whose sink is farthest behind; what it has emitted stays."""
        deliveries = self.deliveries
        over = self._results.prune(before, most_bytes, deliveries.lacking, deliveries.first_lacked)
        if over <= 0 or not self._intake.leads:
            return
        running = {
            one.result_key: one for one in self.catalogue.jobs.values() if one.master.life == "running"
        }
        lag = deliveries.farthest_behind(running)
        if lag is not None:
            error = ExternalError(
                "SINK_TOO_FAR_BEHIND",
                f"{lag.sink} lacks what the job has emitted since epoch {lag.cursor}",
                detail=f"The results that wait have {most_bytes + over:,} bytes, {most_bytes:,} are allowed "
                f"(result_log_bytes). {lag.error}".rstrip(),
                hint="What was emitted is kept, and delivered once the sink takes it. Then RESUME the job; or DROP it.",
            )
            self.epochs.fail_job(running[lag.output], error)

    def prune_side_output(self, limits: SideOutputLimits) -> None:
        """Remove dead letters, late events and skipped spans that are too old or too many. The leader does this."""
        if self._intake.leads:
            self._side_output.prune(limits)

    # -- who executes the jobs -------------------------------------------------------------------

    def start(self, *, follows: bool = False, fenced_directory: FencedDirectory | None = None) -> None:
        """Let this engine own the state directory, and execute the text that the program starts with: create what is
        missing, alter what differs, leave what the text does not name. The first call of all.

        The engine's decisions are written in `fenced_directory`. An engine that follows executes the text once it
        leads. Where other processes accept commands, one of those executes it: an engine may have read another version.
        """
        with self._lock:
            intake = self._intake
            intake.leads = not follows
            intake.fenced_directory = fenced_directory or intake.fenced_directory
            self._history.load(owned=intake.leads)
            _check_app_names(self._given.app, self._history.latest)
            if intake.leads:
                if self._given.app is not None:
                    remember_outputs(self._state, self._given.app.plan, intake.fenced_directory)
                self._execute_initial_text()
            self._load_results()

    def join(self, *, begin: bool = False) -> None:
        """Accept commands for an engine elsewhere; with `begin`, first of all the text that the program starts with."""
        begin = begin and bool(self._initial_text or self._given.streams or self._given.queries)
        with self._lock:
            self._history.load(owned=False)
            _check_app_names(self._given.app, self._history.latest)
            if begin:
                self.replies = self._intake.execute_initial(parse_script(self._initial_text, self._file))
            self._load_results()

    def open(
        self,
        state: str,
        start_log: StartLog,
        commands: int = 0,
        waiting: Collection[int] = (),
        *,
        delivered: int = -1,
        repeats_after: int | None = None,
    ) -> None:
        """Register the sinks before anything runs, for the state of this id, and open them as far as they are not away.
        `start_log` starts the logs of streams that are created later. Recorded epochs execute so many `commands`; for
        an engine that follows, those it executed. `waiting`: how many commands each recorded epoch executes that is to
        be repeated, or that sinks may lack. `delivered`: the epoch up to which a former version has delivered;
        `repeats_after`: sinks get again what they have of later epochs."""
        with self._lock:
            self.deliveries.start(delivered, leads=self._intake.leads, most=repeats_after)
            self._intake.sinks.start(state, start_log)
            self.deliveries.register(SIDE_OUTPUT, "side output", (self._side_output,), SIDE_OUTPUT, {})
            if not self._intake.leads:
                self._open_as_follower(commands, self._history.after(commands).jobs)
            else:
                self._open_all(commands if self._intake.shared else self.commands)
                self._open_dropped(waiting)
                self._settle_deliveries()
        if self._intake.leads:
            self.deliveries.open_all(_OPEN_SECONDS)

    def follow_commands(self, commands: int) -> None:
        """As a follower, before an epoch that executes so many commands: open the sinks of new jobs."""
        with self._lock:
            if commands == self._followed_commands:
                return
            self._intake.read_new()
            new = self._history.between(self._followed_commands, commands)
            self._open_as_follower(commands, names_in(new))

    def lead(self, commands: int, waiting: Collection[int] = ()) -> None:
        """This engine followed and decides from now on; recorded epochs execute so many commands, and those that it has
        not executed each of `waiting`."""
        with self._lock:
            self._intake.leads = True
            self._execute_initial_text()
            self._open_all(commands, _inactive_jobs(self._history, self._followed_commands))
            self._open_dropped(waiting)
            self._settle_deliveries()
            self._results.keep_only({entry.result_key for entry in self.catalogue.jobs.values()})

    def close(self) -> None:
        """Close the sinks, last of all."""
        self.deliveries.close()
        with self._lock:
            self._intake.sinks.close()

    def _load_results(self) -> None:
        self._results.load([entry.result_key for entry in self.catalogue.jobs.values()])

    def _settle_deliveries(self) -> None:
        """All sinks are registered, but those of jobs that are left out until they are resumed."""
        self.deliveries.settle({one.result_key for one in self.catalogue.jobs.values() if one.left_out})

    def _fail_delivery(self, output: str, error: PenstockError) -> bool:
        """Fail the job to which a sink belongs, for an error that does not pass. Returns False for the last running
        output of the app that the engine started with: it ends the engine, and the next start delivers it again."""
        with self._lock:
            entry = next((one for one in self.catalogue.jobs.values() if one.result_key == output), None)
            if entry is None:
                return output != SIDE_OUTPUT
            if not self._intake.leads:
                return False
            others = [one for one in self.catalogue.jobs.values() if one is not entry]
            if entry.of_app and not any(one.master.life == "running" for one in others):
                return False
            self.epochs.fail_job(entry, error)
            return True

    def _execute_initial_text(self) -> None:
        given = self._given
        if self._initial_text or given.streams or given.queries or self._history.count:
            script = parse_script("" if self._intake.shared else self._initial_text, self._file)
            self.replies = self._intake.execute_initial(script, self._intake.fenced_directory)
        self.epochs.mark_verified(self.commands)

    def _open_as_follower(self, commands: int, names: Collection[str]) -> None:
        """Open jobs that are open at the leader; those that do not run are opened once they are resumed."""
        then = self._history.after(commands)
        try:
            self._intake.sinks.open(then, then.jobs.keys() & set(names), inactive=False)
        except Exception as failure:  # the user's own code may raise anything
            raise diverging_error("cannot be built or opened here", failure) from failure
        self._followed_commands = commands

    def _open_all(self, commands: int, except_for: Collection[str] = ()) -> None:
        """Open all jobs. What other processes accepted while no engine led, no engine has tried: such a job fails alone
        if it cannot be opened."""
        catalogue, history = self.catalogue, self._history
        then = history.after(min(max(commands, history.folded), history.count))
        jobs = {name: entry for name, entry in catalogue.jobs.items() if name not in except_for}
        tried = [name for name, entry in jobs.items() if has_same_query(then.jobs.get(name), entry)]
        self._intake.sinks.open(catalogue, tried)
        self._intake.open_jobs(jobs.keys() - set(tried))

    def _open_dropped(self, waiting: Collection[int]) -> None:
        """Open the sinks of jobs that recorded epochs still execute, and later commands have dropped. One that cannot
        be opened gets no rows of these epochs any more."""
        history, known = self._history, {entry.created for entry in self.catalogue.jobs.values()}
        for commands in sorted(set(waiting)):
            if not history.folded <= commands < history.count:
                continue
            then = history.after(commands)
            for name, entry in then.jobs.items():
                if entry.created in known:
                    continue
                known.add(entry.created)
                try:
                    self._intake.sinks.open(then, [name])
                except Exception as failure:  # the user's own code may raise anything
                    _LOG.warning("the sinks of %s, which is dropped, cannot be opened: %s", name, failure)


def _check_app_names(app: AppPlan | None, now: Catalogue) -> None:
    """Raise where the app has an output or a stream of a name that a command has created meanwhile."""
    if app is None:
        return
    jobs = [name for name, entry in now.jobs.items() if not entry.of_app and name not in now.dropped_outputs]
    streams = [name for name, entry in now.streams.items() if entry.text or entry.code is not None]
    taken = [("job", name) for name in app.plan.outputs if name in jobs]
    taken += [("stream", name) for name in app.plan.scans if name in streams]
    for kind, name in taken:
        raise UserError(
            "NAME_TAKEN",
            f"the app defines {name}, and a command has created a {kind} of that name",
            hint=f"Rename the app's, or start with the app as it was and DROP {kind.upper()} {name}.",
        )


def _inactive_jobs(history: CommandHistory, executed: int) -> set[str]:
    """The jobs that run neither after the commands that were executed nor in a recorded epoch after those."""
    if executed < history.folded:
        return set()
    jobs, new = history.after(executed).jobs, history.between(executed, history.count)
    return {name for name, entry in jobs.items() if entry.master.life != "running"} - names_in(new)


__getattr__ = former_names_in(__name__, Jobs="Program")
