"""The entry point of `penstock`: starts an agent or a gateway by itself, everything else through the command line.

It always leaves with SystemExit or by ending the process.
"""

from __future__ import annotations

import os
import sys

from penstock.cli.ingest_commands import INGEST_COMMANDS, run_ingest_command


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in INGEST_COMMANDS:
        code = run_ingest_command(sys.argv[1], sys.argv[2:])
        sys.stderr.flush()
        os._exit(code)  # a thread may still wait for a line that never comes
    from penstock.cli.commands import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
