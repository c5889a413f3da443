"""Runs `penstock agent`: the command line of the agent, its threads and its shutdown.

Each source is a producer of its own: a spool, a thread that reads into it and one that ships it. With --reduce
there is a second spool and a thread between the two, and `reducers` makes its function from a file's text.
"""

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
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duration import microseconds
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ingest.addresses import parse_address, parse_size
from penstock.ingest.intake import check_stream
from penstock.ingest.pipe_reader import Overflow, PipeReader, WhenFull
from penstock.ingest.reducing import Reduce, Reducing
from penstock.ingest.shipper import Shipper
from penstock.ingest.spool import Spool
from penstock.ingest.tail import TailReader
from penstock.ingest.tell import log_event
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_agent
from penstock.token_file import token_in

if TYPE_CHECKING:
    import ssl

#: how often metrics are written, in seconds
METRICS_SECONDS = 5.0
_WHEN_FULL: tuple[WhenFull, ...] = ("block", "drop-oldest", "drop-newest")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the agent's options."""
    parser = argparse.ArgumentParser(
        prog="penstock agent",
        description="Ship lines from standard input, or from growing files, to a gateway.",
    )
    add_option = parser.add_argument
    add_option("--to", required=True, metavar="HOST:PORT", help="the gateway")
    add_option("--stream", default="logs", metavar="NAME", help="(default %(default)s)")
    add_option(
        "--spool",
        metavar="DIR",
        help="directory in which lines wait and survive a crash (default: a temporary directory)",
    )
    add_option(
        "--spool-bytes",
        default="256MB",
        metavar="SIZE",
        help="largest spool of each source (default %(default)s)",
    )
    add_option("--when-full", default="block", choices=_WHEN_FULL, help="(default %(default)s)")
    add_option(
        "--tail",
        action="append",
        default=[],
        metavar="FILE",
        help="follow a file instead of standard input; may be repeated",
    )
    add_option(
        "--from-end", action="store_true", help="start at the end of a file that the spool does not know yet"
    )
    add_option("--once", action="store_true", help="read the files to their ends, ship that, and exit")
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
        help="how long shutdown waits for acknowledgements (default %(default)s)",
    )
    add_option(
        "--reduce",
        metavar="FILE",
        help="reduce the stream to what the jobs in this SQL file need, and ship that instead of lines",
    )
    add_option(
        "--tls",
        action="store_true",
        help="use TLS; the system must trust the gateway's certificate",
    )
    add_option(
        "--ca",
        metavar="FILE",
        help="use TLS; this authority (PEM) must have signed the gateway's certificate",
    )
    add_option("--token-file", metavar="FILE", help="the gateway's token")
    add_option(
        "--metrics-file",
        metavar="FILE",
        help="write metrics for Prometheus there, every five seconds and at exit",
    )
    return parser


#: makes the agent's function on lines from a text and the name of a stream
Reducers = Callable[[str, str], Reduce]


class _Source:
    """A producer: its reader, spool and shipper."""

    def __init__(
        self,
        options: argparse.Namespace,
        spool: Path,
        path: Path | None,
        stop: threading.Event,
        reduce: Reduce | None,
        tls: ssl.SSLContext | None,
        token: str,
    ) -> None:
        name = "stdin" if path is None else f"{path.name}-{zlib.crc32(os.fsencode(path)):08x}"
        self.path = path
        most = parse_size(options.spool_bytes)
        file_bytes = max(min(4 << 20, most // 8), 4096)
        _check_kind(spool, name, reduce is not None)
        self.spool = Spool(spool / f"{name}.lines" if reduce else spool / name, file_bytes=file_bytes)
        overflow = Overflow(self.spool, most, options.when_full)
        self.overflow = overflow
        if path is None:
            self.reader: PipeReader | TailReader = PipeReader(0, self.spool, overflow, stop)
        else:
            self.reader = TailReader(
                path,
                self.spool,
                overflow,
                stop,
                settle_seconds=microseconds(options.settle) / 1e6,
                from_end=options.from_end,
                once=options.once,
            )
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self._given_up = threading.Event()
        linger_seconds = max(microseconds(options.linger) / 1e6, 0.001)
        self.shipped, finished, self._reducing = self.spool, self.ended.is_set, None
        if reduce is not None:
            self.shipped = Spool(spool / f"{name}.reduced", file_bytes=file_bytes)
            self._reducing = Reducing(
                self.spool,
                self.shipped,
                reduce,
                most_bytes=most,
                linger_seconds=linger_seconds,
                finished=self.ended.is_set,
                stop=self._given_up,
            )
            finished = self._reducing.done.is_set
        self.shipper = Shipper(
            self.shipped,
            parse_address(options.to),
            check_stream(options.stream),
            token=token,
            tls=tls,
            linger_seconds=min(linger_seconds, 0.2) if reduce else linger_seconds,
            finished=finished,
            stop=self._given_up,
        )
        self._threads = [
            threading.Thread(target=self._read, name=f"read {name}", daemon=True),
            threading.Thread(target=self._ship, name=f"ship {name}", daemon=True),
        ]
        if self._reducing is not None:
            self._threads.append(threading.Thread(target=self._reduce, name=f"reduce {name}", daemon=True))

    @property
    def missing(self) -> bool:
        """Whether there was never a file."""
        return isinstance(self.reader, TailReader) and self.reader.missing

    def start(self) -> None:
        """Start reading and shipping."""
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        try:
            self.reader.run()
        except Exception as error:
            self.failure = error
        finally:
            self.ended.set()

    def _ship(self) -> None:
        try:
            self.shipper.run()
        except Exception as error:
            self.failure = self.failure or error

    def _reduce(self) -> None:
        assert self._reducing is not None
        try:
            self._reducing.run()
        except Exception as error:
            self.failure = self.failure or error

    def close(self) -> bool:
        """Stop shipping; return whether all was acknowledged."""
        done = self.shipper.done
        self._given_up.set()
        for thread in self._threads[1:]:
            thread.join(2)
        self.spool.sync()
        self.shipped.sync()
        return done

    def build_summary(self) -> dict[str, object]:
        """Build the facts for the agent's last event."""
        shipped = self.shipper.shipped
        summary: dict[str, object] = {
            "producer": self.shipped.producer,
            "lines": shipped.lines,
            "frames": shipped.frames,
            "bytes_sent": shipped.bytes_sent,
            "dropped_lines": self.overflow.dropped_lines,
            "unacknowledged_bytes": self.shipped.bytes_after(shipped.acknowledged),
        }
        if isinstance(self.reader, PipeReader) and self.reader.pending_bytes:
            summary["unwritten_bytes"] = self.reader.pending_bytes
        return summary if self._reducing is None else summary | {"reduced_lines": self._reducing.taken}


def main(arguments: Sequence[str], reducers: Reducers | None = None) -> int:
    """Run the agent until its input ends or a signal stops it. Without `reducers` it cannot reduce."""
    options = build_parser().parse_args(arguments)
    if options.tail and not options.spool:
        raise UserError(
            "SPOOL_NEEDED",
            "--tail needs --spool",
            hint="The spool records how far the agent has read.",
        )
    reduce = _load_reduce(options, reducers)
    tls = _create_tls_context(options)
    token = token_in(Path(options.token_file)) if options.token_file else ""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with _spool(options.spool) as spool:
        paths: list[Path | None] = [Path(os.path.abspath(path)) for path in dict.fromkeys(options.tail)]
        try:
            sources = [_Source(options, spool, path, stop, reduce, tls, token) for path in paths or [None]]
        except OSError as error:
            raise _unwritable_error(spool, error) from None
        for source in sources:
            source.start()
        measured_at = -METRICS_SECONDS
        log_event(
            "started",
            to=options.to,
            stream=options.stream,
            producers=[one.shipped.producer for one in sources],
        )
        while (
            not stop.is_set()
            and not all(one.ended.is_set() for one in sources)
            and not _find_failure(sources)
        ):
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
        left = [one for one in sources if not one.close()]
        for one in sources:
            log_event("ended", **one.build_summary())
        if options.metrics_file:
            _write_metrics(Path(options.metrics_file), sources)
        if failure := _find_failure(sources):
            if isinstance(failure, PenstockError):
                raise failure
            raise ExternalError(
                "AGENT_FAILED", "the agent cannot continue", detail=repr(failure)
            ) from failure
        if left and (options.once or not options.spool):
            raise ExternalError(
                "NOT_SHIPPED",
                "the gateway did not acknowledge all lines",
                detail=left[0].shipper.shipped.failure or None,
                hint="They wait in the spool: the next start ships them."
                if options.spool
                else "With --spool DIR the next start would ship them.",
            )
        if missing := [one.path for one in sources if one.missing and options.once]:
            raise ExternalError(
                "FILE_MISSING", f"there is no {missing[0]}", hint="Without --once the agent waits for it."
            )
    return 0


def _write_metrics(file: Path, sources: Sequence[_Source]) -> None:
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


def _check_kind(spool: Path, name: str, reducing: bool) -> None:
    """Raise if an agent with the other setting of --reduce used the spool, which records how far the input was read."""
    other = spool / name if reducing else spool / f"{name}.lines"
    if other.exists():
        raise UserError(
            "SPOOL_OF_ANOTHER_KIND",
            f"{spool} was used {'without' if reducing else 'with'} --reduce",
            hint="Let that agent ship all it has, then give this one a spool of its own.",
        )


def _find_failure(sources: Sequence[_Source]) -> Exception | None:
    return next((one.failure for one in sources if one.failure is not None), None)


def _unwritable_error(spool: Path, error: OSError) -> ExternalError:
    return ExternalError(
        "SPOOL_UNWRITABLE",
        f"{spool} cannot be written to",
        detail=str(error),
        hint="Free space there, or give --spool another directory; no line in it is lost.",
    )


@contextlib.contextmanager
def _spool(options: str | None) -> Iterator[Path]:
    """The spool directory, for this agent alone."""
    if options is None:
        parser = Path(tempfile.mkdtemp(prefix="penstock-agent-"))
        try:
            yield parser
        finally:
            shutil.rmtree(parser, ignore_errors=True)
        return
    spool = Path(options).absolute()
    try:
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(spool / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unwritable_error(spool, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UserError(
            "SPOOL_TAKEN", f"another agent has the spool {spool}", hint="Give each one of its own."
        ) from None
    try:
        yield spool
    finally:
        os.close(lock)
