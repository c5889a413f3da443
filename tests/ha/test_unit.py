"""Units of real engine processes: killed, switched, left without a coordinator; the output is as if nothing was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.ha.schemes import SCHEMES, Scheme
from penstock.ha.unit import kind_of
from tests.ha.unit_kit import Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

Make = Callable[..., Kit]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a unit; closes it after the test."""
    kits: list[Kit] = []

    def made(scheme: Scheme, **settings: Any) -> Kit:
        kits.append(Kit(tmp_path / "unit", scheme, **settings))
        return kits[-1]

    yield made
    for kit in kits:
        kit.close()


def stands(kit: Kit, scheme: Scheme) -> bool:
    """Whether the unit has what a scheme asks for."""
    leader, members = kit.leader(), kit.members()
    others = [member for name, member in members.items() if name != leader]
    wanted = kind_of(scheme)
    if leader is None or wanted is None:
        return leader is not None and not others
    return [member.kind for member in others] == [wanted] and others[0].phase in ("ready", "following")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_killed_primary_is_replaced_and_nothing_is_lost_or_repeated(scheme: Scheme, make: Make) -> None:
    kit = make(scheme)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, scheme))
    kit.flowing()
    first, before = kit.leader(), kit.record()
    assert first is not None
    kit.kill(first)
    kit.until("another leads", lambda: kit.leader() not in (None, first))
    after = kit.record()
    assert after.generation > before.generation
    assert after.recoveries[-1].lost == first
    kit.flowing()
    kit.until("there is what the scheme asks for", lambda: stands(kit, scheme))
    kit.finish()
    recovery = kit.record().recoveries[-1]
    assert recovery.first_result_after is not None
    assert recovery.detected_after is not None
    if SCHEMES[scheme].runs_epochs:
        assert "replicas" in kit.record().directory
