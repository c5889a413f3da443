"""Continues with the state in a directory: translates its ids, checks its forms, and refuses to lose any silently.

Afterwards the newest manifest is the state of the program's plan.

Guarantees: state that the plan does not use is refused, unless a command dropped it or `drops_state` is set. Then the
log and penstock.json name it, and manifests up to now count without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.query.physical import Plan
from penstock.state.directory import StateDirectory

_LOG = logging.getLogger(__name__)


def continue_state(
    state: StateDirectory,
    program: Program,
    *,
    leads: bool = True,
    drops_state: bool = False,
    on_phase: Callable[[str], None] = lambda _: None,
) -> None:
    """Continue with the newest manifest as the state of a started program. If the query has changed, `on_phase`
    receives what becomes of each state."""
    same_query = state.facts.query == program.fingerprint
    if not same_query and (altered := program.epochs.altered_outputs()):
        raise UserError(
            "ALTERED_OUTPUT",
            f"the app has changed since a command altered its output {altered[0]}, whose state is part of its plan",
            hint=f"Start with the file as it was and EMPTY JOB {altered[0]}, which then starts with empty state, or "
            "name another directory with --state.",
        )
    newest = state.manifests.latest()
    plan = None if newest.epoch < 0 else _plan_of(state, newest.epoch, program, leads)
    if plan is not None:
        continued = state.continue_as(
            plan.identities,
            plan.former_ids,
            same_query=same_query,
            drops_state=drops_state,
        )
        if continued.dropped or not same_query:
            text = f"the query has changed: of its state {continued.describe()}"
            _LOG.warning(text)
            on_phase(text)
    changes: dict[str, Any] = {"dropped": state.manifests.dropped}
    if program.app_plan is not None:
        changes |= {"query": program.fingerprint, "summary": program.summary}
        if not same_query:  # the sinks have results of the former query for the recorded epochs
            changes["former_query_last_epoch"] = state.records.newest_epoch()
    state.update_facts(**changes)


def _plan_of(state: StateDirectory, epoch: int, program: Program, leads: bool) -> Plan | None:
    """The plan of the state after an epoch. None where a follower cannot know it any more, or cannot build a job: the
    gather still refuses to drop state that no command dropped, and opening reports a job that cannot be built here."""
    try:
        end = state.records.read_end(epoch)
        commands = 0 if end is None else end.commands
        return program.epochs.plan(commands, program.epochs.failures(epoch, commands))
    except Exception:  # a job's code may raise anything while it is built
        if leads:
            raise
        return None
