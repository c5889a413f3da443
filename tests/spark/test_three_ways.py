"""A query emits the same rows without Spark, in other epochs on Spark, and killed at every step and recovered."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import cloudpickle
import pytest
from pyspark.sql import SparkSession

from penstock.epoch.kill_points import STEPS, StepName
from penstock.testing.inline import run_inline
from penstock.testing.three_ways import Way, rows_below, run_killed, run_way, three_ways
from tests import golden_query as golden
from tests.operators.harness import Holding
from tests.transparency.comparison import sorted_rows

cloudpickle.register_pickle_by_value(golden)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The rows of the undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_inline(golden.build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


def _rows(rows: dict[str, list[str]], name: str) -> list[dict[str, object]]:
    return [json.loads(text) for text in rows[name]]


def test_patterns_are_those_computed_event_by_event(undisturbed: dict[str, list[str]]) -> None:
    events, _, _ = golden.parse_events(golden.lines())
    patterns = golden.expected_patterns(events)
    expected = Counter((event.user, pattern) for event, pattern in patterns)
    assert Counter((str(r["user"]), str(r["pattern"])) for r in _rows(undisturbed, "patterns")) == expected
    expected_top = golden.expected_running_top(
        [(e.time, pattern, 1) for e, pattern in patterns], every=10, k=3
    )
    found = [(r["as_of"], r["rank"], r["pattern"], r["count"]) for r in _rows(undisturbed, "top_patterns")]
    assert sorted(map(_normalize, found)) == sorted(map(_normalize, expected_top))


def test_sums_are_those_computed_event_by_event(undisturbed: dict[str, list[str]]) -> None:
    events, _, _ = golden.parse_events(golden.lines())
    windows: dict[tuple[object, str], list[float]] = defaultdict(list)
    for event in events:
        windows[golden._text(golden._floor(event.time, 30)), event.user].append(event.amount)
    found = {(_to_second(r["window_start"]), r["user"]): r for r in _rows(undisturbed, "sums")}
    assert {(_to_second(start), user) for start, user in windows} == set(found)
    for (start, user), amounts in windows.items():
        row = found[_to_second(start), user]
        assert row["count"] == len(amounts)
        assert row["sum"] == pytest.approx(sum(amounts), abs=1e-9)
        assert row["avg_amount"] == pytest.approx(sum(amounts) / len(amounts), abs=1e-9)


def test_falling_totals_are_ranked_as_computed_event_by_event(undisturbed: dict[str, list[str]]) -> None:
    events, _, _ = golden.parse_events(golden.lines())
    # in thousandths, so that the oracle's sums are exact too
    keyed = [(e.time, e.user, round(e.amount * 1000)) for e in events]
    expected = golden.expected_running_top(keyed, every=20, k=2)
    found = [
        (r["as_of"], r["rank"], r["user"], round(float(str(r["sum"])) * 1000))
        for r in _rows(undisturbed, "best_users")
    ]
    assert sorted(map(_normalize, found)) == sorted(map(_normalize, expected))


@pytest.mark.parametrize("name", golden.DESCRIBED)
def test_rows_are_those_of_the_oracle(undisturbed: dict[str, list[str]], name: str) -> None:
    rows, is_certain = golden.expected(name)
    assert is_certain
    assert rows
    assert sorted_rows(_rows(undisturbed, name)) == sorted_rows(rows)


@pytest.mark.slow
@pytest.mark.parametrize(("units", "slices"), [(37, 1), (90, 5), (500, 3)])
def test_other_epochs_and_slices_do_not_change_the_rows(
    undisturbed: dict[str, list[str]], tmp_path: Path, units: int, slices: int
) -> None:
    run_inline(
        golden.build(tmp_path / "out"),
        tmp_path / "state",
        epoch_units=units,
        slices=lambda epoch: 1 + (epoch * slices) % 7,
    )
    assert rows_below(tmp_path / "out") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_watermarks_held_anywhere_do_not_change_the_rows(
    undisturbed: dict[str, list[str]], tmp_path: Path, seed: int
) -> None:
    run_inline(
        golden.build(tmp_path / "out"),
        tmp_path / "state",
        epoch_units=90,
        slices=lambda epoch: 1 + (epoch + seed) % 3,
        closing=Holding(seed),
    )
    assert rows_below(tmp_path / "out") == undisturbed


@pytest.mark.spark
def test_spark_emits_the_same_rows_in_any_epochs(
    undisturbed: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    rows = three_ways(golden.build, tmp_path, spark, [Way(1 << 40, 2), Way(97, 3), Way(250, 1)])
    assert rows == undisturbed


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.timeout(400)
@pytest.mark.parametrize("steps", [STEPS[::2], STEPS[1::2]], ids="-".join)
def test_kills_at_any_step_do_not_change_the_rows(
    undisturbed: dict[str, list[str]], spark: SparkSession, tmp_path: Path, steps: tuple[StepName, ...]
) -> None:
    """Each run is killed at another step, one epoch later than the run before."""
    for number, step in enumerate(steps):
        way = Way(epoch_units=110, slices=2 + number % 2, killed_at=step, killed_in_epoch=1 + number)
        assert run_killed(golden.build, tmp_path, way), f"it did not reach {step} of epoch {1 + number}"
    assert run_way(golden.build, tmp_path, spark, Way(epoch_units=170, slices=3)) == undisturbed


@pytest.mark.spark
@pytest.mark.kill
def test_a_kill_between_durable_manifests_does_not_change_the_rows(
    undisturbed: dict[str, list[str]], spark: SparkSession, tmp_path: Path
) -> None:
    """Epochs after the last durable manifest had their state in memory: they are repeated as recorded."""
    way = Way(100, 2, killed_at="gathered", killed_in_epoch=5, resumed_slices=3, checkpoint_every=4)
    assert run_way(golden.build, tmp_path, spark, way) == undisturbed


def _to_second(instant: object) -> str:
    return str(instant).replace(".000000Z", "Z").replace("Z", "")[:19]


def _normalize(row: tuple[object, ...]) -> tuple[object, ...]:
    return (_to_second(row[0]), *row[1:])
