"""No state goes silently: a changed plan says what it keeps and drops, and drops only what it was allowed to."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue import planner
from penstock.epoch.runner import EpochReport
from penstock.errors import InternalError, PenstockError, UserError
from penstock.operators.aggregate import Aggregation
from penstock.operators.functions.count_sum import Sum
from penstock.operators.session_windows import SessionWindows
from penstock.state.directory import StateDirectory
from penstock.state.manifest import Manifest
from penstock.state.rollback import find_problems, roll_back
from penstock.testing.inline import InlineEngine, run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink
from tests.catalogue import kit

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def lines(count: int) -> list[str]:
    """An event a second, of two users."""
    return [
        json.dumps({"ts": (BEGIN + timedelta(seconds=n)).isoformat(), "user": f"u{n % 2}", "n": n})
        for n in range(count)
    ]


def stream(log: ListLog, name: str = "events") -> ps.Stream:
    schema = {"ts": pl.Datetime("us", "UTC"), "user": pl.String(), "n": pl.Int64()}
    return ps.stream(name, log, ps.json_lines(schema), time="ts", lateness="0s")


class App:
    """An app over a log that grows: totals per user in windows of a minute, and sessions."""

    def __init__(self, state: Path, log: ListLog) -> None:
        self.state, self.log = state, log
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def run(
        self,
        gap: str | None = "30s",
        window: str = "1m",
        top: int | None = None,
        **options: Any,
    ) -> list[EpochReport]:
        rows = stream(self.log).key_by("user")
        totals = rows.window(window).aggregate(ps.sum_("n", "total"), ps.count())
        outputs = {"totals": totals if top is None else totals.top(top, by="total", changes_only=True)}
        if gap is not None:
            outputs["sessions"] = rows.session(gap).aggregate(ps.count())
        sinks = {output: ListSink() for output in outputs}
        app = ps.app("app", *(ps.output(output, made, sinks[output]) for output, made in outputs.items()))
        reports = run_inline(app, self.state, **options)
        self.rows = {}
        for report in reports:
            for output, made in report.rows.items():
                self.rows.setdefault(output, []).extend(made.to_dicts())
        return reports

    def counts(self, output: str) -> int:
        """Of how many events an output has told since it was last started."""
        return sum(row["count"] for row in self.rows.get(output, []))


@pytest.fixture
def app(tmp_path: Path) -> App:
    """50 events into windows of a minute; the rest of the log comes when it has been started again."""
    found = App(tmp_path / "state", ListLog({"p": lines(50)}, finished=False))
    found.run()
    assert found.counts("totals") == found.counts("sessions") == 0
    return found


def finish(app: App) -> None:
    app.log.add("p", *lines(90)[50:])
    app.log.finish()


def refused(change: Callable[[], object]) -> PenstockError:
    with pytest.raises(PenstockError) as found:
        change()
    return found.value


def held(state: Path) -> set[str]:
    manifest = StateDirectory(state).manifests.latest()
    return {id_ for id_, group in manifest.collections.items() if any(group.values())}


TOTALS, SESSIONS = "1-time-window-aggregate", "2-session-window"

# -- apps ---------------------------------------------------------------------------------------------


def test_a_manifest_says_what_tells_each_state_from_others(app: App) -> None:
    manifest = StateDirectory(app.state).manifests.latest()
    assert manifest.identities.keys() == {TOTALS, SESSIONS}
    assert manifest.versions == {}
    assert json.loads((app.state / "penstock.json").read_text())["format"] == 2


def test_the_same_app_goes_on_without_a_word(app: App) -> None:
    finish(app)
    app.run()
    assert app.counts("totals") == app.counts("sessions") == 90


@pytest.mark.parametrize(
    ("change", "kept", "dropped"),
    [
        ({"gap": "40s"}, TOTALS, SESSIONS),
        ({"gap": None}, TOTALS, SESSIONS),
        ({"window": "2m"}, SESSIONS, TOTALS),
    ],
    ids=["setting", "removed", "window"],
)
def test_a_changed_app_is_refused_and_says_what_would_become_of_each_state(
    app: App, change: dict[str, Any], kept: str, dropped: str
) -> None:
    before = StateDirectory(app.state).read_existing_facts()
    error = refused(lambda: app.run(**change))
    assert error.condition == "STATE_OF_ANOTHER_QUERY"
    assert f"kept: {kept}; dropped: {dropped}; starts empty:" in str(error.detail)
    assert "--drop-state" in str(error.hint)
    assert held(app.state) == {TOTALS, SESSIONS}
    assert StateDirectory(app.state).read_existing_facts() == before


def test_with_the_flag_unchanged_operators_keep_their_state_and_others_start_empty(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    finish(app)
    app.run(gap="40s", drop_state=True)
    assert app.counts("totals") == 90
    assert app.counts("sessions") == 40
    assert f"kept: {TOTALS}; dropped: {SESSIONS}; starts empty: {SESSIONS}" in caplog.text


def test_what_was_dropped_is_written_down_and_the_flag_is_needed_once(app: App) -> None:
    app.run(gap="40s", drop_state=True)
    facts = StateDirectory(app.state).read_existing_facts()
    assert [set(ids) for _, ids in facts.dropped] == [{SESSIONS}]
    finish(app)
    app.run(gap="40s")
    assert app.counts("totals") == 90
    assert app.counts("sessions") == 40


def test_runs_of_dropped_state_are_recycled_and_the_directory_is_whole(app: App) -> None:
    dropped = StateDirectory(app.state).manifests.latest().collections[SESSIONS].values()
    runs = {run.name for entries in dropped for run in entries}
    app.log.add("p", *lines(60)[50:])
    app.run(gap="40s", drop_state=True)
    state = StateDirectory(app.state)
    assert len(state.manifests.epochs()) == 2
    with state.locked():
        state.recycle(1)
    assert not runs & set(state.list_runs())
    looking = StateDirectory(app.state)
    assert [find_problems(looking, epoch) for epoch in looking.manifests.epochs()] == [[]]


def test_a_manifest_before_the_drop_is_whole_without_what_was_dropped(app: App) -> None:
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
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    before = StateDirectory(app.state).read_existing_facts()
    app.run(drop_state=True)
    assert StateDirectory(app.state).read_existing_facts() == before
    assert "dropped" not in caplog.text


def test_an_output_that_is_added_needs_the_flag_and_drops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = App(tmp_path / "other", ListLog({"p": lines(50)}, finished=False))
    one.run(gap=None)
    error = refused(one.run)
    assert f"kept: {TOTALS}; dropped: nothing; starts empty: {SESSIONS}" in str(error.detail)
    finish(one)
    one.run(drop_state=True)
    assert one.counts("totals") == 90
    assert one.counts("sessions") == 40
    assert f"kept: {TOTALS}; dropped: nothing; starts empty: {SESSIONS}" in caplog.text


def test_the_last_answer_of_a_ranking_that_changed_is_dropped(tmp_path: Path) -> None:
    one = App(tmp_path / "other", ListLog({"p": lines(90)}, finished=False))
    one.run(gap=None, top=1)
    assert StateDirectory(one.state).manifests.latest().last_results.keys() == {"totals"}
    error = refused(lambda: one.run(gap=None, top=2))
    assert "dropped: out-totals" in str(error.detail)
    one.log.finish()
    one.run(gap=None, top=2, drop_state=True)
    assert [row["rank"] for row in one.rows["totals"]] == [1, 2]


def test_an_epoch_that_was_recorded_before_the_change_is_repeated_by_the_changed_app(app: App) -> None:
    app.log.add("p", *lines(70)[50:])
    with kit.killed_at("recorded", 1), pytest.raises(kit.Killed):
        app.run()
    app.log.add("p", *lines(90)[70:])
    app.log.finish()
    app.run(gap="40s", drop_state=True)
    assert app.counts("totals") == 90
    assert app.counts("sessions") == 40


def test_a_stream_can_be_added_with_the_flag(app: App) -> None:
    finish(app)
    more = ListLog({"p": lines(30)}, finished=True)
    totals = stream(app.log).key_by("user").window("1m").aggregate(ps.sum_("n", "total"), ps.count())
    others = stream(more, "others").key_by("user").window("1m").aggregate(ps.count())
    made = ps.app("app", ps.output("totals", totals, ListSink()), ps.output("others", others, ListSink()))
    assert refused(lambda: run_inline(made, app.state)).condition == "STATE_OF_ANOTHER_QUERY"
    reports = run_inline(made, app.state, drop_state=True)
    told = {"totals": 0, "others": 0}
    for report in reports:
        for output, rows in report.rows.items():
            told[output] += rows["count"].sum()
    assert told == {"totals": 90, "others": 30}


# -- versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [Aggregation, Sum], ids=["operator", "aggregate"])
def test_state_of_another_version_is_refused(app: App, of: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of, "state_version", 2)
    error = refused(app.run)
    assert error.condition == "OPERATOR_STATE_OF_OTHER_VERSION"
    assert TOTALS in str(error)
    assert "is version 1, this Penstock reads version 2" in str(error.detail)


def test_state_of_a_newer_version_is_refused_too(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(SessionWindows, "state_version", 3)
        newer.setattr(SessionWindows, "reads_versions", frozenset({1}))
        app.log.add("p", *lines(55)[50:])
        app.run()
    assert StateDirectory(app.state).manifests.latest().versions == {SESSIONS: {"session-window": 3}}
    error = refused(app.run)
    assert "is version 3, this Penstock reads version 1" in str(error.detail)


def test_state_of_a_version_that_the_operator_reads_is_kept(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Aggregation, "state_version", 2)
    monkeypatch.setattr(Aggregation, "reads_versions", frozenset({1}))
    finish(app)
    app.run()
    assert app.counts("totals") == 90


def test_state_of_another_version_can_be_dropped(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Aggregation, "state_version", 2)
    finish(app)
    app.run(drop_state=True)
    assert app.counts("totals") == 40
    assert app.counts("sessions") == 90


# -- jobs that come and go ----------------------------------------------------------------------------

SQL = """
CREATE JOB pages AS SELECT page, COUNT(*) AS n, SUM(bytes) AS bytes FROM clicks
    GROUP BY page WINDOWING 60 SECONDS;
CREATE JOB visits AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING SESSION 30 SECONDS;
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    with kit.running(tmp_path, kit.clicks(kit.events(120), finished=False), SQL) as (_, engine):
        assert list(engine.steps())
    assert len(held(tmp_path)) == 2
    return tmp_path


def opened(state: Path, *said: str, drop_state: bool = False) -> set[str]:
    """Start again, say something, run an epoch; the states that are held then."""
    stream = kit.clicks(kit.events(160), finished=False)
    with kit.running(state, stream, drop_state=drop_state) as (program, engine):
        for text in said:
            program.execute(text)
        assert list(engine.steps())
    return held(state)


def test_a_manifest_names_the_jobs_of_each_state(jobs: Path) -> None:
    manifest = StateDirectory(jobs).manifests.latest()
    (group,) = manifest.jobs
    assert manifest.jobs == {group: "2"}  # the stream has number 1
    assert manifest.identities.keys() == held(jobs) == {group, "j3.1-session-window"}


@pytest.mark.parametrize("at_once", [False, True], ids=["before-a-restart", "with-an-epoch"])
@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("DROP JOB pages", 1),
        ("DROP JOB visits", 1),
        ("PAUSE JOB pages", 2),
        ("EMPTY JOB pages", 2),
        (
            "ALTER JOB visits AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING SESSION 5 SECONDS",
            2,
        ),
    ],
)
def test_what_a_command_drops_is_no_loss(jobs: Path, said: str, left: int, at_once: bool) -> None:
    if not at_once:  # the command is known, but no epoch has taken it in
        with kit.running(jobs, kit.clicks(kit.events(120), finished=False)) as (program, _):
            program.execute(said)
    assert len(opened(jobs, *([said] if at_once else []))) == left


def test_state_of_a_job_that_is_planned_otherwise_now_is_refused(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = next(id_ for id_ in held(jobs) if id_.startswith("template-group-"))
    monkeypatch.setattr(planner, "_GROUP", "other-group-")
    error = refused(lambda: opened(jobs))
    assert isinstance(error, UserError)
    assert error.condition == "PLAN_DROPS_STATE"
    assert f"dropped: {group}" in str(error.detail)
    assert group in held(jobs)
    assert any(id_.startswith("other-group-") for id_ in opened(jobs, drop_state=True))


def test_the_gather_lets_no_state_of_a_living_job_go(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = kit.clicks(kit.events(160), finished=False)
    with kit.running(jobs, stream) as (program, engine):
        monkeypatch.setattr(planner, "_GROUP", "other-group-")
        program.epochs._plans.clear()  # as if a plan came out otherwise for no reason that was told
        with pytest.raises(InternalError) as found:
            list(engine.steps())
    assert found.value.condition == "PLAN_DROPS_STATE"


def test_an_engine_that_was_opened_and_closed_has_changed_nothing(app: App) -> None:
    before = (app.state / "penstock.json").stat().st_mtime_ns
    made = ps.app("app", ps.output("totals", stream(app.log), ListSink()))
    assert refused(lambda: run_inline(made, app.state)).condition == "STATE_OF_ANOTHER_QUERY"
    assert (app.state / "penstock.json").stat().st_mtime_ns == before


# ---------------------------------------------------------------- dropped state and epochs that are repeated


def test_what_comes_after_a_rollback_is_not_dropped_with_what_was_before(tmp_path: Path) -> None:
    app = App(tmp_path / "state", ListLog({"p": lines(50)}, finished=False))
    app.run(gap=None, epoch_units=10)
    app.run(gap=None, window="5m", drop_state=True, epoch_units=10)
    directory = StateDirectory(app.state)
    with directory.locked():
        roll_back(directory, 1)
    app.run(gap=None, window="5m", epoch_units=10, epochs=2)
    kept = held(app.state)
    assert kept, "two epochs of the new query have state"
    app.log.add("p", *lines(400)[50:])
    app.log.finish()
    app.run(gap=None, window="5m", epoch_units=100)
    whole = App(tmp_path / "whole", ListLog({"p": lines(400)[20:]}, finished=True))
    whole.run(gap=None, window="5m")
    assert app.rows["totals"][-len(whole.rows["totals"]) :] == whole.rows["totals"]


def test_a_new_output_has_the_epochs_that_the_former_query_had_delivered(tmp_path: Path) -> None:
    events, everything = stream(ListLog({"p": lines(50)}, finished=True)), ListSink()

    def program(*more: Any) -> ps.App:
        totals = events.key_by("user").window("5s").aggregate(ps.count())
        return ps.app("app", ps.output("totals", totals, ListSink()), *more)

    engine = InlineEngine(program(), tmp_path / "state", epoch_units=10, checkpoint_every=10)
    assert len(list(engine.steps())) == 5
    engine.close()  # as in a crash: what is in memory only is gone
    more = ps.output("everything", events.filter(pl.col("n") >= 0), everything)
    again = InlineEngine(
        program(more), tmp_path / "state", epoch_units=10, checkpoint_every=10, drop_state=True
    )
    assert [report.replayed for report in again.steps()][:5] == [True] * 5
    again.close()
    assert sorted(row["n"] for row in everything.rows()) == list(range(50))
