"""The load of a gateway over HTTP: requests of one line at a steady rate. A response comes when the line is on disk."""

from __future__ import annotations

import asyncio
import time

from bench.api_load import AnsweredRequests, own_token_header, read_head


async def run_posts(port: int, stream: str, line: bytes, per_second: int, seconds: float) -> AnsweredRequests:
    """Send a line in each request, over 32 connections; one that waits for others counts its waiting too."""
    connections = 32
    due_times = [number / per_second for number in range(int(seconds * per_second))]
    found, started_at = AnsweredRequests(), time.perf_counter() + 0.5
    headers = {"Host": "localhost", "Content-Length": str(len(line)), **own_token_header(port)}
    lines = [
        f"POST /streams/{stream}/events HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    head = "\r\n".join(lines) + "\r\n\r\n"

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in due_times[number::connections]:
            await asyncio.sleep(max(0.0, started_at + at - time.perf_counter()))
            writer.write(head.encode() + line)
            response = (await read_head(reader)).lower()
            length = next(one for one in response.split(b"\r\n") if one.startswith(b"content-length: "))
            await reader.readexactly(int(length[16:]))
            found.delays.append(time.perf_counter() - started_at - at)
        writer.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    found.seconds = time.perf_counter() - started_at
    return found
