"""Dropped state and epochs that are repeated or rolled back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock.state.directory import StateDirectory
from penstock.state.rollback import roll_back
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink
from tests.engine.changed_app import ChangedApp, lines, states_of, stream


def test_state_written_after_a_rollback_is_not_dropped_with_the_former(tmp_path: Path) -> None:
    app = ChangedApp(tmp_path / "state", ListLog({"p": lines(50)}, finished=False))
    app.run(gap=None, epoch_units=10)
    app.run(gap=None, window="5m", drop_state=True, epoch_units=10)
    directory = StateDirectory(app.state)
    with directory.locked():
        roll_back(directory, 1)
    app.run(gap=None, window="5m", epoch_units=10, epochs=2)
    states = states_of(app.state)
    assert states, "two epochs of the new query have state"
    app.log.add("p", *lines(400)[50:])
    app.log.finish()
    app.run(gap=None, window="5m", epoch_units=100)
    whole = ChangedApp(tmp_path / "whole", ListLog({"p": lines(400)[20:]}, finished=True))
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
