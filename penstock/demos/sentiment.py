"""Sentiment: what do people feel about a few topics?

    penstock demo sentiment

Receives short messages with a time and tags; hands for each topic, of the last ten seconds, every second:
- `mood`: messages with its tag, how many were glad and how many sad, and the average score. A message scores a point
  for every good word and loses one for every bad word.
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


def said(words: Sequence[str]) -> pl.Expr:
    """How many of these words a message says."""
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
    about = messages.select(topic=tags, score=said(GOOD) - said(BAD)).explode("topic")
    about = about.filter(col("topic").is_in(list(topics)))
    felt = about.map(glad=(col("score") > 0).cast(pl.Int64), sad=(col("score") < 0).cast(pl.Int64))
    mood = (
        felt.key_by("topic")
        .window("10s", every="1s")
        .aggregate(ps.count("messages"), ps.sum_("glad", "glad"), ps.sum_("sad", "sad"), ps.avg("score"))
    )
    return ps.app("sentiment", ps.output("mood", mood, ps.jsonl(Path(results) / "mood")))


app = build(generated())
