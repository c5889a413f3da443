"""Word count: how often does each word occur, and which ones most often?

    penstock demo wordcount

The input is lines of text with a time. Outputs, every ten seconds of event time:
- `counts`: the count so far of every word that occurs in these ten seconds;
- `top`: the `best` most frequent words, if they have changed.
"""

from __future__ import annotations

from pathlib import Path

import penstock as ps
from penstock import col
from penstock.demos import text
from penstock.logs import Log

generated = text.generated


def build(log: Log, results: str | Path = "out/wordcount", *, lateness: str = "2s", best: int = 20) -> ps.App:
    """The application over a log of lines."""
    lines = text.lines("lines", log, lateness)
    words = lines.select(word=col("text").str.to_lowercase().str.extract_all(r"\p{L}+")).explode("word")
    counts = words.key_by("word").running("10s").count()
    return ps.app(
        "wordcount",
        ps.output("counts", counts, ps.jsonl(Path(results) / "counts")),
        ps.output("top", counts.top(best), ps.jsonl(Path(results) / "top")),
    )


app = build(generated())
