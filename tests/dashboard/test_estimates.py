"""The page of estimates: the estimates of a unit's controller beside measured recoveries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import unit as unit_module
from penstock.cli.unit import watch_unit
from penstock.dashboard import estimates, recovery
from penstock.dashboard.backend import Backend
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Recovery
from tests.ha.paper import World
from tests.server import kit


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, {"threshold_seconds": 10.0})
    world.add_measurements(start=12.0, wire=0.5, load=80e6, fetch=100e6)
    yield world
    world.unit.close()


def unit_facts(world: World) -> dict[str, Any]:
    return unit_module.unit_facts(world.unit, world.record, {})


def add_recoveries(world: World, scheme: Scheme, *durations: float) -> None:
    """Record recoveries that took these seconds."""
    at = world.now - 1
    done = tuple(
        Recovery("e1", "e2", 2, str(scheme), at + 1, failed_at=at, first_result_at=at + seconds)
        for seconds in durations
    )
    world.unit.change(lambda now: replace(now, recoveries=(*now.recoveries, *done)))


def rows_by_scheme(markup: str) -> dict[str, str]:
    """The text of each row of the estimates, by its scheme."""
    texts = {}
    for row in re.findall("<tr>(.*?)</tr>", markup):
        text = re.sub("<[^>]*>", "|", row)
        texts[text.strip("|").split("|")[0]] = text
    return texts


def test_the_page_says_when_the_controller_has_no_measurements(world: World) -> None:
    assert "not decided anything yet" in estimates.estimate_table(unit_facts(world))
    assert estimates.estimate_chart(unit_facts(world)) is None
    world.turns(3)
    assert "on the safe side until" in estimates.estimate_table(unit_facts(world))
    assert "Too little is measured" in estimates.estimate_table(unit_facts(world))
    assert estimates.estimate_chart(unit_facts(world)) is None


def test_every_scheme_is_shown_with_its_estimate_its_parts_and_a_verdict(world: World) -> None:
    decision = world.turns()
    page = estimates.estimate_table(unit_facts(world))
    assert "within 10 s, precise: " in page
    assert decision.reason in page
    assert "active-replication to deployed" in page, "the change of scheme and its reason"
    rows = rows_by_scheme(page)
    for candidate in decision.considered:
        row = rows[str(candidate.scheme)]
        for part in candidate.estimate.parts:
            assert (f"{part.name} " in row) == (round(part.seconds, 4) > 0), (row, part)
        assert ("in force" in row) == (candidate.scheme is Scheme.deployed)
        assert ("too slow" in row) == (candidate.estimate.seconds > 10.0)
    assert re.search(r"load [0-9.]+ m?s \(50\.0 MB at [0-9.]+ MB/s\)", rows["deployed"])
    assert "costs more" in rows["active-standby"]
    assert estimates.scheme_origin(unit_facts(world)) == "the controller's choice"


def test_measured_recoveries_are_shown_beside_the_estimates(world: World) -> None:
    world.turns()
    add_recoveries(world, Scheme.deployed, 6.5)
    world.turn()
    rows = rows_by_scheme(estimates.estimate_table(unit_facts(world)))
    assert "6.5 s" in rows["deployed"]
    add_recoveries(world, Scheme.deployed, 4.2)
    world.turn()
    unit = unit_facts(world)
    rows = rows_by_scheme(estimates.estimate_table(unit))
    assert "4.2 s last, 6.5 s longest of 2" in rows["deployed"]
    assert estimates.measured_seconds(unit, "active-standby") == []
    estimated = unit["recoveries"][0]["estimated_seconds"]
    assert f"{estimated:.1f} s" in recovery._recoveries(unit), "the estimate from before the recovery"


def test_a_recovery_without_the_instant_of_the_failure_is_not_a_measurement(world: World) -> None:
    world.turns()
    unobserved = Recovery("e1", "e2", 2, "deployed", world.now, first_result_at=world.now + 1)
    world.unit.change(lambda now: replace(now, recoveries=(unobserved,)))
    assert estimates.measured_seconds(unit_facts(world), "deployed") == []


def test_the_chart_has_the_parts_the_threshold_and_the_measurements(world: World) -> None:
    decision = world.turns()
    options = estimates.estimate_chart(unit_facts(world))
    assert options is not None
    schemes = options["yAxis"]["data"]
    assert schemes == [str(candidate.scheme) for candidate in decision.considered]
    for number, candidate in enumerate(decision.considered):
        total = sum(series["data"][number] for series in options["series"])
        assert total == pytest.approx(candidate.estimate.seconds, abs=0.001)
    assert options["series"][0]["markLine"]["data"] == [{"xAxis": 10.0}]
    assert options["series"][-1]["name"] == "margin"
    add_recoveries(world, Scheme.deployed, 99.0)
    options = estimates.estimate_chart(unit_facts(world))
    assert options is not None
    assert options["series"][-1]["data"] == [[99.0, "deployed"]]
    assert options["xAxis"]["max"] > 99.0


def test_a_scheme_that_the_user_chose_is_estimated_too(tmp_path: Path) -> None:
    world = World(tmp_path, {}, {"scheme": Scheme.passive_hot})
    try:
        world.turns()
        page = estimates.estimate_table(unit_facts(world))
        assert "no recovery time is required: chosen by the user" in page
        assert "too slow" not in page
        assert "in force" in rows_by_scheme(page)["passive-hot"]
        options = estimates.estimate_chart(unit_facts(world))
        assert options is not None
        assert "markLine" not in options["series"][0]
        assert estimates.scheme_origin(unit_facts(world)) == "chosen by the user"
    finally:
        world.unit.close()


def test_the_text_of_a_unit_is_escaped(world: World) -> None:
    world.turns()
    unit = unit_facts(world)
    bad = "<script>alert(1)</script>"
    unit["controller"]["decision"]["reason"] = bad
    unit["controller"]["changes"].append([0.0, bad])
    for candidate in unit["controller"]["decision"]["considered"]:
        candidate["rejected"] = candidate["parts"][0]["name"] = bad
    assert "<script>" not in estimates.estimate_table(unit)


def test_pages_and_clients_get_the_estimates_from_the_service(state: Path, world: World) -> None:
    world.turns()
    with kit.site(state, events=10) as site:
        backend = Backend(site.running.service)
        site.running.host.unit_status = watch_unit(world.unit.root)
        unit = backend.recovery().unit
        assert unit is not None
        assert "deployed" in rows_by_scheme(estimates.estimate_table(unit))
        assert site.get("/recovery")["unit"]["controller"]["decision"]["chosen"] == "deployed"
