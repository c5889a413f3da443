"""`penstock agent`: the command line of the agent, its threads and its end.

Each source is a producer of its own: a journal, a thread that reads into it and one that ships it. With --reduce
there is a second journal and a thread between the two, and `reducers` makes what it does of a file's text.
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
from penstock.ingest.addresses import address, size
from penstock.ingest.inlet import Overflow, PipeInlet, WhenFull
from penstock.ingest.intake import check_stream
from penstock.ingest.journal import Journal
from penstock.ingest.reducing import Reduce, Reducing
from penstock.ingest.shipper import Shipper
from penstock.ingest.tail import TailInlet
from penstock.ingest.tell import tell
from penstock.metrics import Registry, expose
from penstock.metrics.facts import set_agent
from penstock.token_file import token_in

if TYPE_CHECKING:
    import ssl

#: how often metrics are written, in seconds
METRICS_SECONDS = 5.0
_WHEN_FULL: tuple[WhenFull, ...] = ("block", "drop-oldest", "drop-newest")


def parser() -> argparse.ArgumentParser:
    """What can be said."""
    made = argparse.ArgumentParser(
        prog="penstock agent",
        description="Ship lines from standard input, or of files that grow, to a gateway.",
    )
    say = made.add_argument
    say("--to", required=True, metavar="HOST:PORT", help="the gateway")
    say("--stream", default="logs", metavar="NAME", help="(default %(default)s)")
    say(
        "--spool",
        metavar="DIR",
        help="where lines wait, and survive a crash; a temporary directory unless given",
    )
    say("--spool-bytes", default="256MB", metavar="SIZE", help="the most it may take, a source (%(default)s)")
    say("--when-full", default="block", choices=_WHEN_FULL, help="(default %(default)s)")
    say("--tail", action="append", default=[], metavar="FILE", help="follow a file instead; may be repeated")
    say("--from-end", action="store_true", help="a file met for the first time is followed from its end")
    say("--once", action="store_true", help="read files to their ends, ship that, and end")
    say("--settle", default="5s", metavar="TIME", help="how long a renamed file may still grow (%(default)s)")
    say("--linger", default="200ms", metavar="TIME", help="how long lines wait for company (%(default)s)")
    say(
        "--drain",
        default="10s",
        metavar="TIME",
        help="how long the end waits for acknowledgements (%(default)s)",
    )
    say(
        "--reduce",
        metavar="FILE",
        help="ship what the jobs in this SQL file need of the stream, reduced, instead of lines",
    )
    say(
        "--tls",
        action="store_true",
        help="speak TLS; the gateway's certificate must be the system's to trust",
    )
    say(
        "--ca",
        metavar="FILE",
        help="speak TLS; this authority (PEM) must have signed the gateway's certificate",
    )
    say("--token-file", metavar="FILE", help="the gateway's token")
    say(
        "--metrics-file",
        metavar="FILE",
        help="write metrics for Prometheus there, every five seconds and at the end",
    )
    return made


#: makes what an agent does with lines, of a text and the name of a stream
Reducers = Callable[[str, str], Reduce]


class _Source:
    """A producer: what it reads, and what ships it."""

    def __init__(
        self,
        given: argparse.Namespace,
        spool: Path,
        path: Path | None,
        stop: threading.Event,
        reduce: Reduce | None,
        tls: ssl.SSLContext | None,
        token: str,
    ) -> None:
        name = "stdin" if path is None else f"{path.name}-{zlib.crc32(os.fsencode(path)):08x}"
        self.path = path
        most = size(given.spool_bytes)
        file_bytes = max(min(4 << 20, most // 8), 4096)
        _check_kind(spool, name, reduce is not None)
        self.journal = Journal(spool / f"{name}.lines" if reduce else spool / name, file_bytes=file_bytes)
        overflow = Overflow(self.journal, most, given.when_full)
        self.overflow = overflow
        if path is None:
            self.inlet: PipeInlet | TailInlet = PipeInlet(0, self.journal, overflow, stop)
        else:
            self.inlet = TailInlet(
                path,
                self.journal,
                overflow,
                stop,
                settle_seconds=microseconds(given.settle) / 1e6,
                from_end=given.from_end,
                once=given.once,
            )
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self._given_up = threading.Event()
        linger_seconds = max(microseconds(given.linger) / 1e6, 0.001)
        self.shipped, finished, self._reducing = self.journal, self.ended.is_set, None
        if reduce is not None:
            self.shipped = Journal(spool / f"{name}.reduced", file_bytes=file_bytes)
            self._reducing = Reducing(
                self.journal,
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
            address(given.to),
            check_stream(given.stream),
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
        return isinstance(self.inlet, TailInlet) and self.inlet.missing

    def start(self) -> None:
        """Begin reading and shipping."""
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        try:
            self.inlet.run()
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
        """Stop shipping; whether all was acknowledged."""
        done = self.shipper.done
        self._given_up.set()
        for thread in self._threads[1:]:
            thread.join(2)
        self.journal.sync()
        self.shipped.sync()
        return done

    def told(self) -> dict[str, object]:
        """What it did, for its last word."""
        shipped = self.shipper.shipped
        told: dict[str, object] = {
            "producer": self.shipped.producer,
            "lines": shipped.lines,
            "frames": shipped.frames,
            "bytes_sent": shipped.bytes_sent,
            "dropped_lines": self.overflow.dropped_lines,
            "unacknowledged_bytes": self.shipped.bytes_after(shipped.acknowledged),
        }
        if isinstance(self.inlet, PipeInlet) and self.inlet.held_bytes:
            told["unwritten_bytes"] = self.inlet.held_bytes
        return told if self._reducing is None else told | {"reduced_lines": self._reducing.taken}


def main(arguments: Sequence[str], reducers: Reducers | None = None) -> int:
    """Run the agent until its input ends or it is told to stop. Without `reducers` it cannot reduce."""
    given = parser().parse_args(arguments)
    if given.tail and not given.spool:
        raise UserError(
            "SPOOL_NEEDED",
            "--tail needs --spool",
            hint="It is where the agent remembers how far it has read.",
        )
    reduce = _reduce_of(given, reducers)
    tls = _tls(given)
    token = token_in(Path(given.token_file)) if given.token_file else ""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with _spool(given.spool) as spool:
        paths: list[Path | None] = [Path(os.path.abspath(path)) for path in dict.fromkeys(given.tail)]
        try:
            sources = [_Source(given, spool, path, stop, reduce, tls, token) for path in paths or [None]]
        except OSError as error:
            raise _unwritable(spool, error) from None
        for source in sources:
            source.start()
        measured_at = -METRICS_SECONDS
        tell("started", to=given.to, stream=given.stream, producers=[one.shipped.producer for one in sources])
        while not stop.is_set() and not all(one.ended.is_set() for one in sources) and not _failed(sources):
            stop.wait(0.5)
            if given.metrics_file and time.monotonic() >= measured_at + METRICS_SECONDS:
                measured_at = time.monotonic()
                _write_metrics(Path(given.metrics_file), sources)
        stop.set()
        until = time.monotonic() + microseconds(given.drain) / 1e6
        while (
            time.monotonic() < until and not all(one.shipper.done for one in sources) and not _failed(sources)
        ):
            time.sleep(0.02)
        left = [one for one in sources if not one.close()]
        for one in sources:
            tell("ended", **one.told())
        if given.metrics_file:
            _write_metrics(Path(given.metrics_file), sources)
        if failure := _failed(sources):
            if isinstance(failure, PenstockError):
                raise failure
            raise ExternalError("AGENT_FAILED", "the agent cannot go on", detail=repr(failure)) from failure
        if left and (given.once or not given.spool):
            raise ExternalError(
                "NOT_SHIPPED",
                "lines were left that the gateway did not acknowledge",
                detail=left[0].shipper.shipped.failure or None,
                hint="They wait in the spool: the next start ships them."
                if given.spool
                else "With --spool DIR they would be shipped by the next start.",
            )
        if missing := [one.path for one in sources if one.missing and given.once]:
            raise ExternalError(
                "FILE_MISSING", f"there is no {missing[0]}", hint="Without --once the agent waits for it."
            )
    return 0


def _write_metrics(file: Path, sources: Sequence[_Source]) -> None:
    """Replace the file with what the sources have shipped so far. An agent that cannot write it goes on."""
    registry = Registry()
    set_agent(registry, [one.told() for one in sources])
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_text(expose(registry))
        new.replace(file)
    except OSError as error:
        tell("metrics not written", file=str(file), error=str(error))


def _reduce_of(given: argparse.Namespace, reducers: Reducers | None) -> Reduce | None:
    """What is done with lines before they travel; None if nothing."""
    if given.reduce is None:
        return None
    if reducers is None:
        raise UserError("CANNOT_REDUCE", "this agent was started without what reducing needs")
    try:
        text = Path(given.reduce).read_text()
    except OSError as error:
        raise UserError("FILE_UNREADABLE", f"{given.reduce} cannot be read", detail=str(error)) from None
    return reducers(text, given.stream)


def _tls(given: argparse.Namespace) -> ssl.SSLContext | None:
    if not given.tls and given.ca is None:
        return None
    from penstock.ingest.tls import client_context

    return client_context(given.ca)


def _check_kind(spool: Path, name: str, reducing: bool) -> None:
    """Raise if the spool is of an agent that treated lines the other way: it knows how far the input was read."""
    other = spool / name if reducing else spool / f"{name}.lines"
    if other.exists():
        raise UserError(
            "SPOOL_OF_ANOTHER_KIND",
            f"{spool} was used {'without' if reducing else 'with'} --reduce",
            hint="Let that agent end with nothing left, then give this one a spool of its own.",
        )


def _failed(sources: Sequence[_Source]) -> Exception | None:
    return next((one.failure for one in sources if one.failure is not None), None)


def _unwritable(spool: Path, error: OSError) -> ExternalError:
    return ExternalError(
        "SPOOL_UNWRITABLE",
        f"{spool} cannot be written to",
        detail=str(error),
        hint="Make room there, or give --spool another directory; what it holds is kept.",
    )


@contextlib.contextmanager
def _spool(given: str | None) -> Iterator[Path]:
    """The spool directory, for this agent alone."""
    if given is None:
        made = Path(tempfile.mkdtemp(prefix="penstock-agent-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    spool = Path(given).absolute()
    try:
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(spool / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unwritable(spool, error) from None
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
