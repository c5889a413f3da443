"""Evaluate expressions and call functions of the user's on trial: in a child process with limits, where there is one.

A statement that is only checked must not end or stop the process that checks it. So `TrialProcess` executes what a
check evaluates with limited memory, processor time and wall-clock time, and is replaced after it died. It is started
with the first trial and serves all later ones: a trial costs a message there and back.

Guarantees: a trial returns, raises what it raised in the child, or raises `TrialEnded` soon after its deadline,
whatever it executes. Does not guarantee: that the function sees objects of this process; it gets copies.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import IO, Any, TypeVar

import cloudpickle

from penstock.query.trial_messages import SENT_ANSWER, SENT_STARTED, read_message, write_message

T = TypeVar("T")

#: the address space of the child, beyond what its libraries take
MOST_BYTES = 1 << 30
#: how long the child may take to start or to load what a trial needs, and to execute a trial
LOAD_SECONDS, TRIAL_SECONDS = 60.0, 5.0


class TrialEnded(Exception):
    """A trial took more than the limits allow; `timed_out`: time, else memory."""

    def __init__(self, timed_out: bool) -> None:
        super().__init__("a trial took too long" if timed_out else "a trial ended its process")
        self.timed_out = timed_out


class NotSendable(Exception):
    """A trial cannot be sent to another process."""


class TrialProcess:
    """One child process, which executes one trial after the other. Any thread may call."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process of the child; None while there is none."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start the child, without waiting until it is ready."""
        with self._lock:
            self._ensure_started()

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float = TRIAL_SECONDS) -> T:
        """What a function returns or raises in the child; raises `TrialEnded` if it takes more than the limits."""
        try:
            message = cloudpickle.dumps((seconds, function, arguments))
        except Exception as failure:  # whatever pickling the user's objects raises
            raise NotSendable from failure
        with self._lock:
            try:
                answers = self._load(message)
                answer = self._read(answers, seconds, SENT_ANSWER)
            except (OSError, EOFError, TimeoutError) as failure:
                self._end()
                raise TrialEnded(isinstance(failure, TimeoutError)) from failure
            except BaseException:  # its answer would be taken for that of the next trial
                self._end()
                raise
        succeeded, value = cloudpickle.loads(answer)
        if not succeeded:
            raise value
        result: T = value
        return result

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _load(self, message: bytes) -> IO[bytes]:
        """Send a trial and wait until it is loaded; return where its answer comes. A child that had ended before, for
        instance because the kernel ended it, is replaced once: that was not this trial."""
        if self._child is not None:
            try:
                return self._send(message)
            except (OSError, EOFError) as failure:
                self._end()
                if isinstance(failure, TimeoutError):
                    raise
        return self._send(message)

    def _send(self, message: bytes) -> IO[bytes]:
        trials, answers = self._ensure_started()
        write_message(trials, message)
        self._read(answers, LOAD_SECONDS, SENT_STARTED)
        return answers

    def _ensure_started(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is None:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            environment |= {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            self._child = subprocess.Popen(
                [sys.executable, "-m", "penstock.query.trial_child", str(self._most_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # a Ctrl-C is for the parent, whose end the child sees
            )
        trials, answers = self._child.stdin, self._child.stdout
        assert trials is not None
        assert answers is not None
        return trials, answers

    def _read(self, answers: IO[bytes], seconds: float, kind: bytes) -> bytes:
        deadline = time.monotonic() + seconds

        def wait() -> None:
            poll = select.poll()  # `select` takes no descriptors above 1,023
            poll.register(answers, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError

        found, body = read_message(answers, wait)
        if found != kind:
            raise EOFError("this is no answer of a trial")
        return body

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


#: serves all checks of this process
SHARED = TrialProcess()
atexit.register(SHARED.close)
_CURRENT: ContextVar[TrialProcess | None] = ContextVar("trial_process", default=None)


@contextlib.contextmanager
def trials_in(process: TrialProcess) -> Iterator[None]:
    """In this context, trials are executed in a child process."""
    token = _CURRENT.set(process)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_process() -> TrialProcess | None:
    """The child process for trials; None: they are executed in this process."""
    return _CURRENT.get()
