"""State directories of released versions are opened and continued: every row is there, exactly and once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.golden import archive, case
from tests.golden.archive import Rows
from tests.golden.case import Case
from tests.golden.cases import CASES

ARCHIVES = [
    pytest.param(release, name, id=f"{release}-{name}")
    for release in archive.releases()
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
    return CASES[name]


@pytest.mark.parametrize(("release", "name"), ARCHIVES)
def test_a_state_directory_continues_exactly(release: str, name: str, tmp_path: Path) -> None:
    one = opened(release, name, tmp_path)
    given, expected = case.given_of(tmp_path), archive.read_rows(tmp_path / "expected")
    facts = archive.about(tmp_path)
    before = case.found(tmp_path, facts["epoch"])
    with case.within(tmp_path):
        one.rest(given, tmp_path)
    assert differences(expected, case.found(tmp_path)) == {}
    alone = one.fresh(given, tmp_path / "fresh", facts)
    for output in before.keys() - one.stateless - case.aside_of(given):
        rest = Counter(expected[output]) - Counter(before[output])
        assert rest, f"nothing of {output} comes after the cut"
        assert rest != Counter(alone.get(output, [])), f"{output} does not depend on what was before the cut"


@pytest.mark.parametrize(("release", "name"), ARCHIVES)
def test_an_archive_holds_open_state_of_every_operator(release: str, name: str, tmp_path: Path) -> None:
    opened(release, name, tmp_path)
    manifest, about = archive.newest_manifest(tmp_path / "state"), archive.about(tmp_path)
    held = archive.rows_held(manifest)
    assert {operator: kind for operator, kind in about["operators"].items() if operator not in held} == {}
    assert sorted(manifest["answers"]) == about["answers"]


def test_every_case_has_an_archive_and_every_archive_a_case() -> None:
    for release in archive.releases():
        names = {path.name.removesuffix(".tar.xz") for path in (archive.FORMATS / release).iterdir()}
        assert names <= CASES.keys()
    assert {name for name in CASES if archive.path_of(archive.releases()[0], name).exists()} == CASES.keys()


def test_a_state_directory_that_lacks_a_run_is_not_continued(tmp_path: Path) -> None:
    """The comparison would see it if state were not there."""
    one = opened("format-1", "time-windows", tmp_path)
    shutil.rmtree(tmp_path / "state" / "runs")
    with pytest.raises(Exception, match="run"):
        one.rest(case.given_of(tmp_path), tmp_path)
