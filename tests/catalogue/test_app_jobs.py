"""An app is a catalogue like any other: its outputs are jobs that commands change while the engine runs, beside jobs
of SQL and Python that come and go. What nobody changes stays the same to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.app_plan import AppPlan, keep_outputs, stages_owned
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.errors import PenstockError, UserError
from penstock.query.compile import compile_app
from penstock.state.directory import StateDirectory
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.python_kit import EVENT_BYTES, Files, alter, create, deployed, life

EVENTS = kit.events(240)
SQL = "CREATE JOB {} AS SELECT page, COUNT(*) AS n, SUM(bytes) AS b FROM clicks GROUP BY page WINDOWING 10 SECONDS"
#: the output `sessions` of the app below with other code, and with another state
SESSIONS = """
sessions = clicks.key_by("user").session("2s").count().filter(pl.col("count") > {least})
pages = clicks.key_by("page").session("2s").count()
"""


def build(files: Files, out: Path, *names: str) -> ps.App:
    """Two outputs that share a stage, one with a stage of its own, one with two, and one without state."""
    clicks = files.stream
    counts = clicks.key_by("page").window("5s").count()
    sessions = clicks.key_by("user").session("2s").count()
    outputs = {
        "counts": counts,
        "busy": counts.filter(ps.col("count") > 2).select("page", "count"),
        "sessions": sessions.filter(ps.col("count") > 0),
        "long": sessions.key_by("user").window("20s").count("n"),
        "errors": clicks.filter(ps.col("status") >= 400).select("user", "page"),
    }
    kept = {name: rows for name, rows in outputs.items() if not names or name in names}
    return ps.app("shop", *(ps.output(name, rows, ps.jsonl(out / name)) for name, rows in kept.items()))


class Case:
    """The app on a directory of its own."""

    def __init__(self, folder: Path, files: Files, *names: str) -> None:
        self.files, self.folder, self.names = files, folder, names
        self.state, self.out = folder / "state", folder / "out"

    @contextmanager
    def running(
        self, *, keeps_results: bool = True, fold_after: int = 1_000, **options: Any
    ) -> Iterator[kit.Running]:
        options.setdefault("epoch_units", 20 * EVENT_BYTES)
        app = AppPlan.of(build(self.files, self.out, *self.names))
        program = Program("shop", self.state, app=app, keeps_results=keeps_results, fold_after=fold_after)
        engine = InlineEngine(program, self.state, **options)
        try:
            yield program, engine
        finally:
            engine.close()

    def run(
        self,
        acts: Mapping[int, Callable[[Program], Any]] | None = None,
        kill: tuple[str, int] | None = None,
        **options: Any,
    ) -> None:
        """Run until everything is read or the engine is killed; `acts`: what happens before an epoch, once."""
        left = dict(acts or {})
        with self.running(**options) as (program, engine):
            try:
                with kit.killed_at(*(kill or ("nowhere", -1))):
                    more = True
                    while more:
                        if act := left.pop(engine.next_epoch, None):
                            act(program)
                        more = engine.step() is not None
                    engine.runner.checkpoint()
            except kit.Killed:
                assert kill is not None
                kill = None
        assert kill is None, "it was to be killed"

    def content(self, *without: str) -> dict[str, bytes]:
        """The files of the sinks, but for those of some outputs."""
        files = {
            str(file.relative_to(self.out)): file.read_bytes() for file in sorted(self.out.glob("*/*.jsonl"))
        }
        return {name: text for name, text in files.items() if name.split("/")[0] not in without}

    def lines(self, name: str) -> list[str]:
        return [
            line
            for file in sorted((self.out / name).glob("*.jsonl"))
            for line in file.read_text().splitlines()
        ]

    def rows(self, job: str) -> list[tuple[int, tuple[Any, ...]]]:
        """What a job emitted, with the epochs."""
        with self.running() as (program, _):
            return [
                (answer.epoch, row) for answer in program.since(job, 0) for row in sorted(answer.rows.rows())
            ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("given"), EVENTS)


@pytest.fixture(scope="module")
def straight(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Nothing comes, changes or goes."""
    case = Case(tmp_path_factory.mktemp("straight"), files)
    case.run()
    assert {name.split("/")[0] for name in case.content()} == {"counts", "busy", "sessions", "long", "errors"}
    return case


def comings(case: Case) -> dict[int, Callable[[Program], Any]]:
    """Jobs come, read the app's streams and outputs, change, and go."""
    coming = case.files.write("query = clicks.key_by('user').window('5s').count()", "coming.py")
    other = case.files.write(
        "query = clicks.key_by('user').window('5s').count().filter(pl.col('count') > 1)", "other.py"
    )
    return {
        1: lambda jobs: jobs.execute(SQL.format("by_sql")),
        2: lambda jobs: create(jobs, "coming", coming),
        3: lambda jobs: jobs.execute(
            "CREATE JOB reads AS SELECT page, COUNT(*) AS n FROM counts GROUP BY page WINDOWING 20 SECONDS"
        ),
        4: lambda jobs: alter(jobs, "coming", other),
        6: lambda jobs: jobs.execute("ALTER JOB by_sql SET WHERE status = 200"),
        7: lambda jobs: jobs.execute("PAUSE JOB coming"),
        8: lambda jobs: jobs.execute("RESUME JOB coming; DROP JOB reads"),
        9: lambda jobs: jobs.execute("DROP JOB coming"),
    }


# ---------------------------------------------------------------- jobs beside an app


def test_an_app_alone_writes_no_commands_and_its_plan_is_its_own(straight: Case, files: Files) -> None:
    assert not (straight.state / "commands").exists()
    app = build(files, straight.out)
    program = program_of(app, straight.state)
    program.start()
    plan, alone = program.epochs.plan(0), compile_app(app)
    assert (plan.fingerprint, plan.jobs, program.summary) == (alone.fingerprint, None, alone.summary)
    assert [str(edge.source) for edge in plan.edges] == [str(edge.source) for edge in alone.edges]
    assert plan.identities == alone.identities


def test_jobs_come_and_go_beside_an_app_that_does_not_notice(
    straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    case.run(comings(case))
    assert case.content() == straight.content()


def test_jobs_beside_an_app_emit_what_they_emit_by_themselves(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path / "app", files)
    case.run({0: lambda jobs: jobs.execute(SQL.format("by_sql"))})
    state = tmp_path / "alone"
    alone = Program("alone", state, streams={"clicks": files.stream}, begin=SQL.format("by_sql"))
    engine = InlineEngine(alone, state, epoch_units=20 * EVENT_BYTES)
    try:
        expected = kit.told(list(engine.steps()))["by_sql"]
    finally:
        engine.close()
    assert sorted(row for _, row in case.rows("by_sql")) == sorted(expected) != []


def test_a_job_reads_an_output_of_the_app(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    case.run({0: lambda jobs: jobs.execute("CREATE JOB copy AS SELECT page, count FROM busy")})
    rows = [row for _, row in case.rows("copy")]
    assert sorted(rows) == sorted(row for _, row in case.rows("busy")) != []


def test_a_stream_that_outputs_of_the_app_read_cannot_be_dropped(files: Files, tmp_path: Path) -> None:
    with Case(tmp_path, files, "counts", "errors").running() as (program, _):
        with pytest.raises(UserError, match="STILL_READ") as refused:
            program.execute("DROP STREAM clicks")
        assert "counts, errors" in refused.value.primary
        program.execute("DROP JOB counts; DROP JOB errors; DROP STREAM clicks")
        assert not program.catalogue.streams


@pytest.mark.parametrize(("events", "slices"), [(7, 1), (53, 3)])
def test_other_epochs_give_the_app_the_same_rows(
    events: int, slices: int, straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    acts = {epoch * 2 if events == 7 else epoch // 2: act for epoch, act in comings(case).items()}
    if events == 53:
        acts = {0: comings(case)[1], 2: comings(case)[6]}
    case.run(
        acts,
        epoch_units=events * EVENT_BYTES,
        slices=slices,
    )
    for name in ("counts", "busy", "sessions", "long", "errors"):
        assert sorted(case.lines(name)) == sorted(straight.lines(name)) != []


@pytest.mark.parametrize("step", ["recorded", "sliced", "gathered", "delivered", "committed"])
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_kill_around_a_command_gives_the_same_bytes(
    step: str, epoch: int, straight: Case, files: Files, tmp_path: Path
) -> None:
    whole, case = Case(tmp_path / "whole", files), Case(tmp_path / "killed", files)
    whole.run({at: act for at, act in comings(whole).items() if at < 7})
    acts = {at: act for at, act in comings(case).items() if at < 7}
    case.run(acts, (step, epoch), checkpoint_every=2)
    case.run({at: act for at, act in acts.items() if at > epoch}, slices=3, checkpoint_every=2)
    assert case.content() == straight.content()
    for job in ("by_sql", "coming", "reads"):
        assert case.rows(job) == whole.rows(job) != []


# ---------------------------------------------------------------- the app's own outputs


def test_an_output_that_is_paused_emits_nothing_until_it_is_resumed(
    straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    case.run(
        {
            4: lambda jobs: jobs.execute("PAUSE JOB sessions; PAUSE JOB counts"),
            8: lambda jobs: jobs.execute("RESUME JOB sessions; RESUME JOB counts"),
        }
    )
    assert case.content("sessions", "counts") == straight.content("sessions", "counts")
    for name in ("sessions", "counts"):
        epochs = [int(file.stem.rpartition("-")[2]) for file in (case.out / name).glob("*.jsonl")]
        assert epochs
        assert not {4, 5, 6, 7} & set(epochs)
        assert max(epochs) >= 8
    # what it shares with others knew all events meanwhile
    assert set(case.lines("counts")) < set(straight.lines("counts"))


def test_dropping_an_output_lets_go_of_its_own_state_only(
    straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    plan = AppPlan.of(build(files, tmp_path / "out")).plan
    (own,) = stages_owned(plan, {"long"})
    shared = set(keep_outputs(plan, {"sessions"}).stages)
    case.run({5: lambda jobs: jobs.execute("DROP JOB long")})
    collections = StateDirectory(case.state).manifests.latest().collections
    assert own not in collections
    assert shared <= set(collections)
    assert case.content("long") == straight.content("long")
    with case.running() as (jobs, engine):  # it stays dropped
        assert "long" not in jobs.catalogue.jobs
        assert engine.step() is None
        with pytest.raises(UserError, match="UNKNOWN_JOB"):
            jobs.execute("PAUSE JOB long")


def test_dropped_outputs_stay_dropped_when_commands_are_folded(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)

    def program() -> Program:
        app = AppPlan.of(build(files, case.out))
        return Program("shop", case.state, app=app, fold_after=0)

    jobs = program()
    engine = InlineEngine(jobs, case.state, epoch_units=20 * EVENT_BYTES)
    jobs.execute("DROP JOB long; PAUSE JOB counts; EMPTY JOB sessions")
    list(engine.steps())
    engine.recycle(1)
    engine.close()
    assert list((case.state / "commands").glob("*.snapshot"))
    again = program()
    engine = InlineEngine(again, case.state, epoch_units=20 * EVENT_BYTES)
    engine.close()
    assert list(again.catalogue.jobs) == ["counts", "busy", "sessions", "errors"]
    assert life(again, "counts") == "paused"
    assert again.catalogue.jobs["sessions"].number > 0


def test_emptying_an_output_starts_its_state_afresh(straight: Case, files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    case.run({5: lambda jobs: jobs.execute("EMPTY JOB busy")})
    assert case.content("busy") == straight.content("busy")
    assert case.lines("busy") != straight.lines("busy")
    # a window that was open when it was emptied lacks the events before; later ones are whole
    assert case.lines("busy")[-3:] == straight.lines("busy")[-3:]


def test_altering_an_output_keeps_the_state_that_is_its_own(
    straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files, "counts", "sessions")
    whole = Case(tmp_path / "whole", files, "counts", "sessions")
    whole.run()
    file = files.write(SESSIONS.format(least=1), "altered.py")
    answers = []
    case.run(
        {5: lambda jobs: answers.append(alter(jobs, "sessions", _with_sink(files, file, case), "sessions_"))}
    )
    assert answers[0].state == "kept"
    assert case.content("sessions") == whole.content("sessions")
    before = whole.lines("sessions")
    kept = case.lines("sessions")
    assert set(kept) < set(before)  # a session that was open then has all its events
    assert any('"count":1}' in line for line in kept)
    again = Case(tmp_path, files, "counts", "sessions")
    again.run()  # it starts with the state under the app's ids
    assert again.lines("sessions") == kept


def test_altering_an_output_to_another_state_starts_it_afresh(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files, "counts", "sessions")
    file = files.write(SESSIONS.format(least=0), "pages.py")
    answers = []
    case.run(
        {5: lambda jobs: answers.append(alter(jobs, "sessions", _with_sink(files, file, case), "pages_"))}
    )
    assert answers[0].state == "anew"
    assert any('"/a"' in line for line in case.lines("sessions"))
    case.run()  # the state that it had in the app's plan was released


def test_altering_an_output_that_shares_its_state_starts_it_afresh(
    straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    file = files.write(SESSIONS.format(least=1), "shared.py")
    answers = []
    case.run(
        {5: lambda jobs: answers.append(alter(jobs, "sessions", _with_sink(files, file, case), "sessions_"))}
    )
    assert answers[0].state == "anew"
    assert case.content("sessions") == straight.content("sessions")


def _with_sink(files: Files, file: Path, case: Case) -> Path:
    """A file whose queries are outputs of an app with the sink that the output has."""
    text = file.read_text()
    sinks = "\n".join(
        f'{name}_ = ps.output("sessions", {name}, ps.jsonl({str(case.out / "sessions")!r}))'
        for name in ("sessions", "pages")
    )
    return files.write(text + sinks, file.name, head=False)


def test_recovery_of_an_output_is_set_while_it_runs(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    with case.running() as (jobs, engine):
        jobs.execute("ALTER JOB counts SET RECOVERY gap")
        engine.step()
        plan = jobs.epochs.plan(jobs.commands)
        assert (str(plan.outputs["counts"].recovery), plan.outputs["busy"].recovery) == ("gap", None)


# ---------------------------------------------------------------- questions, and what is refused


def test_an_output_answers_questions_as_any_job_does(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    case.run(
        {3: lambda jobs: jobs.execute("PAUSE JOB long"), 4: lambda jobs: jobs.execute("RESUME JOB long")}
    )
    with case.running() as (jobs, _):
        answer = jobs.ask("counts")
        assert answer is not None
        assert answer.rows.columns == ["window_start", "window_end", "page", "count"]
        assert [one.did for _, one in jobs.questions.versions("long")] == [
            "started with its app",
            "paused",
            "resumed",
        ]
        assert "1-" in jobs.execute("EXPLAIN JOB counts")[0].message
        shown = {row["job"]: row for row in jobs.execute("SHOW JOBS")[0].rows}
        assert shown["errors"]["into"] == [ps.jsonl(case.out / "errors").describe()]
        assert [row["stream"] for row in jobs.execute("SHOW STREAMS")[0].rows] == ["clicks"]


def test_an_engine_that_keeps_no_results_of_an_app_says_so(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    with case.running(keeps_results=False) as (jobs, engine):
        jobs.execute(SQL.format("by_sql"))
        list(engine.steps())
        assert jobs.ask("by_sql") is not None
        with pytest.raises(UserError, match="RESULTS_NOT_KEPT"):
            jobs.ask("counts")


def test_the_app_that_has_lost_an_output_runs_without_what_commands_did_to_it(
    files: Files, tmp_path: Path
) -> None:
    Case(tmp_path, files, "counts", "errors").run({2: lambda jobs: jobs.execute("PAUSE JOB errors")})
    case = Case(tmp_path, files, "counts")
    case.run(drop_state=True)
    with case.running() as (jobs, _):
        assert list(jobs.catalogue.jobs) == ["counts"]


def test_the_app_cannot_take_the_name_of_a_job_that_was_created(files: Files, tmp_path: Path) -> None:
    Case(tmp_path, files, "counts").run({2: lambda jobs: jobs.execute(SQL.format("errors"))})
    case = Case(tmp_path, files, "counts", "errors")
    with pytest.raises(UserError, match="NAME_TAKEN"), case.running(drop_state=True):
        pass


def test_a_job_that_fails_is_paused_and_the_app_goes_on(straight: Case, files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    broken = files.write(
        "def fails(frame):\n    if frame.height:\n        raise ValueError('no')\n    return frame.select('page')\n"
        "query = clicks.map_batches(fails, {'page': ps.String()})",
        "broken.py",
    )
    case.run(
        {3: lambda jobs: create(jobs, "broken", broken)}
        | {4: lambda jobs: jobs.execute(SQL.format("by_sql"))}
    )
    assert case.content() == straight.content()
    with case.running() as (jobs, _):
        assert life(jobs, "broken") == "failed"


def test_an_error_in_the_code_of_the_app_itself_ends_the_engine(files: Files, tmp_path: Path) -> None:
    def fails(frame: Any) -> Any:
        raise ValueError("no")

    clicks = files.stream
    rows = clicks.map_batches(fails, {"page": ps.String()})
    counts = clicks.key_by("page").window("5s").count()
    engine = InlineEngine(ps.app("bad", ps.output("rows", rows), ps.output("counts", counts)), tmp_path)
    with pytest.raises(PenstockError, match="no"):
        engine.step()
    engine.close()


def test_deploying_a_file_alters_the_outputs_that_it_names(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files, "errors")
    file = files.write(
        'app = ps.app("more", ps.output("errors", clicks.filter(pl.col("status") == 500).select("user", "page"), '
        f'ps.jsonl({str(case.out / "errors")!r})), ps.output("users", clicks.select("user")))',
        "more.py",
    )
    case.run({2: lambda jobs: deployed(jobs, file)})
    assert len(case.lines("errors")) > 0
    assert {row[0] for _, row in case.rows("users")} <= {f"u{n}" for n in range(9)}


# ---------------------------------------------------------------- commands and an app that changes


def restart(case: Case, *names: str) -> Case:
    """The same directory, with other outputs in the app's file."""
    return Case(case.folder, case.files, *names)


def test_the_last_job_with_state_beside_an_app_can_be_dropped(
    straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    case.run({1: lambda jobs: jobs.execute(SQL.format("x")), 4: lambda jobs: jobs.execute("DROP JOB x")})
    assert case.content() == straight.content()
    assert not [id_ for id_ in StateDirectory(case.state).manifests.latest().collections if "template" in id_]
    case.run()


def test_jobs_keep_their_numbers_when_the_app_has_lost_an_output_that_was_emptied(
    files: Files, tmp_path: Path
) -> None:
    acts = {
        0: lambda jobs: jobs.execute("EMPTY JOB errors"),
        1: lambda jobs: jobs.execute(SQL.format("x")),
        5: lambda jobs: jobs.execute(SQL.format("y")),
    }
    whole = Case(tmp_path / "whole", files, "counts", "errors")
    whole.run(acts)
    case = Case(tmp_path / "case", files, "counts", "errors")
    with case.running() as (jobs, engine):
        for epoch in range(5):
            if epoch in acts:
                acts[epoch](jobs)
            engine.step()
    less = restart(case, "counts")
    less.run({5: acts[5]}, drop_state=True)
    for job in ("x", "y"):
        assert less.rows(job) == whole.rows(job) != []


@pytest.mark.parametrize("fold_after", [0, 1_000])
def test_an_output_runs_whose_name_was_created_and_dropped_before(
    fold_after: int, files: Files, tmp_path: Path
) -> None:
    first = Case(tmp_path, files, "counts")
    with first.running(fold_after=fold_after) as (jobs, engine):
        jobs.execute(SQL.format("errors"))
        engine.step()
        jobs.execute("DROP JOB errors")
        for _ in range(3):
            engine.step()
        engine.recycle(1)
    case = restart(first, "counts", "errors")
    case.run(drop_state=True)
    assert case.lines("errors")


def test_an_app_that_changes_after_an_output_kept_its_state_in_an_alter_is_refused(
    files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files, "counts", "sessions")
    file = files.write(SESSIONS.format(least=1), "kept.py")
    altered = _with_sink(files, file, case)
    case.run({5: lambda jobs: alter(jobs, "sessions", altered, "sessions_")})
    more = restart(case, "counts", "sessions", "long")
    with pytest.raises(UserError, match=r"ALTERED_OUTPUT.*sessions"), more.running(drop_state=True):
        pass
    with case.running() as (jobs, engine):  # the way out that it names
        jobs.execute("EMPTY JOB sessions")
        engine.step()
    more.run(drop_state=True)
    with more.running() as (jobs, _):
        assert life(jobs, "sessions") == "running"


def test_previous_reads_an_output_whose_results_nobody_asks_for(files: Files, tmp_path: Path) -> None:
    rows = {}
    for keeps in (True, False):
        case = Case(tmp_path / str(keeps), files, "counts")
        sql = "CREATE JOB before AS SELECT page, count FROM PREVIOUS(counts)"
        case.run({0: lambda jobs, sql=sql: jobs.execute(sql)}, keeps_results=keeps)
        rows[keeps] = case.rows("before")
    assert rows[True] == rows[False] != []


@pytest.mark.parametrize("resets", ["alter", "empty"])
def test_a_reset_of_an_output_resets_its_ranking_too(resets: str, files: Files, tmp_path: Path) -> None:
    clicks = files.stream
    totals = clicks.key_by("page").running("1s").count().top(4, by="count")
    app = ps.app("tops", ps.output("tops", totals), ps.output("all", clicks.select("page")))
    file = files.write(
        'query = clicks.key_by("page").running("1s").count().map(least=-pl.col("count")).top(4, by="least")',
        "tops.py",
    )
    program = program_of(app, tmp_path / "state", keeps_results=True)
    engine = InlineEngine(program, tmp_path / "state", epoch_units=20 * EVENT_BYTES)
    list(zip(range(8), engine.steps(), strict=False))
    if resets == "alter":
        assert alter(program, "tops", file).state == "anew"
    else:
        program.execute("EMPTY JOB tops")
    list(engine.steps())
    answer = program.ask("tops")
    assert answer is not None
    last = answer.rows.filter(pl.col("as_of") == pl.col("as_of").max())
    assert sorted(last["page"]) == ["/a", "/b", "/c", "/d"]
    assert last["count"].sum() < len(EVENTS) - 8 * 15, "events before the reset do not count"
    engine.close()


def test_deploying_what_the_engine_started_with_changes_nothing(
    straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    outputs = ", ".join(
        f'ps.output("{name}", {name}, ps.jsonl({str(case.out / name)!r}))'
        for name in ("counts", "busy", "sessions", "long", "errors")
    )
    file = files.write(
        """
counts = clicks.key_by("page").window("5s").count()
busy = counts.filter(ps.col("count") > 2).select("page", "count")
all_sessions = clicks.key_by("user").session("2s").count()
sessions = all_sessions.filter(ps.col("count") > 0)
long = all_sessions.key_by("user").window("20s").count("n")
errors = clicks.filter(ps.col("status") >= 400).select("user", "page")
"""
        + f'app = ps.app("shop", {outputs})',
        "same.py",
    )
    replies: list[str] = []
    case.run({5: lambda jobs: replies.extend(deployed(jobs, file))})
    assert all("unchanged" in reply or "as it was" in reply for reply in replies), replies
    assert case.content() == straight.content()


def test_amnesia_drops_the_state_of_an_output_whose_sharer_was_dropped(files: Files, tmp_path: Path) -> None:
    plan = AppPlan.of(build(files, tmp_path / "out")).plan
    assert stages_owned(keep_outputs(plan, {"counts", "errors"}), {"counts"})
    assert not stages_owned(plan, {"counts"})
