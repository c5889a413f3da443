"""The generated log: its lines, its rates, and its restarts."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import UserError
from penstock.logs import FileLog, GeneratedLog, Span
from penstock.logs.draw import power_law
from penstock.logs.rates import Rate
from penstock.testing.log_contract import read_all, whole
from penstock.testing.manual_clock import ManualClock

LINE = re.compile(
    r'10\.\d+\.\d+\.\d+ - - \[(?P<time>[^\]]+)\] "(?:GET|POST) (?P<path>/\S*) HTTP/1\.1" '
    r'(?P<status>\d{3}) (?P<bytes>\d+|-) "(?P<referer>[^"]*)" "(?P<agent>[^"]+)" "session=u(?P<user>\d{7})"'
)

EXPECTED = (
    b"10.0.0.64 - - [01/Jan/2026:00:00:00 +0000] "
    b'"GET /search HTTP/1.1" 200 17628 "http://shop.example/"'
    b' "Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) Mobile/15E148" "session=u0000064"\n'
)


def test_lines_are_apache_combined_with_a_session() -> None:
    log = GeneratedLog(total=4_000, live=False, rate=1_000, partitions=1)
    lines = read_all(log, Span("p0", 0, 4_000)).decode().splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert len(lines) == 4_000
    assert all(found)
    times = [datetime.strptime(m["time"], "%d/%b/%Y:%H:%M:%S %z") for m in found if m]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC),
    )
    statuses = Counter(m["status"] for m in found if m)
    assert 0.85 < statuses["200"] / 4_000 < 0.95
    assert {"304", "404"} < statuses.keys()
    users = Counter(m["user"] for m in found if m)
    assert users.most_common(1)[0][0] == "0000000"
    assert len(users) > 1_000


def test_the_first_line_is_the_same_on_every_machine_and_in_every_version() -> None:
    log = GeneratedLog(total=100, live=False, seed=7)
    assert read_all(log, Span("p1", 17, 18)) == EXPECTED


def test_seeds_and_partitions_differ() -> None:
    one, two = (GeneratedLog(total=100, live=False, seed=seed) for seed in (1, 2))
    texts = {read_all(log, Span(p, 0, 50)) for log in (one, two) for p in ("p0", "p1")}
    assert len(texts) == 4


def test_a_log_that_is_not_live_is_complete_at_once() -> None:
    log = GeneratedLog(total=11, partitions=3, live=False)
    assert [(p.latest, p.finished) for p in log.partitions({})] == [(4, True), (4, True), (3, True)]


def test_a_live_log_grows_with_the_clock_and_ends_at_its_total() -> None:
    clock = ManualClock(1_800_000_000)
    log = GeneratedLog(rate=100, partitions=2, total=500, clock=clock)
    log.start(None, {})
    counts = []
    for _ in range(7):
        counts.append([p.latest for p in log.partitions({})])
        clock.turn(1)
    assert counts[:3] == [[1, 0], [51, 50], [101, 100]]
    assert counts[-1] == [250, 250]
    assert all(p.finished for p in log.partitions({}))
    clock.turn(-100)
    assert [p.latest for p in log.partitions({})] == [250, 250]


def test_a_restarted_log_reproduces_its_earlier_events_and_continues_from_now() -> None:
    clock = ManualClock(1_800_000_000)
    first = GeneratedLog(rate=100, clock=clock, profile="sine", period_seconds=7)
    memory = first.start(None, {})
    clock.turn(10)
    reached = {p.id: p.latest // 2 for p in first.partitions({})}
    read = {id: read_all(first, Span(id, 0, end)) for id, end in reached.items()}

    clock.turn(3_600)
    second = GeneratedLog(rate=100, clock=clock, profile="sine", period_seconds=7)
    memory = second.start(memory, reached)
    assert [p.latest - reached[p.id] for p in second.partitions(reached)] == [1, 0]
    clock.turn(10)
    for number, partition in enumerate(second.partitions(reached)):
        assert read_all(second, Span(partition.id, 0, reached[partition.id])) == read[partition.id]
        times = second.event_times(number, reached[partition.id], partition.latest) / 1e6
        assert 1_800_003_610 <= times[0] < 1_800_003_610.05
        assert 1_800_003_619.9 < times[-1] <= clock.now
        across = read_all(second, Span(partition.id, 0, partition.latest))
        assert across.startswith(read[partition.id])

    third = GeneratedLog(rate=100, clock=clock, profile="sine", period_seconds=7)
    third.start(memory, {p.id: p.latest for p in second.partitions(reached)})
    assert read_all(third, whole(second.partitions({})[0])) == read_all(
        second, whole(second.partitions({})[0])
    )


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (Rate(1_000), [1_000] * 8),
        (
            Rate(1_000, "spike", spike_factor=4, at_seconds=3, for_seconds=2),
            [1_000] * 3 + [4_000] * 2 + [1_000] * 3,
        ),
        (Rate(1_000, "step", step_factor=0.5, at_seconds=5.5), [1_000] * 5 + [750] + [500] * 2),
        (Rate(1_000, "sine", amplitude=1, period_seconds=4), [1637, 1637, 363, 363] * 2),
    ],
)
def test_events_in_a_second_follow_the_profile(rate: Rate, expected: list[int]) -> None:
    seconds = rate.curve().instants(np.arange(20_000)) // 1_000_000
    counts = np.bincount(seconds)[: len(expected)]
    assert np.abs(counts - expected).max() <= 5


@pytest.mark.parametrize("profile", ["constant", "sine", "spike", "step"])
@pytest.mark.parametrize("per_second", [0.5, 333.3, 1e6])
def test_counts_and_instants_agree(profile: str, per_second: float) -> None:
    curve = Rate(per_second, profile, at_seconds=2, for_seconds=1.5, period_seconds=3).curve()  # type: ignore[arg-type]
    events = np.arange(0, int(per_second * 20) + 5, max(1, int(per_second / 37)))
    instants = curve.instants(events)
    assert (np.diff(instants) >= 0).all()
    for event, instant in list(zip(events.tolist(), instants.tolist(), strict=True))[::7]:
        assert curve.count(instant) > event
        assert curve.count(instant - 1) <= event


def test_disorder_moves_event_times_back_by_no_more_than_its_setting() -> None:
    straight, mixed_up = (
        GeneratedLog(total=2_000, rate=100, partitions=1, live=False, disorder_seconds=d) for d in (0, 5)
    )
    times = [
        [datetime.strptime(t, "%d/%b/%Y:%H:%M:%S") for t in re.findall(r"\[(\S+) ", text.decode())]
        for text in (read_all(log, Span("p0", 0, 2_000)) for log in (straight, mixed_up))
    ]
    late = [(a - b).total_seconds() for a, b in zip(*times, strict=True)]
    assert min(late) == 0
    assert 4 <= max(late) <= 6


def test_ranks_follow_the_power_law() -> None:
    law = power_law(1_000, 1.1)
    draws = np.random.default_rng(3).integers(0, 2**64, 400_000, dtype=np.uint64)
    counts = np.bincount(law.ranks(draws), minlength=1_000)
    weights = np.arange(1, 1_001) ** -1.1
    expected = 400_000 * weights / weights.sum()
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected) + 1).all()


def test_a_materialised_log_is_the_log(tmp_path: Path) -> None:
    log = GeneratedLog(total=3_000, live=False)
    paths = log.materialise(tmp_path / "out", chunk_bytes=50_000)
    files = FileLog(str(tmp_path / "out" / "*.log"), finished=True)
    texts = [read_all(log, whole(p)) for p in log.partitions({})]
    assert [path.read_bytes() for path in paths] == texts
    assert [read_all(files, whole(p)) for p in files.partitions({})] == texts


def test_impossible_settings_are_refused() -> None:
    for settings in ({"live": False}, {"partitions": 0}, {"rate": 0}, {"profile": "zigzag"}, {"rate": 1e12}):
        with pytest.raises(UserError) as error:
            GeneratedLog(**settings)
        assert error.value.condition == "BAD_GENERATED_LOG"
