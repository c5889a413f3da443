"""Execute trials for another process, which sends them (see `penstock.query.trial`). Started as a program of its own.

Messages come on standard input and go to standard output, and nothing else does: functions of the user's that print,
print to standard error.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from penstock.query.trial_messages import SENT_ANSWER, SENT_STARTED, read_message, write_message


def main() -> None:
    """Execute trials until standard input ends."""
    trials = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    import cloudpickle

    import penstock.query.check  # noqa: F401 - what most trials need

    with open("/proc/self/statm") as pages:
        libraries = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (libraries + int(sys.argv[1]),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            _, message = read_message(trials)
        except EOFError:
            return
        try:
            seconds, function, arguments = cloudpickle.loads(message)
        except BaseException as failure:  # whatever loading the user's code raises
            write_message(answers, b"", SENT_STARTED)
            write_message(answers, _pack(False, failure), SENT_ANSWER)
            continue
        _limit_processor_seconds(seconds)
        write_message(answers, b"", SENT_STARTED)
        write_message(answers, _execute(function, arguments), SENT_ANSWER)


def _execute(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    try:
        return _pack(True, function(*arguments))
    except BaseException as failure:  # the user's code raises anything, and a panic in Polars is no Exception
        return _pack(False, failure)


def _pack(succeeded: bool, value: Any) -> bytes:
    import cloudpickle

    with contextlib.suppress(Exception):  # what cannot be pickled, or not be loaded again, is described
        packed: bytes = cloudpickle.dumps((succeeded, value))
        cloudpickle.loads(packed)
        return packed
    described: bytes = cloudpickle.dumps((False, RuntimeError(f"{type(value).__name__}: {value}")))
    return described


def _limit_processor_seconds(seconds: float) -> None:
    """Let the next trial take twice its time on the processor; the parent ends it at its deadline anyway."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used + 2 * seconds) + 1, most))


if __name__ == "__main__":
    main()
