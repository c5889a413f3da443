"""The result log removes what nobody needs: neither questions, nor the latest result, nor a sink that is behind."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import polars as pl

from penstock.delivery.result_log import ResultLog


def rows(*numbers: int) -> pl.DataFrame:
    return pl.DataFrame({"n": numbers}, schema={"n": pl.Int64})


def filled(folder: Path, epochs: int, kept: int) -> ResultLog:
    """A log of two outputs, `a` and `b`."""
    log = ResultLog(folder, kept)
    for epoch in range(epochs):
        log.append(epoch, {"a": rows(epoch), "b": rows(epoch, epoch)})
    return log


def prune(log: ResultLog, before: int, first: int | None, most_bytes: int = 1 << 40) -> int:
    def lacking(epoch: int) -> Collection[str]:
        return {"a"} if first is not None and epoch >= first else set()

    return log.prune(before, most_bytes, lacking, first)


def test_what_a_sink_lacks_stays_and_nothing_else(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, kept=10)
    prune(log, 100, first=40)
    assert log.epochs == list(range(40, 100))
    assert log.outputs_in(50) == {"a"}
    assert log.outputs_in(95) == {"a", "b"}, "the newest ones stay for questions"
    assert log.of("a", 50) is not None
    assert log.retained_from == 90
    for epoch in range(100, 130):
        log.append(epoch, {"a": rows(epoch), "b": rows(epoch)})
    prune(log, 130, first=70)
    assert log.epochs == list(range(70, 130)), "epochs that the sink has by now are gone"
    prune(log, 130, first=None)
    assert log.epochs == list(range(120, 130))
    assert sorted(int(path.stem) for path in log.folder.glob("*.arrow")) == log.epochs
    assert log.bytes == 10 * 4_096


def test_a_latest_result_stays_until_it_is_replaced(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, 5)
    log.append(0, {"rare": rows(1), "often": rows(1)})
    for epoch in range(1, 50):
        log.append(epoch, {"often": rows(epoch)})
    prune(log, 50, None)
    assert log.epochs == [0, *range(45, 50)]
    log.append(50, {"rare": rows(2)})
    prune(log, 51, None)
    assert log.epochs == list(range(46, 51))
    again = ResultLog(tmp_path, 5)
    again.load(["rare", "often"])
    assert again.bytes == log.bytes
    result = again.latest("rare")
    assert result is not None
    assert result.rows["n"].to_list() == [2]


def test_over_the_limit_results_for_questions_go_first(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, kept=1_000)
    assert prune(log, 90, None, most_bytes=50 * 4_096) == 0
    assert log.epochs == list(range(50, 100))
    assert prune(log, 90, first=60, most_bytes=20 * 4_096) == 20 * 4_096, "what the sink lacks is too much"
    assert log.epochs == list(range(60, 100))


def test_an_epoch_that_a_sink_lacks_is_read_once(tmp_path: Path) -> None:
    log = filled(tmp_path, 300, kept=10)
    prune(log, 300, first=0)
    for path in sorted(log.folder.glob("*.arrow"))[:200]:
        path.write_bytes(b"cannot be read")
    for _ in range(3):
        prune(log, 300, first=0)
    assert len(log.epochs) == 300
