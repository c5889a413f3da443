"""Processors are read from the system, and assigned so that workers do not share them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.topology import (
    Processor,
    choose_processors,
    format_cpu_list,
    parse_cpu_list,
    read_processors,
)
from penstock.errors import ExternalError, UserError


def tree(root: Path, processors: list[tuple[int, int, int, int]], online: str) -> Path:
    """A copy of what Linux shows under /sys/devices/system; processors as (number, package, core, node)."""
    by_node: dict[int, list[int]] = {}
    for number, package, core, node in processors:
        folder = root / "cpu" / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
        by_node.setdefault(node, []).append(number)
    (root / "cpu").mkdir(parents=True, exist_ok=True)
    (root / "cpu" / "online").write_text(online + "\n")
    for node, numbers in by_node.items():
        (root / "node" / f"node{node}").mkdir(parents=True)
        (root / "node" / f"node{node}" / "cpulist").write_text(format_cpu_list(numbers) + "\n")
    return root


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Two sockets, two nodes, four cores each with two threads: the numbering of an Intel server."""
    found = [(n, n // 4 % 2, n % 4, n // 4 % 2) for n in range(16)]
    return tree(tmp_path / "server", found, "0-15")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A virtual machine with two processors and one node."""
    return tree(tmp_path / "small", [(0, 0, 0, 0), (1, 0, 1, 0)], "0-1")


def assign(root: Path, how: str, workers: int, cores: int, allowed: set[int] | None = None) -> list[set[int]]:
    processors, found = read_processors(root, allowed), list[frozenset[int]]()
    for _ in range(workers):
        pinned = choose_processors(processors, how, cores, found)  # type: ignore[arg-type]
        assert pinned is not None
        found.append(pinned)
    return [set(pinned) for pinned in found]


def test_a_server_is_read_node_by_node(server: Path) -> None:
    processors = read_processors(server)
    assert len(processors) == 16
    assert [p.number for p in processors if p.node == 1] == [4, 12, 5, 13, 6, 14, 7, 15]
    assert processors[0] == Processor(node=0, package=0, core=0, number=0)
    assert processors[1] == Processor(node=0, package=0, core=0, number=8)


def test_a_worker_gets_physical_cores_with_all_their_threads(server: Path) -> None:
    assert assign(server, "cores", 3, 2) == [{0, 8, 1, 9}, {2, 10, 3, 11}, {4, 12, 5, 13}]


def test_a_worker_is_not_spread_over_nodes_while_one_has_room(server: Path) -> None:
    assert assign(server, "cores", 2, 3) == [{0, 8, 1, 9, 2, 10}, {4, 12, 5, 13, 6, 14}]


def test_threads_are_shared_out_when_cores_are_used_up(small: Path, server: Path) -> None:
    assert assign(small, "cores", 3, 1) == [{0}, {1}, {0}]
    assert assign(small, "cores", 1, 2) == [{0, 1}]
    assert assign(small, "cores", 1, 5) == [{0, 1}]
    assert assign(server, "cores", 9, 1)[8] == {0}


def test_nodes_are_given_whole_and_in_turn(server: Path) -> None:
    first, second = {0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}
    assert assign(server, "numa", 3, 1) == [first, second, first]


def test_only_allowed_online_processors_are_assigned(server: Path) -> None:
    assert assign(server, "cores", 2, 1, {5, 6, 13}) == [{5, 13}, {6}]
    (server / "cpu" / "online").write_text("0-7\n")
    assert [p.number for p in read_processors(server)] == list(range(8))


def test_a_machine_with_little_information_is_pinned_all_the_same(tmp_path: Path) -> None:
    root = tree(tmp_path / "plain", [], "0-1,3")
    assert assign(root, "cores", 3, 1) == [{0}, {1}, {3}]
    assert assign(root, "numa", 1, 1) == [{0, 1, 3}]


def test_no_pinning_pins_nothing(server: Path) -> None:
    assert choose_processors(read_processors(server), "none", 1) is None


def test_an_unknown_pinning_is_refused(server: Path) -> None:
    with pytest.raises(UserError) as failure:
        choose_processors(read_processors(server), "sockets", 1)  # type: ignore[arg-type]
    assert failure.value.condition == "BAD_OPTION"


def test_a_system_without_processors_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ExternalError) as failure:
        read_processors(tmp_path)
    assert failure.value.condition == "TOPOLOGY_UNREADABLE"
    assert "--pin none" in str(failure.value)


def test_this_machine_can_be_read() -> None:
    assert read_processors()


@given(st.sets(st.integers(0, 300)))
def test_a_list_is_read_as_it_is_written(numbers: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(numbers)) == sorted(numbers)
