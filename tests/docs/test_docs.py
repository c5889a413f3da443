"""What the docs show works: Python blocks are run, commands exist, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.catalogue import jobs_app
from penstock.cli.commands import app as cli
from penstock.cli.load_app import load_app as load_app
from penstock.ingest.frames import Frame
from penstock.ingest.store import Store
from penstock.query.explain import explain_app
from penstock.testing.inline import run_inline

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "penstock" / "demos" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINE = (
    '10.0.0.{user} - - [15/Nov/2026:09:{minute:02}:{second:02} +0000] "GET /p{page} HTTP/1.1" 200 5 "-" "a"\n'
)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)):
            found.append((f"{page.name}-{number}", text))
    return found


@pytest.mark.parametrize(("name", "text"), blocks("python"), ids=lambda value: value[:30])
def test_a_python_block_runs(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    clicks = (LINE.format(user=n % 7, minute=n // 60, second=n % 60, page=n % 5) for n in range(300))
    lines = "".join(clicks)
    (tmp_path / "logs" / "access.log").write_text(lines)
    if "ps.segments" in text:
        store = Store(tmp_path / "ingest" / "clicks", partitions=1)
        store.append([Frame.of("web1", 0, lines.encode())])
        store.close()
    (tmp_path / "shown.py").write_text(text)
    if "def test_" in text:
        names: dict[str, Any] = {}
        exec(compile(text, name, "exec"), names)
        for test in [names[n] for n in names if n.startswith("test_")]:
            test(tmp_path / "state")
        return
    shown = load_app(tmp_path / "shown.py")
    assert explain_app(shown)
    reports = run_inline(shown, tmp_path / "state", epochs=1 if "finished=True" not in text else None)
    assert reports[0].events == 300 or "ps.files" not in text
    emitted = {name for report in reports for name, rows in report.rows.items() if rows.height}
    assert emitted == {output.name for output in shown.outputs}


@pytest.mark.slow
def test_every_command_shown_exists() -> None:
    shown = {
        match.split()[0] for _, text in blocks("sh") for match in re.findall(r"^\./run (\S+.*)$", text, re.M)
    }
    assert shown >= {"demo", "test", "explain", "run", "state"}
    for command in shown - {"test", "check", "lock"}:
        answer = CliRunner().invoke(cli, [command, "--help"])
        assert answer.exit_code == 0, command


@pytest.mark.parametrize("text", re.findall(r"```sql\n(.*?)```", (ROOT / "README.md").read_text(), re.S))
def test_the_sql_of_the_readme_is_planned(text: str) -> None:
    assert jobs_app("readme", text).explained()


def test_every_path_that_contributors_are_shown_exists() -> None:
    shown = re.findall(r"`((?:penstock|tests|docs|\.ci)/[^`*]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(shown) > 40
    assert [path for path in shown if not (ROOT / path).exists()] == []


def test_every_package_is_in_the_map_for_contributors() -> None:
    shown = (ROOT / "CONTRIBUTING.md").read_text()
    packages = [path.parent.name for path in (ROOT / "penstock").glob("*/__init__.py")]
    assert [name for name in packages if f"`penstock/{name}/`" not in shown] == []


def test_the_readme_compares_engines_as_the_report_does() -> None:
    """Cell by cell: a ratio in the README is one of the report, on the events that it says."""
    readme, report = (comparison(ROOT / name) for name in ("README.md", "docs/benchmarks.md"))
    assert len(readme) > 20
    assert readme.items() <= report.items()


def comparison(page: Path) -> dict[tuple[str, str], str]:
    """The cells of the page's table of ratios, by engine and workload."""
    (table,) = re.findall(r"^\| engine \| windows \|.*\n(?:\|.*\n)+", page.read_text(), re.M)
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {(row[0], name): cell for row in rows for name, cell in zip(head[1:], row[1:], strict=True)}


def test_links_lead_to_files_that_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_links_lead_to_headings_that_exist() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
            headings = re.findall(r"^#+ (.*)$", (page.parent / target if target else page).read_text(), re.M)
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: {target}#{anchor}"


def test_every_condition_that_the_docs_name_is_in_the_code() -> None:
    source = "".join(path.read_text() for path in (ROOT / "penstock").rglob("*.py"))
    named = re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", (ROOT / "docs" / "guarantees.md").read_text())
    assert named
    assert [name for name in named if name not in source] == []
