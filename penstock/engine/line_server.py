"""Serves a Unix socket that answers each line with a line, each connection in a thread of its own.

A statement whose caller hangs up is not checked any further.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

from penstock.query.limits import cancel_when

#: the longest line accepted: a query of the longest allowed length, as JSON
MOST_BYTES = 8 << 20


class LineServer:
    """Answers at a path of the file system."""

    def __init__(self, path: str, name: str, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    @staticmethod
    @contextlib.contextmanager
    def at(path: str, name: str, answer: Callable[[bytes], bytes]) -> Iterator[None]:
        """A server while this lasts, that only its user can reach. What an engine that was killed has left at the path
        is removed: the state directory is ours."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        server = LineServer(path, name, answer)
        os.chmod(path, 0o600)
        ours = os.stat(path).st_ino
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == ours:  # not that of an engine that has taken over
                    os.unlink(path)
            server.close()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for callers
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer_all, args=(line,), daemon=True).start()

    def _answer_all(self, line: socket.socket) -> None:
        # a caller hangs up, or dies, when it is done
        gone = cancel_when(lambda: _has_hung_up(line))
        with contextlib.suppress(OSError), line, line.makefile("rwb") as file, gone:
            while text := file.readline(MOST_BYTES):
                file.write(self._answer(text) + b"\n")
                file.flush()


def _has_hung_up(line: socket.socket) -> bool:
    """Whether the caller has closed the connection, both ways."""
    poll = select.poll()
    poll.register(line, 0)
    return bool(poll.poll(0))
