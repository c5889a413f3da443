"""State of another version of an operator is refused, unless the operator reads it or the state is dropped."""

from __future__ import annotations

import pytest

from penstock.operators.aggregate import Aggregation
from penstock.operators.functions.count_sum import Sum
from penstock.operators.session_windows import SessionWindows
from penstock.state.directory import StateDirectory
from tests.engine.changed_app import (
    SESSIONS,
    TOTALS,
    ChangedApp,
    catch_error,
    finish,
    lines,
)


@pytest.mark.parametrize("of", [Aggregation, Sum], ids=["operator", "aggregate"])
def test_state_of_another_version_is_refused(
    app: ChangedApp, of: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of, "state_version", 2)
    error = catch_error(app.run)
    assert error.condition == "OPERATOR_STATE_OF_OTHER_VERSION"
    assert TOTALS in str(error)
    assert "is version 1, this Penstock reads version 2" in str(error.detail)


def test_state_of_a_newer_version_is_refused_too(app: ChangedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(SessionWindows, "state_version", 3)
        newer.setattr(SessionWindows, "reads_versions", frozenset({1}))
        app.log.add("p", *lines(55)[50:])
        app.run()
    assert StateDirectory(app.state).manifests.latest().versions == {SESSIONS: {"session-window": 3}}
    error = catch_error(app.run)
    assert "is version 3, this Penstock reads version 1" in str(error.detail)


def test_state_of_a_version_that_the_operator_reads_is_kept(
    app: ChangedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Aggregation, "state_version", 2)
    monkeypatch.setattr(Aggregation, "reads_versions", frozenset({1}))
    finish(app)
    app.run()
    assert app.count_events("totals") == 90


def test_state_of_another_version_can_be_dropped(app: ChangedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Aggregation, "state_version", 2)
    finish(app)
    app.run(drop_state=True)
    assert app.count_events("totals") == 40
    assert app.count_events("sessions") == 90
