"""Commands: what changes a catalogue, and what was answered to the statements that they come of. Pure.

In the command log a command is a JSON object whose `do` says its kind:

    create stream   name, text, code               said           name, text
    drop stream     name                           answer         name (of the request), text (its digest), answers
    create job      name, select, sinks, parameters, recovery, code
    alter           name, select, parameters, state, code
    set recovery    name, recovery                 fail           name, version, number, error, lost
    pause, flush, drop    name                     resume, empty  name, anew

`recovery` (of a new job) and `code` are left out where there is none.

Guarantees: a command that is read back equals the one that was written. What is no command raises ValueError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from penstock.catalogue.lifecycle import Happening
from penstock.ha.schemes import Semantics
from penstock.sql.statements import Call, Scalar

#: what becomes of a job's state: kept as it is, begun anew from now, made again from the log's earliest events
StateFate = Literal["kept", "anew", "rebuilt"]


@dataclass(frozen=True)
class Answered:
    """What is answered to a statement. `command`: the number under which it takes effect at the next epoch."""

    says: str
    name: str = ""
    state: StateFate | None = None
    command: int | None = None
    #: for questions: what there is
    rows: tuple[Mapping[str, Any], ...] = ()
    question: bool = False

    def numbered(self, command: int) -> Answered:
        """The answer, once what it answers has a number."""
        return self if self.question else replace(self, command=command)

    def to_json(self) -> dict[str, Any]:
        """As it is kept: without the rows of a question."""
        return {
            "says": self.says,
            "name": self.name,
            "state": self.state,
            "command": self.command,
            "rows": [],
            "question": self.question,
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Answered:
        return Answered(body["says"], body["name"], body["state"], body["command"], question=body["question"])


@dataclass(frozen=True)
class SinkCall:
    """A sink of a job, as it was said."""

    name: str
    arguments: tuple[Scalar, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)

    @staticmethod
    def of(call: Call) -> SinkCall:
        """The sink that a call in a statement names."""
        return SinkCall(call.name, call.arguments, dict(call.options))

    def as_call(self, number: int = 1) -> Call:
        """The call, as the so manieth of a job's sinks."""
        return Call(self.name, self.arguments, self.options, (0, number))

    def describe(self) -> str:
        """It, for people."""
        return f"{self.name}({', '.join(map(repr, self.arguments))})"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": list(self.arguments), "options": dict(self.options)}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SinkCall:
        return SinkCall(body["name"], tuple(body["arguments"]), dict(body["options"]))


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
class Command(ABC):
    """A command, about what has this name."""

    #: its kind in the command log
    do: ClassVar[str]
    name: str

    def to_json(self) -> dict[str, Any]:
        """As it lies in the command log."""
        return {"do": self.do, "name": self.name, **self._rest()}

    @abstractmethod
    def _rest(self) -> dict[str, Any]:
        """What else it says, as JSON."""


@dataclass(frozen=True)
class JobCommand(Command, ABC):
    """A command about a job."""

    #: what it has done to the job, for its history
    did: ClassVar[str]

    def _rest(self) -> dict[str, Any]:
        return {}


def _code_to_json(code: CodeReference | None) -> dict[str, Any]:
    return {} if code is None else {"code": code.facts}


# -- streams, and what is remembered of texts and requests ------------------------------------------------


@dataclass(frozen=True)
class AddStream(Command):
    """A stream is there; of one that Python gives, the text is empty. `code`: it came with a job of Python."""

    do = "create stream"
    text: str = ""
    code: CodeReference | None = None

    def _rest(self) -> dict[str, Any]:
        return {"text": self.text, **_code_to_json(self.code)}


@dataclass(frozen=True)
class RemoveStream(Command):
    """A stream is there no longer."""

    do = "drop stream"

    def _rest(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class RememberText(Command):
    """What the text that the engine starts with says of a job."""

    do = "said"
    text: str

    def _rest(self) -> dict[str, Any]:
        return {"text": self.text}


@dataclass(frozen=True)
class RememberAnswers(Command):
    """What was answered to the request of this name, whose text has this digest."""

    do = "answer"
    digest: str
    answers: tuple[Answered, ...]

    def _rest(self) -> dict[str, Any]:
        return {"text": self.digest, "answers": [answer.to_json() for answer in self.answers]}


# -- jobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddJob(JobCommand):
    """A job is there; of one of Python the query is empty. `code`: the source of its query, or of the functions that
    the query calls."""

    do, did = "create job", "created"
    select: str = ""
    sinks: tuple[SinkCall, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    recovery: Semantics | None = None
    code: CodeReference | None = None

    def _rest(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "select": self.select,
            "sinks": [sink.to_json() for sink in self.sinks],
            "parameters": dict(self.parameters),
        }
        recovery = {} if self.recovery is None else {"recovery": str(self.recovery)}
        return {**told, **recovery, **_code_to_json(self.code)}


@dataclass(frozen=True)
class ChangeQuery(JobCommand):
    """A job has this query and these parameters. `code`: as in `AddJob`; None: what it has."""

    do, did = "alter", "altered"
    select: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    state: StateFate = "kept"
    code: CodeReference | None = None

    def _rest(self) -> dict[str, Any]:
        told = {"select": self.select, "parameters": dict(self.parameters), "state": self.state}
        return {**told, **_code_to_json(self.code)}


@dataclass(frozen=True)
class ChangeRecovery(JobCommand):
    """What a job may lose or repeat when the engine recovers; None: as the engine's settings say."""

    do, did = "set recovery", "recovery"
    recovery: Semantics | None

    def _rest(self) -> dict[str, Any]:
        return {"recovery": None if self.recovery is None else str(self.recovery)}


@dataclass(frozen=True)
class PauseJob(JobCommand):
    """A job gets no events."""

    do: ClassVar[Happening] = "pause"
    did = "paused"


@dataclass(frozen=True)
class ResumeJob(JobCommand):
    """A job gets events again; `anew`: with an empty state."""

    do: ClassVar[Happening] = "resume"
    did = "resumed"
    anew: bool = False

    def _rest(self) -> dict[str, Any]:
        return {"anew": self.anew}


@dataclass(frozen=True)
class EmptyJob(JobCommand):
    """The state of a job is empty; `anew`: it has another number for that."""

    do: ClassVar[Happening] = "empty"
    did = "emptied"
    anew: bool = True

    def _rest(self) -> dict[str, Any]:
        return {"anew": self.anew}


@dataclass(frozen=True)
class FlushJob(JobCommand):
    """A job emits its open windows."""

    do: ClassVar[Happening] = "flush"
    did = "flushed"


@dataclass(frozen=True)
class RemoveJob(JobCommand):
    """A job is there no longer."""

    do, did = "drop", "drop"


@dataclass(frozen=True)
class FailJob(JobCommand):
    """A job has failed, as it was in this version; `lost`: its state is gone."""

    do, did = "fail", "failed"
    version: int
    error: str
    #: its number then; None: not known
    number: int | None = None
    lost: bool = True

    def _rest(self) -> dict[str, Any]:
        number = {} if self.number is None else {"number": self.number}
        return {"version": self.version, **number, "error": self.error, "lost": self.lost}


# -- JSON ------------------------------------------------------------------------------------------------

_Json = Mapping[str, Any]
_READ: dict[str, Callable[[str, _Json], Command]] = {
    AddStream.do: lambda name, body: AddStream(name, body["text"], _code_of(body)),
    RemoveStream.do: lambda name, body: RemoveStream(name),
    RememberText.do: lambda name, body: RememberText(name, body["text"]),
    RememberAnswers.do: lambda name, body: RememberAnswers(
        name, body["text"], tuple(map(Answered.from_json, body["answers"]))
    ),
    AddJob.do: lambda name, body: AddJob(
        name,
        body["select"],
        tuple(map(SinkCall.from_json, body["sinks"])),
        body["parameters"],
        semantics_of(body),
        _code_of(body),
    ),
    ChangeQuery.do: lambda name, body: ChangeQuery(
        name, body["select"], body["parameters"], body["state"], _code_of(body)
    ),
    ChangeRecovery.do: lambda name, body: ChangeRecovery(name, semantics_of(body)),
    PauseJob.do: lambda name, body: PauseJob(name),
    ResumeJob.do: lambda name, body: ResumeJob(name, bool(body.get("anew", False))),
    EmptyJob.do: lambda name, body: EmptyJob(name, bool(body.get("anew", False))),
    FlushJob.do: lambda name, body: FlushJob(name),
    RemoveJob.do: lambda name, body: RemoveJob(name),
    FailJob.do: lambda name, body: FailJob(
        name, body["version"], body["error"], body.get("number"), body.get("lost", True)
    ),
}


def _code_of(body: _Json) -> CodeReference | None:
    return CodeReference.of(body.get("code"))


def command_from_json(body: Any) -> Command:
    """The command that was written; ValueError if this is none."""
    try:
        if body["do"] not in _READ:
            raise ValueError(f"there is no command {body['do']!r}")
        return _READ[body["do"]](body["name"], body)
    except (KeyError, TypeError, AttributeError) as failure:
        raise ValueError(f"this is no command: {failure!r}") from failure


def semantics_of(body: Mapping[str, Any]) -> Semantics | None:
    """What something that is kept says of recovery; what is older says nothing."""
    said = body.get("recovery")
    return None if said is None else Semantics(said)
