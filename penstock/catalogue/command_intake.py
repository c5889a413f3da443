"""Accept commands: from statements, from requests with code, from other processes, and decisions of the engine.

Guarantees: the statements of one request are accepted together or not at all, and what is accepted is on disk. Each
command is checked against all commands before it, also those that other processes accepted. A request that is sent
again is executed once. Requests are checked without the catalogue's lock, one at a time and within limits, so epochs
do not wait for them.

What parses SQL is loaded with the first statement: it takes a while, which an engine of an app alone is spared.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalogue.acceptance import Acceptance
from penstock.catalogue.broken_jobs import affected_jobs, fail_command, find_broken_jobs
from penstock.catalogue.catalogue import Catalogue, code_digests, names_in
from penstock.catalogue.code import CodeBundle
from penstock.catalogue.code_library import CodeLibrary
from penstock.catalogue.code_requests import CodeRequest, request_text
from penstock.catalogue.code_store import CodeStore
from penstock.catalogue.command import Command, RemoveJob, Reply
from penstock.catalogue.command_log import CommandHistory
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations
from penstock.catalogue.open_sinks import OpenSinks
from penstock.catalogue.repeated_requests import find_replies, remember_replies
from penstock.delivery.deliveries import Deliveries
from penstock.delivery.result_log import ResultLog
from penstock.errors import PenstockError
from penstock.query.limits import CheckLimits, check_time, check_within
from penstock.query.trial import SHARED, trials_in
from penstock.state.generation import FencedDirectory

if TYPE_CHECKING:
    from penstock.catalogue.script import Script
    from penstock.catalogue.statement_checker import StatementChecker


#: how often statements are checked while other commands may come in between
_MOST_CHECKS = 3
#: how often a request that waits for another one's check looks whether its caller is still there
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class _Draft:
    """What one check works on: a catalogue, how many commands made it, and a builder of its own."""

    catalogue: Catalogue
    count: int
    builder: JobBuilder
    checker: StatementChecker


class CommandIntake:
    """Checks commands, appends them to the log and opens what they need. All methods may be called by any thread.

    `runs_epochs`: this process executes the jobs, or takes over from one that does; `shared`: other processes accept
    commands too.
    """

    # over 8 parameters: all are keywords that describe how the process takes part, or what the program is made of
    def __init__(
        self,
        state: Path,
        history: CommandHistory,
        given: PythonDeclarations,
        results: ResultLog,
        deliveries: Deliveries,
        *,
        max_jobs: int,
        fold_after: int,
        runs_epochs: bool,
        shared: bool,
        limits: CheckLimits | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.history, self.shared = history, shared
        self._code = CodeStore(state)
        self.builder = JobBuilder(given, CodeLibrary(self._code))
        self.sinks = OpenSinks(self.builder, deliveries)
        self._given, self._results, self._max_jobs = given, results, max_jobs
        self._fold_after, self._runs_epochs = fold_after, runs_epochs
        self._limits = limits or CheckLimits()
        #: held by the request that is checked; taken before `lock`
        self._check_lock = threading.Lock()
        #: whether this process decides; an engine that follows does not
        self.leads = True
        #: where the engine's decisions are written; until an engine claims it, any process may write
        self.fenced_directory = FencedDirectory(state / "generations")

    @cached_property
    def checker(self) -> StatementChecker:
        from penstock.catalogue.statement_checker import StatementChecker

        return StatementChecker(self.builder, self._given, self._max_jobs)

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue after all commands so far."""
        with self.lock:
            self.read_new()
            return self.history.latest

    @property
    def count(self) -> int:
        """How many commands there are."""
        with self.lock:
            self.read_new()
            return self.history.count

    # -- statements and code ---------------------------------------------------------------------

    def execute(self, text: str, request: str | None = None) -> list[Reply]:
        """Accept statements, all or none, and reply to each. Sent again under the same `request`, they get the same
        replies and change nothing."""
        with self._checking(), _parsing_once():
            script = parse_script(text)
            return self._accept_checked(
                lambda draft: self._once(
                    request, text, draft, lambda: draft.checker.check_statements(script, draft.catalogue)
                )
            )

    def check(self, text: str) -> list[Reply]:
        """The replies that statements would get; nothing changes."""
        with self._checking(), _parsing_once():
            draft = self._draft()
            return draft.checker.check_statements(parse_script(text), draft.catalogue).replies

    def execute_initial(self, script: Script, fenced_directory: FencedDirectory | None = None) -> list[Reply]:
        """Accept the text that a program starts with."""
        return self._accept(
            lambda now: self.checker.check_initial(script, now, first=not self.history.count),
            fenced_directory,
        )

    def submit(self, request: CodeRequest, name: str | None = None, *, check: bool = False) -> list[Reply]:
        """Create or alter a job from a file, or deploy all jobs of a file. Its code is on disk before the reply. Sent
        again under the same `name`, it gets the same replies. With `check` nothing changes."""
        with self.builder.library.with_candidate(request.code):
            self.checker.code_requests.prepare(request)  # executes the user's code, so no other check waits

            def propose(draft: _Draft) -> Acceptance:
                return self._once(
                    name,
                    request_text(request),
                    draft,
                    lambda: draft.checker.check_code_request(request, draft.catalogue),
                )

            with self._checking():
                return (
                    propose(self._draft()).replies if check else self._accept_checked(propose, request.code)
                )

    def decide(self, commands: Callable[[Catalogue], Sequence[Command]]) -> None:
        """Accept commands that the leading engine decides; FENCED if another engine leads by now."""
        self._accept(lambda now: Acceptance(now).note_all(commands(now)), self.fenced_directory)

    def _once(
        self, request: str | None, text: str, draft: _Draft, check: Callable[[], Acceptance]
    ) -> Acceptance:
        """Check what a request asks for, or return the replies it got the first time."""
        earlier = None if request is None else find_replies(request, text, draft.catalogue)
        if earlier is not None:
            return earlier
        acceptance = check()
        if request is not None and acceptance.commands:
            acceptance.note(remember_replies(request, text, acceptance.replies, draft.count + 1))
        return acceptance

    @contextlib.contextmanager
    def _checking(self) -> Iterator[None]:
        """One check at a time, within limits; epochs do not wait for it."""
        with check_within(self._limits), trials_in(SHARED):
            while not self._check_lock.acquire(timeout=_POLL_SECONDS):
                check_time()
            try:
                yield
            finally:
                self._check_lock.release()

    def _draft(self) -> _Draft:
        """What a check works on while the catalogue is not locked."""
        with self.lock:
            catalogue, builder = self.catalogue, self.builder.draft()
            checker = self.checker.on(builder)
            return _Draft(catalogue, self.history.count, builder, checker)

    def _accept_checked(
        self, propose: Callable[[_Draft], Acceptance], code: CodeBundle | None = None
    ) -> list[Reply]:
        """Append what `propose` accepts, given the newest catalogue, without holding the lock while it checks. The
        check is repeated where commands came in between, at last with the lock."""
        for _ in range(_MOST_CHECKS):
            draft = self._draft()
            acceptance = propose(draft)
            if not acceptance.commands:
                return acceptance.replies
            with self.lock:
                self.read_new()
                if self.history.count == draft.count:
                    self.builder.adopt(draft.builder)
                    replies = self._append(acceptance, code=code)
                    if replies is not None:
                        return replies

        def propose_locked(now: Catalogue) -> Acceptance:
            draft = self._draft()
            acceptance = propose(draft)
            self.builder.adopt(draft.builder)
            return acceptance

        return self._accept(propose_locked, code=code)

    def _accept(
        self,
        propose: Callable[[Catalogue], Acceptance],
        fenced_directory: FencedDirectory | None = None,
        code: CodeBundle | None = None,
    ) -> list[Reply]:
        """Append what `propose` accepts, given the newest catalogue; repeat where another process was first. Code is
        stored before the commands that need it."""
        with self.lock:
            while True:
                acceptance = propose(self.catalogue)
                if not acceptance.commands:
                    return acceptance.replies
                replies = self._append(acceptance, fenced_directory, code)
                if replies is not None:
                    return replies

    def _append(
        self,
        acceptance: Acceptance,
        fenced_directory: FencedDirectory | None = None,
        code: CodeBundle | None = None,
    ) -> list[Reply] | None:
        """Append the commands that were accepted and open what they need; None where another process was first."""
        # where another process may be first, nothing is opened before the commands are in the log
        shared = self.shared or self.checker.manager_of is not None
        affected = affected_jobs(acceptance.commands, acceptance.catalogue)
        self.sinks.prepare(acceptance.catalogue, affected, opens=not shared)
        stored = code if code is not None and code.digest in code_digests(acceptance.commands) else None
        if stored is not None:
            self._code.put(stored, fenced_directory)
        number = self.history.log.append(acceptance.commands, fenced_directory)
        if number is None:
            return None
        if stored is not None:
            # an engine that did not know of the command may have removed it
            self._code.put(stored, fenced_directory)
        self._add([acceptance.commands], acceptance.catalogue)
        if shared:
            self._open_named(acceptance.commands)
        return [reply.with_number(number) for reply in acceptance.replies]

    # -- commands of other processes -------------------------------------------------------------

    def read_new(self) -> None:
        """Read what other processes have appended to the log."""
        entries = self.history.log.news()
        if entries is None:
            self.history.load(owned=False)
        elif entries:
            self._add(entries)
            self._open_named([command for entry in entries for command in entry])

    def open_jobs(self, names: Collection[str]) -> None:
        """Open jobs; those that cannot be built, or not opened, fail alone."""
        if not names:
            return
        now = self.history.latest
        broken = find_broken_jobs(self.builder, now)
        failures = [fail_command(now.jobs[name], error) for name, error in broken.items()]
        for name in (set(names) & now.jobs.keys()) - broken.keys():
            try:
                self.sinks.open(now, [name])
            except PenstockError as error:
                failures.append(fail_command(now.jobs[name], error))
        if failures:
            self.decide(lambda latest: failures)

    def _open_named(self, commands: Sequence[Command]) -> None:
        if self.sinks.is_started and self.leads:
            self.open_jobs(names_in(commands))

    def _add(self, entries: Sequence[Sequence[Command]], after: Catalogue | None = None) -> None:
        drops = any(isinstance(command, RemoveJob) for entry in entries for command in entry)
        before = {entry.result_key for entry in self.history.latest.jobs.values()} if drops else set()
        self.history.add(entries, after)
        now = self.history.latest
        for key in before - {entry.result_key for entry in now.jobs.values()} if drops else ():
            self._results.forget(key)
        if not self._runs_epochs and len(self.history.entries) > self._fold_after:
            self.history.forget(self.history.count)  # a process without epochs repeats none

    # -- folding ---------------------------------------------------------------------------------

    def fold(self, commands: int) -> None:
        """Replace the first so many commands by their catalogue, once they are enough."""
        history = self.history
        if commands - history.folded <= self._fold_after:
            return
        if self.leads:
            history.log.fold(commands, history.after(commands))
        history.forget(commands)
        needed = history.needed_code()
        if self.leads:
            self._code.keep_only(needed)
        self.builder.library.unload_unused(needed)


def _parsing_once() -> contextlib.AbstractContextManager[None]:
    from penstock.sql.parsed_texts import parse_once

    return parse_once()


def parse_script(text: str, file: str | None = None) -> Script:
    """The statements of a text."""
    from penstock.catalogue.script import read_script

    return read_script(text, file)
