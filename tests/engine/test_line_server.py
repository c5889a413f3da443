"""The server of lines on a Unix socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from penstock.engine.line_server import LineServer
from penstock.errors import UserError
from penstock.query.limits import CheckLimits, check_time, check_within

DEADLINE_SECONDS = 60


def test_a_check_ends_once_its_caller_has_hung_up(tmp_path: Path) -> None:
    checking, ended = threading.Event(), threading.Event()

    def check(text: bytes) -> bytes:
        with check_within(CheckLimits(seconds=DEADLINE_SECONDS)):
            checking.set()
            while True:
                try:
                    check_time()
                except UserError as error:
                    if error.condition == "CHECK_CANCELLED":
                        ended.set()
                    return b"ended"

    path = str(tmp_path / "socket")
    with LineServer.at(path, "test", check):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(path)
            caller.sendall(b"check this\n")
            assert checking.wait(DEADLINE_SECONDS)
            assert not ended.is_set()
        assert ended.wait(DEADLINE_SECONDS)
