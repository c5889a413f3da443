"""Commands, which change a catalogue, and the replies to the statements that they come from. Pure.

In the command log a command is a JSON object whose `do` is its kind:

    create stream   name, text, code               said           name, text
    drop stream     name                           answer         name (of the request), text (its digest), answers
    create job      name, select, sinks, parameters, recovery, code
    alter           name, select, parameters, state, code
    set recovery    name, recovery                 fail           name, version, number, error, lost
    pause, flush, drop    name                     resume, empty  name, anew

`recovery` (of a new job) and `code` are left out where there is none. Some keys (`said`, `answer`, `anew`) are older
than the names here and part of the format.

Guarantees: a command that is read back equals the one that was written. Anything else raises ValueError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from penstock.catalogue.lifecycle import Transition
from penstock.ha.schemes import Semantics
from penstock.moved import former_names
from penstock.secret_store import is_reference, redact
from penstock.sql.statements import Call, Scalar

#: what happens to a job's state: kept, reset to empty ("anew"), or rebuilt from the log's earliest events
StateOutcome = Literal["kept", "anew", "rebuilt"]


@former_names(says="message")
@dataclass(frozen=True)
class Reply:
    """The reply to a statement. `command`: the number under which it takes effect at the next epoch."""

    message: str
    name: str = ""
    state: StateOutcome | None = None
    command: int | None = None
    #: for SHOW: a row for each stream or job
    rows: tuple[Mapping[str, Any], ...] = ()
    question: bool = False

    def with_number(self, command: int) -> Reply:
        """The reply once its command has a number."""
        return self if self.question else replace(self, command=command)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the command log and for clients. The key of the message is `says`, for compatibility."""
        return {
            "says": self.message,
            "name": self.name,
            "state": self.state,
            "command": self.command,
            "rows": list(map(dict, self.rows)),
            "question": self.question,
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Reply:
        rows = tuple(body.get("rows", ()))
        return Reply(body["says"], body["name"], body["state"], body["command"], rows, body["question"])


@dataclass(frozen=True)
class SinkCall:
    """A sink of a job, as declared."""

    name: str
    arguments: tuple[Scalar, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)

    @staticmethod
    def of(call: Call) -> SinkCall:
        """The sink that a call in a statement declares."""
        return SinkCall(call.name, call.arguments, dict(call.options))

    def as_call(self, number: int = 1) -> Call:
        """The call; `number`: its position among the job's sinks."""
        return Call(self.name, self.arguments, self.options, (0, number))

    def describe(self) -> str:
        """It, for people."""
        shown = (str(value) if is_reference(value) else redact(repr(value)) for value in self.arguments)
        return f"{self.name}({', '.join(shown)})"

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
    """A command about the job, stream or request of this name."""

    #: its kind in the command log
    do: ClassVar[str]
    name: str

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the command log."""
        return {"do": self.do, "name": self.name, **self._rest()}

    @abstractmethod
    def _rest(self) -> dict[str, Any]:
        """Its other fields, as JSON."""


@dataclass(frozen=True)
class JobCommand(Command, ABC):
    """A command about a job."""

    #: what it did to the job, for its history
    did: ClassVar[str]

    def _rest(self) -> dict[str, Any]:
        return {}


def _code_to_json(code: CodeReference | None) -> dict[str, Any]:
    return {} if code is None else {"code": code.facts}


# -- streams, texts and requests ------------------------------------------------


@dataclass(frozen=True)
class AddStream(Command):
    """Create a stream; that of one that Python gives has no text. `code`: it came with a Python job."""

    do = "create stream"
    text: str = ""
    code: CodeReference | None = None

    def _rest(self) -> dict[str, Any]:
        return {"text": self.text, **_code_to_json(self.code)}


@dataclass(frozen=True)
class RemoveStream(Command):
    """Drop a stream."""

    do = "drop stream"

    def _rest(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class RememberText(Command):
    """Remember the statement about a job in the text that the engine starts with."""

    do = "said"
    text: str

    def _rest(self) -> dict[str, Any]:
        return {"text": self.text}


@dataclass(frozen=True)
class RememberReplies(Command):
    """Remember the replies to the request of this name, whose text has this digest."""

    do = "answer"
    digest: str
    replies: tuple[Reply, ...]

    def _rest(self) -> dict[str, Any]:
        return {"text": self.digest, "answers": [reply.to_json() for reply in self.replies]}


# -- jobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddJob(JobCommand):
    """Create a job; a Python job has no text of a query. `code`: the source of its query, or of the functions that the
    query calls."""

    do, did = "create job", "created"
    select: str = ""
    sinks: tuple[SinkCall, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    recovery: Semantics | None = None
    code: CodeReference | None = None

    def _rest(self) -> dict[str, Any]:
        query: dict[str, Any] = {
            "select": self.select,
            "sinks": [sink.to_json() for sink in self.sinks],
            "parameters": dict(self.parameters),
        }
        recovery = {} if self.recovery is None else {"recovery": str(self.recovery)}
        return {**query, **recovery, **_code_to_json(self.code)}


@dataclass(frozen=True)
class ChangeQuery(JobCommand):
    """Give a job another query and parameters. `code`: as in `AddJob`; None: as before."""

    do, did = "alter", "altered"
    select: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    state: StateOutcome = "kept"
    code: CodeReference | None = None

    def _rest(self) -> dict[str, Any]:
        query = {"select": self.select, "parameters": dict(self.parameters), "state": self.state}
        return {**query, **_code_to_json(self.code)}


@dataclass(frozen=True)
class ChangeRecovery(JobCommand):
    """Set what a job may lose or repeat when the engine recovers; None: as the engine's settings say."""

    do, did = "set recovery", "recovery"
    recovery: Semantics | None

    def _rest(self) -> dict[str, Any]:
        return {"recovery": None if self.recovery is None else str(self.recovery)}


@dataclass(frozen=True)
class PauseJob(JobCommand):
    """Stop giving events to a job."""

    do: ClassVar[Transition] = "pause"
    did = "paused"


@dataclass(frozen=True)
class ResumeJob(JobCommand):
    """Give events to a job again; `anew`: with empty state."""

    do: ClassVar[Transition] = "resume"
    did = "resumed"
    anew: bool = False

    def _rest(self) -> dict[str, Any]:
        return {"anew": self.anew}


@dataclass(frozen=True)
class EmptyJob(JobCommand):
    """Empty the state of a job; `anew`: it gets another number for that."""

    do: ClassVar[Transition] = "empty"
    did = "emptied"
    anew: bool = True

    def _rest(self) -> dict[str, Any]:
        return {"anew": self.anew}


@dataclass(frozen=True)
class FlushJob(JobCommand):
    """Emit the open windows of a job."""

    do: ClassVar[Transition] = "flush"
    did = "flushed"


@dataclass(frozen=True)
class RemoveJob(JobCommand):
    """Drop a job."""

    do, did = "drop", "drop"


@dataclass(frozen=True)
class FailJob(JobCommand):
    """Mark a job as failed, if it still has this version; `lost`: its state is dropped."""

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
    RememberReplies.do: lambda name, body: RememberReplies(
        name, body["text"], tuple(map(Reply.from_json, body["answers"]))
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
    """The command that was written; ValueError if this is no command."""
    try:
        if body["do"] not in _READ:
            raise ValueError(f"there is no command {body['do']!r}")
        return _READ[body["do"]](body["name"], body)
    except (KeyError, TypeError, AttributeError) as failure:
        raise ValueError(f"this is no command: {failure!r}") from failure


def semantics_of(body: Mapping[str, Any]) -> Semantics | None:
    """The recovery semantics in stored JSON; older versions stored none."""
    name = body.get("recovery")
    return None if name is None else Semantics(name)
