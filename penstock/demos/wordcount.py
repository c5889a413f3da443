"""Word count: how often has each word been said, and which ones most?

    penstock demo wordcount

Receives lines of text with a time; hands two outputs, each told every ten seconds of event time:
- `counts`: the count since the beginning of every word that was said in these ten seconds;
- `top`: the `best` most frequent words, when they have changed.
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
