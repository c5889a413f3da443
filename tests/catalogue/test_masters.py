"""Several processes accept commands for the same jobs: which manages which, and what keeps them in order."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import AddStream, Command
from penstock.catalogue.command_log import CommandLog
from penstock.catalogue.master_placement import Roster, subject_of
from penstock.catalogue.program import Program
from penstock.errors import PenstockError, UserError
from penstock.sql.parse import parse
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit

JOBS = [f"job_{number}" for number in range(300)]
NAMES = st.sets(st.text("abcdefghij0123456789:-.", min_size=1, max_size=12), min_size=1, max_size=9)
SQL = "CREATE JOB pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"


# -- placement -----------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(names=NAMES)
def test_masters_are_spread_over_whoever_there_is(names: set[str]) -> None:
    loads = Counter(Roster(name, frozenset(names - {name})).manager_of(job) for job in JOBS for name in names)
    assert set(loads) <= names
    share = len(JOBS) / len(names)
    for name in names:
        mine = Roster(name, frozenset(names - {name})).managed_jobs(JOBS)
        assert loads[name] == len(mine) * len(names), "all of them see it alike"
        assert abs(len(mine) - share) < 6 * (share + 1) ** 0.5, "about as many as the others"


@settings(max_examples=20, deadline=None)
@given(names=NAMES, draw=st.randoms())
def test_only_the_masters_of_who_comes_or_goes_move(names: set[str], draw: random.Random) -> None:
    me = draw.choice(sorted(names))
    others = frozenset(names - {me})
    before = Roster(me, others)
    came = Roster(me, others | {"new"})
    assert {job for job in JOBS if came.manager_of(job) != before.manager_of(job)} == {
        job for job in JOBS if came.manager_of(job) == "new"
    }
    assert came.gained_jobs(before, JOBS) == []
    if others:
        gone = draw.choice(sorted(others))
        after = Roster(me, others - {gone})
        moved = {job for job in JOBS if after.manager_of(job) != before.manager_of(job)}
        assert moved == {job for job in JOBS if before.manager_of(job) == gone}
        assert set(after.gained_jobs(before, JOBS)) == {job for job in moved if after.manager_of(job) == me}


@pytest.mark.parametrize(
    ("said", "about"),
    [
        ("SHOW JOBS", None),
        ("EXPLAIN SELECT page FROM clicks", None),
        ("EXPLAIN JOB a", "a"),
        ("EXPLAIN JOB a; PAUSE JOB b; DROP JOB c", "b"),
        ("CREATE JOB j AS SELECT page FROM clicks", "j"),
        ("ALTER JOB j SET LIMIT 3", "j"),
        ("DROP STREAM s", "s"),
    ],
)
def test_statements_belong_to_the_first_they_change(said: str, about: str | None) -> None:
    assert subject_of(parse(said)) == about


# -- the log -------------------------------------------------------------------------------------


def _stream(name: str) -> Command:
    return AddStream(name, "")


def _all(log: CommandLog) -> Catalogue:
    loaded = log.load(owned=False)
    found = loaded.catalogue
    for entry in loaded.entries:
        for command in entry:
            found = found.after(command)
    return found


def _follow(log: CommandLog) -> None:
    if log.news() is None:
        log.load(owned=False)


def test_every_entry_has_a_place_of_its_own_whoever_writes_and_folds(tmp_path: Path) -> None:
    done, numbers = threading.Event(), list[int]()

    def write(writer: int) -> None:
        log = CommandLog(tmp_path)
        for n in range(25):
            while True:
                _follow(log)
                number = log.append([_stream(f"w{writer}_{n}")])
                if number is not None:
                    numbers.append(number)
                    break

    def fold() -> None:
        log, count, catalogue = CommandLog(tmp_path), 0, Catalogue()
        while not done.is_set():
            for (command,) in log.news() or ():
                catalogue, count = catalogue.after(command), count + 1
            if count:
                log.fold(count, catalogue)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    folder = threading.Thread(target=fold)
    for thread in (folder, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    folder.join()
    found = _all(CommandLog(tmp_path))
    assert sorted(numbers) == list(range(1, 101)), "each number once"
    assert set(found.streams) == {f"w{writer}_{n}" for writer in range(4) for n in range(25)}
    assert found.last_number == 100, "nothing twice"
    assert not [name for name in os.listdir(tmp_path / "commands") if name.startswith(".")]


@pytest.mark.parametrize("folded", [0, 1, 2, 5])
def test_who_is_paused_before_it_writes_takes_no_number_again(
    folded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, other = CommandLog(tmp_path), CommandLog(tmp_path)
    paused.append([_stream("a")])
    link = os.link

    def later(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        _follow(other)
        catalogue = Catalogue().after(_stream("a"))
        for n in range(5):
            assert other.append([_stream(f"b{n}")]) == n + 2
            catalogue = catalogue.after(_stream(f"b{n}")) if n + 2 <= folded else catalogue
        if folded:
            other.fold(folded, catalogue)
        link(source, target)

    monkeypatch.setattr(os, "link", later)
    assert paused.append([_stream("c")]) is None
    assert paused.append([_stream("c")]) is None, "it has not looked yet"
    _follow(paused)
    assert paused.append([_stream("c")]) == 7
    found = _all(CommandLog(tmp_path))
    assert [*found.streams] == ["a", "b0", "b1", "b2", "b3", "b4", "c"]
    assert found.last_number == 7


def test_a_log_that_began_anew_is_loaded_again(tmp_path: Path) -> None:
    follower = CommandLog(tmp_path)
    for n in range(3):
        CommandLog(tmp_path).load()
        _follow(follower)
        follower.append([_stream(f"a{n}")])
    for path in (tmp_path / "commands").iterdir():
        path.unlink()
    assert follower.append([_stream("b")]) is None, "no gap is left"
    assert follower.news() is None
    assert not _all(follower).streams
    assert follower.append([_stream("b")]) == 1


# -- jobs ----------------------------------------------------------------------------------------


def _jobs(state: Path, stream: Any, **options: Any) -> Program:
    return Program("test", state, streams={"clicks": stream}, begin=SQL, **options)


def _joined(state: Path, stream: Any) -> Program:
    jobs = _jobs(state, stream, follows=True)
    jobs.join()
    return jobs


def test_an_engine_carries_out_what_others_took_in(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(200), finished=False)
    engine = InlineEngine(owner := _jobs(tmp_path, stream), tmp_path, epoch_units=20)
    left, right = _joined(tmp_path, stream), _joined(tmp_path, stream)
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
        told = follower.questions.follow_results(report.epoch)
        assert told["all_of_them"] == 1
        latest = follower.ask("all_of_them")
        assert latest is not None
        assert latest.rows.equals(report.rows["all_of_them"])
        assert [a.epoch for a in follower.since("all_of_them", 0)] == [report.epoch]
    right.execute("DROP JOB all_of_them")
    with pytest.raises(UserError):
        left.ask("all_of_them")
    assert engine.step() is not None
    engine.close()


def test_results_are_followed_also_back(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(100))
    engine = InlineEngine(owner := _jobs(tmp_path, stream), tmp_path, epoch_units=10)
    owner.execute("CREATE JOB rows AS SELECT page FROM clicks")
    other = _joined(tmp_path, stream)
    assert other.ask("rows") is None
    told = [report.epoch for report in engine.steps() if report.rows.get("rows", pl.DataFrame()).height]
    engine.close()
    assert other.questions.follow_results(told[3])["rows"] == 4
    assert other.ask("rows").epoch == told[3]  # type: ignore[union-attr]
    assert other.questions.follow_results(told[-1])["rows"] == len(told) - 4
    late = _joined(tmp_path, stream)
    for jobs in (other, late):
        assert jobs.ask("rows").rows.equals(owner.ask("rows").rows)  # type: ignore[union-attr]
        assert [a.epoch for a in jobs.since("rows", told[2], most=3)] == told[2:5]
    for path in (tmp_path / "results").iterdir():
        if int(path.stem) > told[1]:
            path.unlink()
    other.questions.follow_results(told[1])
    assert other.ask("rows").epoch == told[1]  # type: ignore[union-attr]


def test_commands_to_many_are_each_carried_out_once(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(50), finished=False)
    engine = InlineEngine(owner := _jobs(tmp_path, stream, fold_after=3), tmp_path, epoch_units=5)
    many = [_joined(tmp_path, stream) for _ in range(3)]
    made: list[int] = []

    def command(number: int) -> None:
        jobs = many[number]
        for n in range(12):
            said = jobs.execute(f"ALTER JOB pages SET WHERE bytes > {n * 3 + number}", f"{number}.{n}")
            again = many[(number + 1) % 3].execute(
                f"ALTER JOB pages SET WHERE bytes > {n * 3 + number}", f"{number}.{n}"
            )
            assert [a.command for a in again] == [a.command for a in said]
            made.extend(a.command or 0 for a in said)

    threads = [threading.Thread(target=command, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        engine.step()
        engine.recycle(2)
    list(engine.steps())
    assert len(set(made)) == 36, "a number for each"
    assert owner.catalogue.jobs["pages"].version == 37
    assert all(jobs.catalogue == owner.catalogue for jobs in many)
    engine.close()
    late = _joined(tmp_path, stream)  # the first commands are a snapshot by now
    assert late.catalogue == owner.catalogue
    assert late.execute("ALTER JOB pages SET WHERE bytes > 0", "0.0")[0].command == min(
        a.command or 0 for a in many[0].execute("ALTER JOB pages SET WHERE bytes > 0", "0.0")
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
    engine = InlineEngine(owner := _jobs(tmp_path / "state", stream), tmp_path / "state", epoch_units=10)
    assert engine.step() is not None
    (tmp_path / "file").write_text("in the way")
    other = _joined(tmp_path / "state", stream)
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
    engine = InlineEngine(owner := _jobs(tmp_path / "state", stream), tmp_path / "state", epoch_units=10)
    assert engine.step() is not None, "it starts all the same"
    (tmp_path / "file").unlink()
    other.execute("RESUME JOB lost")
    report = engine.step()
    assert report is not None
    assert report.rows["lost"].height == report.rows["reads"].height > 0
    engine.close()


def test_a_job_that_the_engine_cannot_make_fails_with_those_who_read_it(tmp_path: Path) -> None:
    stream = kit.clicks(kit.events(60), finished=False)
    engine = InlineEngine(owner := _jobs(tmp_path, stream), tmp_path, epoch_units=10)
    other = _jobs(tmp_path, stream, follows=True, functions={"bare": lambda page: page.str.strip_chars("/")})
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


def test_what_was_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    """A refused batch gives its numbers and names back: who gets them next must not get its sinks and streams."""
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
        made = "CREATE STREAM s FROM files('{}') FORMAT json(at TIMESTAMP, x BIGINT) EVENT TIME at"
        made += "; CREATE JOB of_s AS SELECT x FROM s"
        with pytest.raises(UserError):
            jobs.execute(made.format(tmp_path / "none.log") + "; DROP JOB nobody")
        jobs.execute(made.format(tmp_path / "a.log"))
        list(engine.steps())
        assert jobs.ask("of_s").rows.rows() == [(1,)]  # type: ignore[union-attr]
    assert (tmp_path / "second").exists()
    assert not (tmp_path / "first").exists()


def test_a_job_that_was_taken_in_without_an_engine_fails_alone(tmp_path: Path) -> None:
    state, streams = tmp_path / "state", {"clicks": kit.clicks(kit.events(40), finished=False)}
    (tmp_path / "taken").write_text("a file, where a folder is wanted")
    served = Program("t", state, streams=streams, begin=SQL, follows=True)
    served.join(begin=True)
    assert list(served.catalogue.jobs) == ["pages"], "the text is said before there is an engine"
    assert served.commands == 1

    engine = InlineEngine(Program("t", state, streams=streams, begin=SQL, shared=True), state)
    assert served.commands == 1, "and not again"
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

    # what ran before is not given up: its engine does not start
    (tmp_path / "out").rename(tmp_path / "away")
    (tmp_path / "out").write_text("")
    with pytest.raises(PenstockError):
        InlineEngine(Program("t", state, streams=streams, begin=SQL, shared=True), state)
    assert served.catalogue.jobs["good"].master.life == "running"


def test_an_engine_with_another_text_than_the_service_does_not_undo_what_that_said(tmp_path: Path) -> None:
    def of(size: int, **more: bool) -> Program:
        said = f"""
        CREATE STREAM s FROM generated(rate => 1) FORMAT combined_log EVENT TIME time;
        CREATE JOB j AS SELECT path, COUNT(*) AS n FROM s GROUP BY path WINDOWING {size} SECONDS"""
        return Program("t", tmp_path / "state", begin=said, **more)

    of(10, follows=True).join(begin=True)
    standby = of(10, shared=True)  # it has read the text before it was changed
    service = of(20, follows=True)
    service.join(begin=True)
    known = service.commands
    standby.start()
    assert "20 SECONDS" in standby.catalogue.jobs["j"].select
    assert standby.commands == known
