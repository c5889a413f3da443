"""A sink that is away or slow delays nobody else; nothing that it lacks is lost, or delivered twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.delivery import sink_delivery
from penstock.engine.engine import Engine
from penstock.engine.status import set_engine
from penstock.engine.status_server import status
from penstock.errors import PenstockError, UserError
from penstock.metrics import Registry, expose
from penstock.testing.list_sink import ListSink
from tests.delivery.kit import Numbers, Switched, app_of, running, settings_of, wait_until


def test_a_sink_that_is_away_delays_no_other(tmp_path: Path) -> None:
    numbers, away, well = Numbers(), Switched("far"), Switched("near")
    with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)) as engine:
        numbers.add(5)
        wait_until(lambda: away.numbers() == well.numbers() == list(range(5)), "the first rows")
        away.is_away = True
        for _ in range(20):
            numbers.add(5)
            wait_until(lambda: len(well.numbers()) == numbers.count, "rows beside the outage")
        assert away.numbers() == list(range(5))
        away.is_away = False
        wait_until(lambda: len(away.numbers()) == numbers.count, "the rows of the outage")
        wait_until(lambda: not engine.program.deliveries.lags(), "no lag")
    assert away.numbers() == well.numbers() == list(range(105)), "each once, in order"


def test_a_sink_that_blocks_delays_no_other(tmp_path: Path) -> None:
    numbers, slow, well = Numbers(), Switched("slow"), Switched("near")
    with running(app_of(numbers, slow=slow, near=well), settings_of(tmp_path)):
        slow.gate.clear()
        for _ in range(10):
            numbers.add(5)
            wait_until(lambda: len(well.numbers()) == numbers.count, "rows beside the sink that blocks")
        assert not slow.numbers()
        slow.gate.set()
        wait_until(lambda: len(slow.numbers()) == numbers.count, "its rows")
    assert slow.numbers() == well.numbers()


def test_a_sink_that_does_not_respond_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_delivery, "SILENT_SECONDS", 0.3)
    numbers, slow = Numbers(), Switched("slow")
    with running(app_of(numbers, slow=slow), settings_of(tmp_path)) as engine:
        slow.gate.clear()
        numbers.add(5)
        wait_until(lambda: any(lag.silent_seconds for lag in engine.program.deliveries.lags()), "the outage")
        shown = status(engine, None)
        (lag,) = shown.deliveries
        assert "[SINK_NOT_RESPONDING] slow has not responded for" in lag.error
        outage = engine.outage
        assert outage is not None
        assert outage.condition == "SINK_NOT_RESPONDING"
        registry = Registry()
        set_engine(registry, shown)
        (line,) = [one for one in expose(registry).splitlines() if one.startswith("penstock_outage_seconds ")]
        assert float(line.split()[1]) >= 0.3
        slow.gate.set()
        wait_until(lambda: len(slow.numbers()) == 5, "its rows")
        wait_until(lambda: engine.outage is None, "the end of the outage")
        assert not status(engine, None).deliveries


def test_an_engine_starts_while_a_sink_is_away(tmp_path: Path) -> None:
    numbers, away, well = Numbers(), Switched("far"), Switched("near")
    away.is_away = True
    numbers.add(3)
    with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)):
        wait_until(lambda: len(well.numbers()) == 3, "rows of the other sink")
        away.is_away = False
        wait_until(lambda: len(away.numbers()) == 3, "its rows")


def test_what_a_sink_lacks_at_the_end_it_gets_after_the_next_start(tmp_path: Path) -> None:
    numbers, away, well = Numbers(), Switched("far"), Switched("near")
    away.is_away = True
    for _ in range(3):
        with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)):
            numbers.add(4)
            wait_until(lambda: len(well.numbers()) == numbers.count, "rows of the other sink")
    away.is_away = False
    with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)):
        wait_until(lambda: len(away.numbers()) == 12, "the rows of three runs")
    assert away.numbers() == list(range(12))
    assert well.numbers() == list(range(12))


def test_a_lag_shows_in_status_and_metrics(tmp_path: Path) -> None:
    numbers, away, well = Numbers(), Switched("far"), Switched("near")
    with running(app_of(numbers, far=away, near=well), settings_of(tmp_path)) as engine:
        away.is_away = True
        numbers.add(2)
        wait_until(
            lambda: engine.retry_count >= 3 and bool(engine.program.deliveries.lags()), "some attempts"
        )
        shown = status(engine, None)
        (lag,) = shown.deliveries
        (emitted,) = (tmp_path / "state" / "results").glob("*.arrow")  # an epoch without rows may come before
        assert (lag.job, lag.sink, lag.cursor, lag.epochs) == ("far", "far", int(emitted.stem) - 1, 1)
        assert "far is away" in lag.error
        assert type(shown).from_json(shown.to_json()).deliveries == (lag,)
        registry = Registry()
        set_engine(registry, shown)
        text = expose(registry)
        assert 'penstock_delivery_lag_epochs{job="far",sink="far"} 1' in text
        assert "penstock_result_log_bytes" in text
        away.is_away = False
        wait_until(lambda: not status(engine, None).deliveries, "no lag")


def test_an_error_that_does_not_pass_ends_an_app_and_the_next_start_continues(tmp_path: Path) -> None:
    numbers, bad = Numbers(), Switched("bad")
    bad.raises = UserError("SINK_TABLE_MISSING", "there is no table")
    numbers.add(3)
    with (
        pytest.raises(UserError, match="SINK_TABLE_MISSING"),
        running(app_of(numbers, bad=bad), settings_of(tmp_path)),
    ):
        pass
    bad.raises = None

    def run_until_it_raises() -> None:
        with running(app_of(numbers, bad=bad), settings_of(tmp_path)) as engine:
            wait_until(lambda: len(bad.numbers()) == 3, "the first rows")
            bad.raises = ValueError("of the user's own code")
            numbers.add(3)
            wait_until(lambda: engine.program.deliveries.error is not None, "the error")

    with pytest.raises(PenstockError, match=r"SINK_FAILED.*own code"):
        run_until_it_raises()
    bad.raises = None
    with running(app_of(numbers, bad=bad), settings_of(tmp_path)):
        wait_until(lambda: len(bad.numbers()) == 6, "the rows")
    assert bad.numbers() == list(range(6))


def test_an_output_fails_alone_for_its_sink_while_others_run(tmp_path: Path) -> None:
    numbers, bad, well = Numbers(), Switched("bad"), Switched("near")
    with running(app_of(numbers, bad=bad, near=well), settings_of(tmp_path)) as engine:
        numbers.add(3)
        wait_until(lambda: bad.numbers() == well.numbers() == [0, 1, 2], "the first rows")
        bad.raises = UserError("SINK_TABLE_MISSING", "there is no table")
        numbers.add(3)
        wait_until(lambda: engine.program.catalogue.jobs["bad"].master.life == "failed", "the failure")
        numbers.add(3)
        wait_until(lambda: len(well.numbers()) == 9, "the rows of the other output")
        bad.raises = None
        engine.program.execute("RESUME JOB bad")
        wait_until(lambda: bad.numbers()[:6] == list(range(6)), "what it had emitted")
        numbers.add(3)
        wait_until(lambda: 11 in bad.numbers(), "later rows")
    assert bad.numbers() == sorted(set(bad.numbers())), "each once, in order"


def test_a_run_that_reads_all_ends_with_the_error_of_an_output_that_failed_alone(tmp_path: Path) -> None:
    numbers, bad, well = Numbers(), Switched("bad"), Switched("near")
    bad.raises = UserError("SINK_TABLE_MISSING", "there is no table")
    numbers.add(3)
    numbers.log.finish()
    with pytest.raises(UserError, match="SINK_TABLE_MISSING"):
        Engine(app_of(numbers, bad=bad, near=well), settings_of(tmp_path, drain=True)).run()
    assert well.numbers() == [0, 1, 2]


def test_a_run_that_reads_all_waits_for_its_sinks(tmp_path: Path) -> None:
    numbers, slow = Numbers(), Switched("slow")
    numbers.add(3)
    numbers.log.finish()
    slow.gate.clear()
    threading.Timer(0.5, slow.gate.set).start()
    with running(app_of(numbers, slow=slow), settings_of(tmp_path, drain=True)):
        wait_until(lambda: len(slow.numbers()) == 3, "its rows")


def test_one_sink_of_two_outputs_is_written_by_one_worker_at_a_time(tmp_path: Path) -> None:
    class Guarded(ListSink):
        """Fails if it is written by two threads at once."""

        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

        def write(self, epoch: int, rows: object) -> bool:
            assert self.lock.acquire(blocking=False), "two writers"
            try:
                threading.Event().wait(0.15)
                return super().write(epoch, rows)  # type: ignore[arg-type]
            finally:
                self.lock.release()

    numbers, shared = Numbers(), Guarded()
    with running(app_of(numbers, one=shared, two=shared), settings_of(tmp_path)) as engine:
        numbers.add(3)
        wait_until(lambda: engine.last_epoch >= 0 and not engine.program.deliveries.lags(), "both outputs")
