"""Where two queries begin to differ: what to say when a state directory belongs to another one. Pure.

Receives the summaries of both; hands a sentence.
"""

from __future__ import annotations

from itertools import takewhile, zip_longest


def first_difference(held: str, said: str) -> str:
    """Where two summaries of queries begin to differ: they are outputs, each a path of steps."""
    for then, now in zip_longest(held.split("; "), said.split("; ")):
        if then == now:
            continue
        if then is None or now is None:
            return f"it holds no {now}" if then is None else f"this one has no {then}"
        before, after = then.split(" -> "), now.split(" -> ")
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        if not same:
            return f"it holds: {then}; this one is: {now}"
        steps = [" -> ".join(rest[same : same + 1]) or "nothing more" for rest in (before, after)]
        return f"after {before[same - 1]!r} it has: {steps[0]}; this one has: {steps[1]}"
    return (
        f"both are {_short(said)}, but what they keep differs: a column's type, an option of an operator or the "
        "application's name"
    )


def _short(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
