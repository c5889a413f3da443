"""Ships a spool to the gateway: connects, sends a hello, sends frames ahead of their acknowledgements, and
reconnects when cut off.

Receives a spool; sends its frames to the gateway, and releases what is acknowledged. Holds one frame in
memory at a time: what is in flight is still in the spool.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import ExternalError
from penstock.ingest.event_log import log_event
from penstock.ingest.frames import GAP, JUMP
from penstock.ingest.intake import Hello, SessionTaken
from penstock.ingest.spool import FRAME_BYTES, Spool
from penstock.request_origin import is_loopback
from penstock.state.service_token import find_service_token

if TYPE_CHECKING:
    import ssl

#: bytes in flight without an acknowledgement
_WINDOW_BYTES = 4 << 20
_SYNC_SECONDS = 1.0
#: how long a send may block
_SEND_SECONDS = 10.0
#: close the connection after so long without an acknowledgement
_SILENCE_SECONDS = 20.0
_MOST_ANSWER_BYTES = 64 << 10
#: refusals that a retry cannot fix
_FINAL = {
    "BAD_TOKEN",
    "BAD_STREAM_NAME",
    "BAD_PRODUCER",
    "BAD_HELLO",
    "POSITION_NOT_OURS",
    "PRODUCER_BOUND",
    "PRODUCER_COPIED",
    "STREAM_NOT_DECLARED",
}


class Refused(Exception):
    """The gateway refused."""

    def __init__(self, message: dict[str, object]) -> None:
        super().__init__(f"[{message.get('error')}] {message.get('reason')}")
        self.final = message.get("error") in _FINAL
        self.hint = str(message.get("hint") or "")


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
    """Ships one spool to a gateway."""

    def __init__(
        self,
        spool: Spool,
        to: tuple[str, int],
        stream: str,
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        linger_seconds: float = 0.2,
        finished: Callable[[], bool] = lambda: False,
        stop: threading.Event | None = None,
    ) -> None:
        self._spool, self._to = spool, to
        self._tls = tls
        self._stream, self._token = stream, token
        self._linger_seconds = linger_seconds
        self._finished = finished
        self._stop = stop or threading.Event()
        self._over = threading.Event()
        self._noted_at = 0.0
        self._nothing_left = False  # the rest was dropped, or is a line that fits no frame
        self.shipped = Shipped(acknowledged=spool.first)

    @property
    def done(self) -> bool:
        """Whether the input has ended and all of it is on the gateway's disk."""
        return self._finished() and (
            self._nothing_left or not self._spool.bytes_after(self.shipped.acknowledged)
        )

    def run(self) -> None:
        """Ship until all is done, or `stop` is set; retry for ever while the gateway is unreachable."""
        # a thread of its own: a busy disk must not delay what is shipped
        threading.Thread(target=self._sync, name="sync", daemon=True).start()
        try:
            self._run()
        finally:
            self._over.set()

    def _run(self) -> None:
        pause = 0.1
        while not self._stop.is_set() and not self.done:
            started_at = time.monotonic()
            try:
                self._session()
            except (OSError, ValueError, Refused) as error:
                self._report_failure(error)
                if isinstance(error, Refused) and error.final:
                    pause = 5.0
            finally:
                self._note_acknowledged()
                self.shipped.connected = False
            pause = 0.1 if time.monotonic() - started_at > 5 else min(pause * 2, 5.0)
            until = time.monotonic() + pause * random.uniform(0.5, 1.0)
            while time.monotonic() < until and not self._stop.is_set() and not self.done:
                if not self._spool.pack():
                    self._stop.wait(min(0.1, max(until - time.monotonic(), 0)))

    def _report_failure(self, error: Exception) -> None:
        """Report why there is no connection, unless that is known."""
        reason = str(error) or type(error).__name__
        if reason != self.shipped.failure:
            facts = {"hint": error.hint} if isinstance(error, Refused) and error.hint else {}
            log_event(
                "not connected",
                to=f"{self._to[0]}:{self._to[1]}",
                reason=reason,
                producer=self._spool.producer,
                **facts,
            )
        self.shipped.failure = reason

    def _session(self) -> None:
        identity = self._spool.identity
        with self._connection() as line:
            hello = Hello(
                self._stream,
                identity.producer,
                self._token or self._find_token(),
                identity.secret,
                identity.sessions,
                identity.place,
            )
            line.sendall(hello.encoded())
            answers = _Answers(line)
            answer = answers.wait()
            position, most = int(str(answer["next"])), int(str(answer["most_bytes"]))
            _check_ours(self._spool.check_position, position)
            if "session" in answer:  # a gateway of the first version offers none
                identity.take_session(str(answer["session"]))
                line.sendall(SessionTaken(str(answer["session"])).encoded())
                answers.wait()
                identity.confirm(str(answer["former"]))
            self._start_from(position)
            self._ship(line, answers, position, min(FRAME_BYTES, most - 512))

    def _find_token(self) -> str:
        """The token that a gateway of the same user on this machine has made for itself, or ""."""
        host, port = self._to
        return (find_service_token(port) if is_loopback(host) else None) or ""

    def _connection(self) -> socket.socket:
        line = socket.create_connection(self._to, timeout=_SEND_SECONDS)
        try:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return line if self._tls is None else self._tls.wrap_socket(line, server_hostname=self._to[0])
        except BaseException:
            line.close()
            raise

    def _start_from(self, position: int) -> None:
        spool, shipped = self._spool, self.shipped
        log_event(
            "connected",
            to=f"{self._to[0]}:{self._to[1]}",
            producer=spool.producer,
            position=position,
            end=spool.end,
        )
        shipped.connected, shipped.failure, shipped.acknowledged = True, "", position
        spool.release(position)

    def _ship(self, line: socket.socket, answers: _Answers, position: int, most: int) -> None:
        """Send from a position on, as long as the connection lasts."""
        spool, shipped = self._spool, self.shipped
        due = answered_at = time.monotonic()
        while not self._stop.is_set() and not self.done:
            ended, now, waiting = self._finished(), time.monotonic(), spool.end - position
            may_send = position - shipped.acknowledged < _WINDOW_BYTES
            if may_send and waiting > 0 and (now >= due or waiting >= most):
                reached = self._send(line, position, most)
                if reached is None:
                    self._nothing_left = ended and position <= shipped.acknowledged
                elif position <= shipped.acknowledged:
                    answered_at = now  # nothing was in flight: the wait for an answer starts here
                position, due = reached or position, now + self._linger_seconds
                waiting = 0 if reached is None else spool.end - position
            rest = self._linger_seconds
            if may_send and waiting > 0:
                rest = 0.0 if waiting >= most else min(max(due - now, 0.0), rest)
            answered_at = self._take(answers.poll(rest), answered_at, position)
            if position > shipped.acknowledged and time.monotonic() - answered_at > _SILENCE_SECONDS:
                raise TimeoutError("the gateway does not acknowledge")

    def _send(self, line: socket.socket, position: int, most: int) -> int | None:
        """Send the next frame; the position after it, or None if there is none."""
        frame = self._spool.frame(position, most)
        if frame is None:
            return None
        if frame.first > position:
            given_up = self._spool.has_given_up(position, frame.first)
            frame = replace(frame, flags=GAP if given_up else JUMP)
        data = frame.encoded()
        line.sendall(data)
        self.shipped.frames += 1
        self.shipped.lines += frame.count
        self.shipped.bytes_sent += len(data)
        return frame.end

    def _take(self, answers: list[dict[str, object]], answered_at: float, sent: int) -> float:
        for answer in answers:
            durable = int(str(answer["durable"]))
            if durable > sent:
                raise Refused(
                    {
                        "error": "POSITION_NOT_OURS",
                        "reason": f"the gateway acknowledges {durable}, and only {sent} were sent",
                        "hint": "Another agent sends under this name. No line of this spool was removed.",
                    }
                )
            self.shipped.acknowledged = max(self.shipped.acknowledged, durable)
            self._spool.release(durable)
        if answers and time.monotonic() >= self._noted_at + _SYNC_SECONDS:
            self._note_acknowledged()
        return time.monotonic() if answers else answered_at

    def _note_acknowledged(self) -> None:
        """Note how far the gateway is, for the case that the spool turns out to be a copy."""
        if self.shipped.connected:
            self._noted_at = time.monotonic()
            with contextlib.suppress(OSError):
                self._spool.identity.note_acknowledged(self.shipped.acknowledged)

    def _sync(self) -> None:
        while not self._over.wait(_SYNC_SECONDS):
            self._spool.sync()


def _check_ours(check: Callable[[int], None], position: int) -> None:
    """As a refusal: raise unless a position can be the spool's."""
    try:
        check(position)
    except ExternalError as error:
        raise Refused(
            {"error": error.condition, "reason": f"{error.primary}. {error.detail}", "hint": error.hint}
        ) from None


class _Answers:
    """The lines that a gateway sends."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._data = b""
        #: lines that came together with the one that was waited for
        self._early: list[dict[str, object]] = []

    def wait(self) -> dict[str, object]:
        """Wait for the next line; raise if it is a refusal."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            found = self.poll(0.5)
            if found:
                self._early = found[1:]
                return found[0]
        raise TimeoutError("the gateway does not answer")

    def poll(self, seconds: float) -> list[dict[str, object]]:
        """Return the lines that arrive within some time."""
        if self._early:
            found, self._early = self._early, []
            return found
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
            raise ConnectionError("the gateway closed the connection")
        *lines, self._data = (self._data + data).split(b"\n")
        if len(self._data) > _MOST_ANSWER_BYTES:
            raise ValueError("the gateway's answer does not end")
        arrived: list[dict[str, object]] = []
        for text in lines:
            message = json.loads(text)
            if not isinstance(message, dict) or "error" in message:
                raise Refused(message if isinstance(message, dict) else {})
            arrived.append(message)
        return arrived
