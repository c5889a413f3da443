"""The catalogue: the streams and jobs there are after so many commands. Frozen, and made by commands alone.

Receives commands that were accepted, in their order; hands the catalogue after each. What had to be decided (whether a
state is kept) was decided when the command was accepted and stands in it, so that doing it again gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import Any

from penstock.ha.schemes import Semantics
from penstock.jobs.master import Master

#: a command as it is kept: plain JSON
Command = Mapping[str, Any]
#: how a stream or a query is called that Python gave when the engine started
GIVEN = "(given by Python)"
#: requests whose answers are kept
_ANSWERED = 1_000


@dataclass(frozen=True)
class CodeReference:
    """Where the Python of a job or stream is: the digest of its source, the file it was read from, and which attribute
    of that file. `reads`: the jobs it names; `sinks`: where its rows go, for people. `deployed`: it came with its whole
    file."""

    digest: str
    file: str
    attribute: str
    reads: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    deployed: bool = False

    @staticmethod
    def of(facts: Mapping[str, Any] | None) -> CodeReference | None:
        """From the JSON of a command."""
        if facts is None:
            return None
        return CodeReference(**{**facts, "reads": tuple(facts["reads"]), "sinks": tuple(facts["sinks"])})

    @property
    def facts(self) -> dict[str, Any]:
        """The JSON of a command."""
        return {**asdict(self), "reads": list(self.reads), "sinks": list(self.sinks)}

    @property
    def text(self) -> str:
        """It, for people."""
        return f"{PurePath(self.file).name}:{self.attribute} ({self.digest[:8]})"


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

    `number` stands for the job in its state: a job that begins anew has another. `private`: it reads its streams by
    itself, from their earliest events, under this number.
    """

    name: str
    select: str
    sinks: tuple[Any, ...]
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
    def told_as(self) -> str:
        """What its results are kept under: its name, told from former jobs of that name."""
        return f"{self.name}@{self.created}"

    @property
    def left_out(self) -> bool:
        """Whether epochs know nothing of it."""
        return self.master.life == "failed" and self.lost


@dataclass(frozen=True)
class Catalogue:
    """All streams and jobs. `last` is the highest number given to any of them; `former` are names of streams that
    were dropped; `said` is what the text that the engine began with says of a job, by its name; `answered` is what the
    latest requests that have a name said (its digest), and what was answered to them."""

    streams: Mapping[str, StreamEntry] = field(default_factory=dict)
    jobs: Mapping[str, JobEntry] = field(default_factory=dict)
    last: int = 0
    former: frozenset[str] = frozenset()
    said: Mapping[str, str] = field(default_factory=dict)
    answered: Mapping[str, Any] = field(default_factory=dict)

    def after(self, command: Command) -> Catalogue:
        """The catalogue once a command is carried out."""
        name = command["name"]
        match command["do"]:
            case "create stream":
                known_as = f"{name}~{self.last + 1}" if name in self.former else name
                entry = StreamEntry(name, command["text"], known_as, CodeReference.of(command.get("code")))
                return replace(self, streams={**self.streams, name: entry}, last=self.last + 1)
            case "said":
                return replace(self, said={**self.said, name: command["text"]})
            case "answer":
                answered = {**self.answered, name: [command["text"], command["answers"]]}
                for old in list(answered)[:-_ANSWERED]:
                    del answered[old]
                return replace(self, answered=answered)
            case "drop stream":
                return replace(self, streams=_without(self.streams, name), former=self.former | {name})
            case "create job":
                job = JobEntry(
                    name,
                    command["select"],
                    tuple(command["sinks"]),
                    command["parameters"],
                    self.last + 1,
                    Master(name),
                    self.last + 1,
                    recovery=_semantics(command),
                    code=CodeReference.of(command.get("code")),
                )
                return self._with(job, self.last + 1)
            case "alter":
                return self._altered(command)
            case "empty" | "resume" if command.get("anew"):
                job = self.jobs[name]
                lost = job.lost and command["do"] == "empty"
                job = replace(job, number=self.last + 1, master=job.master.after(command["do"]), lost=lost)
                return self._with(job, self.last + 1)
            case "set recovery":
                return self._with(replace(self.jobs[name], recovery=_semantics(command)))
            case "drop":
                return replace(self, jobs=_without(self.jobs, name))
            case "fail":
                return self._failed(command)
            case "pause" | "resume" | "flush" | "empty" as happening:
                job = self.jobs[name]
                return self._with(replace(job, master=job.master.after(happening)))
        raise AssertionError(f"no such command: {command['do']}")

    @property
    def code(self) -> frozenset[str]:
        """The digests of the code that its jobs and streams need."""
        found = [job.code for job in self.jobs.values()] + [stream.code for stream in self.streams.values()]
        return frozenset(code.digest for code in found if code is not None)

    def _failed(self, command: Command) -> Catalogue:
        found = self.jobs.get(command["name"])
        lost = command.get("lost", True)
        if found is None or found.number != command.get("number", found.number):
            return self  # another of its name, or begun anew
        if found.version == command["version"]:
            master = found.master.after("fail", command["error"])
            return self._with(replace(found, master=master, lost=lost or found.lost))
        if lost and found.master.life == "failed":
            return self._with(replace(found, lost=True))  # it failed twice in one epoch
        return self  # it has changed since it failed

    def _altered(self, command: Command) -> Catalogue:
        job = self.jobs[command["name"]]
        job = replace(
            job,
            select=command["select"],
            parameters=command["parameters"],
            master=job.master.after("alter"),
            code=CodeReference.of(command["code"]) if "code" in command else job.code,
        )
        if command["state"] == "kept":
            return self._with(job)
        number = self.last + 1
        return self._with(
            replace(
                job, number=number, private=number if command["state"] == "rebuilt" else None, lost=False
            ),
            number,
        )

    def _with(self, job: JobEntry, last: int | None = None) -> Catalogue:
        return replace(self, jobs={**self.jobs, job.name: job}, last=self.last if last is None else last)


def _semantics(command: Command) -> Semantics | None:
    said = command.get("recovery")  # older commands say nothing
    return None if said is None else Semantics(said)


def _without(entries: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {other: entry for other, entry in entries.items() if other != name}


def named(commands: Sequence[Command]) -> set[str]:
    """What commands are about whose carrying out may need something opened."""
    return {command["name"] for command in commands if command["do"] not in ("fail", "answer")}


def alike(then: JobEntry | None, now: JobEntry) -> bool:
    """Whether a job reads and writes what it did."""
    return then is not None and (then.created, then.select, then.code) == (now.created, now.select, now.code)


def code_in(commands: Sequence[Command]) -> set[str]:
    """The digests of the code that commands bring."""
    return {command["code"]["digest"] for command in commands if command.get("code")}
