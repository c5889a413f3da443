"""A gateway without a token file makes a token for itself, which agents of its user find."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError, UserError
from penstock.ingest.gateway_command import main as gateway_main
from penstock.ingest.intake import Hello
from penstock.ingest.tokens import Tokens
from penstock.state.service_token import (
    FILE,
    open_service_token,
    read_service_token,
    renew_service_token,
)
from tests.ingest.processes import Connection, Processes, numbered, token_file, until
from tests.ingest.test_gateway import request

NDJSON = {"Content_Type": "application/x-ndjson"}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()


@pytest.mark.process
def test_only_who_can_read_the_token_can_send(processes: Processes) -> None:
    gateway = processes.gateway(own_token=True, http=True)
    file = processes.log / FILE
    token = read_service_token(file)
    assert (file.stat().st_mode & 0o777, file.stat().st_uid) == (0o600, os.getuid())
    for wrong in ("", "wrong", token[:-1]):
        with Connection(processes.port, Hello("clicks", "p", wrong)) as line:
            assert line.hello_reply["error"] == "BAD_TOKEN"
            assert "penstock token" in line.hello_reply["hint"]
    with Connection(processes.port, Hello("clicks", "p", token)) as line:
        assert line.hello_reply["next"] == 0
    status, reply = request(processes, "POST", "/streams/clicks/events", b"x\n", **NDJSON)
    assert (status, reply["error"]) == (401, "BAD_TOKEN")
    assert "penstock token" in str(reply["hint"])
    assert request(processes, "GET", "/metrics")[0] == 401
    assert request(processes, "GET", "/health")[0] == 200
    bearer = {"Authorization": f"Bearer {token}"}
    assert request(processes, "POST", "/streams/clicks/events", b"x\n", **NDJSON, **bearer)[0] == 200
    for foreign in ({"Host": "rebound.evil.example"}, {"Origin": "http://evil.example"}):
        status, reply = request(
            processes, "POST", "/streams/clicks/events", b"x\n", **NDJSON, **bearer, **foreign
        )
        assert (status, reply["error"]) == (403, "FOREIGN_HOST"), "as without a token"
    assert [line["token_file"] for line in gateway.reports("listening")] == [str(file)] * 2
    assert token not in gateway.text()
    gateway.kill()
    processes.gateway(own_token=True, http=True)
    assert read_service_token(file) == token
    assert processes.lines("clicks") == [b"x"]


@pytest.mark.process
def test_an_agent_of_the_same_user_ships_also_if_it_was_there_first(processes: Processes) -> None:
    source, lines = processes.directory / "access.log", list(numbered(0, 200))
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    agent = processes.agent("--spool", processes.directory / "spool", "--tail", source, "--once")
    until(lambda: agent.reports("not connected"), what="the first attempt")
    gateway = processes.gateway(own_token=True)
    assert agent.wait(60) == 0, agent.text()
    assert processes.lines() == lines
    assert read_service_token(processes.log / FILE) not in agent.text() + gateway.text()


@pytest.mark.process
def test_an_agent_that_cannot_find_the_token_keeps_its_lines_and_says_why(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of another user of the machine."""
    processes.gateway(own_token=True)
    source = processes.directory / "access.log"
    source.write_bytes(b"one\n")
    (processes.directory / "elsewhere").mkdir()
    options = ("--spool", processes.directory / "spool", "--tail", source, "--once", "--drain")
    monkeypatch.setenv("TMPDIR", str(processes.directory / "elsewhere"))
    agent = processes.agent(*options, "1s")
    assert agent.wait(60) == 3
    assert "penstock token" in agent.reports("not connected")[0]["hint"]
    token = token_file(processes.directory / "copy", read_service_token(processes.log / FILE))
    assert processes.agent(*options, "30s", "--token-file", token).wait(60) == 0
    assert processes.lines() == [b"one"]


def test_a_new_token_is_in_force_at_once_and_a_missing_one_lets_nobody_in(tmp_path: Path) -> None:
    file, _ = open_service_token(tmp_path)
    former, tokens = read_service_token(file), Tokens(own=file)
    assert tokens.check(former) == ""
    renew_service_token(tmp_path)
    with pytest.raises(UserError, match="BAD_TOKEN"):
        tokens.check(former)
    assert tokens.check(read_service_token(file)) == ""
    file.unlink()
    for _ in range(2):
        with pytest.raises(PenstockError, match="TOKEN_FILE_UNREADABLE"):
            tokens.check(former)


def test_a_file_that_others_can_read_lets_nobody_in_for_as_long_as_they_can(tmp_path: Path) -> None:
    file = token_file(tmp_path / "tokens", "web1 open-sesame-open-sesame")
    tokens = Tokens(named=file)
    assert tokens.check("open-sesame-open-sesame") == "web1"
    file.chmod(0o644)
    for _ in range(2):
        with pytest.raises(UserError, match="TOKEN_FILE_OPEN"):
            tokens.check("open-sesame-open-sesame")
    file.chmod(0o600)
    assert tokens.check("open-sesame-open-sesame") == "web1"


def test_only_a_gateway_for_its_own_machine_can_be_started_without_a_token(tmp_path: Path) -> None:
    file = token_file(tmp_path / "token", "open-sesame-open-sesame")
    for options, condition in (
        (["--listen", "0.0.0.0:0"], "TOKEN_NEEDED"),
        (["--http", "0.0.0.0:0"], "TOKEN_NEEDED"),
        (["--token-file", str(file)], "BAD_SETTING"),
    ):
        with pytest.raises(UserError, match=condition):
            gateway_main(["--dir", str(tmp_path / "log"), "--no-token", *options])
    assert not (tmp_path / "log").exists()
