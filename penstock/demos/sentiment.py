"""Sentiment: how do people feel about a few topics?

    penstock demo sentiment

The input is short messages with a time and tags. Output, for each topic in the last ten seconds, every second:
- `mood`: the number of messages with its tag, of glad and of sad ones, and the average score. A message's score is its
  number of good words less its number of bad ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

import penstock as ps
from penstock import col
from penstock.demos import text
from penstock.logs import Log

GOOD = ("good", "great", "love", "calm", "fair", "happy")
BAD = ("bad", "lost", "storm", "fear", "wreck", "sad")

generated = text.generated


def count_words(words: Sequence[str]) -> pl.Expr:
    """The number of these words in a message."""
    return col("text").str.count_matches(rf"(?i)\b(?:{'|'.join(words)})\b").cast(pl.Int64)


def build(
    log: Log,
    results: str | Path = "out/sentiment",
    *,
    lateness: str = "2s",
    topics: Sequence[str] = text.TAGS[:3],
) -> ps.App:
    """The application over a log of messages; `topics` are tags in small letters."""
    messages = text.lines("messages", log, lateness)
    tags = col("text").str.to_lowercase().str.extract_all(r"#\w+").list.unique(maintain_order=True)
    about = messages.select(topic=tags, score=count_words(GOOD) - count_words(BAD)).explode("topic")
    about = about.filter(col("topic").is_in(list(topics)))
    felt = about.map(glad=(col("score") > 0).cast(pl.Int64), sad=(col("score") < 0).cast(pl.Int64))
    mood = (
        felt.key_by("topic")
        .window("10s", every="1s")
        .aggregate(ps.count("messages"), ps.sum_("glad", "glad"), ps.sum_("sad", "sad"), ps.avg("score"))
    )
    return ps.app("sentiment", ps.output("mood", mood, ps.jsonl(Path(results) / "mood")))


app = build(generated())
