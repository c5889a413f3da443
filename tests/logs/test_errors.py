"""Errors of logs that have changed."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import ExternalError, UserError
from penstock.logs import ReplicatedLog, Span
from penstock.testing.list_log import ListLog


def test_a_generated_log_keeps_its_number_of_partitions() -> None:
    memory = ps.generated(rate=10, partitions=2).start(None, {})
    with pytest.raises(UserError, match="LOG_CHANGED"):
        ps.generated(rate=10, partitions=3).start(memory, {"generated-0": 5, "generated-1": 5})


def test_a_gap_in_every_copy_is_an_error() -> None:
    log = ReplicatedLog(ListLog(["a"], finished=False), ListLog(["a", "b"], finished=False))
    log.partitions({})
    with pytest.raises(ExternalError, match="COPY_BEHIND"):
        list(log.read(Span("p9", 0, 1)))
