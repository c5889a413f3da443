"""The coordinator of a unit under test, as a process of its own: `python -m tests.ha.coordinating ROOT`.

Apart from the kit, since it loads no queries: engines are started only once it is up.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock.ha.coordinator import Coordinator
from penstock.ha.nodes import cancel_requests, start_on_node
from penstock.ha.unit import Unit


def report(line: str) -> None:
    print(time.time(), line, flush=True)


if __name__ == "__main__":
    Coordinator(Unit.at(Path(sys.argv[1])), start_on_node, report, cancel_requests).run()
