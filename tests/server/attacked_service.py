"""A service on the inline engine in a process of few descriptors, for the tests of its connections.

    python -m tests.server.attacked_service STATE DESCRIPTORS

It prints its port, then runs epochs until its standard input ends; an epoch that fails ends it.
"""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path

from tests.server import kit

JOB = "CREATE JOB seen AS SELECT page, status FROM clicks"


def main() -> None:
    """Serve until the standard input ends."""
    state, descriptors = Path(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    is_over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with kit.site(state, JOB, events=3) as site:
        print(site.url.rpartition(":")[2], flush=True)
        while not is_over.wait(0.05):
            site.running.steps()
            site.log.add("p0", kit.LATER[0])
        site.running.steps()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
