"""A producer's name is its own: others cannot send under it, and of two copies of a spool exactly one continues."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.ingest.frames import JUMP, Frame
from penstock.ingest.gateway_command import main as gateway_main
from penstock.ingest.identity import Identity
from penstock.ingest.intake import Hello, SessionTaken
from penstock.ingest.shipper import Shipper
from penstock.ingest.spool import Spool, boot_id
from tests.ingest.processes import Connection, Processes, Running, token_file, until
from tests.ingest.test_gateway import request
from tests.ingest.test_reduce import SQL

pytestmark = pytest.mark.process

SECRET, OTHER = "the-secret-of-web1-000", "the-secret-of-another-0"


def bind(processes: Processes, name: str = "web1", secret: str = SECRET, *sessions: str) -> str:
    """Connect as an agent does; return the session that is taken."""
    with Connection(processes.port, Hello("clicks", name, "", secret, sessions, "here")) as line:
        assert "session" in line.hello_reply, line.hello_reply
        session = str(line.hello_reply["session"])
        line.send(SessionTaken(session).encoded())
        assert line.reply() == {"ready": True}
    return session


class Piped:
    """An agent on a pipe, and what was written to it."""

    def __init__(self, processes: Processes, spool: Path, *more: object) -> None:
        out, self._into = os.pipe()
        self.running = processes.agent("--spool", spool, "--drain", "60s", *more, stdin=out)
        os.close(out)

    def write(self, *lines: bytes) -> None:
        os.write(self._into, b"".join(line + b"\n" for line in lines))

    def end(self) -> int:
        os.close(self._into)
        return self.running.wait(120)

    def refused(self) -> str:
        """Wait until the gateway refuses it; return the reason."""
        report = until(lambda: self.running.reports("not connected"), 60, "a refusal")[-1]
        assert "hint" in report
        return str(report["reason"])


def arrived(processes: Processes, *lines: bytes) -> bool:
    return (processes.log / "logs").exists() and set(lines) <= set(processes.lines())


# -- names -----------------------------------------------------------------------------------------


def test_others_cannot_move_a_producers_counter(processes: Processes) -> None:
    processes.gateway(http=True)
    bind(processes)
    jump = Frame.of("web1", 1 << 40, b"x\n", flags=JUMP)
    for hello in (Hello("clicks", "web1"), Hello("clicks", "web1", "", OTHER)):
        with Connection(processes.port, hello) as line:
            line.send(jump.encoded())
            reply = line.hello_reply
            assert reply["error"] == "PRODUCER_BOUND"
            assert "--release" in reply["hint"]
    headers = {"Penstock_Producer": "web1", "Penstock_Position": "0"}
    for more in ({}, {"Penstock_Secret": OTHER}):
        status, reply = request(processes, "POST", "/streams/clicks/events", b"x\n", **headers, **more)
        assert (status, reply["error"]) == (403, "PRODUCER_BOUND")
    assert not processes.lines("clicks")


def test_a_producer_over_http_binds_its_name_by_a_secret(processes: Processes) -> None:
    processes.gateway(http=True)
    headers = {"Penstock_Producer": "app", "Penstock_Position": "0"}
    mine = headers | {"Penstock_Secret": SECRET}
    assert request(processes, "POST", "/streams/clicks/events", b"x\n", **mine)[0] == 200
    assert request(processes, "POST", "/streams/clicks/events", b"y\n", **headers)[0] == 403
    assert request(processes, "POST", "/streams/clicks/events", b"x\n", **mine)[1] == {
        "lines": 0,
        "durable": 2,
    }
    short = headers | {"Penstock_Secret": "short"}
    assert request(processes, "POST", "/streams/clicks/events", b"y\n", **short)[0] == 400


def test_an_agent_of_the_first_version_ships_until_its_name_is_bound(processes: Processes) -> None:
    processes.gateway()
    former = Hello("clicks", "web1")
    for first in (0, 2):
        with Connection(processes.port, former) as line:
            assert line.hello_reply["next"] == first
            frame = Frame.of("web1", first, b"a\n")
            line.send(frame.encoded())
            assert line.reply() == {"durable": frame.end}
    bind(processes)
    with Connection(processes.port, former) as line:
        assert line.hello_reply["error"] == "PRODUCER_BOUND"
    assert processes.lines("clicks") == [b"a", b"a"]


def test_a_binding_survives_the_gateway_and_is_released_by_the_operator(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = processes.gateway()
    bind(processes)
    gateway.kill()
    processes.gateway()
    with Connection(processes.port, Hello("clicks", "web1", "", OTHER, ())) as line:
        assert line.hello_reply["error"] == "PRODUCER_BOUND"
    release = ["gateway", "--dir", processes.log, "--release"]
    assert Running(*release, "clicks/web1").wait() == 0
    nobody = Running(*release, "clicks/nobody")
    assert nobody.wait() == 2
    assert "[NOT_BOUND]" in nobody.text()
    bind(processes, "web1", OTHER)
    assert gateway_main(["--dir", str(processes.log), "--release", "clicks/web1"]) == 0


def test_each_sender_can_have_a_token_of_its_own(processes: Processes, tmp_path: Path) -> None:
    tokens = token_file(tmp_path / "tokens", "alice token-of-alice-000\nbob token-of-bob-00000")
    processes.gateway("--agent-tokens", tokens, http=True)

    def post(token: str) -> int:
        headers = {"Penstock_Producer": "web1", "Penstock_Position": "0", "Authorization": f"Bearer {token}"}
        return request(processes, "POST", "/streams/clicks/events", b"x\n", **headers)[0]

    assert [post(token) for token in ("token-of-alice-000", "token-of-bob-00000", "other")] == [200, 403, 401]
    with Connection(processes.port, Hello("clicks", "web1", "token-of-bob-00000")) as line:
        assert line.hello_reply["error"] == "PRODUCER_BOUND"


def test_a_session_that_was_not_offered_is_refused(processes: Processes) -> None:
    processes.gateway()
    for line_sent in (SessionTaken("mine").encoded(), b"[]\n", b"no json\n"):
        with Connection(processes.port, Hello("clicks", "web1", "", SECRET, ())) as line:
            line.send(line_sent)
            assert line.reply_with("error")["error"] == "BAD_HELLO"
    with Connection(processes.port, Hello("clicks", "web1", "", SECRET, ())) as line:
        line.send(Frame.of("web1", 0, b"x\n").encoded())  # before the session is taken
        assert line.reply_with("error")["error"] in ("BAD_HELLO", "BAD_FRAME")
    assert bind(processes)  # none of them bound anything


# -- what others did to the gateway's numbers --------------------------------------------------------


@contextmanager
def false_gateway(*replies: dict[str, object]) -> Iterator[tuple[int, threading.Event]]:
    """Something that replies to a hello, whatever it says, and whether it did."""
    listener, replied = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            with line:
                line.recv(4096)
                for reply in replies:
                    line.sendall(json.dumps(reply).encode() + b"\n")
                replied.set()
                line.settimeout(60)
                while line.recv(4096):
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], replied
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


@pytest.mark.parametrize(
    "replies",
    [
        ({"next": 1 << 40, "most_bytes": 1 << 20},),
        ({"next": 0, "most_bytes": 1 << 20}, {"durable": 1 << 40}),
    ],
    ids=["hello", "acknowledgement"],
)
def test_lines_stay_in_the_spool_if_the_gateway_has_more_than_was_sent(
    tmp_path: Path, replies: tuple[dict[str, object], ...]
) -> None:
    spool = Spool(tmp_path / "spool", file_bytes=100)
    for number in range(100):
        spool.append(b"line %d\n" % number)
    size = spool.bytes_after(0)
    stop = threading.Event()
    with false_gateway(*replies) as (port, replied):
        shipper = Shipper(spool, ("127.0.0.1", port), "logs", linger_seconds=0.01, stop=stop)
        thread = threading.Thread(target=shipper.run)
        thread.start()
        try:
            assert replied.wait(60)
            until(lambda: "POSITION_NOT_OURS" in shipper.shipped.failure, 60, "the error")
        finally:
            stop.set()
            thread.join(60)
    assert spool.bytes_after(0) == size
    assert spool.end == size
    spool.close()


# -- copies ----------------------------------------------------------------------------------------


def test_a_copy_of_a_spool_is_refused_while_the_other_is_connected(
    processes: Processes, tmp_path: Path
) -> None:
    gateway = processes.gateway()
    original = Piped(processes, tmp_path / "spool")
    original.write(b"first")
    until(lambda: arrived(processes, b"first"), 60, "the first line")
    shutil.copytree(tmp_path / "spool", tmp_path / "copy")
    copy = Piped(processes, tmp_path / "copy")
    copy.write(b"of the copy")
    original.write(b"of the original")
    assert "PRODUCER_COPIED" in copy.refused()
    until(lambda: arrived(processes, b"of the original"), 60, "the original's line")
    gateway.kill()  # both lose their connections, and race
    processes.gateway()
    original.write(b"after the restart")
    until(lambda: arrived(processes, b"after the restart"), 60, "the line after the restart")
    copy.running.kill()
    renamed = Piped(processes, tmp_path / "copy", "--new-producer")
    until(lambda: arrived(processes, b"of the copy"), 60, "the copy's line")
    assert (original.end(), renamed.end()) == (0, 0)
    wanted = [b"after the restart", b"first", b"of the copy", b"of the original"]
    assert sorted(processes.lines()) == wanted


def test_of_two_copies_that_were_made_at_rest_the_first_to_connect_continues(
    processes: Processes, tmp_path: Path
) -> None:
    processes.gateway("--takeover", "1ms")
    original = Piped(processes, tmp_path / "spool")
    original.write(b"first")
    assert original.end() == 0
    shutil.copytree(tmp_path / "spool", tmp_path / "copy")
    copy = Piped(processes, tmp_path / "copy")
    copy.write(b"of the copy")
    until(lambda: arrived(processes, b"of the copy"), 60, "the copy's line")
    original = Piped(processes, tmp_path / "spool")
    original.write(b"of the original")
    assert "PRODUCER_COPIED" in original.refused()
    assert copy.end() == 0
    assert sorted(processes.lines()) == [b"first", b"of the copy"]
    assert (tmp_path / "spool" / "stdin").exists()
    original.running.kill()
    original = Piped(processes, tmp_path / "spool", "--new-producer")
    assert original.end() == 0
    assert sorted(processes.lines()) == [b"first", b"of the copy", b"of the original"]


def test_two_machines_of_one_image_do_not_share_a_producer(processes: Processes, tmp_path: Path) -> None:
    """The image has a spool that was never connected; each machine has read lines before it first connects."""
    Spool(tmp_path / "one", boot="image").close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    processes.gateway()
    spools = [Spool(tmp_path / name, boot=name) for name in ("one", "two")]
    for spool in spools:
        spool.append(b"of %s\n" % spool.directory.name.encode())
    assert spools[0].producer == spools[1].producer
    stop, shippers, threads = threading.Event(), [], []
    for spool in spools:
        shippers.append(Shipper(spool, ("127.0.0.1", processes.port), "logs", linger_seconds=0.01, stop=stop))
        threads.append(threading.Thread(target=shippers[-1].run))
        threads[-1].start()
        until(lambda: shippers[-1].shipped.connected or shippers[-1].shipped.failure, 60, "a reply")
    try:
        until(lambda: arrived(processes, b"of one"), 60, "the line of the first machine")
        assert "PRODUCER_COPIED" in shippers[1].shipped.failure
        assert spools[1].bytes_after(0) == len(b"of two\n")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert processes.lines() == [b"of one"]


def test_a_spool_that_was_moved_continues_once_its_former_place_is_silent(
    processes: Processes, tmp_path: Path
) -> None:
    processes.gateway("--takeover", "2s")
    agent = Piped(processes, tmp_path / "spool")
    agent.write(b"before")
    assert agent.end() == 0
    shutil.copytree(tmp_path / "spool", tmp_path / "moved")
    shutil.rmtree(tmp_path / "spool")
    agent = Piped(processes, tmp_path / "moved")
    agent.write(b"after")
    assert agent.end() == 0
    assert processes.lines() == [b"before", b"after"]


def test_a_copy_of_a_spool_that_is_behind_releases_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append(b"copied\n")
    spool.close()
    shutil.copytree(tmp_path / "spool", tmp_path / "copy")
    copy = Spool(tmp_path / "copy")
    copy.append(b"lines of the copy\n")
    copy.check_position(7)
    with pytest.raises(Exception, match="POSITION_NOT_OURS"):
        copy.check_position(12)  # the original sent five bytes after the copy was made
    copy.identity.confirm("")
    copy.check_position(12)
    copy.close()


# -- the facts of a spool ------------------------------------------------------------------------------


def test_a_spool_of_the_first_version_keeps_its_name_and_gets_a_secret(tmp_path: Path) -> None:
    (tmp_path / "producer.json").write_text(json.dumps({"producer": "web1-3f9c", "boot": boot_id()}))
    (tmp_path / f"{0:020}.raw").write_bytes(b"a\n")
    spool = Spool(tmp_path)
    assert (spool.producer, spool.end, spool.lines(0)) == ("web1-3f9c", 2, (0, b"a\n"))
    assert len(spool.identity.secret) >= 32
    spool.check_position(2)
    spool.close()
    facts = tmp_path / "producer.json"
    assert facts.stat().st_mode & 0o777 == 0o600
    assert json.loads(facts.read_bytes())["boot"] == boot_id()  # as the first version expects it


def test_sessions_of_several_gateways_are_kept_side_by_side(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "boot")
    for former, offered in (("", "a1"), ("", "b1"), ("a1", "a2"), ("b1", "b2")):
        identity.take_session(offered)
        assert offered in Identity(tmp_path, "boot").sessions  # on disk before the gateway learns of it
        identity.confirm(former)
    assert Identity(tmp_path, "boot").sessions == ("a2", "b2")
    secret = identity.secret
    identity.rename()
    assert (identity.sessions, identity.secret == secret) == ((), False)


def test_lines_packed_under_a_former_name_are_sent_under_the_new_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path, file_bytes=100)
    for number in range(30):
        spool.append(b"line number %d\n" % number)
    while spool.pack():
        pass
    spool.take_new_name()
    frame = spool.frame(0)
    assert frame is not None
    assert frame.producer == spool.producer
    spool.close()


def test_a_reducing_agent_takes_no_new_name(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "jobs.sql").write_text(SQL)
    reducing = ("--reduce", tmp_path / "jobs.sql", "--stream", "clicks", "--spool", tmp_path / "spool")
    agent = processes.agent(*reducing, "--new-producer")
    assert agent.wait(120) == 2
    assert "[CANNOT_RENAME]" in agent.text()
