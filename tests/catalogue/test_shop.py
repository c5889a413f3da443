"""The demo of three applications on one stream, and the one that hunts spam, compared with plain Python."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock.demos
from penstock.catalogue.messages import Delivered
from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit

DEMOS = Path(penstock.demos.__file__).parent
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
PRODUCTS = ["Angry Birds", "Chess", "Go", "Tetris", "Pong"]


def script(name: str, folder: Path) -> str:
    """An app's SQL, reading finished files of this folder."""
    text = (DEMOS / f"{name}.sql").read_text()
    source = {"shop": "shop/*.jsonl", "spam": "posts/*.jsonl"}[name]
    return text.replace(f"files('{source}')", f"files('{folder}/*.jsonl', finished => TRUE)")


def write_events(folder: Path, events: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))


def purchases() -> list[dict[str, Any]]:
    draw, at, events = random.Random(5), BEGIN, []
    for _ in range(500):
        at += timedelta(milliseconds=draw.choice([50, 300, 700]))
        events.append(
            {
                "at": at.isoformat(),
                "user": f"u{draw.randrange(40)}",
                "product": draw.choice(PRODUCTS),
                "store": draw.choice(["games", "books"]),
                "action": draw.choice(["click", "click", "click", "buy"]),
                "n": draw.randrange(1, 4),
            }
        )
    return events


def window(event: dict[str, Any]) -> int:
    return int(datetime.fromisoformat(event["at"]).timestamp()) // 30


@pytest.mark.slow
def test_three_applications_on_one_stream_emit_the_rows_of_plain_python(tmp_path: Path) -> None:
    events = purchases()
    write_events(tmp_path / "shop", events)
    jobs = Program("shop", tmp_path / "state", begin=script("shop", tmp_path / "shop"))
    engine = InlineEngine(jobs, tmp_path / "state", epoch_units=4_000)
    list(engine.steps())
    emitted = {name: [row for _, row in kit.retained_rows(jobs, name)] for name in jobs.catalogue.jobs}

    clicks: dict[int, Counter[str]] = {}
    for event in events:
        if event["action"] == "click" and event["store"] == "games":
            clicks.setdefault(window(event), Counter())[event["product"]] += event["n"]
    popular = [
        row for at in sorted(clicks) for row in sorted(clicks[at].items(), key=lambda r: (-r[1], r[0]))
    ]
    assert emitted["micro_promotion"] == popular

    buys = [event for event in events if event["action"] == "buy"]
    pairs = [
        (one, other)
        for one in buys
        for other in buys
        if one["user"] == other["user"]
        and one["product"] != other["product"]
        and abs(datetime.fromisoformat(one["at"]) - datetime.fromisoformat(other["at"]))
        <= timedelta(minutes=5)
    ]
    assert sorted(emitted["bought_together"]) == sorted((a["product"], b["product"]) for a, b in pairs)
    # a pair happens when the later of the two does
    together = Counter((max(window(a), window(b)), a["product"], b["product"]) for a, b in pairs)
    bundles = sorted((product, other, times) for (_, product, other), times in together.items())
    assert sorted(emitted["product_bundling"]) == bundles

    assert emitted["sale_prediction"], "the third reads the other two"
    expected = []
    for (at, product, other), times in together.items():
        if product == "Angry Birds":
            # results have the last instant of their window as event time, so those of one window join
            known = [earlier for earlier in clicks if earlier <= at and other in clicks[earlier]]
            if known:
                expected.append((product, other, times, clicks[max(known)][other]))
    assert sorted(emitted["sale_prediction"]) == sorted(expected)

    peers = jobs.questions.send_message("product_bundling", {"product": "Angry Birds"})
    assert {row["product"] for row in peers} == {"Angry Birds"}
    jobs.execute("ALTER JOB sale_prediction SET $product = 'Chess'")
    engine.close()


def test_a_job_replies_to_messages_and_queries_other_jobs(tmp_path: Path) -> None:
    write_events(tmp_path / "shop", purchases())

    def predicted(delivered: Delivered) -> list[Any]:
        peers = delivered.route("product_bundling", {"product": delivered.message})
        return sorted({row["other"] for row in peers})

    def lost(delivered: Delivered) -> Any:
        return delivered.route("bought_together", delivered.message)

    jobs = Program(
        "shop",
        tmp_path / "state",
        begin=script("shop", tmp_path / "shop"),
        deliver={"sale_prediction": predicted, "bought_together": lost},
    )
    engine = InlineEngine(jobs, tmp_path / "state")
    list(engine.steps())
    bundles = jobs.ask("product_bundling")  # those of the last window
    assert bundles is not None
    peers = {other for product, other, _ in bundles.rows.rows() if product == "Angry Birds"}
    assert peers
    assert jobs.questions.send_message("sale_prediction", "Angry Birds") == sorted(peers)
    for job, message, condition in (
        ("nobody", {}, "UNKNOWN_JOB"),
        ("micro_promotion", {"colour": "red"}, "UNKNOWN_COLUMN"),
        ("micro_promotion", "Chess", "BAD_MESSAGE"),
        ("bought_together", {}, "MESSAGE_LOST"),
    ):
        with pytest.raises(UserError) as refusal:
            jobs.questions.send_message(job, message)
        assert refusal.value.condition == condition
    engine.close()


def test_altering_a_filter_narrows_a_running_job(tmp_path: Path) -> None:
    draw, at, posts = random.Random(3), BEGIN, []
    for _ in range(400):
        at += timedelta(milliseconds=200)
        bot = draw.random() < 0.3
        posts.append(
            {
                "at": at.isoformat(),
                "account": f"bot{draw.randrange(3)}" if bot else f"person{draw.randrange(9)}",
                "text": draw.choice(["you win!", "to win is fun", "hello"]),
                "followers": draw.randrange(10) if bot else 100 + draw.randrange(100),
            }
        )
    write_events(tmp_path / "posts", posts)
    jobs = Program("spam", tmp_path / "state", begin=script("spam", tmp_path / "posts"))
    engine = InlineEngine(jobs, tmp_path / "state", epoch_units=6_000)
    assert engine.step() is not None
    (reply,) = jobs.execute("ALTER JOB campaign SET WHERE text LIKE '%win%' AND followers < 20")
    assert reply.state == "kept"
    list(engine.steps())
    last = jobs.ask("campaign")
    assert last is not None
    assert {account[:3] for account, _ in last.rows.rows()} == {"bot"}, "only the campaign is left"
    engine.close()
