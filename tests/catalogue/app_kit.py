"""An app of five outputs whose jobs commands change while it runs, and the engine that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.program import Program
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.python_kit import EVENT_BYTES, Files, alter, create, files_of_sinks

EVENTS = kit.events(240)
#: a job in SQL, to which a test gives its name
SQL = "CREATE JOB {} AS SELECT page, COUNT(*) AS n, SUM(bytes) AS b FROM clicks GROUP BY page WINDOWING 10 SECONDS"
#: the output `sessions` of the app below with other code, and with a state of another shape
SESSIONS = """
sessions = clicks.key_by("user").session("2s").count().filter(pl.col("count") > {least})
pages = clicks.key_by("page").session("2s").count()
"""


def build_app(files: Files, out: Path, *names: str) -> ps.App:
    """Two outputs that share a stage, one with a stage of its own, one with two, and one without state."""
    clicks = files.stream
    counts = clicks.key_by("page").window("5s").count()
    sessions = clicks.key_by("user").session("2s").count()
    outputs = {
        "counts": counts,
        "busy": counts.filter(ps.col("count") > 2).select("page", "count"),
        "sessions": sessions.filter(ps.col("count") > 0),
        "long": sessions.key_by("user").window("20s").count("n"),
        "errors": clicks.filter(ps.col("status") >= 400).select("user", "page"),
    }
    chosen = {name: rows for name, rows in outputs.items() if not names or name in names}
    return ps.app("shop", *(ps.output(name, rows, ps.jsonl(out / name)) for name, rows in chosen.items()))


class AppCase:
    """The app on a directory of its own."""

    def __init__(self, folder: Path, files: Files, *names: str) -> None:
        self.files, self.folder, self.names = files, folder, names
        self.state, self.out = folder / "state", folder / "out"

    @contextmanager
    def running(self, *, fold_after: int = 1_000, **options: Any) -> Iterator[kit.Running]:
        options.setdefault("epoch_units", 20 * EVENT_BYTES)
        app = AppPlan.of(build_app(self.files, self.out, *self.names))
        program = Program("shop", self.state, app=app, fold_after=fold_after)
        engine = InlineEngine(program, self.state, **options)
        try:
            yield program, engine
        finally:
            engine.close()

    def run(
        self,
        actions: Mapping[int, kit.Action] | None = None,
        kill: tuple[str, int] = kit.NEVER,
        **options: Any,
    ) -> None:
        """Run until everything is read, or until the kill; each action is executed before its epoch."""
        with self.running(**options) as running:
            assert kit.run_epochs(running, dict(actions or {}), kill) == (kill != kit.NEVER)

    def content(self, *without: str) -> dict[str, bytes]:
        """The files of the sinks, but for those of some outputs."""
        return files_of_sinks(self.out, *without)

    def lines(self, name: str) -> list[str]:
        """The lines of an output's sink, in the order of epochs."""
        files = sorted((self.out / name).glob("*.jsonl"))
        return [line for file in files for line in file.read_text().splitlines()]

    def restart(self, *names: str) -> AppCase:
        """The same directory, with other outputs in the app's file."""
        return AppCase(self.folder, self.files, *names)

    def rows(self, job: str) -> list[tuple[int, tuple[Any, ...]]]:
        """The rows that a job emitted, with their epochs."""
        with self.running() as (program, _):
            return sorted(kit.retained_rows(program, job))


def write_sessions(case: AppCase, least: int, name: str) -> Path:
    """Write a file with `sessions_` and `pages_`: outputs with the sink of the app's output `sessions`."""
    sinks = "\n".join(
        f'{name}_ = ps.output("sessions", {name}, ps.jsonl({str(case.out / "sessions")!r}))'
        for name in ("sessions", "pages")
    )
    return case.files.write(SESSIONS.format(least=least) + sinks, name)


def job_changes(case: AppCase) -> dict[int, kit.Action]:
    """Create jobs that read the app's stream and outputs, alter, pause and resume them, and drop them."""
    by_user = case.files.write("query = clicks.key_by('user').window('5s').count()", "by_user.py")
    busier = case.files.write(
        "query = clicks.key_by('user').window('5s').count().filter(pl.col('count') > 1)", "busier.py"
    )
    return {
        1: SQL.format("by_sql"),
        2: lambda jobs: create(jobs, "by_user", by_user),
        3: "CREATE JOB reads AS SELECT page, COUNT(*) AS n FROM counts GROUP BY page WINDOWING 20 SECONDS",
        4: lambda jobs: alter(jobs, "by_user", busier),
        6: "ALTER JOB by_sql SET WHERE status = 200",
        7: "PAUSE JOB by_user",
        8: "RESUME JOB by_user; DROP JOB reads",
        9: "DROP JOB by_user",
    }
