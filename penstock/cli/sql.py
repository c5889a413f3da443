"""`penstock sql`: a query, run on a stream now, its rows printed as they come."""

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

from penstock.catalogue.explain_script import explained
from penstock.catalogue.job_builder import Given
from penstock.catalogue.jobs_app import JobsApp
from penstock.catalogue.script import Script, script
from penstock.cli.options import Conf, Drain, For, Master, as_seconds, as_spark_settings
from penstock.cli.run_engine import Stopping
from penstock.engine.engine import Engine
from penstock.engine.job_client import JobClient
from penstock.epoch.runner import EpochReport
from penstock.errors import UserError
from penstock.settings import Settings
from penstock.sql.statements import CreateJob, Explain, Select

#: how often a running engine is asked for more rows, in seconds
_EVERY = 0.1


def sql(
    text: Annotated[
        str, typer.Argument(help="A SELECT, or EXPLAIN SELECT; before it perhaps CREATE STREAM and the like.")
    ],
    with_: Annotated[Path | None, typer.Option("--with", help="A file of SQL that says the streams.")] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Ask the engine that runs on this state directory.")
    ] = None,
    for_: For = None,
    drain: Drain = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Run a query now and print its rows, one JSON object a line, until it is stopped (Ctrl-C)."""
    for_seconds = None if for_ is None else as_seconds(for_, "--for")
    spark = as_spark_settings(conf)
    scripts = [script(with_.read_text(), str(with_))] if with_ is not None else []
    scripts.append(script(text))
    *before, select = tuple(s for one in scripts for s in one.statements) or (None,)
    if isinstance(select, Explain):
        _explained(state, scripts, select)
        return
    if not isinstance(select, Select):
        raise UserError("NOT_A_QUERY", "there is no SELECT at the end", hint="As in SELECT page FROM clicks.")
    if state is not None:
        _asked(state, select, for_seconds)
        return
    setup = ";\n".join(s.text for s in before if not isinstance(s, CreateJob | Select))
    with tempfile.TemporaryDirectory(prefix="penstock-sql-") as folder:
        place = Path(folder) / "state"
        jobs = JobsApp("sql", f"{setup};\nCREATE JOB query AS {select.text}").on(place)
        engine = Engine(jobs, Settings(state=place, master=master, drain=drain, spark=spark))
        stopping = Stopping(engine)
        with Console(stderr=True).status("starting Spark") as status, stopping.signals():

            def tell(phase: str) -> None:
                status.update(phase)
                if phase != "starting Spark":
                    stopping.take_signals()
                if phase == "running":
                    status.stop()

            engine.run(_watched, for_seconds=for_seconds, tell=tell)


def _explained(state: Path | None, scripts: Sequence[Script], asked: Explain) -> None:
    """Say what a query does; nothing is run."""
    if state is not None:
        with JobClient(state) as client:
            print(client.say(asked.text)[0]["says"])
        return
    defining = [
        replace(one, statements=[s for s in one.statements if not isinstance(s, Select)]) for one in scripts
    ]
    for answer in explained(defining, Given({}, {}, {}), all_jobs=False):
        print(answer.says)


def _watched(report: EpochReport) -> None:
    if "query" in report.rows:
        rows = report.rows["query"]
        _print({"columns": rows.columns, "rows": rows.rows()})


def _asked(state: Path, select: Select, for_seconds: float | None) -> None:
    """Have a running engine carry the query out as a job of its own, as long as we listen."""
    name, ended = (
        f"sql_{os.urandom(4).hex()}",
        None if for_seconds is None else time.monotonic() + for_seconds,
    )
    with JobClient(state) as client:
        client.say(f"CREATE JOB {name} AS {select.text}")
        epoch = 0
        try:
            while ended is None or time.monotonic() < ended:
                for answer in client.since(name, epoch):
                    epoch = answer["epoch"] + 1
                    _print(answer)
                time.sleep(_EVERY)
        except KeyboardInterrupt:
            pass
        finally:
            client.say(f"DROP JOB {name}")


def _print(answer: dict[str, Any]) -> None:
    for row in answer["rows"]:
        told = dict(zip(answer["columns"], row, strict=True))
        print(json_text.dumps(told, ensure_ascii=False, default=str), flush=True)
