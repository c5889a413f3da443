"""The log of a Spark source's micro-batches, without Spark: a stand-in writes their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from penstock.errors import ExternalError
from penstock.logs import Log, Span
from penstock.spark.source_log import SparkSource
from penstock.testing.log_contract import LogContract, read_all, whole


class Lines:
    """The part of a data frame that is needed: `lines.write.mode("overwrite").text(place)`."""

    def __init__(self, *parts: list[str]) -> None:
        self.parts = parts
        self.write = self

    def mode(self, _: str) -> Lines:
        return self

    def text(self, place: str) -> None:
        folder = Path(unquote(urlsplit(place).path))
        folder.mkdir(parents=True)
        for number, part in enumerate(self.parts):
            (folder / f"part-{number:05d}.txt").write_text("".join(f"{line}\n" for line in part))
        (folder / "_SUCCESS").touch()


def make_log(folder: Path) -> tuple[SparkSource, Callable[..., None]]:
    log = SparkSource("none", directory=folder / "a log")
    log.start(None, {})
    log.resumed({})  # no side query
    append: Any = log._append
    return log, append


class TestContract(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        log, append = make_log(tmp_path)
        append(Lines(["first"], [], ["x" * (n * 7 % 90) for n in range(300)]), 0)
        append(Lines([], []), 1)
        append(Lines([f"line {n}" for n in range(200)], ["ü"]), 5)
        return log


def test_a_repeated_batch_is_skipped(tmp_path: Path) -> None:
    log, append = make_log(tmp_path)
    append(Lines(["a"]), 0)
    append(Lines(["b"]), 1)
    for batch in (1, 0):
        append(Lines(["again"]), batch)
    append(Lines(["c"]), 2)
    assert read_all(log, whole(log.partitions({})[0])) == b"a\nb\nc\n"


def test_a_half_written_batch_is_written_again(tmp_path: Path) -> None:
    log, append = make_log(tmp_path)
    staging = tmp_path / "a log" / "drafts" / "000000000000"
    staging.mkdir(parents=True)
    (staging / "part-00000.txt").write_text("half")
    append(Lines(["whole"]), 0)
    assert read_all(log, whole(log.partitions({})[0])) == b"whole\n"
    assert not staging.exists()


def test_pruned_batches_are_gone_and_numbers_continue(tmp_path: Path) -> None:
    log, append = make_log(tmp_path)
    for batch in range(4):
        append(Lines([f"batch {batch}"]), batch)
    log.prune({"p0": 16})
    (partition,) = log.partitions({"p0": 16})
    assert (partition.earliest, partition.latest) == (16, 32)
    assert read_all(log, whole(partition)) == b"batch 2\nbatch 3\n"
    with pytest.raises(ExternalError, match="LOG_SPAN_GONE"):
        read_all(log, Span("p0", 8, 24))
    log.prune({"p0": 32})
    again, append = make_log(tmp_path)
    append(Lines(["not this"]), 3)
    append(Lines(["batch 4"]), 4)
    (partition,) = again.partitions({"p0": 32})
    assert (partition.earliest, partition.latest) == (24, 40)
    assert read_all(again, Span("p0", 32, 40)) == b"batch 4\n"
