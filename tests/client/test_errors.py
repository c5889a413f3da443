"""Errors of the client for responses that Penstock does not send."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from penstock.client import connect
from penstock.errors import ExternalError


class _OtherServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"<html>somebody else</html>")

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_response_of_another_server_is_an_error() -> None:
    with HTTPServer(("127.0.0.1", 0), _OtherServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            connect(f"http://127.0.0.1:{server.server_port}") as client,
            pytest.raises(ExternalError) as caught,
        ):
            client.status()
        server.shutdown()
    assert caught.value.condition == "NOT_PENSTOCK"
    assert "somebody else" in str(caught.value)
