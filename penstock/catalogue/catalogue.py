"""The catalogue: the streams and jobs after a number of commands. Frozen, and changed by commands alone.

A command contains what was decided when it was accepted (for example whether state is kept), so applying it again gives
the same catalogue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.catalogue.command import (
    AddJob,
    AddStream,
    ChangeQuery,
    ChangeRecovery,
    CodeReference,
    Command,
    EmptyJob,
    FailJob,
    FlushJob,
    JobCommand,
    PauseJob,
    RememberReplies,
    RememberText,
    RemoveJob,
    RemoveStream,
    ResumeJob,
    SinkCall,
)
from penstock.catalogue.lifecycle import Master
from penstock.ha.schemes import Semantics
from penstock.secret_store import redact

#: the text shown for a stream or query that Python gave when the engine started
GIVEN = "(given by Python)"
#: how many requests are kept with their replies
_KEPT_REPLIES = 1_000


@dataclass(frozen=True)
class StreamEntry:
    """A stream and its statement. `unique_name` distinguishes it from an earlier one of its name. `code`: it came with
    a Python job, and is dropped when no job reads it any more."""

    name: str
    text: str
    unique_name: str
    code: CodeReference | None = None

    @property
    def definition(self) -> str:
        """What defines it, for people."""
        return redact(self.text) or (GIVEN if self.code is None else self.code.text)


@dataclass(frozen=True)
class JobEntry:
    """A job: its query, parameters and sinks as declared, and its master.

    `number` identifies the job in its state: a job that starts with empty state gets another. The outputs of an app
    that the engine starts with have negative numbers, as long as they share the app's plan. `private`: it reads its
    streams on its own, from their earliest events, under this number.
    """

    name: str
    select: str
    sinks: tuple[SinkCall, ...]
    parameters: Mapping[str, Any]
    number: int
    master: Master
    #: the number it was created with
    created: int
    private: int | None = None
    #: it failed, and its state was dropped: it starts empty when it runs again
    lost: bool = False
    #: what it may lose or repeat when the engine recovers; None: as the engine's settings say
    recovery: Semantics | None = None
    #: the source of its query, or of the functions that its query calls
    code: CodeReference | None = None

    @property
    def version(self) -> int:
        """How often the job was changed, from 1 on."""
        return self.master.version

    @property
    def query(self) -> str:
        """What it computes, for people."""
        return self.select or (GIVEN if self.code is None else self.code.text)

    @property
    def of_python(self) -> bool:
        """Whether its query is a graph of Python."""
        return not self.select

    @property
    def of_app(self) -> bool:
        """Whether it is an output of the app that the engine starts with."""
        return self.created < 0

    @property
    def in_app_plan(self) -> bool:
        """Whether its state is that of the app's plan."""
        return self.number < 0

    @property
    def shares_app_plan(self) -> bool:
        """Whether it is part of the app's plan: no command has given it other code."""
        return self.in_app_plan and self.code is None

    @property
    def result_key(self) -> str:
        """The key of its results: its name, distinguished from former jobs of that name."""
        return self.name if self.of_app else f"{self.name}@{self.created}"

    @property
    def left_out(self) -> bool:
        """Whether epochs are executed without it."""
        return self.master.life == "failed" and self.lost


@dataclass(frozen=True)
class Catalogue:
    """All streams and jobs.

    `last_number` is the highest number of any of them. `dropped_streams` and `dropped_outputs` are the names of streams
    and of outputs of the app that were dropped. `texts` are the statements about jobs in the text that the engine
    started with. `replies` are the latest named requests, each with the digest of its text and its replies.
    """

    streams: Mapping[str, StreamEntry] = field(default_factory=dict)
    jobs: Mapping[str, JobEntry] = field(default_factory=dict)
    last_number: int = 0
    dropped_streams: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)
    replies: Mapping[str, RememberReplies] = field(default_factory=dict)
    dropped_outputs: frozenset[str] = frozenset()
    #: outputs that the app has got since a job of their name was created; they run once that is dropped
    hidden_outputs: Mapping[str, JobEntry] = field(default_factory=dict)

    @staticmethod
    def of_app(outputs: Mapping[str, Semantics | None], streams: Collection[str]) -> Catalogue:
        """The catalogue before the first command, of an engine that starts with an app: its outputs, each with its
        recovery, and its streams."""
        jobs = {
            name: JobEntry(name, "", (), {}, -place, Master(name), -place, recovery=recovery)
            for place, (name, recovery) in enumerate(outputs.items(), 1)
        }
        return Catalogue({name: StreamEntry(name, "", name) for name in streams}, jobs)

    def on(self, base: Catalogue) -> Catalogue:
        """This catalogue with another `base`, because the app may have changed since. An output that the app no longer
        has is gone, whatever commands did to it."""
        present = {name: entry for name, entry in self.jobs.items() if not entry.of_app}
        jobs = {}
        for name, entry in base.jobs.items():
            known = self.jobs.get(name)
            if known is None and name not in self.dropped_outputs:
                jobs[name] = entry
            elif known is not None and known.of_app:
                number = entry.number if known.in_app_plan else known.number
                jobs[name] = replace(known, number=number, created=entry.created)
        streams = {name: one for name, one in base.streams.items() if name not in self.dropped_streams}
        hidden = {name: entry for name, entry in jobs.items() if name in present}
        return replace(
            self, streams={**streams, **self.streams}, jobs={**jobs, **present}, hidden_outputs=hidden
        )

    def after(self, command: Command) -> Catalogue:
        """The catalogue after a command."""
        if (
            isinstance(command, JobCommand)
            and not isinstance(command, AddJob)
            and command.name not in self.jobs
        ):
            # an output that the app no longer has: the numbers of later jobs stay what they were
            return replace(self, last_number=self.last_number + _takes_number(command))
        match command:
            case AddStream(name, text, code):
                unique_name = f"{name}~{self.last_number + 1}" if name in self.dropped_streams else name
                entry = StreamEntry(name, text, unique_name, code)
                return replace(self, streams={**self.streams, name: entry}, last_number=self.last_number + 1)
            case RemoveStream(name):
                return replace(
                    self, streams=_without(self.streams, name), dropped_streams=self.dropped_streams | {name}
                )
            case RememberText(name, text):
                return replace(self, texts={**self.texts, name: text})
            case RememberReplies(name):
                replies = {**self.replies, name: command}
                for old in list(replies)[:-_KEPT_REPLIES]:
                    del replies[old]
                return replace(self, replies=replies)
            case AddJob(name, select, sinks, parameters, recovery, code):
                number, master = self.last_number + 1, Master(name)
                job = JobEntry(
                    name, select, sinks, parameters, number, master, number, recovery=recovery, code=code
                )
                hidden = dict(self.hidden_outputs)
                if name in self.jobs:
                    hidden[name] = self.jobs[name]
                return replace(self._with(job, number), hidden_outputs=hidden)
            case ChangeQuery():
                return self._altered(command)
            case ChangeRecovery(name, recovery):
                return self._with(replace(self.jobs[name], recovery=recovery))
            case RemoveJob(name):
                dropped = self.dropped_outputs | {name} if self.jobs[name].of_app else self.dropped_outputs
                jobs, hidden = _without(self.jobs, name), dict(self.hidden_outputs)
                if name in hidden:
                    jobs[name] = hidden.pop(name)
                return replace(self, jobs=jobs, dropped_outputs=dropped, hidden_outputs=hidden)
            case FailJob():
                return self._failed(command)
            case ResumeJob(name, anew=True):
                job = self.jobs[name]
                job = replace(job, number=self.last_number + 1, master=job.master.after("resume"), lost=False)
                return self._with(job, self.last_number + 1)
            case EmptyJob(name, anew=True):
                job = self.jobs[name]
                job = replace(job, number=self.last_number + 1, master=job.master.after("empty"))
                return self._with(job, self.last_number + 1)
            case PauseJob(name) | ResumeJob(name) | FlushJob(name) | EmptyJob(name):
                job = self.jobs[name]
                return self._with(replace(job, master=job.master.after(command.do)))
        raise AssertionError(f"no such command: {command}")

    @property
    def code(self) -> frozenset[str]:
        """The digests of the code that its jobs and streams need."""
        codes = [job.code for job in self.jobs.values()] + [stream.code for stream in self.streams.values()]
        return frozenset(code.digest for code in codes if code is not None)

    def _failed(self, command: FailJob) -> Catalogue:
        job, lost = self.jobs[command.name], command.lost
        if not (command.number in (None, job.number) or (command.number < 0 and job.in_app_plan)):
            return self  # another job of its name, or one that started with empty state since
        if job.version == command.version:
            master = job.master.after("fail", command.error)
            return self._with(replace(job, master=master, lost=lost or job.lost))
        if lost and job.master.life == "failed":
            return self._with(replace(job, lost=True))  # it failed twice in one epoch
        return self  # it has changed since it failed

    def _altered(self, command: ChangeQuery) -> Catalogue:
        job = self.jobs[command.name]
        job = replace(
            job,
            select=command.select,
            parameters=command.parameters,
            master=job.master.after("alter"),
            code=command.code or job.code,
        )
        if command.state == "kept":
            return self._with(job)
        number = self.last_number + 1
        private = number if command.state == "rebuilt" else None
        return self._with(replace(job, number=number, private=private, lost=False), number)

    def _with(self, job: JobEntry, last: int | None = None) -> Catalogue:
        return replace(
            self, jobs={**self.jobs, job.name: job}, last_number=self.last_number if last is None else last
        )


def _takes_number(command: Command) -> bool:
    """Whether a command gives a job a new number."""
    return (isinstance(command, ResumeJob | EmptyJob) and command.anew) or (
        isinstance(command, ChangeQuery) and command.state != "kept"
    )


def _without(entries: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {other: entry for other, entry in entries.items() if other != name}


def names_in(commands: Sequence[Command]) -> set[str]:
    """The names of the streams and jobs that commands may need opened."""
    return {command.name for command in commands if not isinstance(command, FailJob | RememberReplies)}


def has_same_query(then: JobEntry | None, now: JobEntry) -> bool:
    """Whether a job reads and writes what it did before."""
    return then is not None and (then.created, then.select, then.code) == (now.created, now.select, now.code)


def code_digests(commands: Sequence[Command]) -> set[str]:
    """The digests of the code that commands bring."""
    codes = [one.code for one in commands if isinstance(one, AddStream | AddJob | ChangeQuery)]
    return {code.digest for code in codes if code is not None}
