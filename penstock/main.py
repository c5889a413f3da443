"""The entry point of `penstock`: agent and gateway start at once and alone, everything else through the full
command line.

Receives the arguments; leaves with an exit code. An agent must stay small, so nothing that queries need is
imported for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.ingest.reducing import Reduce

LIGHT = ("agent", "gateway")


def light(command: str, arguments: Sequence[str]) -> int:
    """Run the agent or the gateway; the exit code."""
    from penstock.errors import PenstockError

    try:
        if command == "agent":
            from penstock.ingest import agent_command

            return agent_command.main(arguments, _reducer)
        from penstock.ingest import gateway_command

        return gateway_command.main(arguments)
    except PenstockError as error:
        for part in error.parts():
            print(part, file=sys.stderr)
        return error.exit_code


def _reducer(text: str, stream: str) -> Reduce:
    """What `agent --reduce` does: this does need what queries need."""
    from penstock.catalogue.agent_reduction import reducer_of

    return reducer_of(text, stream)


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
