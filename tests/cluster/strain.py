"""A worker that is slow: the processes of its executors are stopped most of the time, as if others had its core.

`python -m tests.cluster.strain CLUSTER WORKER` strains until its standard input ends; then all go on at full speed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from penstock.cluster import LocalCluster
from penstock.cluster.processes import find_marked

#: seconds that they are stopped and that they run, in turn
STILL, RUNNING = 0.012, 0.003
#: seconds between two searches for processes
_LOOK = 1.0


def main(cluster: LocalCluster, name: str) -> None:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    facts = cluster.facts()
    daemon, looked = facts.worker(name).process, float("-inf")
    victims: list[int] = []
    try:
        while not ended.is_set():
            if time.monotonic() > looked + _LOOK:
                looked = time.monotonic()
                victims = [one.pid for one in find_marked(f"{facts.id}/{name}") if one != daemon]
            _signal_all(victims, signal.SIGSTOP)
            time.sleep(STILL)
            _signal_all(victims, signal.SIGCONT)
            time.sleep(RUNNING)
    finally:
        _signal_all(victims, signal.SIGCONT)


def _signal_all(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)


if __name__ == "__main__":
    main(LocalCluster(Path(sys.argv[1])), sys.argv[2])
