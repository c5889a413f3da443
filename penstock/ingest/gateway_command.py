"""Runs `penstock gateway`: the command line of the gateway, its signals and its shutdown."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.descriptors import raise_descriptor_limit
from penstock.duration import microseconds
from penstock.errors import ExternalError, UserError
from penstock.ingest.addresses import parse_address, parse_size
from penstock.ingest.admission import Bounds
from penstock.ingest.bindings import Bindings
from penstock.ingest.event_log import log_event
from penstock.ingest.gateway import Connection, Gateway, GatewaySettings
from penstock.ingest.http import HttpServer
from penstock.ingest.intake import check_producer, check_stream
from penstock.ingest.listener import Guest, Listener
from penstock.ingest.store import PARTITIONS, Retention
from penstock.ingest.tokens import Tokens
from penstock.request_origin import is_loopback
from penstock.state.service_token import open_service_token, publish_service_token
from penstock.token_file import token_in

if TYPE_CHECKING:
    import ssl

#: a gateway with a lower limit could not accept a line of usual length
LEAST_MOST_BYTES = 4096


# over 60 lines: an entry for each option
def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the gateway's options."""
    parser = argparse.ArgumentParser(
        prog="penstock gateway",
        description="Receive lines from agents and over HTTP, and append them to segment logs, one for each stream.",
    )
    add_option = parser.add_argument
    add_option("--dir", required=True, metavar="DIR", help="directory of the segment logs: DIR/STREAM")
    add_option(
        "--listen",
        default="127.0.0.1:7070",
        metavar="HOST:PORT",
        help="address for agents (default %(default)s)",
    )
    add_option(
        "--stream",
        action="append",
        default=[],
        metavar="NAME",
        help="declare a stream; may be repeated. Those with a log in DIR are declared",
    )
    add_option(
        "--any-stream",
        action="store_true",
        help="accept streams that were not declared (the default without --stream if no other host can connect)",
    )
    add_option("--http", metavar="HOST:PORT", help="address that accepts lines by HTTP POST (default: none)")
    add_option(
        "--token-file",
        metavar="FILE",
        help="file with the token of senders; required if other hosts can connect. Without it the gateway makes a "
        "token for itself, which agents of the same user find",
    )
    add_option(
        "--no-token",
        action="store_true",
        help="require no token: every user of this machine may send. For loopback addresses only",
    )
    add_option(
        "--agent-tokens",
        metavar="FILE",
        help="file with a token for each sender, a line NAME TOKEN; a producer belongs to its first token",
    )
    add_option(
        "--takeover",
        default="30s",
        metavar="TIME",
        help="how long a producer must be silent before its spool may continue elsewhere (default %(default)s)",
    )
    add_option(
        "--release",
        metavar="STREAM/PRODUCER",
        help="release the name of a producer, so that the next who presents a secret gets it, and exit",
    )
    add_option("--tls-cert", metavar="FILE", help="certificate (PEM); then all connections use TLS")
    add_option("--tls-key", metavar="FILE", help="key of the certificate (PEM)")
    add_option(
        "--most-bytes",
        default="1MB",
        metavar="SIZE",
        help="maximum size of a frame or body (default %(default)s)",
    )
    add_option(
        "--most-connections",
        type=int,
        default=2048,
        metavar="N",
        help="maximum number of connections (default %(default)s)",
    )
    add_option(
        "--most-per-address",
        type=int,
        default=1024,
        metavar="N",
        help="maximum number of connections from one address (default %(default)s)",
    )
    add_option(
        "--most-waiting",
        default="64MB",
        metavar="SIZE",
        help="maximum size of what waits in memory to be written (default %(default)s)",
    )
    add_option(
        "--partitions",
        type=int,
        default=PARTITIONS,
        metavar="N",
        help="partitions of a new stream; they never change (default %(default)s)",
    )
    add_option(
        "--segment-bytes",
        default="64MB",
        metavar="SIZE",
        help="size of a segment (default %(default)s)",
    )
    add_option(
        "--gather",
        default="5ms",
        metavar="TIME",
        help="how long a group commit waits for more frames (default %(default)s)",
    )
    add_option("--keep-time", metavar="TIME", help="remove segments older than this, even if unread")
    add_option(
        "--keep-bytes",
        metavar="SIZE",
        help="remove the oldest segments of a stream above this size, even if unread",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the gateway until a signal stops it."""
    options = build_parser().parse_args(arguments)
    if options.release:
        return _release(Path(options.dir), options.release)
    listens = [
        (name, parse_address(text))
        for name, text in (("listen", options.listen), ("http", options.http))
        if text
    ]
    _check_token(options, listens)
    if min(options.partitions, options.most_connections, options.most_per_address) < 1:
        raise UserError(
            "BAD_SETTING", "--partitions, --most-connections and --most-per-address must be at least 1"
        )
    if parse_size(options.most_bytes) < LEAST_MOST_BYTES:
        raise UserError("BAD_SETTING", f"--most-bytes must be at least {LEAST_MOST_BYTES}")
    settings = GatewaySettings(
        Path(options.dir).absolute(),
        tokens=_make_tokens(options),
        takeover_seconds=microseconds(options.takeover) / 1e6,
        most_bytes=parse_size(options.most_bytes),
        streams=_declare_streams(options, [host for _, (host, _) in listens]),
        bounds=Bounds(options.most_connections, options.most_per_address),
        descriptors=raise_descriptor_limit(),
        most_waiting_bytes=parse_size(options.most_waiting),
        partitions=options.partitions,
        segment_bytes=parse_size(options.segment_bytes),
        gather_seconds=microseconds(options.gather) / 1e6,
        retention=Retention(
            microseconds(options.keep_time) / 1e6 if options.keep_time else None,
            parse_size(options.keep_bytes) if options.keep_bytes else None,
        ),
    )
    if (options.tls_cert is None) is not (options.tls_key is None):
        raise UserError("BAD_SETTING", "--tls-cert and --tls-key need each other")
    tls = None
    if options.tls_cert is not None:
        from penstock.ingest.tls import server_context

        tls = server_context(options.tls_cert, options.tls_key)
    asyncio.run(_serve(settings, dict(listens), tls))
    return 0


def _check_token(options: argparse.Namespace, listens: Sequence[tuple[str, tuple[str, int]]]) -> None:
    """Raise if others could send without a token that the operator has made."""
    has_token = options.token_file or options.agent_tokens
    if has_token and options.no_token:
        raise UserError("BAD_SETTING", "--no-token and files of tokens exclude each other")
    for name, (host, _) in listens:
        if not is_loopback(host) and not has_token:
            raise UserError(
                "TOKEN_NEEDED",
                f"--{name} {host} can be reached from other hosts, so a token is required",
                hint="openssl rand -hex 24 > token; chmod 600 token; then --token-file token, for gateway and agents.",
            )


def _make_tokens(options: argparse.Namespace) -> Tokens:
    """The tokens that are configured, or else that of the gateway itself."""
    if options.no_token:
        log_event("no token", hint="Every user and program of this machine may send.")
        return Tokens()
    if options.token_file or options.agent_tokens:
        return Tokens(
            token_in(Path(options.token_file)) if options.token_file else "",
            Path(options.agent_tokens) if options.agent_tokens else None,
        )
    file, is_renewed = open_service_token(Path(options.dir).absolute())
    if is_renewed:
        log_event("others could read the token file; it has a new token", file=str(file))
    return Tokens(own=file)


def _declare_streams(options: argparse.Namespace, hosts: Sequence[str]) -> frozenset[str] | None:
    """The streams that are declared; None if any is accepted."""
    if options.any_stream or (not options.stream and all(map(is_loopback, hosts))):
        return None
    return frozenset(map(check_stream, options.stream))


def _release(directory: Path, name: str) -> int:
    """Release the name of a producer."""
    stream, _, producer = name.partition("/")
    if not Bindings(directory).release(check_stream(stream), check_producer(producer)):
        raise UserError(
            "NOT_BOUND",
            f"no producer {producer} is bound in the stream {stream}",
            hint=f"Write STREAM/PRODUCER; the streams are the folders of {directory}.",
        )
    log_event("released", stream=stream, producer=producer)
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
    protocols: dict[str, Callable[[Guest], asyncio.BaseProtocol]] = {
        "listen": partial(Connection, gateway),
        "http": HttpServer(gateway).make_protocol,
    }
    listeners: dict[str, Listener] = {}
    for name, (host, port) in listens.items():
        try:
            listeners[name] = Listener(
                (host, port),
                gateway.admission,
                protocols[name],
                hello_seconds=settings.hello_seconds,
                tls=tls,
            )
        except OSError as error:
            working.cancel()
            raise ExternalError(
                "CANNOT_LISTEN", f"the gateway cannot listen on {host}:{port}", detail=str(error)
            ) from None
    own = settings.tokens.own
    with contextlib.ExitStack() as published:
        for listener in listeners.values():
            if own is None:
                continue
            why_not = published.enter_context(publish_service_token(own, listener.address[1]))
            if why_not is not None:
                log_event(
                    "agents do not find the token by themselves", reason=why_not, hint="Use --token-file."
                )
        accepting = [asyncio.create_task(one.run()) for one in listeners.values()]
        for name, listener in listeners.items():
            _log_listening(name, listener, settings, has_tls=tls is not None)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([working, *accepting, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in accepting:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    if not stopping.done():
        stopping.cancel()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        try:
            await working
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
    await gateway.committer.close()
    log_event("stopped", **gateway.collect_metrics())


def _log_listening(name: str, listener: Listener, settings: GatewaySettings, *, has_tls: bool) -> None:
    (host, port), own = listener.address, settings.tokens.own
    log_event(
        "listening",
        what=name,
        host=host,
        port=port,
        token=settings.tokens.are_required,
        tls=has_tls,
        **({} if own is None else {"token_file": str(own)}),
    )
