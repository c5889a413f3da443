"""What the docs show in SQL works: statements execute in order, and every query has rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import penstock as ps
from penstock.query.explain import explain_app
from penstock.sql.connectors import build_sinks, build_stream
from penstock.sql.parse import parse
from penstock.sql.replace_clauses import replace_clauses
from penstock.sql.select import plan_select
from penstock.sql.statements import AlterJob, CreateJob, CreateStream, Explain, Select, Statement
from penstock.testing import ListSink, run_inline
from tests.docs.test_docs import LINE, ROOT
from tests.sql.harness import Names

pytestmark = pytest.mark.slow

BLOCKS = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "sql.md").read_text(), re.S)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.chdir(tmp_path)
    for folder in ("logs", "sales"):
        (tmp_path / folder).mkdir()
    clicks = (LINE.format(user=n % 7, minute=n // 60, second=n % 60, page=n % 5) for n in range(300))
    (tmp_path / "logs" / "access.log").write_text("".join(clicks))
    sales = (
        {
            "ts": 1794733200 + n,
            "product": f"/p{n % 5}",
            "clicks_count": n,
            "store": "video_games",
            "user": {"id": n % 4, "name": f"@u{n % 4}"},
            "tags": ["new"],
        }
        for n in range(100)
    )
    (tmp_path / "sales" / "a.json").write_text("".join(json.dumps(one) + "\n" for one in sales))
    return Page(tmp_path)


class Page:
    """The streams and jobs that the blocks so far have created."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scope = Names({})
        self.jobs: dict[str, CreateJob] = {}

    def execute(self, statement: Statement) -> None:
        if isinstance(statement, CreateStream):
            self.scope.known[statement.name] = build_stream(statement)
        elif isinstance(statement, CreateJob):
            self.jobs[statement.name] = statement
            self.run(statement.select, statement)
        elif isinstance(statement, AlterJob):
            job = self.jobs[statement.name]
            changed = statement.select or replace_clauses(job.select, statement.where, statement.limit)
            more = {**job.parameters, **statement.parameters}
            self.run(changed, CreateJob(job.name, changed, (), more, ""))
        elif isinstance(statement, Select):
            self.run(statement)
        elif isinstance(statement, Explain) and isinstance(statement.what, Select):
            assert explain_app(ps.app("shown", ps.output("shown", plan_select(statement.what, self.scope))))

    def run(self, select: Select, job: CreateJob | None = None) -> None:
        self.scope.parameters = {} if job is None else job.parameters
        sink, state = ListSink(), self.folder / f"state{len(list(self.folder.iterdir()))}"
        sinks = () if job is None else build_sinks(job.sinks)
        run_inline(ps.app("shown", ps.output("shown", plan_select(select, self.scope), sink, *sinks)), state)
        assert sink.rows(), select.text


def test_the_page_as_a_whole(page: Page) -> None:
    assert len(BLOCKS) > 5
    for block in BLOCKS:
        for statement in parse(block):
            if "FROM *" in statement.text:  # on this page there are streams of other columns
                all_streams = page.scope.known
                page.scope.known = {"sales": all_streams["sales"]}
                page.execute(statement)
                page.scope.known = all_streams
                continue
            if "LATEST(visits)" in statement.text:
                (visits,) = parse(
                    "SELECT host, COUNT(*) AS visits FROM clicks GROUP BY host WINDOWING 30 SECONDS"
                )
                assert isinstance(visits, Select)
                page.scope.jobs["visits"] = plan_select(visits, page.scope)
            page.execute(statement)
