"""A caller over HTTP who leaves: what it asked for is not checked any further."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.server import kit

DEADLINE_SECONDS = 60


def _is_a_check_waiting() -> bool:
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_name == "_checking":
                return True
            frame = frame.f_back  # type: ignore[assignment]
    return False


def test_a_statement_is_not_checked_once_its_caller_has_disconnected(tmp_path: Path) -> None:
    with kit.site(tmp_path) as site:
        address, body = urlsplit(site.url), json.dumps({"sql": "SHOW JOBS"}).encode()
        head = (
            f"POST /sql HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with site.running.host.program._intake._check_lock:
            with socket.create_connection((address.hostname, address.port)) as caller:
                caller.sendall(head.encode() + body)
                kit.until(_is_a_check_waiting, DEADLINE_SECONDS)
            kit.until(lambda: not _is_a_check_waiting(), DEADLINE_SECONDS / 3)
        assert site.sql("SHOW JOBS")["answers"][0]["rows"]
