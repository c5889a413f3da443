"""Loads have the shape of their names; a load is read from a file, and an invalid file is refused with its row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import UserError
from penstock.simulate.loads import SPREADS, Trace, find_spread, find_trace


def test_each_load_has_the_shape_of_its_name() -> None:
    assert set(Trace().rates(100, 5, 1)) == {100_000}
    spike = Trace("spike", rate=10).rates(3600, 5, 1)
    assert (spike[0], spike.max(), spike[-1]) == (10, 30, 10)
    assert spike[185] == pytest.approx(30, rel=0.1)  # 30 s after it started
    step = Trace("step", rate=10).rates(3600, 5, 1)
    assert (step[0], step[-1]) == (10, 30)
    sine = Trace("sine", rate=10).rates(3600, 5, 1)
    assert sine.min() == pytest.approx(5, abs=0.1)
    assert sine.max() == pytest.approx(15, abs=0.1)
    ramp = Trace("ramp", rate=10, factor=4).rates(3600, 5, 1)
    assert int(ramp.argmax()) in (359, 360)


def test_noise_is_seeded_and_of_the_given_size() -> None:
    noisy = Trace(noise=0.2)
    one = noisy.rates(50_000, 5, 1)
    assert (one == noisy.rates(50_000, 5, 1)).all()
    assert (one != noisy.rates(50_000, 5, 2)).any()
    assert one.std() / one.mean() == pytest.approx(0.2, abs=0.01)
    assert Trace(noise=2.0).rates(50_000, 5, 1).min() == 0


def test_a_file_is_read_with_or_without_a_header(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("time,rate\n100,10\n# a comment\n200,30\n")
    trace = find_trace(str(file))
    assert trace.points == ((0.0, 10.0), (100.0, 30.0))
    assert trace.rates(100, 50, 1) == pytest.approx([15, 25])
    file.write_text("0,10\n60,10\n")
    assert set(find_trace(str(file)).rates(60, 5, 1)) == {10}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("time,rate\n", "0 rows"),
        ("0,1\n", "1 rows"),
        ("0,1\n0,2\n", "row 2 is not later"),
        ("0,1\n5,many\n", "row 2 is not two numbers"),
        ("0,1\n5\n", "row 2 is not two numbers"),
        ("0,1\n5,-1\n", "row 2 has a rate"),
        ("0,1\n5,nan\n", "row 2 has a rate"),
    ],
)
def test_an_invalid_file_is_reported_with_its_row(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        find_trace(str(file))
    assert caught.value.condition == "BAD_TRACE"
    assert why in caught.value.text()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        find_trace("wobbly")
    assert caught.value.condition == "NO_SUCH_TRACE"
    with pytest.raises(UserError) as caught:
        find_spread("wobbly", 8, 1)
    assert caught.value.condition == "NO_SUCH_SPREAD"


@pytest.mark.parametrize("name", SPREADS)
def test_the_shares_of_keys_add_up_to_one_at_any_time(name: str) -> None:
    spread = find_spread(name, 256, 1)
    for share in (0.0, 0.3, 0.99):
        assert spread(share).sum() == pytest.approx(1)
        assert (spread(share) >= 0).all()


def test_moving_spreads_move_their_mean_and_their_deviation() -> None:
    mean = find_spread("moving-mean", 256, 1)
    peaks = [int(np.convolve(mean(s), np.ones(9), "same").argmax()) for s in (0.3, 0.5, 0.7, 0.9)]
    assert peaks == sorted(peaks)
    narrow = find_spread("moving-deviation", 256, 1)
    tops = [narrow(s).max() for s in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert tops == sorted(tops)
