"""A follower yields CPU to the leader on its host: its priority, and when it pauses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.replica.spare_capacity import (
    NICE,
    PAUSE_SECONDS,
    RESUME_SECONDS,
    behind_seconds,
    can_restore_priority,
    should_pause,
)

#: lowers the priority of a process that has a thread and a child, and restores it; prints what each had
SCRIPT = """
import os, subprocess, sys, threading, time
from penstock.replica.spare_capacity import Priority
over = threading.Event()
thread = threading.Thread(target=over.wait, daemon=True)
thread.start()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
def priorities():
    return [os.getpriority(os.PRIO_PROCESS, one) for one in (0, thread.native_id, child.pid)]
priority = Priority()
try:
    before = priorities()
    priority.lower()
    lowered = priorities()
    priority.restore()
    print(before, lowered, priorities())
finally:
    child.kill()
"""


def test_how_far_behind_is_estimated_by_the_last_epoch() -> None:
    assert behind_seconds({"a": 100, "b": 100}, 0.5, {"a": 1_000}) == 2.5
    assert behind_seconds({}, 0.5, {"a": 1_000}) == 0.0


@pytest.mark.parametrize(
    ("paused", "behind", "should"),
    [
        (False, None, False),
        (True, None, False),  # nobody leads on this host: there is work to do
        (False, PAUSE_SECONDS, False),
        (False, PAUSE_SECONDS + 1, True),
        (True, PAUSE_SECONDS, True),
        (True, RESUME_SECONDS, False),
    ],
)
def test_it_pauses_while_the_leader_is_behind(paused: bool, behind: float | None, should: bool) -> None:
    assert should_pause(paused, behind) is should


@pytest.mark.process
def test_all_threads_and_children_have_a_lower_priority_until_it_is_restored() -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    if not can_restore_priority(usual) or usual + NICE > 19:
        pytest.skip("this user may not have the usual priority again: then it is not lowered")
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == f"{[usual] * 3} {[usual + NICE] * 3} {[usual] * 3}", done.stderr
