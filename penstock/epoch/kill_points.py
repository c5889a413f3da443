"""Names the steps of an epoch, in order, so that a test can kill the engine at one of them.

`PENSTOCK_KILL_AT=sliced:3` in the environment kills the engine, as a power loss would, when it reaches the step
`sliced` of epoch 3. `PENSTOCK_STOP_AT` pauses it there (SIGSTOP), once, until somebody sends SIGCONT.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, get_args

StepName = Literal[
    "admitted",  # the epoch's end offsets are fixed, in memory
    "planned",  # the runner has started the epoch, nothing is written
    "recorded",  # the epoch record is written
    "scanned",  # a scan task is done
    "sliced",  # a slice task has written its runs
    "gathered",  # the results are complete, in memory
    "emitted",  # the result log has the epoch
    "committed",  # the manifest is in place
    "delivered",  # all sinks have the epoch, but for those of an engine that holds its rows back
]
STEPS: tuple[StepName, ...] = get_args(StepName)
#: the steps of a migration, all before the epoch record is written
MigrationStep = Literal[
    "chosen",  # it has started, and its protocol is chosen
    "warmed",  # a new owner has filled its cache
    "switched",  # other maps are in force, which no epoch record has yet
]
MIGRATION_STEPS: tuple[MigrationStep, ...] = get_args(MigrationStep)


def reached(step: StepName | MigrationStep, epoch: int, engine_pid: int | None = None) -> None:
    """Kill or pause the engine if a test wants that at this step."""
    for variable, sent in (("PENSTOCK_KILL_AT", signal.SIGKILL), ("PENSTOCK_STOP_AT", signal.SIGSTOP)):
        if os.environ.get(variable) == f"{step}:{epoch}":
            del os.environ[variable]
            pid = os.getpid() if engine_pid is None else engine_pid
            if os.getpgid(pid) == pid:
                os.killpg(pid, sent)
            else:
                os.kill(pid, sent)
