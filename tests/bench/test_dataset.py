"""Every engine gets the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.dataset import Parameters, make_dataset
from bench.outcome import EpochClock, agree, span_seconds
from penstock.errors import InternalError

SMALL = Parameters(5_000, rate=50)


def test_the_whole_files_are_the_generated_log(tmp_path: Path) -> None:
    made = make_dataset(SMALL, tmp_path / "kept")
    plain = SMALL.log().materialise(tmp_path / "plain")
    assert [path.read_bytes() for path in made.files] == [path.read_bytes() for path in plain]


def test_the_rotated_files_are_the_whole_ones_cut_and_one_closing_line(tmp_path: Path) -> None:
    made = make_dataset(SMALL, tmp_path)
    for server, whole in enumerate(made.files):
        pieces = sorted(made.rotated.glob(f"*-p{server}.log"))
        assert len(pieces) == 10
        lines = b"".join(piece.read_bytes() for piece in pieces).splitlines(keepends=True)
        closing = lines[len(whole.read_bytes().splitlines()) :]
        assert b"".join(lines[: len(lines) - len(closing)]) == whole.read_bytes()
        assert len(closing) == (1 if server == 0 else 0)


def test_files_of_a_rotation_were_changed_before_those_of_the_next(tmp_path: Path) -> None:
    paths = sorted(make_dataset(SMALL, tmp_path).rotated.iterdir(), key=lambda path: path.name)
    changed = [(path.stat().st_mtime, path.name[:5]) for path in paths]
    assert changed == sorted(changed)
    assert len(set(changed)) == 10


def test_a_smaller_data_set_is_a_prefix_of_a_larger_one(tmp_path: Path) -> None:
    small = make_dataset(Parameters(1_000, rate=50), tmp_path)
    large = make_dataset(SMALL, tmp_path)
    for short, long in zip(small.files, large.files, strict=True):
        assert long.read_bytes().startswith(short.read_bytes())


def test_files_are_kept_for_the_next_run_with_equal_parameters(tmp_path: Path) -> None:
    made = make_dataset(SMALL, tmp_path)
    before = made.files[0].stat().st_ino
    assert make_dataset(SMALL, tmp_path).files[0].stat().st_ino == before
    assert make_dataset(Parameters(5_000, rate=50, seed=2), tmp_path).whole != made.whole


def test_an_answer_that_is_not_right_is_refused() -> None:
    agree("patterns", "penstock", [[1, "a", 2]], [[1, "a", 2]])
    with pytest.raises(InternalError, match=r"not expected.*'b'") as refused:
        agree("patterns", "penstock", [[1, "b", 2]], [[1, "a", 2]])
    assert refused.value.condition == "BENCH_DISAGREES"


def test_the_time_of_a_run_goes_from_the_first_trigger_to_the_end_of_the_last_that_ran() -> None:
    progress = [
        {"timestamp": "2026-01-01T00:00:00.000Z", "durationMs": {"addBatch": 1, "triggerExecution": 900}},
        {"timestamp": "2026-01-01T00:00:02.000Z", "durationMs": {"addBatch": 1, "triggerExecution": 500}},
        {"timestamp": "2026-01-01T00:00:12.000Z", "durationMs": {"triggerExecution": 3}},
    ]
    assert span_seconds(progress) == (2.5, 2)


def test_the_time_of_penstock_goes_from_when_it_runs_to_the_end_of_the_last_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instants = iter([10.0, 11.5, 13.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(instants))
    clock = EpochClock()
    for phase in ("starting Spark", "warming up", "running"):
        clock.on_phase(phase)
    clock.watch(None)
    clock.watch(None)
    assert (clock.seconds, clock.epochs) == (3.0, 2)
