"""Commands in the log: their format on disk is that of all versions, and they are read back as they were written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.catalogue.catalogue import Catalogue
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
    PauseJob,
    RememberReplies,
    RememberText,
    RemoveJob,
    RemoveStream,
    Reply,
    ResumeJob,
    SinkCall,
    command_from_json,
)
from penstock.catalogue.questions import versions
from penstock.ha.schemes import Semantics

#: as former versions, without command types, wrote them
SINK = '{"name":"jsonl","arguments":["out",1],"options":{"x":null}}'
REPLY = '{"says":"done","name":"j","state":"kept","command":7,"rows":[],"question":false}'
CODE = (
    '{"digest":"d1","file":"/a.py","attribute":"q","reads":["k"],"sinks":["jsonl(\'out\')"],"deployed":true}'
)
REFERENCE = CodeReference("d1", "/a.py", "q", ("k",), ("jsonl('out')",), True)
WRITTEN: list[tuple[str, Command]] = [
    ('{"do":"create stream","name":"s","text":"CREATE STREAM s"}', AddStream("s", "CREATE STREAM s")),
    ('{"do":"create stream","name":"s","text":"","code":' + CODE + "}", AddStream("s", code=REFERENCE)),
    ('{"do":"drop stream","name":"s"}', RemoveStream("s")),
    ('{"do":"said","name":"j","text":"CREATE JOB j"}', RememberText("j", "CREATE JOB j")),
    (
        '{"do":"answer","name":"r1","text":"abc","answers":[' + REPLY + "]}",
        RememberReplies("r1", "abc", (Reply("done", "j", "kept", 7),)),
    ),
    (
        '{"do":"create job","name":"j","select":"SELECT 1","sinks":[' + SINK + '],"parameters":{"p":0.5}}',
        AddJob("j", "SELECT 1", (SinkCall("jsonl", ("out", 1), {"x": None}),), {"p": 0.5}),
    ),
    (
        '{"do":"create job","name":"j","select":"","sinks":[],"parameters":{},"recovery":"gap"}',
        AddJob("j", "", recovery=Semantics.gap),
    ),
    (
        '{"do":"alter","name":"j","select":"SELECT 2","parameters":{"p":"a"},"state":"rebuilt"}',
        ChangeQuery("j", "SELECT 2", {"p": "a"}, "rebuilt"),
    ),
    (
        '{"do":"create job","name":"j","select":"","sinks":[],"parameters":{},"recovery":"gap","code":'
        + CODE
        + "}",
        AddJob("j", recovery=Semantics.gap, code=REFERENCE),
    ),
    (
        '{"do":"alter","name":"j","select":"","parameters":{},"state":"kept","code":' + CODE + "}",
        ChangeQuery("j", code=REFERENCE),
    ),
    ('{"do":"set recovery","name":"j","recovery":null}', ChangeRecovery("j", None)),
    ('{"do":"set recovery","name":"j","recovery":"amnesia"}', ChangeRecovery("j", Semantics.amnesia)),
    ('{"do":"pause","name":"j"}', PauseJob("j")),
    ('{"do":"resume","name":"j","anew":false}', ResumeJob("j")),
    ('{"do":"empty","name":"j","anew":true}', EmptyJob("j")),
    ('{"do":"flush","name":"j"}', FlushJob("j")),
    ('{"do":"drop","name":"j"}', RemoveJob("j")),
    (
        '{"do":"fail","name":"j","version":2,"number":5,"error":"broken","lost":false}',
        FailJob("j", 2, "broken", 5, False),
    ),
]


@pytest.mark.parametrize(("text", "command"), WRITTEN)
def test_a_command_is_read_and_written_in_the_same_format(text: str, command: Command) -> None:
    assert command_from_json(json.loads(text)) == command
    assert json.dumps(command.to_json(), separators=(",", ":")) == text


def test_every_type_of_command_is_tested() -> None:
    def types(base: type[Any]) -> set[type[Any]]:
        return {base, *(each for sub in base.__subclasses__() for each in types(sub))}

    assert {type(command) for _, command in WRITTEN} == {
        each for each in types(Command) if hasattr(each, "do")
    }


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ({"do": "resume", "name": "j"}, ResumeJob("j", False)),
        ({"do": "empty", "name": "j"}, EmptyJob("j", False)),
        ({"do": "fail", "name": "j", "version": 1, "error": "e"}, FailJob("j", 1, "e", None, True)),
    ],
)
def test_fields_that_former_versions_lacked_have_their_former_meaning(
    body: dict[str, Any], command: Command
) -> None:
    assert command_from_json(body) == command


@pytest.mark.parametrize(
    "body",
    [
        None,
        3,
        [],
        {},
        {"do": "pause"},
        {"do": "explode", "name": "j"},
        {"do": "alter", "name": "j"},
        {"do": "create job", "name": "j", "select": "", "sinks": 3, "parameters": {}},
        {"do": "set recovery", "name": "j", "recovery": "luck"},
    ],
)
def test_an_invalid_command_is_refused(body: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        command_from_json(body)


def test_a_request_with_the_name_of_a_job_is_not_in_the_history_of_the_job() -> None:
    entries: list[list[Command]] = [
        [AddJob("j", "SELECT 1"), RememberReplies("j", "abc", ())],
        [PauseJob("j")],
    ]
    assert [version.did for version in versions("j", 0, Catalogue(), entries)] == ["created", "paused"]
