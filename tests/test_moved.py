"""Paths that users imported before still work, and say what they are now."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from penstock.moved import MOVED, RENAMED


@pytest.mark.parametrize("former", MOVED)
def test_a_former_path_gives_what_the_new_one_has_and_warns(former: str) -> None:
    for name in [name for name in sys.modules if name == former or name.startswith(f"{former}.")]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match=MOVED[former].replace(".", r"\.")):
        alias = importlib.import_module(former)
    now = importlib.import_module(MOVED[former])
    public = [name for name in getattr(now, "__all__", vars(now)) if not name.startswith("_")]
    assert public
    assert all(getattr(alias, name) is getattr(now, name) for name in public)


@pytest.mark.parametrize("former", RENAMED)
def test_a_former_name_is_the_renamed_object(former: str) -> None:
    alias, now = importlib.import_module(former), importlib.import_module(MOVED[former])
    for name, new in RENAMED[former].items():
        assert getattr(alias, name) is getattr(now, new)


def test_former_names_of_ha_warn() -> None:
    ha = importlib.import_module("penstock.ha")
    with pytest.warns(DeprecationWarning, match="initial_state"):
        start = ha.begun
    assert start is ha.initial_state
    _, decision = ha.decide(ha.initial_state(ha.ControllerSettings(), 0.0), (), ha.ControllerSettings(), 0.0)
    with pytest.warns(DeprecationWarning, match="describe"):
        assert decision.told() == decision.describe()


def test_an_unknown_name_is_still_an_import_error() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("penstock.jobs.nowhere")
    with pytest.raises(ImportError):
        exec("from penstock.jobs.program import Nothing", {})


def test_the_former_name_of_the_program_warns() -> None:
    with pytest.warns(DeprecationWarning, match="Program"):
        from penstock.catalogue.program import Jobs  # type: ignore[attr-defined]
    from penstock.catalogue.program import Program

    assert Jobs is Program


def test_the_former_name_of_execute_warns(tmp_path: Path) -> None:
    from penstock.catalogue.program import Program

    with pytest.warns(DeprecationWarning, match="execute"):
        (reply,) = Program("empty", tmp_path).say("SHOW JOBS")
    assert reply.message == "0 jobs"
