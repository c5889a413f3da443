"""Continue with the state in a directory: translate its ids, check its forms, and refuse to lose any of it silently.

Receives a state directory that is taken and a program that has begun; leaves the directory so that its newest manifest
is the state of the program's plan.

Guarantees: state that the plan has no use for is refused, unless a command dropped it or `drops_state` says so; then it
is named in the log and in penstock.json, and manifests up to now count without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.catalogue.program import Program
from penstock.errors import PenstockError
from penstock.query.physical import Plan
from penstock.state.directory import StateDirectory

_LOG = logging.getLogger(__name__)


def continue_state(
    state: StateDirectory,
    facts: dict[str, Any],
    program: Program,
    *,
    leads: bool = True,
    drops_state: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Continue with the newest manifest as the state of a program; `tell` is called with what becomes of each state
    where the program has changed."""
    before, same_query = dict(facts), facts["query"] == program.fingerprint
    newest = state.manifests.latest()
    plan = None if newest.epoch < 0 else _plan_of(state, newest.epoch, program, leads)
    if plan is not None:
        found = state.continue_as(
            facts,
            plan.identities,
            plan.former_ids,
            same_query=same_query,
            drops_state=drops_state,
        )
        if found.dropped or not same_query:
            told = f"the query has changed: of its state {found.describe()}"
            _LOG.warning(told)
            tell(told)
    if program.app_plan is not None:
        if not same_query:  # what the sinks have of recorded epochs is the former query's
            facts["former_query_upto"] = state.former_query_last_epoch = state.records.newest_epoch()
        facts |= {"query": program.fingerprint, "summary": program.summary}
    if facts != before:
        state.write_facts(facts)


def _plan_of(state: StateDirectory, epoch: int, program: Program, leads: bool) -> Plan | None:
    """The plan that the state after an epoch is that of; None where who follows cannot know it any more: the gather
    still lets nothing go that nobody dropped."""
    try:
        end = state.records.read_end(epoch)
        commands = 0 if end is None else end.commands
        return program.epochs.plan(commands, program.epochs.failures(epoch, commands))
    except PenstockError:
        if leads:
            raise
        return None
