"""Reads the machine's processors and chooses those to which each worker is pinned.

Invariants:
- Only processors that are online and allowed are used.
- While there are enough physical cores, no two workers share one. After that they share the threads of a core, and
  after that processors.
- A worker is inside one NUMA node if one has room for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from penstock.errors import ExternalError, UserError

Pin = Literal["cores", "numa", "none"]
PINS: tuple[Pin, ...] = get_args(Pin)
SYSTEM = Path("/sys/devices/system")

#: processors that are assigned together: a physical core, or one thread of it
Unit = frozenset[int]


@dataclass(frozen=True, order=True)
class Processor:
    """A logical processor: its place, and its number in the system."""

    node: int
    package: int
    core: int
    number: int


def parse_cpu_list(text: str) -> list[int]:
    """Parse a list in the kernel's notation: `0-3,8` is 0, 1, 2, 3, 8."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.extend(range(int(first), int(last or first) + 1))
    return found


def format_cpu_list(numbers: Iterable[int]) -> str:
    """Numbers in the kernel's notation."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def read_processors(root: Path = SYSTEM, allowed: Collection[int] | None = None) -> tuple[Processor, ...]:
    """The processors that are online and, if given, allowed, in the order of the topology."""
    try:
        online = parse_cpu_list((root / "cpu" / "online").read_text())
        nodes = _nodes(root)
        found = [
            Processor(
                nodes.get(number, 0),
                _fact(root, number, "physical_package_id", 0),
                _fact(root, number, "core_id", number),
                number,
            )
            for number in online
            if allowed is None or number in allowed
        ]
    except (OSError, ValueError) as failure:
        raise ExternalError(
            "TOPOLOGY_UNREADABLE",
            f"the processors under {root} cannot be read",
            detail=str(failure),
            hint="Use --pin none to start the cluster without pinning.",
        ) from failure
    return tuple(sorted(found))


def _nodes(root: Path) -> dict[int, int]:
    """The NUMA node of each processor; empty for a kernel without NUMA."""
    found = {}
    for place in (root / "node").glob("node[0-9]*"):
        for number in parse_cpu_list((place / "cpulist").read_text()):
            found[number] = int(place.name.removeprefix("node"))
    return found


def _fact(root: Path, number: int, name: str, otherwise: int) -> int:
    try:
        value = int((root / "cpu" / f"cpu{number}" / "topology" / name).read_text())
    except FileNotFoundError:
        return otherwise
    return value if value >= 0 else otherwise  # -1: unknown to the machine


def choose_processors(
    processors: Sequence[Processor], how: Pin, cores: int, taken: Sequence[frozenset[int]] = ()
) -> frozenset[int] | None:
    """The processors of the next worker with so many cores; `taken` has those of the workers before it."""
    if how not in PINS:
        raise UserError("BAD_OPTION", f"there is no --pin {how!r}", hint=f"Use one of {', '.join(PINS)}.")
    if how == "none" or not processors:
        return None
    return _node(processors, taken) if how == "numa" else _cores(processors, cores, taken)


def _node(processors: Sequence[Processor], taken: Sequence[frozenset[int]]) -> frozenset[int]:
    """A whole node: the one with the fewest workers for its size."""
    nodes: dict[int, set[int]] = {}
    for processor in processors:
        nodes.setdefault(processor.node, set()).add(processor.number)
    load = {node: sum(bool(numbers & t) for t in taken) / len(numbers) for node, numbers in nodes.items()}
    return frozenset(nodes[min(nodes, key=lambda node: (load[node], node))])


def _cores(processors: Sequence[Processor], cores: int, taken: Sequence[frozenset[int]]) -> frozenset[int]:
    whole: dict[tuple[int, int, int], set[int]] = {}
    for processor in processors:
        place = (processor.node, processor.package, processor.core)
        whole.setdefault(place, set()).add(processor.number)
    node_of = {processor.number: processor.node for processor in processors}
    used = {number: sum(number in t for t in taken) for number in node_of}
    physical = [frozenset(numbers) for numbers in whole.values()]
    free = [unit for unit in physical if not any(used[number] for number in unit)]
    if len(free) < cores:  # not enough whole cores: single threads, the least used first
        threads = sorted(
            (frozenset([number]) for number in used), key=lambda unit: (_load(unit, used), *unit)
        )
        least = _load(threads[min(cores, len(threads)) - 1], used)
        free = [unit for unit in threads if _load(unit, used) <= least]
    return frozenset().union(*_together(free, cores, node_of, used))


def _load(unit: Unit, used: dict[int, int]) -> int:
    return max(used[number] for number in unit)


def _together(free: list[Unit], cores: int, node_of: dict[int, int], used: dict[int, int]) -> list[Unit]:
    """Choose so many of the free units, from one node if possible, the least used first."""

    def order(unit: Unit) -> tuple[int, int]:
        return _load(unit, used), min(unit)

    by_node: dict[int, list[Unit]] = {}
    for unit in sorted(free, key=order):
        by_node.setdefault(node_of[min(unit)], []).append(unit)
    for node in sorted(by_node):
        if len(by_node[node]) >= cores:
            return by_node[node][:cores]
    return sorted(free, key=order)[:cores]
