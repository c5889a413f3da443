"""The record of the elastic loop keeps its latest entries, under numbers that never change."""

from __future__ import annotations

from penstock.scaling.decisions import Provision
from penstock.scaling.record import MAX_ENTRIES, Outcome, Record


def test_the_oldest_entries_are_dropped_and_the_others_keep_their_numbers() -> None:
    record = Record()
    for number in range(MAX_ENTRIES + 250):
        record = record.add(Provision(1, f"reason {number}"), float(number))
        record = record.set_end(number, Outcome.watched, number + 0.5, "", 0.0)
        record = record.set_judgement(number, Outcome.helped, number + 0.7, f"judged {number}")
    assert len(record.entries) == MAX_ENTRIES
    assert [one.number for one in record.entries] == list(range(250, MAX_ENTRIES + 250))
    assert all(one.why == f"judged {one.number}" for one in record.entries)
    assert len(record.lines().splitlines()) == MAX_ENTRIES
