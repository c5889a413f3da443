"""Computes the cost of a scheme: weighted CPU, memory, network and engines as multiples of the leader's. Pure.

Invariants:
- The cost is linear in the weights; scaling all of them changes no ranking and no cost (they are shares of their sum).
- Every scheme pays for its durable manifests, whichever engine writes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from penstock.errors import UserError
from penstock.ha.history import Load
from penstock.ha.schemes import SCHEMES, Scheme

#: CPU for reading a byte of a run and putting it into memory
_FOLLOW_SECONDS_PER_BYTE = 5e-9
#: a durable manifest and what belongs to it, beside its runs
_MANIFEST_BYTES = 20_000.0
RESOURCES = ("cpu", "memory", "network", "engines")


class Use(NamedTuple):
    """Cores, bytes, bytes per second and engines; or multiples of the leader's."""

    cpu: float = 0.0
    memory: float = 0.0
    network: float = 0.0
    engines: float = 0.0


@dataclass(frozen=True)
class CostWeights:
    """How much each resource matters; only their proportions count."""

    cpu: float = 1.0
    memory: float = 1.0
    network: float = 1.0
    engines: float = 1.0

    def __post_init__(self) -> None:
        for name in RESOURCES:
            weight = getattr(self, name)
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise _reject(f"the weight of {name} is {weight!r}, which is not a number")
            if not math.isfinite(weight) or weight < 0:
                raise _reject(f"the weight of {name} is {weight:g}; weights are 0 or more")
        if not self.total > 0 or not math.isfinite(self.total):
            raise _reject(
                "all weights are 0, so every scheme would cost the same" if self.total == 0 else "too large"
            )

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return self.cpu + self.memory + self.network + self.engines

    def cost(self, use: Use) -> float:
        """The cost of a use in multiples of the leader's: 1 is as much as the leader itself."""
        weighed = self.cpu * use.cpu + self.memory * use.memory + self.network * use.network
        return (weighed + self.engines * use.engines) / self.total

    def to_plain(self) -> dict[str, float]:
        """As plain values for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


#: `all-costs` weighs every resource the same; `cloud-vm` pays for machines by the hour, whatever they do
PRESETS = {"all-costs": CostWeights(), "cloud-vm": CostWeights(cpu=0.0, memory=0.0, network=0.0)}


def weights_of(text: str) -> CostWeights:
    """Weights by the name of a preset, or as `cpu=1,network=0.5`; the weight of others is 0."""
    if text in PRESETS:
        return PRESETS[text]
    given: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in RESOURCES:
            raise _reject(f"{part.strip()!r} names no resource")
        if name in given:
            raise _reject(f"{name} is given twice")
        try:
            given[name] = float(value)
        except ValueError:
            raise _reject(f"the weight of {name} is {value!r}, which is not a number") from None
    return CostWeights(**{name: given.get(name, 0.0) for name in RESOURCES})


def _reject(why: str) -> UserError:
    return UserError(
        "BAD_COST_WEIGHTS",
        f"these cost weights are not valid: {why}",
        hint=f"Use {' or '.join(PRESETS)}, or weights such as cpu=1,memory=0.2,network=0,engines=2.",
    )


def checkpoint_bytes(load: Load, checkpoint_every: int) -> float:
    """Bytes that one durable manifest of several epochs writes: a row that changed several times is written once, and
    runs that were merged meanwhile not at all."""
    if load.state_bytes <= 0:
        return _MANIFEST_BYTES
    changed = load.run_bytes * checkpoint_every**load.run_growth / load.state_bytes
    return load.state_bytes * -math.expm1(-changed) + _MANIFEST_BYTES


def primary_use(load: Load) -> Use:
    """The use of the leader with a durable manifest every epoch: the unit of all multiples."""
    written = checkpoint_bytes(load, 1) / load.epoch_seconds
    network = load.input_bytes_per_second + load.output_bytes_per_second + written
    return Use(load.cpu_cores, load.memory_bytes, network, 1.0)


def checkpoint_use(load: Load, checkpoint_every: int, manifest_cpu_seconds: float) -> Use:
    """The use of durable manifests: fewer take less CPU and network, and more memory in between."""
    apart = checkpoint_every * load.epoch_seconds
    written = checkpoint_bytes(load, checkpoint_every)
    in_memory = checkpoint_bytes(load, checkpoint_every - 1) if checkpoint_every > 1 else 0.0
    return Use(cpu=manifest_cpu_seconds / apart, memory=in_memory, network=written / apart)


def secondary_use(scheme: Scheme, load: Load, checkpoint_every: int) -> Use:
    """The use of a scheme's second engine."""
    facts = SCHEMES[scheme]
    takes = facts.takes
    apart = checkpoint_every * load.epoch_seconds
    followed = takes.following * checkpoint_bytes(load, checkpoint_every) / apart
    processing = max(load.cpu_cores - load.idle_cpu_cores, 0.0)
    working = max(load.memory_bytes - load.state_bytes, 0.0)
    spans = load.input_bytes_per_second * (apart + load.epoch_seconds)
    return Use(
        cpu=takes.engines * load.idle_cpu_cores
        + takes.processing * processing
        + _FOLLOW_SECONDS_PER_BYTE * followed,
        memory=takes.working_memory * working
        + takes.idle_memory * min(load.idle_memory_bytes, working)
        + takes.state_memory * load.state_bytes
        + takes.span_memory * spans,
        network=takes.input * load.input_bytes_per_second
        + takes.output * load.output_bytes_per_second
        + followed,
        engines=takes.engines,
    )


def overhead(scheme: Scheme, load: Load, checkpoint_every: int, manifest_cpu_seconds: float) -> Use:
    """The use of fault tolerance with a scheme, in multiples of the leader's."""
    second = secondary_use(scheme, load, checkpoint_every)
    durable = checkpoint_use(load, checkpoint_every, manifest_cpu_seconds)
    whole = primary_use(load)
    return Use(
        _divide(second.cpu + durable.cpu, whole.cpu),
        _divide(second.memory + durable.memory, whole.memory),
        _divide(second.network + durable.network, whole.network),
        second.engines,
    )


def _divide(part: float, whole: float) -> float:
    if whole > 0:
        return part / whole
    return 0.0 if part <= 0 else 1.0
