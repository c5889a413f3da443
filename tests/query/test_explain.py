"""Explain shows every form of a query, as the plan has it."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.errors import UserError
from penstock.query.explain import FORMS, explain_app, resolve_form


def shop(directory: str = "out") -> ps.App:
    clicks = ps.stream(
        "clicks",
        ps.generated(total=10, live=False),
        ps.combined_log(extra=[ps.Cookie("session")]),
        time="time",
        lateness="2s",
    )
    good = clicks.filter(col("status") == 200)
    walks = good.key_by("session").last(3, "path").map(pattern=col("path").list.join(" > "))
    top = walks.key_by("pattern").running("10s").count().top(10)
    total = good.window("30s").sum("bytes")
    return ps.app(
        "shop",
        ps.output("top", top, ps.jsonl(f"{directory}/top")),
        ps.output("total", total, ps.parquet(f"{directory}/total")),
    )


def text_of(form: str, app: ps.App | None = None) -> str:
    """A form's text, with the numbers of this file's lines left out."""
    return re.sub(r"test_explain\.py:\d+", "LINE", explain_app(app or shop())[form])


def test_as_written_is_a_tree_from_each_output_to_its_stream_with_the_users_lines() -> None:
    assert text_of("as written") == "\n".join(
        [
            "output top                                                   LINE",
            "to out/top/epoch-*.jsonl",
            "└─ top 10 by greatest count, emitted when it changes         LINE",
            "   └─ count(*) as count per pattern over running, every 10s  LINE",
            '      └─ map pattern = col("path").list.join([" > "])        LINE',
            "         └─ last 3 of path per session                       LINE",
            '            └─ filter [(col("status")) == (dyn int: 200)]    LINE',
            "               └─ stream clicks: generated click stream, 10 events, constant 20000/s",
            "                                                             LINE",
            "",
            "output total                                                 LINE",
            "to out/total/epoch-*.parquet",
            "└─ sum(bytes) as sum_bytes per everything over windows of 30s",
            "                                                             LINE",
            '   └─ filter [(col("status")) == (dyn int: 200)]             LINE',
            "      └─ stream clicks: generated click stream, 10 events, constant 20000/s",
            "                                                             LINE",
        ]
    )


def test_the_logical_form_names_every_node_once_with_its_columns() -> None:
    text = text_of("logical")
    assert text.count("stream clicks") == 1
    assert "#3 last 3 of path per session  <- #2\n   session String, path [String]" in text
    assert "output top <- #6" in text
    assert "output total <- #7" in text


def test_the_optimised_form_shows_what_is_not_decoded_and_what_is_reduced_before_the_exchange() -> None:
    text = text_of("optimised")
    assert "stream clicks: reads 5 of 12 columns: time, path, status, bytes, session" in text
    assert "never decoded: host, ident, user, method, protocol, referer, agent" in text
    assert "reduce before the exchange: count(*) as count per pattern over running, every 10s" in text
    assert "send path, session" in text


def test_stages_show_why_they_are_cut_and_what_they_are_exchanged_by() -> None:
    text = text_of("stages")
    assert "scan of clicks (level 0)" in text
    assert "cut: it keeps state per session, so all rows of the same session must meet in one slice" in text
    assert "exchange by session" in text
    assert "exchange by nothing: one bucket takes all" in text
    assert "order: strict" in text


def test_spark_stages_follow_an_epoch_from_the_scan_to_the_commit() -> None:
    assert text_of("spark stages") == "\n".join(
        [
            "stage 0  scan: read, decode, first steps of clicks",
            "         a task per core, over spans",
            "         pre-reduces for 3-time-window-aggregate",
            "   ───── exchange 1 (shuffle): 1-last-n by session; 3-time-window-aggregate by nothing",
            "stage 1  slices: 1-last-n, 3-time-window-aggregate",
            "         a task per slice: state in, operators, new runs, results",
            "         pre-reduces for 2-running-aggregate",
            "   ───── exchange 2 (shuffle): 2-running-aggregate by pattern",
            "stage 2  slices: 2-running-aggregate",
            "         a task per slice: state in, operators, new runs, results",
            "   ───── collect",
            "driver   gather top: top 10 by greatest count, emitted when it changes",
            "         to out/top/epoch-*.jsonl",
            "driver   gather total: all rows",
            "         to out/total/epoch-*.parquet",
            "         commit: the manifest of the epoch, then Spark's",
        ]
    )


def test_a_query_without_memory_has_no_exchange() -> None:
    def loud(frame: pl.DataFrame) -> pl.DataFrame:
        return frame

    rows = ps.stream("clicks", ps.generated(total=1, live=False), ps.combined_log(), time="time")
    app = ps.app("plain", ps.output("all", rows.map_batches(loud), ps.jsonl("out")))
    assert "nothing is exchanged" in text_of("stages", app)
    assert "call loud on each batch" in text_of("optimised", app)
    assert "exchange" not in text_of("spark stages", app)


def test_the_former_name_of_a_form_works_with_a_warning() -> None:
    assert [resolve_form(form) for form in FORMS] == list(FORMS)
    with pytest.warns(DeprecationWarning, match="is now 'stages'"):
        assert resolve_form("sub-queries") == "stages"
    with pytest.raises(UserError) as caught:
        resolve_form("pictures")
    assert caught.value.condition == "BAD_OPTION"


def test_there_is_a_text_for_every_form_and_building_it_touches_nothing(tmp_path: Path) -> None:
    assert tuple(explain_app(shop(str(tmp_path / "out")))) == FORMS
    assert not (tmp_path / "out").exists()
