"""What a scheme costs: CPU, memory, network and engines as multiples of the primary's, weighed. Pure.

Receives what the primary takes, a scheme, a checkpoint interval and the user's weights; hands `Use`s and one number.

Invariants:
- The cost is linear in the weights; scaling all of them changes no ranking and no cost (they are shares of their sum).
- Every scheme pays for its durable manifests, whoever writes them.
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
    """Cores, bytes, bytes a second, engines; or multiples of the primary's, as the place says."""

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
        """One number for a use in multiples of the primary's: 1 is as much as the primary itself."""
        weighed = self.cpu * use.cpu + self.memory * use.memory + self.network * use.network
        return (weighed + self.engines * use.engines) / self.total

    def to_plain(self) -> dict[str, float]:
        """The weights as JSON takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


#: `all-costs` minds every resource alike; `cloud-vm` pays for machines by the hour, whatever they do meanwhile
PRESETS = {"all-costs": CostWeights(), "cloud-vm": CostWeights(cpu=0.0, memory=0.0, network=0.0)}


def weights_of(text: str) -> CostWeights:
    """Weights by the name of a preset, or as `cpu=1,network=0.5`; what is not named weighs nothing."""
    if text in PRESETS:
        return PRESETS[text]
    given: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in RESOURCES:
            raise _reject(f"{part.strip()!r} names no resource")
        if name in given:
            raise _reject(f"{name} is weighed twice")
        try:
            given[name] = float(value)
        except ValueError:
            raise _reject(f"the weight of {name} is {value!r}, which is not a number") from None
    return CostWeights(**{name: given.get(name, 0.0) for name in RESOURCES})


def _reject(why: str) -> UserError:
    return UserError(
        "BAD_COST_WEIGHTS",
        f"these costs cannot be weighed: {why}",
        hint=f"Use {' or '.join(PRESETS)}, or weights such as cpu=1,memory=0.2,network=0,engines=2.",
    )


def checkpoint_bytes(load: Load, checkpoint_every: int) -> float:
    """What one durable manifest of several epochs writes: a row that changed several times is written once, and what
    was merged meanwhile not at all."""
    if load.state_bytes <= 0:
        return _MANIFEST_BYTES
    changed = load.run_bytes * checkpoint_every**load.run_growth / load.state_bytes
    return load.state_bytes * -math.expm1(-changed) + _MANIFEST_BYTES


def primary_use(load: Load) -> Use:
    """What the primary takes with a durable manifest every epoch: what everything else is a multiple of."""
    written = checkpoint_bytes(load, 1) / load.epoch_seconds
    network = load.input_bytes_per_second + load.output_bytes_per_second + written
    return Use(load.cpu_cores, load.memory_bytes, network, 1.0)


def checkpoint_use(load: Load, checkpoint_every: int, manifest_cpu_seconds: float) -> Use:
    """What durable manifests take of the primary: fewer take less CPU and network, and more memory in between."""
    apart = checkpoint_every * load.epoch_seconds
    written = checkpoint_bytes(load, checkpoint_every)
    kept = checkpoint_bytes(load, checkpoint_every - 1) if checkpoint_every > 1 else 0.0
    return Use(cpu=manifest_cpu_seconds / apart, memory=kept, network=written / apart)


def secondary_use(scheme: Scheme, load: Load, checkpoint_every: int) -> Use:
    """What a scheme's secondary takes."""
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
    """What fault tolerance takes with a scheme, in multiples of what the primary takes."""
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
