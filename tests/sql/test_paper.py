"""The query of the paper, exactly as printed, on lines like the one it shows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import penstock as ps
from penstock.sql.connectors import build_stream
from penstock.sql.parse import parse
from penstock.sql.select import plan_select
from penstock.sql.statements import CreateStream
from tests.sql.harness import Names, collect_rows, run, select

QUERY = (
    "SELECT product, SUM(clicks_count) FROM * WHERE store == `video_games' "
    "GROUP BY product SORT BY SUM(clicks_count) DESC LIMIT 10 WINDOWING 30 SECONDS;"
)
STREAM = """
    CREATE STREAM clicks FROM files('{folder}/*.json', finished => TRUE)
    FORMAT json(created_at TIMESTAMP '%a %b %d %H:%M:%S %z %Y', id BIGINT, product STRING, clicks_count INT,
                buys_count INT, store STRING, user STRUCT<id: BIGINT, name: STRING, location: STRING>)
    EVENT TIME created_at
"""


def line(second: int, product: int, clicks: int, store: str) -> dict[str, object]:
    return {
        "created_at": f"Sat Feb 02 23:{48 + second // 60:02}:{second % 60:02} +0000 2013",
        "id": 299665941824950273 + second,
        "product": f"Angry Birds {product}",
        "clicks_count": clicks,
        "buys_count": 0,
        "store": store,
        "user": {"id": 343284040, "name": "@Curry", "location": "Ohio"},
    }


def lines() -> list[dict[str, object]]:
    stores = ("video_games", "books")
    return [line(n % 180, n * 7 % 23, n * 13 % 11, stores[n * 5 % 3 == 0]) for n in range(600)]


def test_the_query_of_the_paper_runs_as_printed(tmp_path: Path) -> None:
    history = sorted(lines(), key=lambda row: str(row["created_at"]))
    (tmp_path / "a.json").write_text("".join(json.dumps(row) + "\n" for row in history))
    (statement,) = parse(STREAM.format(folder=tmp_path))
    assert isinstance(statement, CreateStream)
    scope = Names({"clicks": build_stream(statement)})
    rows = collect_rows(plan_select(select(QUERY), scope))

    windows: dict[int, Counter[str]] = defaultdict(Counter)
    for row in history:
        if row["store"] == "video_games":
            time = str(row["created_at"])
            second = int(time[14:16]) * 60 + int(time[17:19])
            windows[second // 30][str(row["product"])] += int(str(row["clicks_count"]))
    expected = []
    for _, totals in sorted(windows.items()):
        best = sorted(totals.items(), key=lambda one: (-one[1], one[0]))[:10]
        expected += [{"product": product, "sum(clicks_count)": total} for product, total in best]
    assert rows == expected
    assert len(rows) == 60


def test_a_line_of_the_paper_is_read_with_its_nested_fields(tmp_path: Path) -> None:
    printed = (
        '{"created_at":"23:48:22 +0000 2013","id":299665941824950273,"product":"Angry Birds Season",'
        '"clicks_count":2,"buys_count":0,"store":"video_games",'
        '"user":{"id":343284040,"name":"@Curry","location":"Ohio"}}'
    )
    (tmp_path / "a.json").write_text(printed + "\n")
    text = STREAM.format(folder=tmp_path).replace("TIMESTAMP '%a %b %d %H:%M:%S %z %Y'", "STRING")
    (statement,) = parse(text.replace("EVENT TIME created_at", ""))
    assert isinstance(statement, CreateStream)
    scope = Names({"clicks": build_stream(statement)})
    assert run("SELECT user.name, c.user.location AS place, id FROM clicks c WHERE user.id > 5", scope) == [
        {"name": "@Curry", "place": "Ohio", "id": 299665941824950273}
    ]


def test_from_all_streams_reads_their_common_columns() -> None:
    from penstock.testing import ListLog

    def build_stream_with(name: str, extra: str) -> ps.Stream:
        schema = {
            "ts": ps.Datetime("us", "UTC"),
            "product": ps.String,
            "clicks_count": ps.Int64,
            "store": ps.String,
        }
        rows = [
            {"ts": n, "product": f"p{n % 2}", "clicks_count": 1, "store": "video_games"} for n in range(10)
        ]
        log = ListLog([json.dumps(row) for row in rows])
        return ps.stream(name, log, ps.json_lines({**schema, extra: ps.Int64}, times={"ts": "s"}), time="ts")

    scope = Names({"clicks": build_stream_with("clicks", "a"), "taps": build_stream_with("taps", "b")})
    assert run(QUERY, scope) == [
        {"product": "p0", "sum(clicks_count)": 10},
        {"product": "p1", "sum(clicks_count)": 10},
    ]
