"""Errors of replicas."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import ExternalError
from penstock.ha import seed
from penstock.state.directory import StateDirectory
from penstock.testing import ListSink, run_inline
from tests.epoch.map_changes import new_history
from tests.operators.harness import events_stream


def test_a_state_whose_runs_are_gone_cannot_be_followed(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = events_stream(new_history(5)).key_by("user").last(2, "n")
    run_inline(ps.app("any", ps.output("out", rows, ListSink())), state)
    leader = StateDirectory(state)
    assert seed.seed_state(tmp_path / "whole", leader) == 0
    shutil.rmtree(state / "runs")
    monkeypatch.setattr(seed, "_ATTEMPTS", 3)
    with pytest.raises(ExternalError, match="NOTHING_TO_FOLLOW"):
        seed.seed_state(tmp_path / "target", leader)
