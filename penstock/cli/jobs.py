"""`penstock jobs`, `penstock deploy` and `penstock ask`: send commands and questions to a running engine."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.engine.job_client import JobClient, running_state
from penstock.errors import UserError
from penstock.formatting import printable

jobs_app = typer.Typer(
    help="Create, alter, show and drop the jobs of a running engine.", no_args_is_help=True
)

State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The engine's state directory.", show_default="that of the only running engine"
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="FILE:NAME", help="A query in a Python file, by its name there: app.py:top_pages."
    ),
]
Job = Annotated[str, typer.Argument(help="The job's name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@jobs_app.command()
def create(
    name: Job,
    query: Annotated[str | None, typer.Argument(help="SELECT ... [INTO jsonl('dir')].")] = None,
    source: From = None,
    state: State = None,
) -> None:
    """Create a job from SQL or from a query in a Python file. It runs from the next epoch on."""
    if source is None:
        _execute(state, f"CREATE JOB {name} AS {_check_source(query, source)}")
    else:
        _check_source(query, source)
        file, attribute = _parse_source(source)
        _submit(state, "create", file, name=name, attribute=attribute)


@jobs_app.command()
def alter(
    name: Job,
    change: Annotated[
        str | None, typer.Argument(help="AS SELECT ..., SET WHERE ..., SET LIMIT n or SET $name = value.")
    ] = None,
    source: From = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="With --from: if the new query needs another state, build it again from the log.",
        ),
    ] = False,
    state: State = None,
) -> None:
    """Alter a job with SQL or to a query in a Python file. Reports whether the job keeps its state."""
    if source is None:
        if rebuild:
            raise UserError(
                "BAD_OPTION", "--rebuild works with --from only", hint="In SQL, end the change with REBUILD."
            )
        _execute(state, f"ALTER JOB {name} {_check_source(change, source)}")
    else:
        _check_source(change, source)
        file, attribute = _parse_source(source)
        _submit(state, "alter", file, name=name, attribute=attribute, rebuild=rebuild)


@jobs_app.command("list")
def list_(state: State = None, json: Json = False) -> None:
    """List all jobs with their state: running, paused, failed."""
    with JobClient(running_state(state)) as client:
        rows = client.execute("SHOW JOBS")[0].rows
    if json:
        print(json_text.dumps(rows, indent=1))
        return
    coordinator = ("coordinator",) if any("coordinator" in row for row in rows) else ()
    _table(
        ("job", "life", *coordinator, "query", "into"),
        [(r["job"], r["life"], *map(r.get, coordinator), r["query"], " ".join(r["into"])) for r in rows],
    )


@jobs_app.command()
def show(name: Job, state: State = None, json: Json = False) -> None:
    """Show one job: its query, its plan, its latest result, and its error if it failed."""
    with JobClient(running_state(state)) as client:
        plan = client.execute(f"EXPLAIN JOB {name}")[0].message
        job = next(row for row in client.execute("SHOW JOBS")[0].rows if row["job"] == name)
        result = client.ask(name)
    if json:
        answer = None if result is None else result.to_json()
        print(json_text.dumps({**job, "plan": plan, "answer": answer}, indent=1))
        return
    console = Console(highlight=False)
    for what in ("job", "life", "coordinator", "query", "parameters", "into", "recovery", "error"):
        if job.get(what):
            console.print(printable(f"{what}: {job[what]}"), markup=False, soft_wrap=True)
    console.print(printable(plan), markup=False, soft_wrap=True)
    if result is not None:
        console.print(f"latest result: {len(result.rows)} rows, of epoch {result.epoch}")


@jobs_app.command()
def pause(name: Job, state: State = None) -> None:
    """Pause a job: until it is resumed it reads no events and emits no results."""
    _execute(state, f"PAUSE JOB {name}")


@jobs_app.command()
def resume(name: Job, state: State = None) -> None:
    """Resume a job that is paused or has failed."""
    _execute(state, f"RESUME JOB {name}")


@jobs_app.command()
def flush(name: Job, state: State = None) -> None:
    """Emit the open windows of a job now, as they stand."""
    _execute(state, f"FLUSH JOB {name}")


@jobs_app.command()
def empty(name: Job, state: State = None) -> None:
    """Empty the state of a job; it continues with the next events."""
    _execute(state, f"EMPTY JOB {name}")


@jobs_app.command()
def drop(name: Job, state: State = None) -> None:
    """Remove a job."""
    _execute(state, f"DROP JOB {name}")


def deploy(
    file: Annotated[Path, typer.Argument(help="The Python file with app = ps.app(...) or ps.jobs_app(...).")],
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Drop jobs that an earlier deploy of this file created and that it no longer has."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would happen, and change nothing.")
    ] = False,
    state: State = None,
) -> None:
    """Deploy the jobs of a file to a running engine.

    Creates new jobs, alters changed ones and leaves the rest. Reports for each job what happens to its state. Either
    all changes take effect or none.
    """
    _submit(state, "deploy", file, prune=prune, check=dry_run)


def ask(
    name: Job,
    about: Annotated[
        str | None,
        typer.Option(
            help='Send the job this message (JSON) and print its reply: \'{"product": "Angry Birds"}\'.'
        ),
    ] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Print the latest result of a job, or its reply to a message."""
    with JobClient(running_state(state)) as client:
        if about is not None:
            print(json_text.dumps(client.route(name, _parse_message(about)), indent=1, default=str))
            return
        result = client.ask(name)
    if json:
        print(json_text.dumps(None if result is None else result.to_json()))
    elif result is None:
        Console(highlight=False).print(f"{name} has no result yet")
    else:
        _table(result.columns, result.rows, title=f"{name}, epoch {result.epoch}")


def _parse_message(text: str) -> Any:
    try:
        return json_text.loads(text)
    except ValueError as failure:
        raise UserError(
            "BAD_MESSAGE",
            f"the message is not JSON: {failure}",
            hint='Write for example --about \'{"page": "/a"}\'.',
        ) from failure


def _execute(state: Path | None, sql: str) -> None:
    with JobClient(running_state(state)) as client:
        for reply in client.execute(sql):
            print(printable(reply.message))


def _submit(state: Path | None, request: str, file: Path, **more: Any) -> None:
    with JobClient(running_state(state)) as client:
        for reply in client.submit(request, file, **more):
            print(printable(reply.message))


def _check_source(text: str | None, source: str | None) -> str:
    """The SQL text, if there is any; raises unless exactly one of SQL and a file is given."""
    if (text is None) == (source is None):
        raise UserError(
            "BAD_OPTION",
            "give either SQL or --from",
            hint='Write for example jobs create hits "SELECT ...", or jobs create hits --from app.py:query.',
        )
    return text or ""


def _parse_source(source: str) -> tuple[Path, str]:
    file, colon, attribute = source.rpartition(":")
    if not colon or not file or not attribute:
        raise UserError(
            "BAD_OPTION",
            f"{source!r} names no query in a file",
            hint="Write for example --from app.py:query.",
        )
    return Path(file), attribute


def _table(columns: Any, rows: Any, title: str | None = None) -> None:
    table = Table(title=title)
    for column in columns:
        table.add_column(Text(printable(str(column))), overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else printable(str(value))) for value in row))
    Console(highlight=False).print(table)
