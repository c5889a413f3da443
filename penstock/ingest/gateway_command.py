"""`penstock gateway`: the command line of the gateway, its signals and its end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duration import microseconds
from penstock.errors import ExternalError, UserError
from penstock.ingest.addresses import address, is_loopback, size
from penstock.ingest.gateway import Connection, Gateway, GatewaySettings
from penstock.ingest.http import HttpDoor, head_limit
from penstock.ingest.store import PARTITIONS, Retention
from penstock.ingest.tell import tell
from penstock.token_file import token_in

if TYPE_CHECKING:
    import ssl

#: a gateway that takes less could not take a line of usual length
LEAST_MOST_BYTES = 4096


def parser() -> argparse.ArgumentParser:
    """What can be said."""
    made = argparse.ArgumentParser(
        prog="penstock gateway",
        description="Take lines from agents and over HTTP, and append them to segment logs, one a stream.",
    )
    say = made.add_argument
    say("--dir", required=True, help="where the logs are: DIR/STREAM")
    say("--listen", default="127.0.0.1:7070", metavar="HOST:PORT", help="for agents (default %(default)s)")
    say("--http", metavar="HOST:PORT", help="for HTTP POST of lines; not open unless given")
    say("--token-file", metavar="FILE", help="senders must know this token; needed beyond this machine")
    say("--tls-cert", metavar="FILE", help="a certificate (PEM): then all that is said here is TLS")
    say("--tls-key", metavar="FILE", help="its key (PEM)")
    say("--most-bytes", default="1MB", metavar="SIZE", help="largest frame or body (default %(default)s)")
    say("--most-connections", type=int, default=2048, help="(default %(default)s)")
    say(
        "--most-waiting",
        default="64MB",
        metavar="SIZE",
        help="bytes in memory on their way to disk (%(default)s)",
    )
    say("--partitions", type=int, default=PARTITIONS, help="of a new stream, for life (default %(default)s)")
    say(
        "--segment-bytes",
        default="64MB",
        metavar="SIZE",
        help="when a new segment begins (default %(default)s)",
    )
    say(
        "--gather",
        default="5ms",
        metavar="TIME",
        help="how long a group waits for company (default %(default)s)",
    )
    say("--keep-time", metavar="TIME", help="remove segments older than this, read or not")
    say(
        "--keep-bytes", metavar="SIZE", help="remove the oldest segments of a stream beyond this, read or not"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """Run the gateway until it is told to stop."""
    given = parser().parse_args(arguments)
    token = token_in(Path(given.token_file)) if given.token_file else ""
    listens = [
        (name, address(text)) for name, text in (("listen", given.listen), ("http", given.http)) if text
    ]
    for name, (host, _) in listens:
        if not is_loopback(host) and not token:
            raise UserError(
                "TOKEN_NEEDED",
                f"--{name} {host} can be reached from other machines, so a token is needed",
                hint="openssl rand -hex 24 > token; chmod 600 token; then --token-file token, for gateway and agents.",
            )
    if given.partitions < 1 or given.most_connections < 1:
        raise UserError("BAD_SETTING", "--partitions and --most-connections are at least 1")
    if size(given.most_bytes) < LEAST_MOST_BYTES:
        raise UserError("BAD_SETTING", f"--most-bytes is at least {LEAST_MOST_BYTES}")
    settings = GatewaySettings(
        Path(given.dir).absolute(),
        token=token,
        most_bytes=size(given.most_bytes),
        most_connections=given.most_connections,
        most_waiting_bytes=size(given.most_waiting),
        partitions=given.partitions,
        segment_bytes=size(given.segment_bytes),
        gather_seconds=microseconds(given.gather) / 1e6,
        retention=Retention(
            microseconds(given.keep_time) / 1e6 if given.keep_time else None,
            size(given.keep_bytes) if given.keep_bytes else None,
        ),
    )
    if (given.tls_cert is None) is not (given.tls_key is None):
        raise UserError("BAD_SETTING", "--tls-cert and --tls-key belong together")
    tls = None
    if given.tls_cert is not None:
        from penstock.ingest.tls import server_context

        tls = server_context(given.tls_cert, given.tls_key)
    asyncio.run(_serve(settings, dict(listens), tls))
    return 0


async def _serve(
    settings: GatewaySettings, listens: dict[str, tuple[str, int]], tls: ssl.SSLContext | None
) -> None:
    loop = asyncio.get_running_loop()
    gateway = Gateway(settings)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await gateway.open()
    working = asyncio.create_task(gateway.run())
    try:
        host, port = listens["listen"]
        patience = None if tls is None else settings.patience_seconds
        servers = [
            await loop.create_server(
                lambda: Connection(gateway), host, port, backlog=1024, ssl=tls, ssl_handshake_timeout=patience
            )
        ]
        if "http" in listens:
            host, port = listens["http"]
            servers.append(
                await asyncio.start_server(
                    HttpDoor(gateway).answer,
                    host,
                    port,
                    limit=head_limit(),
                    backlog=1024,
                    ssl=tls,
                    ssl_handshake_timeout=patience,
                )
            )
    except OSError as error:
        working.cancel()
        raise ExternalError(
            "CANNOT_LISTEN", f"{host}:{port} cannot be listened on", detail=str(error)
        ) from None
    for name, server in zip(listens, servers, strict=True):
        at = server.sockets[0].getsockname()
        tell("listening", what=name, host=at[0], port=at[1], token=bool(settings.token), tls=tls is not None)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    for server in servers:
        server.close()
    if not stopping.done():
        stopping.cancel()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        try:
            await working
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
    await gateway.committer.close()
    tell("stopped", **gateway.figures())
