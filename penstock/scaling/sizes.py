"""Proposes a first size: how many executors and slices a query needs for a load, from the costs of a sample. Pure.

Receives the task seconds of each stage in each epoch of the sample, and the events; returns a proposal. After
StreamCloud's query instantiator: every stage gets as many cores as its share of the cost requires at the target
utilisation. The fixed cost of an epoch counts once an epoch, not by the event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import UserError
from penstock.scaling.fit import fit_parts


@dataclass(frozen=True)
class Part:
    """A stage's part: core seconds an epoch and an event, and the cores it keeps busy at the load."""

    name: str
    seconds_per_epoch: float
    seconds_per_event: float
    cores: float


@dataclass(frozen=True)
class Proposal:
    """The proposed size."""

    load: float
    parts: tuple[Part, ...]
    executors: int
    cores_per_executor: int
    slices: int
    #: of all cores, at that load
    utilisation: float
    #: the throughput of one core without the fixed cost of epochs, in events a second
    core_rate: float
    buckets: int


def propose_size(
    seconds: Mapping[str, Sequence[float]],
    events: Sequence[int],
    load: float,
    *,
    epoch_seconds: float = 1.0,
    target_utilisation: float,
    cores_per_executor: int = 1,
    buckets: int = 64,
) -> Proposal:
    """Propose a size for `load` events a second and an epoch every `epoch_seconds`. `events`: those of each epoch of
    a sample; `seconds`: the task seconds of each epoch by stage."""
    if not sum(events) or sum(map(sum, seconds.values())) <= 0:
        raise UserError(
            "EMPTY_SAMPLE",
            "the sample had no events, so no size can be proposed",
            hint="Take a longer sample (--sample 60s), or one of a time when events flow.",
        )
    if load <= 0 or cores_per_executor < 1:
        raise UserError("BAD_OPTION", "a load and an executor's cores must be more than 0")
    costs = {name: fit_parts(events, took) for name, took in seconds.items()}
    parts = tuple(
        Part(name, cost.fixed, cost.each, cost.of(load * epoch_seconds) / epoch_seconds)
        for name, cost in costs.items()
    )
    busy = sum(part.cores for part in parts)
    executors = max(1, math.ceil(busy / target_utilisation / cores_per_executor - 1e-9))
    cores = executors * cores_per_executor
    return Proposal(
        load,
        parts,
        executors,
        cores_per_executor,
        cores,
        busy / cores,
        1 / max(sum(part.seconds_per_event for part in parts), 1e-9),
        buckets,
    )


def find_warnings(proposal: Proposal, partitions: int) -> list[str]:
    """Find what would keep the proposal from working."""
    found = []
    if proposal.slices > proposal.buckets:
        found.append(
            f"{proposal.slices} slices are more than the {proposal.buckets} buckets: start with more buckets, "
            "they cannot be changed later"
        )
    scan = next((part for part in proposal.parts if part.name == "scan"), None)
    if scan is not None and partitions < math.ceil(scan.cores):
        found.append(
            f"the scan needs {scan.cores:.1f} cores but the log has {partitions} partition"
            f"{'s' * (partitions != 1)}, each of which is read by one task"
        )
    return found
