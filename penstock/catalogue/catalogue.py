"""The catalogue: the streams and jobs there are after so many commands. Frozen, and made by commands alone.

Receives commands that were accepted, in their order; hands the catalogue after each. What had to be decided (whether a
state is kept) was decided when the command was accepted and stands in it, so that doing it again gives the same.
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
    RememberAnswers,
    RememberText,
    RemoveJob,
    RemoveStream,
    ResumeJob,
    SinkCall,
)
from penstock.catalogue.lifecycle import Master
from penstock.ha.schemes import Semantics

#: how a stream or a query is called that Python gave when the engine started
GIVEN = "(given by Python)"
#: requests whose answers are kept
_ANSWERED = 1_000


@dataclass(frozen=True)
class StreamEntry:
    """A stream: what was said of it. `known_as` tells it from an earlier one of its name. `code`: it came with a job of
    Python, and goes when no job reads it any more."""

    name: str
    text: str
    known_as: str
    code: CodeReference | None = None

    @property
    def definition(self) -> str:
        """What defines it, for people."""
        return self.text or (GIVEN if self.code is None else self.code.text)


@dataclass(frozen=True)
class JobEntry:
    """A job: its query, parameters and sinks as they were said, and its master.

    `number` stands for the job in its state: a job that starts with an empty state has another. The outputs of an app
    that the engine starts with have negative numbers, as long as they share the app's plan. `private`: it reads its
    streams by itself, from their earliest events, under this number.
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
    #: it failed, and its state is gone: it begins anew when it runs again
    lost: bool = False
    #: what it may lose or repeat when the engine comes back; None: as the engine's settings say
    recovery: Semantics | None = None
    #: the source of its query, or of the functions that its query calls
    code: CodeReference | None = None

    @property
    def version(self) -> int:
        """Counts what has changed the job."""
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
    def told_as(self) -> str:
        """What its results are kept under: its name, told from former jobs of that name."""
        return self.name if self.of_app else f"{self.name}@{self.created}"

    @property
    def left_out(self) -> bool:
        """Whether epochs know nothing of it."""
        return self.master.life == "failed" and self.lost


@dataclass(frozen=True)
class Catalogue:
    """All streams and jobs.

    `last` is the highest number given to any of them; `former` are names of streams that were dropped, `removed` those
    of outputs of the app; `said` is what the text that the engine started with says of a job, by its name; `answered`
    are the latest requests that have a name, each with the digest of its text and its answers.
    """

    streams: Mapping[str, StreamEntry] = field(default_factory=dict)
    jobs: Mapping[str, JobEntry] = field(default_factory=dict)
    last: int = 0
    former: frozenset[str] = frozenset()
    said: Mapping[str, str] = field(default_factory=dict)
    answered: Mapping[str, RememberAnswers] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()

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
        """What commands have made of a catalogue that started as another `base`: the app may have changed since. An
        output that is there no longer is gone, whatever commands did to it."""
        present = {name: entry for name, entry in self.jobs.items() if not entry.of_app}
        jobs = {}
        for name, entry in base.jobs.items():
            known = self.jobs.get(name)
            if known is None and name not in self.removed:
                jobs[name] = entry
            elif known is not None and known.of_app:
                number = entry.number if known.in_app_plan else known.number
                jobs[name] = replace(known, number=number, created=entry.created)
        streams = {name: one for name, one in base.streams.items() if name not in self.former}
        return replace(self, streams={**streams, **self.streams}, jobs={**jobs, **present})

    def after(self, command: Command) -> Catalogue:
        """The catalogue once a command is carried out."""
        if (
            isinstance(command, JobCommand)
            and not isinstance(command, AddJob)
            and command.name not in self.jobs
        ):
            return self  # an output that the app no longer has
        match command:
            case AddStream(name, text, code):
                known_as = f"{name}~{self.last + 1}" if name in self.former else name
                entry = StreamEntry(name, text, known_as, code)
                return replace(self, streams={**self.streams, name: entry}, last=self.last + 1)
            case RemoveStream(name):
                return replace(self, streams=_without(self.streams, name), former=self.former | {name})
            case RememberText(name, text):
                return replace(self, said={**self.said, name: text})
            case RememberAnswers(name):
                answered = {**self.answered, name: command}
                for old in list(answered)[:-_ANSWERED]:
                    del answered[old]
                return replace(self, answered=answered)
            case AddJob(name, select, sinks, parameters, recovery, code):
                number, master = self.last + 1, Master(name)
                job = JobEntry(
                    name, select, sinks, parameters, number, master, number, recovery=recovery, code=code
                )
                return self._with(job, number)
            case ChangeQuery():
                return self._altered(command)
            case ChangeRecovery(name, recovery):
                return self._with(replace(self.jobs[name], recovery=recovery))
            case RemoveJob(name):
                removed = self.removed | {name} if self.jobs[name].of_app else self.removed
                return replace(self, jobs=_without(self.jobs, name), removed=removed)
            case FailJob():
                return self._failed(command)
            case ResumeJob(name, anew=True):
                job = self.jobs[name]
                job = replace(job, number=self.last + 1, master=job.master.after("resume"), lost=False)
                return self._with(job, self.last + 1)
            case EmptyJob(name, anew=True):
                job = self.jobs[name]
                job = replace(job, number=self.last + 1, master=job.master.after("empty"))
                return self._with(job, self.last + 1)
            case PauseJob(name) | ResumeJob(name) | FlushJob(name) | EmptyJob(name):
                job = self.jobs[name]
                return self._with(replace(job, master=job.master.after(command.do)))
        raise AssertionError(f"no such command: {command}")

    @property
    def code(self) -> frozenset[str]:
        """The digests of the code that its jobs and streams need."""
        found = [job.code for job in self.jobs.values()] + [stream.code for stream in self.streams.values()]
        return frozenset(code.digest for code in found if code is not None)

    def _failed(self, command: FailJob) -> Catalogue:
        found, lost = self.jobs[command.name], command.lost
        if command.number not in (None, found.number):
            return self  # another of its name, or begun anew
        if found.version == command.version:
            master = found.master.after("fail", command.error)
            return self._with(replace(found, master=master, lost=lost or found.lost))
        if lost and found.master.life == "failed":
            return self._with(replace(found, lost=True))  # it failed twice in one epoch
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
        number = self.last + 1
        private = number if command.state == "rebuilt" else None
        return self._with(replace(job, number=number, private=private, lost=False), number)

    def _with(self, job: JobEntry, last: int | None = None) -> Catalogue:
        return replace(self, jobs={**self.jobs, job.name: job}, last=self.last if last is None else last)


def _without(entries: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {other: entry for other, entry in entries.items() if other != name}


def named(commands: Sequence[Command]) -> set[str]:
    """What commands are about whose carrying out may need something opened."""
    return {command.name for command in commands if not isinstance(command, FailJob | RememberAnswers)}


def alike(then: JobEntry | None, now: JobEntry) -> bool:
    """Whether a job reads and writes what it did."""
    return then is not None and (then.created, then.select, then.code) == (now.created, now.select, now.code)


def code_in(commands: Sequence[Command]) -> set[str]:
    """The digests of the code that commands bring."""
    found = [one.code for one in commands if isinstance(one, AddStream | AddJob | ChangeQuery)]
    return {code.digest for code in found if code is not None}
