"""Runs `penstock agent`: its command line, its sources (`agent_source`), metrics and shutdown."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duration import microseconds
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ingest.addresses import parse_address, parse_size
from penstock.ingest.agent_source import Source, SourceSettings
from penstock.ingest.event_log import log_event
from penstock.ingest.intake import check_stream
from penstock.ingest.pipe_reader import WhenFull
from penstock.ingest.private_directories import make_private_directory, report_open_directories
from penstock.ingest.reducing import Reduce
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_agent
from penstock.token_file import token_in

if TYPE_CHECKING:
    import ssl

#: how often metrics are written, in seconds
METRICS_SECONDS = 5.0
_WHEN_FULL: tuple[WhenFull, ...] = ("block", "drop-oldest", "drop-newest")


# over 60 lines: an entry for each option
def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the agent's options."""
    parser = argparse.ArgumentParser(
        prog="penstock agent",
        description="Ship lines from standard input, or from growing files, to a gateway.",
    )
    add_option = parser.add_argument
    add_option("--to", required=True, metavar="HOST:PORT", help="address of the gateway")
    add_option(
        "--stream",
        default="logs",
        metavar="NAME",
        help="stream that receives the lines (default %(default)s)",
    )
    add_option(
        "--spool",
        metavar="DIR",
        help="directory in which lines wait for the gateway; they survive a crash (default: a temporary directory)",
    )
    add_option(
        "--spool-bytes",
        default="256MB",
        metavar="SIZE",
        help="maximum size of the spool of each source (default %(default)s)",
    )
    add_option(
        "--when-full",
        default="block",
        choices=_WHEN_FULL,
        help="what to do with a full spool (default %(default)s)",
    )
    add_option(
        "--tail",
        action="append",
        default=[],
        metavar="FILE",
        help="follow a file instead of standard input; may be repeated",
    )
    add_option(
        "--follow-symlinks",
        action="store_true",
        help="also read files that are symbolic links; who can write beside them decides what the agent ships",
    )
    add_option("--from-end", action="store_true", help="start at the end of files that are new to the spool")
    add_option("--once", action="store_true", help="read the files to their ends, ship the lines, and exit")
    add_option(
        "--settle",
        default="5s",
        metavar="TIME",
        help="how long a renamed file may still grow (default %(default)s)",
    )
    add_option(
        "--linger",
        default="200ms",
        metavar="TIME",
        help="how long lines wait to be batched (default %(default)s)",
    )
    add_option(
        "--drain",
        default="10s",
        metavar="TIME",
        help="how long a shutdown waits for acknowledgements (default %(default)s)",
    )
    add_option(
        "--reduce",
        metavar="FILE",
        help="reduce lines to the partial results that the jobs of this SQL file need, and ship those",
    )
    add_option(
        "--tls",
        action="store_true",
        help="use TLS and verify the gateway with the system's authorities",
    )
    add_option(
        "--ca",
        metavar="FILE",
        help="use TLS and verify the gateway with this authority (PEM)",
    )
    add_option("--token-file", metavar="FILE", help="file with the gateway's token")
    add_option(
        "--new-producer",
        action="store_true",
        help="give the sources of a copied spool names of their own, and ship what was read since the copy was made",
    )
    add_option(
        "--metrics-file",
        metavar="FILE",
        help="write metrics for Prometheus to this file, every five seconds and at exit",
    )
    return parser


#: makes the agent's function on lines from a text and the name of a stream
Reducers = Callable[[str, str], Reduce]


def main(arguments: Sequence[str], reducers: Reducers | None = None) -> int:
    """Run the agent until its input ends or a signal stops it. Without `reducers` it cannot reduce."""
    options = build_parser().parse_args(arguments)
    if options.tail and not options.spool:
        raise UserError(
            "SPOOL_NEEDED",
            "--tail needs --spool",
            hint="The spool records how far the agent has read.",
        )
    settings = _make_settings(options, reducers)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with _lock_spool(options.spool) as spool:
        paths: list[Path | None] = [Path(os.path.abspath(path)) for path in dict.fromkeys(options.tail)]
        try:
            sources = [Source(settings, spool, path, stop) for path in paths or [None]]
            if options.new_producer:
                for source in sources:
                    source.take_new_name()
        except OSError as error:
            raise _unwritable_error(spool, error) from None
        for source in sources:
            source.start()
        log_event(
            "started",
            to=options.to,
            stream=options.stream,
            producers=[one.shipped.producer for one in sources],
        )
        _ship_until_end(options, sources, stop)
        unshipped = [one for one in sources if not one.close()]
        for one in sources:
            log_event("ended", **one.build_summary())
        if options.metrics_file:
            _write_metrics(Path(options.metrics_file), sources)
        _check_outcome(options, sources, unshipped)
    return 0


def _ship_until_end(options: argparse.Namespace, sources: Sequence[Source], stop: threading.Event) -> None:
    """Ship until all input has ended, a source fails or `stop` is set; then wait for acknowledgements."""
    measured_at = -METRICS_SECONDS
    while not stop.is_set() and not all(one.ended.is_set() for one in sources) and not _find_failure(sources):
        stop.wait(0.5)
        if options.metrics_file and time.monotonic() >= measured_at + METRICS_SECONDS:
            measured_at = time.monotonic()
            _write_metrics(Path(options.metrics_file), sources)
    stop.set()
    until = time.monotonic() + microseconds(options.drain) / 1e6
    while (
        time.monotonic() < until
        and not all(one.shipper.done for one in sources)
        and not _find_failure(sources)
    ):
        time.sleep(0.02)


def _check_outcome(
    options: argparse.Namespace, sources: Sequence[Source], unshipped: Sequence[Source]
) -> None:
    """Raise what went wrong, if anything did."""
    if failure := _find_failure(sources):
        if isinstance(failure, PenstockError):
            raise failure
        raise ExternalError("AGENT_FAILED", "the agent cannot continue", detail=repr(failure)) from failure
    if unshipped and (options.once or not options.spool):
        raise ExternalError(
            "NOT_SHIPPED",
            "the gateway did not acknowledge all lines",
            detail=unshipped[0].shipper.shipped.failure or None,
            hint="They wait in the spool: the next start ships them."
            if options.spool
            else "With --spool DIR the next start would ship them.",
        )
    if missing := [one.path for one in sources if one.missing and options.once]:
        raise ExternalError(
            "FILE_MISSING", f"there is no file {missing[0]}", hint="Without --once the agent waits for it."
        )


def _make_settings(options: argparse.Namespace, reducers: Reducers | None) -> SourceSettings:
    return SourceSettings(
        gateway=parse_address(options.to),
        stream=check_stream(options.stream),
        spool_bytes=parse_size(options.spool_bytes),
        when_full=options.when_full,
        settle_seconds=microseconds(options.settle) / 1e6,
        linger_seconds=max(microseconds(options.linger) / 1e6, 0.001),
        follow_symlinks=options.follow_symlinks,
        from_end=options.from_end,
        once=options.once,
        reduce=_load_reduce(options, reducers),
        tls=_create_tls_context(options),
        token=token_in(Path(options.token_file)) if options.token_file else "",
    )


def _write_metrics(file: Path, sources: Sequence[Source]) -> None:
    """Replace the file with what the sources have shipped so far. An agent that cannot write it continues."""
    registry = Registry()
    set_agent(registry, [one.build_summary() for one in sources])
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_text(expose(registry))
        new.replace(file)
    except OSError as error:
        log_event("metrics not written", file=str(file), error=str(error))


def _load_reduce(options: argparse.Namespace, reducers: Reducers | None) -> Reduce | None:
    """Load the function that reduces lines before they are shipped; None without --reduce."""
    if options.reduce is None:
        return None
    if reducers is None:
        raise UserError("CANNOT_REDUCE", "this agent cannot reduce: its program has no reducer")
    try:
        text = Path(options.reduce).read_text()
    except OSError as error:
        raise UserError("FILE_UNREADABLE", f"{options.reduce} cannot be read", detail=str(error)) from None
    return reducers(text, options.stream)


def _create_tls_context(options: argparse.Namespace) -> ssl.SSLContext | None:
    if not options.tls and options.ca is None:
        return None
    from penstock.ingest.tls import client_context

    return client_context(options.ca)


def _find_failure(sources: Sequence[Source]) -> Exception | None:
    return next((one.failure for one in sources if one.failure is not None), None)


def _unwritable_error(spool: Path, error: OSError) -> ExternalError:
    return ExternalError(
        "SPOOL_UNWRITABLE",
        f"{spool} cannot be written to",
        detail=str(error),
        hint="Free space there, or give --spool another directory; no line in it is lost.",
    )


@contextlib.contextmanager
def _lock_spool(directory: str | None) -> Iterator[Path]:
    """The spool directory, locked for this agent; a temporary one if none is given."""
    if directory is None:
        temporary = Path(tempfile.mkdtemp(prefix="penstock-agent-"))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return
    spool = Path(directory).absolute()
    try:
        make_private_directory(spool)
        report_open_directories([spool, *sorted(path for path in spool.iterdir() if path.is_dir())])
        lock = os.open(spool / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unwritable_error(spool, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UserError(
            "SPOOL_TAKEN", f"another agent uses the spool {spool}", hint="Give each agent its own spool."
        ) from None
    try:
        yield spool
    finally:
        os.close(lock)
