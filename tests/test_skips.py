"""Where a skip is a failure, every kind of skip is one, except in tests that declare why they may be skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

TESTS = """
import pytest


def test_one_that_passes():
    pass


def test_within():
    pytest.skip("no server here")


@pytest.mark.skip(reason="for later")
def test_by_a_mark():
    pass


@pytest.mark.skipif(True, reason="not on this machine")
def test_by_a_condition():
    pass


@pytest.fixture
def server():
    pytest.skip("no server there")


def test_by_a_fixture(server):
    pass


@pytest.mark.xfail
def test_one_that_is_expected_to_fail():
    assert False


@pytest.mark.may_skip("the moon")
def test_one_that_says_so():
    pytest.skip("no moon")
"""
MODULE = """
import pytest
pytest.skip("nothing works", allow_module_level=True)
"""


def run(folder: Path, text: str, skips: str | None) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = may_skip(what): documented\n")
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_TEST_SKIPS"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:schemathesis",
            "-p",
            "no:xdist",
            "-p",
            "tests.skips",
            "-q",
        ],
        cwd=folder,
        env=environment
        | {"PYTHONPATH": str(Path(__file__).parents[1])}
        | ({"PENSTOCK_TEST_SKIPS": skips} if skips else {}),
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout


def test_every_kind_of_skip_fails(tmp_path: Path) -> None:
    code, output = run(tmp_path, TESTS, "fail")
    assert code == 1
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 3 errors" in output, output
    for why in ("no server here", "for later", "not on this machine", "no server there"):
        assert f"\n{why}\n" in output, output
    assert "\nno moon\n" not in output


def test_a_module_that_is_skipped_fails(tmp_path: Path) -> None:
    code, output = run(tmp_path, MODULE, "fail")
    assert code != 0
    assert "\nnothing works\n" in output


@pytest.mark.parametrize("text", [TESTS, MODULE])
def test_by_default_a_skip_is_a_skip(tmp_path: Path, text: str) -> None:
    code, output = run(tmp_path, text, None)
    assert code in (0, 5), output
    assert "failed" not in output.replace("xfailed", "")
