"""Holds silent and slow connections to a service open, from a process of its own, until it is ended.

    python -m bench.held_connections PORT SILENT SLOW RETRY_SECONDS

A silent connection sends nothing; a slow one sends a byte of a request five times a second. Those that the other side
closes are opened again after a while. Silent ones come from 127.0.0.2 and slow ones from 127.0.0.3. It prints a line
once all are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator

from bench.processes import end_tree, environment

_BYTE_SECONDS = 0.2
#: sent again and again: the head of this request never ends
_BYTE = b"G"


@contextlib.contextmanager
def hold_connections(port: int, silent: int, slow: int, retry_seconds: float = 0.1) -> Iterator[None]:
    """Hold so many connections open within a `with` block, from a process of its own."""
    command = [sys.executable, "-m", "bench.held_connections", str(port), str(silent), str(slow)]
    command.append(str(retry_seconds))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env=environment())
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield
    finally:
        end_tree(process, 10)
        process.stdout.close()


async def hold(port: int, silent: int, slow: int, retry_seconds: float) -> None:
    """Hold so many connections open, for ever."""
    opened, all_open = 0, asyncio.Event()

    async def one(source: str, sends: bool) -> None:
        nonlocal opened
        is_first = True
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
                opened += is_first
                is_first = False
                if opened == silent + slow:
                    all_open.set()
                with contextlib.closing(writer):
                    await _send_slowly(reader, writer) if sends else await reader.read()
            await asyncio.sleep(retry_seconds)

    async with asyncio.TaskGroup() as held:
        for _ in range(silent):
            held.create_task(one("127.0.0.2", False))
        for _ in range(slow):
            held.create_task(one("127.0.0.3", True))
        await all_open.wait()
        print("open", flush=True)


async def _send_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a byte now and then until the service closes the connection."""
    while not reader.at_eof():
        writer.write(_BYTE)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), _BYTE_SECONDS)


if __name__ == "__main__":
    _, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))
    with contextlib.suppress(KeyboardInterrupt):
        _port, _silent, _slow = map(int, sys.argv[1:4])
        asyncio.run(hold(_port, _silent, _slow, float(sys.argv[4])))
