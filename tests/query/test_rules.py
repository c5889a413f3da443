"""The optimizer's rules: each does its work, and none changes a result."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.catalogue.app_plan import AppPlan
from penstock.errors import UserError
from penstock.query import logical
from penstock.query.compile import compile_app, compile_forms
from penstock.query.lower import lower_app
from penstock.query.physical import Plan
from penstock.query.rules import PHYSICAL
from penstock.query.rules.merge_steps import merge
from penstock.query.rules.push_filters import push_filters
from penstock.query.rules.share_equal import share_equal
from penstock.query.steps import EdgeSource, FilterStep, MapStep, MergedStep
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog

COLUMNS = {
    "time": pl.Datetime("us", "UTC"),
    "user": pl.String(),
    "page": pl.String(),
    "bytes": pl.Int64(),
}


def line(number: int) -> str:
    at = datetime.fromtimestamp(1_800_000_000 - number // 3, UTC).isoformat()
    return f'{{"time": "{at}", "user": "u{number % 5}", "page": "/{number % 3}", "bytes": {number % 7}}}'


LINES = [line(number) for number in range(200, 0, -1)]


def clicks() -> ps.Stream:
    return ps.stream("clicks", ListLog(LINES), ps.json_lines(COLUMNS), time="time", ahead=None)


def app(*streams: ps.Stream) -> ps.App:
    return ps.app("app", *(ps.output(f"out{at}", stream) for at, stream in enumerate(streams)))


def nodes(made: ps.App, kind: type[logical.Node]) -> list[logical.Node]:
    return [node for node in logical.nodes_of(made) if isinstance(node, kind)]


# -- share equal ----------------------------------------------------------------------------------------


def test_equal_steps_over_one_stream_become_one() -> None:
    events = clicks()
    same = [events.filter(col("bytes") > 1).key_by("user").window("5s").count() for _ in range(3)]
    made = compile_app(app(*same))
    assert len(made.stages) == 1
    assert len(made.edges_from(EdgeSource("stage", "1-time-window-aggregate"))) == 3


@pytest.mark.parametrize(
    "other",
    [
        lambda events: events.filter(col("bytes") > 2).key_by("user").window("5s").count(),
        lambda events: events.filter(col("bytes") > 1).key_by("page").window("5s").count(),
        lambda events: events.filter(col("bytes") > 1).key_by("user").window("6s").count(),
        lambda events: (
            events.filter(col("bytes").is_in(list(range(2, 99)))).key_by("user").window("5s").count()
        ),
    ],
)
def test_steps_that_differ_stay_two(other: object) -> None:
    events = clicks()
    first = events.filter(col("bytes") > 1).key_by("user").window("5s").count()
    assert len(compile_app(app(first, other(events))).stages) == 2  # type: ignore[operator]


def test_long_lists_with_the_same_text_are_different() -> None:
    events = clicks()
    first, second = (
        events.filter(col("bytes").is_in([*range(1000), last])).key_by("user").window("5s").count()
        for last in (5_000, 5_001)
    )
    assert len(compile_app(app(first, second)).stages) == 2


def test_functions_are_equal_to_themselves_alone() -> None:
    events = clicks()

    def same(frame: pl.DataFrame) -> pl.DataFrame:
        return frame

    shared = share_equal(app(events.map_batches(same), events.map_batches(same)))
    apart = share_equal(app(events.map_batches(same), events.map_batches(lambda frame: frame)))
    assert len(nodes(shared, logical.MapBatches)) == 1
    assert len(nodes(apart, logical.MapBatches)) == 2


# -- push filters ---------------------------------------------------------------------------------------


def path(made: ps.App) -> list[str]:
    """The kinds of nodes from the first output down its first inputs."""
    node, found = made.outputs[0].node, []
    while True:
        found.append(type(node).__name__)
        if not node.inputs:
            return found
        node = node.inputs[0]


def test_a_filter_passes_a_map_that_does_not_make_its_columns() -> None:
    rows = clicks().map(twice=col("bytes") * 2).filter(col("user") == "u1")
    assert path(push_filters(app(rows))) == ["Map", "Filter", "Source"]
    stays = clicks().map(twice=col("bytes") * 2).filter(col("twice") > 2)
    assert path(push_filters(app(stays))) == ["Filter", "Map", "Source"]


def test_a_filter_goes_into_every_part_of_a_union() -> None:
    events = clicks()
    both = events.filter(col("bytes") > 3).union(events.filter(col("bytes") < 2)).filter(col("user") == "u1")
    made = push_filters(app(both))
    assert path(made)[:2] == ["Union", "Filter"]
    assert len(nodes(made, logical.Filter)) == 4


def test_a_filter_on_keys_passes_the_aggregate_and_one_on_answers_does_not() -> None:
    counts = clicks().key_by("user").window("5s").count()
    assert path(push_filters(app(counts.filter(col("user") == "u1")))) == ["Stateful", "Filter", "Source"]
    assert path(push_filters(app(counts.filter(col("count") > 1)))) == ["Filter", "Stateful", "Source"]


def test_a_filter_stays_above_what_others_read_too() -> None:
    counts = clicks().key_by("user").window("5s").count()
    made = compile_app(app(counts, counts.filter(col("user") == "u1"), counts.filter(col("user") == "u2")))
    assert len(made.stages) == 1


# -- merge steps ----------------------------------------------------------------------------------------


def test_neighbouring_filters_are_one_pass_and_so_are_maps_that_do_not_need_each_other() -> None:
    rows = (
        clicks().filter(col("bytes") > 1).filter(col("user") != "u3").map(a=col("bytes")).map(b=col("user"))
    )
    (edge,) = compile_app(app(rows)).edges
    assert [type(step) for step in edge.steps] == [MergedStep, MergedStep]


def test_a_map_that_needs_the_one_before_or_replaces_it_waits_for_it() -> None:
    origin = clicks().node.origin
    first = MapStep((("a", col("bytes")),), origin)
    assert merge((first, MapStep((("b", col("a")),), origin)))[1:] != ()
    assert len(merge((first, MapStep((("a", col("user")),), origin)))) == 2
    assert len(merge((first, FilterStep(col("a") > 1, origin)))) == 2


def test_a_failure_in_a_merged_step_names_the_line_that_failed(tmp_path: Path) -> None:
    rows = clicks().map(a=col("bytes") + 1).map(b=col("page").str.to_integer())
    with pytest.raises(UserError) as caught:
        run_inline(app(rows), tmp_path)
    assert caught.value.condition == "EXPRESSION_FAILED"
    assert "to_integer" in (caught.value.where or "")


# -- pre-reduce and drop exchanges ----------------------------------------------------------------------


def test_aggregates_are_reduced_before_they_travel_and_lists_are_not() -> None:
    events = clicks()
    made = compile_app(app(events.key_by("user").window("5s").count(), events.key_by("user").last(2, "page")))
    assert {str(edge.target): edge.reduce for edge in made.edges if edge.source.kind == "scan"} == {
        "1-time-window-aggregate": True,
        "2-last-n": False,
    }


def levels(plan: Plan) -> list[int]:
    return [sub.level for sub in plan.stages.values()]


def test_the_same_key_again_needs_no_exchange() -> None:
    last = clicks().key_by("user").last(2, "bytes").map(more=col("bytes").list.sum())
    again = compile_app(app(last.key_by("user").window("5s").sum("more")))
    assert levels(again) == [1, 1]
    assert [edge.forward for edge in again.edges if edge.source.stage == "1-last-n"] == [True]
    other = compile_app(app(last.key_by("more").window("5s").count()))
    assert levels(other) == [1, 2]


def test_a_key_that_was_changed_in_between_is_another_key() -> None:
    last = clicks().key_by("user").last(2, "bytes").map(user=col("user").str.to_uppercase())
    assert levels(compile_app(app(last.key_by("user").window("5s").count()))) == [1, 2]


# -- the answers ----------------------------------------------------------------------------------------


def everything() -> ps.App:
    """A query on which every rule has something to do."""
    events = clicks()
    busy = events.map(kilo=col("bytes") * 1000).filter(col("user") != "u4").filter(col("bytes") > 0)
    last = busy.key_by("user").last(2, "kilo").map(sum=col("kilo").list.sum())
    again = last.key_by("user").window("7s").sum("sum", "sum").filter(col("user") != "u2")
    twice = events.map(kilo=col("bytes") * 1000).filter(col("user") != "u4").filter(col("bytes") > 0)
    return app(again, twice.key_by("user").last(2, "kilo"), again.key_by("user").last(2, "sum"))


def test_no_rule_changes_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(folder: str) -> dict[str, list[object]]:
        found: dict[str, list[object]] = {}
        for report in run_inline(everything(), tmp_path / folder, epoch_units=40, slices=3):
            for name, frame in report.rows.items():
                found.setdefault(name, []).extend(frame.rows())
        return {name: sorted(rows, key=str) for name, rows in found.items()}

    optimised = rows("optimised")
    assert len(optimised) == 3
    plain = replace(lower_app(everything()))
    for rule in PHYSICAL[:1]:  # the engine does not run without knowing what to read
        plain = rule(plain)
    monkeypatch.setattr(AppPlan, "of", lambda app: AppPlan(plain, {one.name: one for one in app.outputs}))
    assert rows("plain") == optimised
    assert levels(plain) == [1, 2, 1, 3]
    assert levels(compile_forms(everything()).plan) == [1, 1, 1]
