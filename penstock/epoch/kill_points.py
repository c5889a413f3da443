"""The named steps of an epoch, in order, and the place where a test can end the engine at one of them.

`PENSTOCK_KILL_AT=sliced:3` in the environment kills the engine, as a power loss would, when it reaches the
step `sliced` of epoch 3; `PENSTOCK_STOP_AT` pauses it there (SIGSTOP), once, until somebody sends SIGCONT.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, get_args

StepName = Literal[
    "admitted",  # the epoch's end offsets are fixed, in memory
    "planned",  # the runner has taken the epoch up, nothing is written
    "recorded",  # the epoch record is written
    "scanned",  # a scan task has done its work
    "sliced",  # a slice task has written its runs
    "gathered",  # the answers are complete, in memory
    "delivered",  # the sinks hold the epoch
    "committed",  # the manifest is in place
]
STEPS: tuple[StepName, ...] = get_args(StepName)
#: the steps of a move of buckets, all before the epoch record is written
MoveStep = Literal[
    "asked",  # it has been taken up, and how to carry it out is chosen
    "warmed",  # a new owner has filled its cache
    "switched",  # other maps are in force, which no epoch record names yet
]
MOVE_STEPS: tuple[MoveStep, ...] = get_args(MoveStep)


def reached(step: StepName | MoveStep, epoch: int, engine_pid: int | None = None) -> None:
    """Called at every step."""
    for asked, sent in (("PENSTOCK_KILL_AT", signal.SIGKILL), ("PENSTOCK_STOP_AT", signal.SIGSTOP)):
        if os.environ.get(asked) == f"{step}:{epoch}":
            del os.environ[asked]
            pid = os.getpid() if engine_pid is None else engine_pid
            if os.getpgid(pid) == pid:
                os.killpg(pid, sent)
            else:
                os.kill(pid, sent)
