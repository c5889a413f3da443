"""`penstock sql`: runs a query on a stream and prints rows as they come."""

from __future__ import annotations

import json as json_text
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.catalogue.explain import explain_scripts
from penstock.catalogue.job_builder import PythonDeclarations
from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.script import Script, read_script
from penstock.cli.options import Conf, Drain, For, Master, as_engine_settings, as_seconds
from penstock.cli.run_engine import StopSignals
from penstock.engine.engine import Engine
from penstock.engine.job_client import JobClient
from penstock.epoch.runner import EpochReport
from penstock.errors import UserError
from penstock.formatting import printable
from penstock.settings import Settings
from penstock.sql.statements import CreateJob, Explain, Select

#: how often a running engine is asked for more rows
_POLL_SECONDS = 0.1


def sql(
    text: Annotated[
        str,
        typer.Argument(help="A SELECT or EXPLAIN SELECT; CREATE STREAM and other statements may precede it."),
    ],
    with_: Annotated[
        Path | None, typer.Option("--with", help="A file of SQL that declares the streams.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Use the engine that runs on this state directory.")
    ] = None,
    for_: For = None,
    drain: Drain = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Run a query and print its rows, one JSON object per line, until Ctrl-C."""
    for_seconds = None if for_ is None else as_seconds(for_, "--for")
    configured = as_engine_settings(conf)
    scripts = [read_script(with_.read_text(), str(with_))] if with_ is not None else []
    scripts.append(read_script(text))
    *before, select = tuple(s for one in scripts for s in one.statements) or (None,)
    if isinstance(select, Explain):
        _print_plan(state, scripts, select)
        return
    if not isinstance(select, Select):
        raise UserError(
            "NOT_A_QUERY",
            "there is no SELECT at the end",
            hint="End with a query, such as SELECT page FROM clicks.",
        )
    if state is not None:
        _run_as_job(state, select, for_seconds)
        return
    setup = ";\n".join(s.text for s in before if not isinstance(s, CreateJob | Select))
    with tempfile.TemporaryDirectory(prefix="penstock-sql-") as folder:
        place = Path(folder) / "state"
        jobs = JobsApp("sql", f"{setup};\nCREATE JOB query AS {select.text}").on(place)
        engine = Engine(jobs, Settings(state=place, master=master, drain=drain, **configured))
        stopping = StopSignals(engine)
        with Console(stderr=True).status("starting Spark") as status, stopping.signals():

            def show_phase(phase: str) -> None:
                status.update(phase)
                if phase != "starting Spark":
                    stopping.take_signals()
                if phase == "running":
                    status.stop()

            engine.run(_print_report, for_seconds=for_seconds, on_phase=show_phase)


def _print_plan(state: Path | None, scripts: Sequence[Script], statement: Explain) -> None:
    """Print the plan of a query, without running it."""
    if state is not None:
        with JobClient(state) as client:
            print(client.execute(statement.text)[0].message)
        return
    defining = [
        replace(one, statements=[s for s in one.statements if not isinstance(s, Select)]) for one in scripts
    ]
    for answer in explain_scripts(defining, PythonDeclarations({}, {}, {}), all_jobs=False):
        print(answer.message)


def _print_report(report: EpochReport) -> None:
    if "query" in report.rows:
        rows = report.rows["query"]
        _print(rows.columns, rows.rows())


def _run_as_job(state: Path, select: Select, for_seconds: float | None) -> None:
    """Run the query as a temporary job of a running engine."""
    name = f"sql_{os.urandom(4).hex()}"
    end = None if for_seconds is None else time.monotonic() + for_seconds
    with JobClient(state) as client:
        client.execute(f"CREATE JOB {name} AS {select.text}")
        epoch = 0
        try:
            while end is None or time.monotonic() < end:
                for result in client.since(name, epoch):
                    epoch = result.epoch + 1
                    _print(result.columns, result.rows)
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            pass
        finally:
            client.execute(f"DROP JOB {name}")


def _print(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        print(printable(json_text.dumps(cells, ensure_ascii=False, default=str)), flush=True)
