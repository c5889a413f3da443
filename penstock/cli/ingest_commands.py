"""Runs the commands `agent` and `gateway`.

An agent must stay small, so nothing that queries need is imported for them unless `agent --reduce` asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.ingest.reducing import Reduce

INGEST_COMMANDS = ("agent", "gateway")


def run_ingest_command(command: str, arguments: Sequence[str]) -> int:
    """Run the agent or the gateway; returns the exit code."""
    from penstock.errors import PenstockError

    try:
        if command == "agent":
            from penstock.ingest import agent_command

            return agent_command.main(arguments, _make_reducer)
        from penstock.ingest import gateway_command

        return gateway_command.main(arguments)
    except PenstockError as error:
        for part in error.parts():
            print(part, file=sys.stderr)
        return error.exit_code


def _make_reducer(text: str, stream: str) -> Reduce:
    from penstock.catalogue.agent_reduction import compile_reducer

    return compile_reducer(text, stream)
