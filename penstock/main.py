"""The entry point of `penstock`: agent and gateway start at once and alone, everything else through the full
command line.

Receives the arguments; leaves with an exit code.
"""

from __future__ import annotations

import os
import sys

from penstock.cli.light import LIGHT, light


def main() -> None:
    """Always leaves with SystemExit."""
    if len(sys.argv) > 1 and sys.argv[1] in LIGHT:
        code = light(sys.argv[1], sys.argv[2:])
        sys.stderr.flush()
        os._exit(code)  # a reader may be waiting for a line that never comes
    from penstock.cli.commands import main as full

    full()


if __name__ == "__main__":
    main()
