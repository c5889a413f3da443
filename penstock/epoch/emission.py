"""Decides which of an epoch's rows go to the result log, from where the sinks get them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from penstock.epoch.recovery import RecoveryActions
from penstock.query.physical import Plan
from penstock.state.manifest import Manifest


@dataclass(frozen=True)
class Emission:
    """What happens to an epoch's rows."""

    #: the rows that are emitted, by output
    rows: Mapping[str, pl.DataFrame]
    #: rows of outputs that skip the epoch, which jobs read an epoch later all the same
    only_for_jobs: Mapping[str, pl.DataFrame]
    #: how many rows outputs would have had that skip the epoch
    withheld_rows: Mapping[str, int]
    #: the outputs whose sinks receive again what they have
    redelivered: frozenset[str] = frozenset()


def plan_emission(
    rows: Mapping[str, pl.DataFrame],
    actions: RecoveryActions,
    plan: Plan,
    skipping: frozenset[str],
    already_emitted: bool,
) -> Emission:
    """Decide what happens to an epoch's rows. `skipping`: the outputs that skip it; `already_emitted`: the result log
    is known to have had them."""
    read = frozenset() if plan.jobs is None else plan.jobs.previous.keys()
    return Emission(
        {name: frame for name, frame in rows.items() if name not in skipping},
        {name: frame for name, frame in rows.items() if name in skipping & read},
        {name: rows[name].height if name in rows else 0 for name in skipping},
        actions.redelivered_outputs(plan) - skipping if already_emitted else frozenset(),
    )


def keep_last_results(before: Manifest, after: Manifest, skipping: frozenset[str]) -> Manifest:
    """The state after an epoch, with the last results before it for outputs that skip it."""
    if not skipping:
        return after
    results = {name: result for name, result in after.last_results.items() if name not in skipping}
    results |= {name: result for name, result in before.last_results.items() if name in skipping}
    return replace(after, last_results=results)
