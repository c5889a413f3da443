"""The audit log closes a file when it is large or old, and keeps the latest files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.server.audit import FILE_SECONDS, FILES, Audit


def test_a_large_file_is_closed_and_the_oldest_one_removed(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl", file_bytes=2_000)
    for number in range(200):
        audit.record(None, "CREATE", text=f"statement {number}")
    audit.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == FILES
    assert sum(file.stat().st_size for file in files) <= FILES * 2_000
    assert audit.lines(1)[0]["text"] == "statement 199"


def test_an_old_file_is_closed_although_it_is_small(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    for number in range(FILES + 2):
        old = datetime.now(UTC) - timedelta(seconds=FILE_SECONDS + 60)
        file.write_text(json.dumps({"at": old.isoformat(), "did": f"old {number}"}) + "\n")
        audit = Audit(file)
        audit.record(None, "CREATE")
        audit.record(None, "DROP")
        audit.close()
        assert [json.loads(line)["did"] for line in file.read_text().splitlines()] == ["CREATE", "DROP"]
        assert json.loads(file.with_name("audit.jsonl.1").read_text())["did"] == f"old {number}"
    assert len(list(tmp_path.iterdir())) == FILES


def test_a_file_that_is_young_is_continued_after_a_restart(tmp_path: Path) -> None:
    for _ in range(3):
        audit = Audit(tmp_path / "audit.jsonl")
        audit.record(None, "CREATE")
        audit.close()
    assert [file.name for file in tmp_path.iterdir()] == ["audit.jsonl"]
    assert len(audit.lines(10)) == 3
