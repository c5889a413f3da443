"""An HTTP receiver of pushed rows that remembers idempotency keys and generations, and fails at times."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Listens on the loopback interface. `troubles` has what it does to the next requests: a status to
    respond with, "lost" to take the rows and not respond, "cut" to neither take rows nor respond."""

    def __init__(self) -> None:
        self.taken: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {}
        self.seen: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.troubles: list[int | str] = []
        self.fails_at_times = False
        self._generations: dict[str, int] = {}
        self._lock = threading.Lock()
        self._requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver._serve(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Receiver:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Return all rows taken at a path, in order of arrival."""
        with self._lock:
            return [row for _, rows in self.taken.get(path, []) for row in rows]

    def _trouble(self) -> int | str | None:
        self._requests += 1
        if self.troubles:
            return self.troubles.pop(0)
        if self.fails_at_times:
            return {1: 503, 2: "lost", 3: "cut"}.get(self._requests % 7)
        return None

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        with self._lock:
            trouble = self._trouble()
            key, path = request.headers["Idempotency-Key"], request.path
            self.headers.append(dict(request.headers))
            self.seen[key] += 1
            generation, job = int(request.headers["Penstock-Generation"]), request.headers["Penstock-Job"]
            newest = self._generations.get(path + job, 0)
            headers: dict[str, str] = {}
            status = 200
            if isinstance(trouble, int):
                status = trouble
                headers = {"Retry-After": "0"}
            elif trouble != "cut" and 0 < generation < newest:
                status, headers = 412, {"Penstock-Generation": str(newest)}
            elif trouble != "cut":
                self._generations[path + job] = max(generation, newest)
                taken = self.taken.setdefault(path, [])
                if any(key == one for one, _ in taken):
                    headers = {"Idempotency-Replayed": "true"}
                else:
                    taken.append((key, [json.loads(line) for line in body.splitlines()]))
        if trouble in ("lost", "cut"):
            request.close_connection = True
            request.connection.close()
            return
        request.send_response(status)
        for name, value in (headers | {"Content-Length": "0"}).items():
            request.send_header(name, value)
        request.end_headers()
