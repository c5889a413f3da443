"""The ingest benchmark finds every line it sent before it says a figure."""

from __future__ import annotations

import pytest

from penstock.bench.ingest import CASES, Ingest, Size

#: these start Spark and send at full rate: for a quiet machine
WITH_ENGINE = ("result", "latency")


@pytest.mark.parametrize("case", [case for case in CASES if case not in WITH_ENGINE])
def test_a_case_tells_its_findings(case: str) -> None:
    told: list[str] = []
    bench = Ingest(Size(lines=1_000, light_seconds=0.5, agents=5, agents_seconds=2, runs=1), told.append)
    findings = list(bench.cases()[case]())
    assert findings
    assert told
    assert all(finding.runs[0] >= 0 for finding in findings if "grown" not in finding.metric)
