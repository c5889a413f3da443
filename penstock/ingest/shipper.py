"""Brings a journal to the gateway: connects, says hello, sends frames ahead of their acknowledgements, and
begins again when cut off.

Receives a journal; hands its frames to the gateway, and releases what is acknowledged. Holds one frame in
memory at a time: what is under way is still in the journal.
"""

from __future__ import annotations

import json
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.ingest.frames import GAP, JUMP
from penstock.ingest.intake import Hello
from penstock.ingest.journal import FRAME_BYTES, Journal
from penstock.ingest.tell import tell

if TYPE_CHECKING:
    import ssl

#: bytes under way without an acknowledgement
_WINDOW_BYTES = 4 << 20
_SYNC_SECONDS = 1.0
#: how long the other side may take to let us send
_SEND_SECONDS = 10.0
#: no acknowledgement for so long: the connection is given up
_DEAF_SECONDS = 20.0
_MOST_ANSWER_BYTES = 64 << 10
#: refusals that no waiting mends
_FINAL = {"BAD_TOKEN", "BAD_STREAM_NAME", "BAD_PRODUCER", "BAD_HELLO"}


class Refused(Exception):
    """The gateway said no."""

    def __init__(self, told: dict[str, object]) -> None:
        super().__init__(f"[{told.get('error')}] {told.get('reason')}")
        self.final = told.get("error") in _FINAL


@dataclass
class Shipped:
    """What a shipper has done so far."""

    frames: int = 0
    lines: int = 0
    bytes_sent: int = 0
    acknowledged: int = 0
    connected: bool = False
    failure: str = ""


class Shipper:
    """Ships one journal to a gateway."""

    def __init__(
        self,
        journal: Journal,
        to: tuple[str, int],
        stream: str,
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        linger_seconds: float = 0.2,
        finished: Callable[[], bool] = lambda: False,
        stop: threading.Event | None = None,
    ) -> None:
        self._journal, self._to = journal, to
        self._tls = tls
        self._hello = Hello(stream, journal.producer, token)
        self._linger_seconds = linger_seconds
        self._finished = finished
        self._stop = stop or threading.Event()
        self._over = threading.Event()
        self._nothing_left = False  # the rest was given up, or is a line that fits no frame
        self.shipped = Shipped(acknowledged=journal.first)

    @property
    def done(self) -> bool:
        """Whether all there will ever be is on the gateway's disk."""
        return self._finished() and (
            self._nothing_left or not self._journal.bytes_after(self.shipped.acknowledged)
        )

    def run(self) -> None:
        """Ship until all is done, or `stop` is set; a gateway that is away is tried again and again."""
        # a thread of its own: a disk that others keep busy must not hold up what is shipped
        threading.Thread(target=self._sync, name="sync", daemon=True).start()
        try:
            self._run()
        finally:
            self._over.set()

    def _run(self) -> None:
        pause = 0.1
        while not self._stop.is_set() and not self.done:
            began = time.monotonic()
            try:
                self._session()
            except (OSError, ValueError, Refused) as error:
                reason = str(error) or type(error).__name__
                if reason != self.shipped.failure:
                    tell(
                        "not connected",
                        to=f"{self._to[0]}:{self._to[1]}",
                        reason=reason,
                        producer=self._journal.producer,
                    )
                self.shipped.failure = reason
                if isinstance(error, Refused) and error.final:
                    pause = 5.0
            finally:
                self.shipped.connected = False
            pause = 0.1 if time.monotonic() - began > 5 else min(pause * 2, 5.0)
            until = time.monotonic() + pause * random.uniform(0.5, 1.0)
            while time.monotonic() < until and not self._stop.is_set() and not self.done:
                if not self._journal.pack():
                    self._stop.wait(min(0.1, max(until - time.monotonic(), 0)))

    def _session(self) -> None:
        with self._connection() as line:
            line.sendall(self._hello.encoded())
            answers = _Answers(line)
            answer = answers.wait()
            position, most = int(str(answer["next"])), int(str(answer["most_bytes"]))
            self._connected(position)
            self._ship(line, answers, position, min(FRAME_BYTES, most - 512))

    def _connection(self) -> socket.socket:
        line = socket.create_connection(self._to, timeout=_SEND_SECONDS)
        try:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return line if self._tls is None else self._tls.wrap_socket(line, server_hostname=self._to[0])
        except BaseException:
            line.close()
            raise

    def _connected(self, position: int) -> None:
        journal, shipped = self._journal, self.shipped
        tell(
            "connected",
            to=f"{self._to[0]}:{self._to[1]}",
            producer=journal.producer,
            position=position,
            end=journal.end,
        )
        shipped.connected, shipped.failure, shipped.acknowledged = True, "", position
        if position > journal.end:
            tell("numbering lost", producer=journal.producer, position=position, end=journal.end)
            journal.skip_to(position)
        journal.release(position)

    def _ship(self, line: socket.socket, answers: _Answers, position: int, most: int) -> None:
        """Send from a position on, as long as the connection lasts."""
        journal, shipped = self._journal, self.shipped
        due = heard = time.monotonic()
        while not self._stop.is_set() and not self.done:
            ended, now, waiting = self._finished(), time.monotonic(), journal.end - position
            may_send = position - shipped.acknowledged < _WINDOW_BYTES
            if may_send and waiting > 0 and (now >= due or waiting >= most):
                reached = self._send(line, position, most)
                if reached is None:
                    self._nothing_left = ended and position <= shipped.acknowledged
                elif position <= shipped.acknowledged:
                    heard = now  # nothing was under way: the wait for an answer begins here
                position, due = reached or position, now + self._linger_seconds
                waiting = 0 if reached is None else journal.end - position
            rest = self._linger_seconds
            if may_send and waiting > 0:
                rest = 0.0 if waiting >= most else min(max(due - now, 0.0), rest)
            heard = self._take(answers.poll(rest), heard)
            if position > shipped.acknowledged and time.monotonic() - heard > _DEAF_SECONDS:
                raise TimeoutError("the gateway does not acknowledge")

    def _send(self, line: socket.socket, position: int, most: int) -> int | None:
        """Send the next frame; the position after it, or None if there is none."""
        frame = self._journal.frame(position, most)
        if frame is None:
            return None
        if frame.first > position:
            given_up = self._journal.gave_up(position, frame.first)
            frame = replace(frame, flags=GAP if given_up else JUMP)
        data = frame.encoded()
        line.sendall(data)
        self.shipped.frames += 1
        self.shipped.lines += frame.count
        self.shipped.bytes_sent += len(data)
        return frame.end

    def _take(self, answers: list[dict[str, object]], heard: float) -> float:
        for answer in answers:
            durable = int(str(answer["durable"]))
            self.shipped.acknowledged = max(self.shipped.acknowledged, durable)
            self._journal.release(durable)
        return time.monotonic() if answers else heard

    def _sync(self) -> None:
        while not self._over.wait(_SYNC_SECONDS):
            self._journal.sync()


class _Answers:
    """The lines a gateway says."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._data = b""

    def wait(self) -> dict[str, object]:
        """The next line; raises if it is a refusal."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            found = self.poll(0.5)
            if found:
                return found[0]
        raise TimeoutError("the gateway does not answer")

    def poll(self, seconds: float) -> list[dict[str, object]]:
        """The lines that come within some time."""
        # what TLS has unpacked already no select sees
        if not getattr(self._line, "pending", int)() and not select.select([self._line], [], [], seconds)[0]:
            return []
        self._line.settimeout(0)
        try:
            data = self._line.recv(_MOST_ANSWER_BYTES)
        except OSError as error:
            if isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError":
                return []  # a part of a record of TLS, or one that is not for us
            raise
        finally:
            self._line.settimeout(_SEND_SECONDS)
        if not data:
            raise ConnectionError("the gateway hung up")
        *lines, self._data = (self._data + data).split(b"\n")
        if len(self._data) > _MOST_ANSWER_BYTES:
            raise ValueError("the gateway's answer does not end")
        found = []
        for text in lines:
            told = json.loads(text)
            if not isinstance(told, dict) or "error" in told:
                raise Refused(told if isinstance(told, dict) else {})
            found.append(told)
        return found
