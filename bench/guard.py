"""Runs a benchmark so that nothing that it starts outlives it, whatever ends it.

The benchmark runs in a child of this process. This process becomes the parent of whatever below it loses its own (a
"child subreaper", which only Linux has), so all that the benchmark started stays below it, also what leads a session of
its own: engines, JVMs, gateways. When the benchmark has ended, what is still there is ended.

Guarantees: once a benchmark that was ended by Ctrl-C, SIGTERM or SIGHUP is gone, so is every process below it. It has
some seconds to end them in their own order; a second signal does not wait for that.
Does not guarantee: the same when this process itself is killed with SIGKILL. The benchmark then gets SIGTERM and ends
what it can.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def guard(grace_seconds: float = 60.0, sweep_seconds: float = 10.0) -> None:
    """Return in the child, which is to run the benchmark; this process waits for it and leaves as it did.

    After a signal the benchmark has `grace_seconds` to end what it started; what is left then has `sweep_seconds`.
    """
    if sys.platform != "linux":
        return  # a benchmark ends what it has started as far as it gets to
    watched, parent = {*_ENDING, signal.SIGCHLD}, os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child:
        _watch(child, watched, grace_seconds, sweep_seconds)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # it died before it was watched
    for number in _ENDING:
        signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave(number: int, _: object) -> None:
    """Have the benchmark leave through what it has to close; no further signal interrupts that."""
    for other in _ENDING:
        signal.signal(other, lambda *_: None)
    sys.exit(128 + number)


def _watch(child: int, watched: set[signal.Signals], grace_seconds: float, sweep_seconds: float) -> None:
    """Wait for the benchmark, pass on signals, end what is left, and leave."""
    received, status, deadline = list[int](), None, float("inf")
    while status is None and len(received) < 2 and time.monotonic() < deadline:
        info = signal.sigtimedwait(watched, 1.0)
        if info is not None and info.si_signo in _ENDING:
            received.append(info.si_signo)
            deadline = time.monotonic() + grace_seconds
            os.kill(child, info.si_signo)
        status = _reap(child)
    _sweep(sweep_seconds if len(received) < 2 else 0.0)
    if received:  # as if there were no guard
        signal.signal(received[0], signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {received[0]})
        os.kill(os.getpid(), received[0])
    code = os.waitstatus_to_exitcode(status or 0)
    os._exit(code if code >= 0 else 128 - code)


def _reap(child: int) -> int | None:
    """Take leave of all that has ended; how the child did, once it has."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == child:
            found = status
        if not pid:
            return found


def _sweep(seconds: float) -> None:
    from bench.processes import end_descendants  # here it costs a benchmark's start nothing

    end_descendants(os.getpid(), seconds)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
