"""A changed app says which state it keeps and drops, and drops only what it was allowed to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.catalogue.program_of import program_of
from penstock.engine.role import Assignment, EngineRole
from penstock.operators.session_windows import SessionWindows
from penstock.query.logical import App
from penstock.state.directory import StateDirectory
from penstock.state.manifest import Manifest
from penstock.state.rollback import find_problems
from penstock.state.shared_records import SharedRecords
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink
from tests.catalogue import kit
from tests.engine.changed_app import (
    SESSIONS,
    TOTALS,
    ChangedApp,
    catch_error,
    finish,
    lines,
    states_of,
    stream,
)


def test_a_manifest_has_the_identity_of_each_state(app: ChangedApp) -> None:
    manifest = StateDirectory(app.state).manifests.latest()
    assert manifest.identities.keys() == {TOTALS, SESSIONS}
    assert manifest.versions == {}
    assert json.loads((app.state / "penstock.json").read_text())["format"] == 2


def test_an_unchanged_app_continues(app: ChangedApp) -> None:
    finish(app)
    app.run()
    assert app.count_events("totals") == app.count_events("sessions") == 90


@pytest.mark.parametrize(
    ("change", "kept", "dropped"),
    [
        ({"gap": "40s"}, TOTALS, SESSIONS),
        ({"gap": None}, TOTALS, SESSIONS),
        ({"window": "2m"}, SESSIONS, TOTALS),
    ],
    ids=["setting", "removed", "window"],
)
def test_a_changed_app_is_refused_with_what_would_happen_to_each_state(
    app: ChangedApp, change: dict[str, Any], kept: str, dropped: str
) -> None:
    before = StateDirectory(app.state).read_existing_facts()
    error = catch_error(lambda: app.run(**change))
    assert error.condition == "STATE_OF_ANOTHER_QUERY"
    assert f"kept: {kept}; dropped: {dropped}; starts empty:" in str(error.detail)
    assert f"Run `penstock run FILE --state {app.state} --drop-state` once" in str(error.hint)
    assert states_of(app.state) == {TOTALS, SESSIONS}
    assert StateDirectory(app.state).read_existing_facts() == before


def test_with_the_flag_unchanged_operators_keep_their_state_and_others_start_empty(
    app: ChangedApp, caplog: pytest.LogCaptureFixture
) -> None:
    finish(app)
    app.run(gap="40s", drop_state=True)
    assert app.count_events("totals") == 90
    assert app.count_events("sessions") == 40
    assert f"kept: {TOTALS}; dropped: {SESSIONS}; starts empty: {SESSIONS}" in caplog.text


def test_dropped_state_is_recorded_and_the_flag_is_needed_once(app: ChangedApp) -> None:
    app.run(gap="40s", drop_state=True)
    facts = StateDirectory(app.state).read_existing_facts()
    assert [set(ids) for _, ids in facts.dropped] == [{SESSIONS}]
    finish(app)
    app.run(gap="40s")
    assert app.count_events("totals") == 90
    assert app.count_events("sessions") == 40


def test_runs_of_dropped_state_are_removed_and_the_directory_is_whole(app: ChangedApp) -> None:
    dropped = StateDirectory(app.state).manifests.latest().collections[SESSIONS].values()
    runs = {run.name for entries in dropped for run in entries}
    app.log.add("p", *lines(60)[50:])
    app.run(gap="40s", drop_state=True)
    state = StateDirectory(app.state)
    assert len(state.manifests.epochs()) == 2
    with state.locked():
        state.remove_old_state(1)
    assert not runs & set(state.list_runs())
    looking = StateDirectory(app.state)
    assert [find_problems(looking, epoch) for epoch in looking.manifests.epochs()] == [[]]


def test_a_manifest_before_the_drop_is_whole_without_the_dropped_state(app: ChangedApp) -> None:
    first = StateDirectory(app.state).manifests.epochs()[0]
    app.log.add("p", *lines(60)[50:])
    app.run(gap="40s", drop_state=True)
    runs = StateDirectory(app.state).manifests.read(first).runs()
    for run in _raw_runs(app.state, first) - runs:
        (app.state / "runs" / run).unlink()
    assert find_problems(StateDirectory(app.state), first) == []


def _raw_runs(state: Path, epoch: int) -> set[str]:
    """The runs that a manifest names, whatever was dropped since."""
    return Manifest.from_bytes((state / "manifests" / f"{epoch:012d}.json").read_bytes()).runs()


def test_the_flag_changes_nothing_where_nothing_is_dropped(
    app: ChangedApp, caplog: pytest.LogCaptureFixture
) -> None:
    before = StateDirectory(app.state).read_existing_facts()
    app.run(drop_state=True)
    assert StateDirectory(app.state).read_existing_facts() == before
    assert "dropped" not in caplog.text


def test_an_output_that_is_added_needs_the_flag_and_drops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = ChangedApp(tmp_path / "other", ListLog({"p": lines(50)}, finished=False))
    app.run(gap=None)
    error = catch_error(app.run)
    assert f"kept: {TOTALS}; dropped: nothing; starts empty: {SESSIONS}" in str(error.detail)
    finish(app)
    app.run(drop_state=True)
    assert app.count_events("totals") == 90
    assert app.count_events("sessions") == 40
    assert f"kept: {TOTALS}; dropped: nothing; starts empty: {SESSIONS}" in caplog.text


def test_the_last_result_of_a_changed_ranking_is_dropped(tmp_path: Path) -> None:
    app = ChangedApp(tmp_path / "other", ListLog({"p": lines(90)}, finished=False))
    app.run(gap=None, top=1)
    assert StateDirectory(app.state).manifests.latest().last_results.keys() == {"totals"}
    error = catch_error(lambda: app.run(gap=None, top=2))
    assert "dropped: out-totals" in str(error.detail)
    app.log.finish()
    app.run(gap=None, top=2, drop_state=True)
    assert [row["rank"] for row in app.rows["totals"]] == [1, 2]


def test_an_epoch_that_was_recorded_before_the_change_is_repeated_by_the_changed_app(app: ChangedApp) -> None:
    app.log.add("p", *lines(70)[50:])
    with kit.killed_at("recorded", 1), pytest.raises(kit.Killed):
        app.run()
    app.log.add("p", *lines(90)[70:])
    app.log.finish()
    app.run(gap="40s", drop_state=True)
    assert app.count_events("totals") == 90
    assert app.count_events("sessions") == 40


def test_a_stream_can_be_added_with_the_flag(app: ChangedApp) -> None:
    finish(app)
    more = ListLog({"p": lines(30)}, finished=True)
    totals = stream(app.log).key_by("user").window("1m").aggregate(ps.sum_("n", "total"), ps.count())
    others = stream(more, "others").key_by("user").window("1m").aggregate(ps.count())
    built = ps.app("app", ps.output("totals", totals, ListSink()), ps.output("others", others, ListSink()))
    assert catch_error(lambda: run_inline(built, app.state)).condition == "STATE_OF_ANOTHER_QUERY"
    reports = run_inline(built, app.state, drop_state=True)
    emitted = {"totals": 0, "others": 0}
    for report in reports:
        for output, rows in report.rows.items():
            emitted[output] += rows["count"].sum()
    assert emitted == {"totals": 90, "others": 30}


def test_an_engine_that_was_opened_and_closed_has_changed_nothing(app: ChangedApp) -> None:
    before = (app.state / "penstock.json").stat().st_mtime_ns
    built = ps.app("app", ps.output("totals", stream(app.log), ListSink()))
    assert catch_error(lambda: run_inline(built, app.state)).condition == "STATE_OF_ANOTHER_QUERY"
    assert (app.state / "penstock.json").stat().st_mtime_ns == before


class _Lease:
    generation = 9

    def check(self) -> None:
        """It never runs out."""


def _start_in_unit(app: App, state: Path) -> None:
    """Start the first leader of an HA unit on a state directory."""
    assignment = Assignment("e1", SharedRecords(state / "ha" / "agreed"), state)
    EngineRole(state, assignment).start(program_of(app, state), _Lease(), 64)


@pytest.mark.parametrize("cause", ["STATE_OF_ANOTHER_QUERY", "OPERATOR_STATE_OF_OTHER_VERSION"])
def test_an_error_of_a_unit_names_no_flag_that_units_do_not_have(
    app: ChangedApp, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = "40s" if cause == "STATE_OF_ANOTHER_QUERY" else "30s"
    if cause == "OPERATOR_STATE_OF_OTHER_VERSION":
        monkeypatch.setattr(SessionWindows, "state_version", 2)
    error = catch_error(lambda: _start_in_unit(app.build(gap=gap), app.state))
    assert error.condition == cause
    assert "--drop-state" not in str(error)
    assert "An HA unit drops no state: start it with the file and the Penstock that it had" in str(error.hint)
    assert states_of(app.state) == {TOTALS, SESSIONS}
