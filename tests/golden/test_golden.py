"""State directories of released versions are opened and continued: every row is there, exactly and once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.epoch.kill_points import StepName
from penstock.errors import UserError
from tests.crash import Crashed, crash_at
from tests.golden import archive, case, lives, variants
from tests.golden.archive import Rows
from tests.golden.case import Case
from tests.golden.cases import CASES

RELEASES = archive.releases()
ARCHIVES = [
    pytest.param(release, name, id=f"{release}-{name}", marks=CASES[name].marks)
    for release in RELEASES
    for name in CASES
    if archive.path_of(release, name).exists()
]


def differences(expected: Rows, found: Rows) -> dict[str, str]:
    """What is missing and what is too much, by output."""
    told = {}
    for name in sorted({*expected, *found}):
        wanted, got = Counter(expected.get(name, [])), Counter(found.get(name, []))
        missing, extra = wanted - got, got - wanted
        if missing or extra:
            first = next(iter(missing or extra))
            told[name] = f"{missing.total()} of {wanted.total()} rows missing, {extra.total()} extra: {first}"
    return told


def opened(release: str, name: str, folder: Path) -> Case:
    """A case's files, unpacked where they have never been."""
    archive.unpack(archive.path_of(release, name), folder)
    CASES[name].restore(folder)
    return CASES[name]


@pytest.mark.slow
@pytest.mark.parametrize(("release", "name"), ARCHIVES)
def test_a_state_directory_continues_exactly(
    release: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if reason := CASES[name].why_not():
        pytest.skip(reason)
    if pytest.mark.spark in CASES[name].marks:
        request.getfixturevalue("spark")  # started before the working directory changes
    one = opened(release, name, tmp_path)
    given, expected = case.given_of(tmp_path), archive.read_rows(tmp_path / "expected")
    facts = archive.about(tmp_path)
    before = case.found(tmp_path, facts["epoch"])
    with case.within(tmp_path):
        one.rest(given, tmp_path)
    assert differences(expected, case.found(tmp_path)) == {}
    case.check_dependence(one, expected, before, archive.read_rows(tmp_path / "alone"))


#: steps at which the engine that continues is killed, before the manifest is in place
STEPS: tuple[StepName, ...] = ("recorded", "sliced", "emitted")


def is_killed_in_test(release: str, name: str, number: int) -> bool:
    """Of the newest format all that is new in it and every second archive else; of earlier formats every fourth."""
    if release != RELEASES[-1]:
        return number % 4 == 0
    return number % 2 == 0 or CASES[name].since == archive.number_of(release)


#: what an engine in this process continues, without servers
KILLABLE = [
    param
    for number, param in enumerate(ARCHIVES)
    if not param.marks and is_killed_in_test(*param.values, number)
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "name", "step"),
    [
        pytest.param(*param.values, STEPS[number % len(STEPS)], id=param.id)
        for number, param in enumerate(KILLABLE)
    ],
)
def test_a_state_directory_continues_exactly_when_the_engine_is_killed(
    release: str, name: str, step: StepName, tmp_path: Path
) -> None:
    """Killed in the first epoch after the cut, so that the next engine opens the archive's own state too."""
    one, given = replace(opened(release, name, tmp_path), rest_units=1 << 40), case.given_of(tmp_path)
    epoch = archive.about(tmp_path)["recorded"] + 1
    with case.within(tmp_path):
        with crash_at(step, epoch), pytest.raises(Crashed):
            one.rest(given, tmp_path)
        replace(one, executed=epoch).rest(given, tmp_path)
    assert differences(archive.read_rows(tmp_path / "expected"), case.found(tmp_path)) == {}


@pytest.mark.parametrize(("release", "name"), ARCHIVES)
def test_an_archive_holds_open_state_of_every_operator(release: str, name: str, tmp_path: Path) -> None:
    one = opened(release, name, tmp_path)
    manifest, about = archive.newest_manifest(one.state(tmp_path)), archive.about(tmp_path)
    held = archive.rows_held(manifest)
    assert {operator: kind for operator, kind in about["operators"].items() if operator not in held} == {}
    assert sorted(manifest["answers"]) == about["answers"]
    assert archive.formats_of(one.state(tmp_path)) == {archive.number_of(release)}


@pytest.mark.parametrize("release", RELEASES)
def test_text_files_that_come_back_packed_are_the_same_partitions(release: str, tmp_path: Path) -> None:
    """Nothing in the state directory is rewritten here: an archive of a file has the identity of the file."""
    one = CASES["files"]
    assert isinstance(one, variants.Files)
    archive.unpack(archive.path_of(release, one.name), tmp_path)
    one.rotate(tmp_path)
    with case.within(tmp_path):
        one.rest(case.given_of(tmp_path), tmp_path)
    assert differences(archive.read_rows(tmp_path / "expected"), case.found(tmp_path)) == {}


@pytest.mark.parametrize("release", RELEASES)
def test_a_backup_whose_files_are_others_is_refused_where_the_log_was_finished(
    release: str, tmp_path: Path
) -> None:
    """What `restore` rewrites is needed."""
    one = CASES["files"]
    archive.unpack(archive.path_of(release, one.name), tmp_path)
    with case.within(tmp_path), pytest.raises(UserError, match="was declared finished"):
        one.rest(case.given_of(tmp_path), tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("release", "name"),
    [
        *((release, "on-spark") for release in RELEASES),
        *(("format-1", name) for name in ("moved-buckets", "jobs-of-one-template")),
    ],
)
def test_a_state_directory_continues_on_spark(
    release: str, name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """One that Spark wrote, in format 1 with the logs of its streaming query; and others, that no Spark has seen."""
    one = opened(release, name, tmp_path)
    with case.within(tmp_path):
        one.rest_on_spark(case.given_of(tmp_path), tmp_path, spark)
    assert differences(archive.read_rows(tmp_path / "expected"), case.found(tmp_path)) == {}


def test_the_state_of_spark_of_format_1_has_the_logs_of_a_streaming_query(tmp_path: Path) -> None:
    """Engines write none any more; they leave those that are there."""
    one = opened("format-1", "on-spark", tmp_path)
    logs = {path.parent.name for path in one.state(tmp_path).glob("spark*/**/*") if path.is_file()}
    assert logs >= {"offsets", "commits"}


KILLED = [name for name, one in CASES.items() if isinstance(one, variants.Killed)]


@pytest.mark.parametrize("name", KILLED)
@pytest.mark.parametrize("release", RELEASES)
def test_an_engine_that_was_killed_left_epochs_to_repeat(release: str, name: str, tmp_path: Path) -> None:
    one = opened(release, name, tmp_path)
    about, delivered = archive.about(tmp_path), case.found(tmp_path)
    assert about["recorded"] > about["epoch"]
    assert isinstance(one, variants.Killed)
    beyond = delivered != case.found(tmp_path, about["epoch"])
    assert beyond == (one.step == "emitted" or one.checkpoint_every > 1)


@pytest.mark.kill
@pytest.mark.parametrize(
    ("release", "name"),
    [*((release, "unit-active-replication") for release in RELEASES), ("format-1", "unit-of-jobs")],
)
def test_a_unit_whose_records_are_lost_repeats_its_epochs(release: str, name: str, tmp_path: Path) -> None:
    """Nothing is rewritten: moved elsewhere, a unit begins with the directory that it was started on, and repeats
    what a replica did before."""
    one = CASES[name]
    archive.unpack(archive.path_of(release, one.name), tmp_path)
    assert one.state(tmp_path).parent.name == "replicas"
    assert archive.newest_record(tmp_path / "state") < archive.about(tmp_path)["epoch"]
    with case.within(tmp_path):
        one.rest(case.given_of(tmp_path), tmp_path)
    assert differences(archive.read_rows(tmp_path / "expected"), case.found(tmp_path)) == {}


def test_every_case_has_an_archive_and_every_archive_a_case() -> None:
    for release in RELEASES:
        number = archive.number_of(release)
        assert archive.cases_of(release) == {name for name, one in CASES.items() if one.since <= number}


def test_the_format_that_is_written_now_has_archives() -> None:
    assert RELEASES[-1] == lives.CURRENT_FORMAT, (
        "the format changed: make its archives (tests/golden/make.py)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES[:1])
def test_state_that_is_forgotten_shows(release: str, tmp_path: Path) -> None:
    """The comparison is sharp enough: without the state of any one operator, rows differ."""
    name = "moved-buckets"
    archive.unpack(archive.path_of(release, name), tmp_path / "whole")
    for operator in archive.about(tmp_path / "whole")["operators"]:
        folder = tmp_path / operator
        one = opened(release, name, folder)
        archive.forget(one.state(folder), operator)
        with case.within(folder):
            one.rest(case.given_of(folder), folder)
        assert differences(archive.read_rows(folder / "expected"), case.found(folder)), operator
