"""Several processes accept commands for the same jobs: what each of them executes, keeps and refuses."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit

SQL = "CREATE JOB pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"


def _program(state: Path, stream: Any, **options: Any) -> Program:
    return Program("test", state, streams={"clicks": stream}, begin=SQL, **options)


def _join_coordinator(state: Path, stream: Any) -> Program:
    jobs = _program(state, stream, follows=True)
    jobs.join()
    return jobs


def test_an_engine_executes_the_commands_that_coordinators_accepted(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(200), finished=False)
    engine = InlineEngine(owner := _program(tmp_path, stream), tmp_path, epoch_units=20)
    left, right = _join_coordinator(tmp_path, stream), _join_coordinator(tmp_path, stream)
    left.execute("CREATE JOB all_of_them AS SELECT page, user FROM clicks")
    with pytest.raises(UserError) as taken:
        right.execute("CREATE JOB all_of_them AS SELECT page FROM clicks")
    assert taken.value.condition == "NAME_TAKEN"
    right.execute("ALTER JOB all_of_them SET WHERE status = 200")
    report = engine.step()
    assert report is not None
    assert report.rows["all_of_them"].columns == ["page", "user"]
    owner.execute("PAUSE JOB all_of_them")
    assert left.catalogue.jobs["all_of_them"].master.life == "paused"
    assert left.catalogue == right.catalogue == owner.catalogue
    for follower in (left, right):
        counts = follower.questions.follow_results(report.epoch)
        assert counts["all_of_them"] == 1
        latest = follower.ask("all_of_them")
        assert latest is not None
        assert latest.rows.equals(report.rows["all_of_them"])
        assert [a.epoch for a in follower.since("all_of_them", 0)] == [report.epoch]
    right.execute("DROP JOB all_of_them")
    with pytest.raises(UserError):
        left.ask("all_of_them")
    assert engine.step() is not None
    engine.close()


def test_a_coordinator_follows_results_forward_and_back(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(100))
    engine = InlineEngine(owner := _program(tmp_path, stream), tmp_path, epoch_units=10)
    owner.execute("CREATE JOB rows AS SELECT page FROM clicks")
    other = _join_coordinator(tmp_path, stream)
    assert other.ask("rows") is None
    epochs = [report.epoch for report in engine.steps() if report.rows.get("rows", pl.DataFrame()).height]
    engine.close()
    assert other.questions.follow_results(epochs[3])["rows"] == 4
    assert other.ask("rows").epoch == epochs[3]  # type: ignore[union-attr]
    assert other.questions.follow_results(epochs[-1])["rows"] == len(epochs) - 4
    late = _join_coordinator(tmp_path, stream)
    for jobs in (other, late):
        assert jobs.ask("rows").rows.equals(owner.ask("rows").rows)  # type: ignore[union-attr]
        assert [a.epoch for a in jobs.since("rows", epochs[2], most=3)] == epochs[2:5]
    for path in (tmp_path / "results").glob("*.arrow"):
        if int(path.stem) > epochs[1]:
            path.unlink()
    other.questions.follow_results(epochs[1])
    assert other.ask("rows").epoch == epochs[1]  # type: ignore[union-attr]


def test_commands_to_several_coordinators_are_each_executed_once(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(50), finished=False)
    engine = InlineEngine(owner := _program(tmp_path, stream, fold_after=3), tmp_path, epoch_units=5)
    coordinators = [_join_coordinator(tmp_path, stream) for _ in range(3)]
    numbers: list[int] = []

    def command(number: int) -> None:
        jobs = coordinators[number]
        for n in range(12):
            replies = jobs.execute(f"ALTER JOB pages SET WHERE bytes > {n * 3 + number}", f"{number}.{n}")
            repeated = coordinators[(number + 1) % 3].execute(
                f"ALTER JOB pages SET WHERE bytes > {n * 3 + number}", f"{number}.{n}"
            )
            assert [a.command for a in repeated] == [a.command for a in replies]
            numbers.extend(a.command or 0 for a in replies)

    threads = [threading.Thread(target=command, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        engine.step()
        engine.remove_old_state(2)
    list(engine.steps())
    assert len(set(numbers)) == 36, "each command has its number"
    assert owner.catalogue.jobs["pages"].version == 37
    assert all(jobs.catalogue == owner.catalogue for jobs in coordinators)
    engine.close()
    late = _join_coordinator(tmp_path, stream)  # the first commands are in a snapshot
    assert late.catalogue == owner.catalogue
    assert late.execute("ALTER JOB pages SET WHERE bytes > 0", "0.0")[0].command == min(
        a.command or 0 for a in coordinators[0].execute("ALTER JOB pages SET WHERE bytes > 0", "0.0")
    )
    assert late.catalogue.jobs["pages"].version == 37
    with pytest.raises(UserError) as reused:
        late.execute("DROP JOB pages", "0.0")
    assert reused.value.condition == "REQUEST_REUSED"
    with pytest.raises(UserError):
        late.execute("DROP JOB pages", "a name with blanks")


@pytest.mark.parametrize("by_engine", [False, True])
def test_a_job_whose_sink_cannot_be_opened_fails_alone(by_engine: bool, tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(60), finished=False)
    engine = InlineEngine(owner := _program(tmp_path / "state", stream), tmp_path / "state", epoch_units=10)
    assert engine.step() is not None
    (tmp_path / "file").write_text("in the way")
    other = _join_coordinator(tmp_path / "state", stream)
    owner.questions.show_managers(lambda job: "one")
    (owner if by_engine else other).execute(
        f"CREATE JOB lost AS SELECT page FROM clicks INTO jsonl('{tmp_path / 'file' / 'out'}')"
    )
    other.execute("CREATE JOB reads AS SELECT page FROM lost")
    assert engine.step() is not None
    lives = {name: entry.master.life for name, entry in owner.catalogue.jobs.items()}
    assert lives == {"pages": "running", "lost": "failed", "reads": "running"}
    assert other.catalogue == owner.catalogue
    engine.close()
    engine = InlineEngine(owner := _program(tmp_path / "state", stream), tmp_path / "state", epoch_units=10)
    assert engine.step() is not None, "the engine starts"
    (tmp_path / "file").unlink()
    other.execute("RESUME JOB lost")
    report = engine.step()
    assert report is not None
    assert report.rows["lost"].height == report.rows["reads"].height > 0
    engine.close()


def test_a_job_that_the_engine_cannot_build_fails_with_its_readers(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(60), finished=False)
    engine = InlineEngine(owner := _program(tmp_path, stream), tmp_path, epoch_units=10)
    other = _program(
        tmp_path, stream, follows=True, functions={"bare": lambda page: page.str.strip_chars("/")}
    )
    other.join()
    other.execute("CREATE JOB bared AS SELECT bare(page) AS page FROM clicks")
    other.execute("CREATE JOB reads AS SELECT page FROM bared")
    assert engine.step() is not None
    lives = {name: entry.master.life for name, entry in other.catalogue.jobs.items()}
    assert lives == {"pages": "running", "bared": "failed", "reads": "failed"}
    assert "bare" in (owner.catalogue.jobs["bared"].master.error or "")
    list(engine.steps())
    assert owner.ask("pages") is not None
    engine.close()


def test_a_refused_batch_leaves_no_sinks_and_streams(tmp_path: Path) -> None:
    """The next batch gets the same numbers and names, but not the sinks and streams of the refused one."""
    stream = kit.clicks(kit.events(60), finished=False)
    with kit.running(tmp_path / "state", stream) as (jobs, engine):
        for folder in ("first", "second"):
            bad = "" if folder == "second" else "; CREATE JOB worse AS SELECT nothing FROM clicks"
            job = f"CREATE JOB rows AS SELECT page FROM clicks INTO jsonl('{tmp_path / folder}')"
            if bad:
                with pytest.raises(UserError):
                    jobs.execute(job + bad)
            else:
                jobs.execute(job)
        (tmp_path / "a.log").write_text('{"at": "2026-03-01T12:00:00Z", "x": 1}\n')
        sql = "CREATE STREAM s FROM files('{}') FORMAT json(at TIMESTAMP, x BIGINT) EVENT TIME at"
        sql += "; CREATE JOB of_s AS SELECT x FROM s"
        with pytest.raises(UserError):
            jobs.execute(sql.format(tmp_path / "none.log") + "; DROP JOB nobody")
        jobs.execute(sql.format(tmp_path / "a.log"))
        list(engine.steps())
        assert jobs.ask("of_s").rows.rows() == [(1,)]  # type: ignore[union-attr]
    assert (tmp_path / "second").exists()
    assert not (tmp_path / "first").exists()


def test_a_job_that_was_accepted_without_an_engine_fails_alone(tmp_path: Path) -> None:
    state, streams = tmp_path / "state", {"clicks": kit.clicks(kit.events(40), finished=False)}
    (tmp_path / "taken").write_text("a file in the place of a folder")
    served = Program("t", state, streams=streams, begin=SQL, follows=True)
    served.join(begin=True)
    assert list(served.catalogue.jobs) == ["pages"], "the script is executed before there is an engine"
    assert served.commands == 1

    engine = InlineEngine(Program("t", state, streams=streams, begin=SQL, shared=True), state)
    assert served.commands == 1, "the engine does not repeat it"
    assert engine.step() is not None
    engine.close()

    served.execute(f"CREATE JOB bad AS SELECT page FROM clicks INTO jsonl('{tmp_path}/taken')")
    served.execute(f"CREATE JOB good AS SELECT page FROM clicks INTO jsonl('{tmp_path}/out')")
    jobs = Program("t", state, streams=streams, begin=SQL, shared=True)
    engine = InlineEngine(jobs, state)
    assert {name: job.master.life for name, job in served.catalogue.jobs.items()} == {
        "pages": "running",
        "bad": "failed",
        "good": "running",
    }
    assert engine.step() is not None
    engine.close()

    # so does a job that ran before, and it continues once its sink is there again
    (tmp_path / "out").rename(tmp_path / "away")
    (tmp_path / "out").write_text("")
    engine = InlineEngine(Program("t", state, streams=streams, begin=SQL, shared=True), state)
    assert served.catalogue.jobs["good"].master.life == "failed"
    engine.close()
    (tmp_path / "out").unlink()
    (tmp_path / "away").rename(tmp_path / "out")
    served.execute("RESUME JOB good")
    engine = InlineEngine(Program("t", state, streams=streams, begin=SQL, shared=True), state)
    assert served.catalogue.jobs["good"].master.life == "running"
    engine.close()


def test_an_engine_with_a_former_script_does_not_undo_the_script_of_the_service(tmp_path: Path) -> None:
    def program(size: int, **more: bool) -> Program:
        sql = f"""
        CREATE STREAM s FROM generated(rate => 1) FORMAT combined_log EVENT TIME time;
        CREATE JOB j AS SELECT path, COUNT(*) AS n FROM s GROUP BY path WINDOWING {size} SECONDS"""
        return Program("t", tmp_path / "state", begin=sql, **more)

    program(10, follows=True).join(begin=True)
    standby = program(10, shared=True)  # it has the script from before the change
    service = program(20, follows=True)
    service.join(begin=True)
    known = service.commands
    standby.start()
    assert "20 SECONDS" in standby.catalogue.jobs["j"].select
    assert standby.commands == known
