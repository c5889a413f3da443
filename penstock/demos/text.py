"""Decode and generate lines of text with a time, `2026-03-01T09:00:00Z<TAB>words`."""

from __future__ import annotations

import penstock as ps
from penstock.demos.generator import Draws, format_time, generate_log
from penstock.logs import Log, Profile

COLUMNS = {"at": ps.Datetime("us", "UTC"), "text": ps.String()}

_TEXT = (
    "the and of a to in that his it i he but as is with was for all this at whale not by from him so on be you one "
    "there now had have or were they which like me then their what when an some ship no my are into upon man old up "
    "good great love calm fair happy bad lost storm fear wreck sad sea deck harpoon captain voyage white spout"
)
WORDS = _TEXT.split()
TAGS = ("#whale", "#ship", "#sea", "#captain", "#harbour")


def lines(name: str, log: Log, lateness: str) -> ps.Stream:
    """A stream of such lines."""
    return ps.stream(name, log, ps.Delimited(COLUMNS, "\t", None), time="at", lateness=lateness)


def sentence(draw: Draws, number: int, micros: int) -> str:
    """A line of words, common ones more often, with a tag every other time."""
    words = [WORDS[draw.low(len(WORDS))] for _ in range(4 + draw.below(8))]
    if draw.below(2):
        words.append(TAGS[draw.low(len(TAGS))])
    return f"{format_time(micros)}\t{' '.join(words).capitalize()}."


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """An endless log of generated lines."""
    return generate_log(sentence, rate=rate or 2_000, profile=profile)
