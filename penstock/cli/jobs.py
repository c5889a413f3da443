"""`penstock jobs`, `penstock deploy` and `penstock ask`: commands and questions to a running engine."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.engine.job_client import JobClient, running_state
from penstock.errors import UserError

jobs_app = typer.Typer(help="Create, change and look at the jobs of a running engine.", no_args_is_help=True)

State = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The engine's state directory.", show_default="the only one that runs"),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="FILE:NAME", help="A Python file and what it calls the query: app.py:top_pages."
    ),
]
Job = Annotated[str, typer.Argument(help="The job's name.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@jobs_app.command()
def create(
    name: Job,
    query: Annotated[str | None, typer.Argument(help="SELECT ..., perhaps with INTO jsonl('dir').")] = None,
    source: From = None,
    state: State = None,
) -> None:
    """Create a job, of SQL or of a query in a file of Python: it runs from the next epoch on."""
    if source is None:
        _say(state, f"CREATE JOB {name} AS {_one_of(query, source)}")
    else:
        _one_of(query, source)
        file, attribute = _file_and_attribute(source)
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
        typer.Option("--rebuild", help="With --from: make a state of another shape again from the log."),
    ] = False,
    state: State = None,
) -> None:
    """Alter a job, by SQL or to a query in a file of Python; reports whether its state is kept."""
    if source is None:
        if rebuild:
            raise UserError("BAD_OPTION", "--rebuild goes with --from", hint="In SQL, end with REBUILD.")
        _say(state, f"ALTER JOB {name} {_one_of(change, source)}")
    else:
        _one_of(change, source)
        file, attribute = _file_and_attribute(source)
        _submit(state, "alter", file, name=name, attribute=attribute, rebuild=rebuild)


@jobs_app.command("list")
def list_(state: State = None, json: Json = False) -> None:
    """All jobs and how they are."""
    rows = _said(state, "SHOW JOBS")[0]["rows"]
    if json:
        print(json_text.dumps(rows, indent=1))
        return
    spread = ("coordinator",) if any("coordinator" in row for row in rows) else ()
    _table(
        ("job", "life", *spread, "query", "into"),
        [(r["job"], r["life"], *map(r.get, spread), r["query"], " ".join(r["into"])) for r in rows],
    )


@jobs_app.command()
def show(name: Job, state: State = None, json: Json = False) -> None:
    """One job: its query, how it is carried out, its error if it failed."""
    with JobClient(running_state(state)) as client:
        explained = client.say(f"EXPLAIN JOB {name}")[0]["says"]
        found = next(row for row in client.say("SHOW JOBS")[0]["rows"] if row["job"] == name)
        answer = client.ask(name)
    if json:
        print(json_text.dumps({**found, "plan": explained, "answer": answer}, indent=1))
        return
    console = Console(highlight=False)
    for what in ("job", "life", "coordinator", "query", "parameters", "into", "recovery", "error"):
        if found.get(what):
            console.print(f"{what}: {found[what]}", markup=False, soft_wrap=True)
    console.print(explained, markup=False, soft_wrap=True)
    if answer is not None:
        console.print(f"last told {len(answer['rows'])} rows, in epoch {answer['epoch']}")


@jobs_app.command()
def pause(name: Job, state: State = None) -> None:
    """Let a job see no events and tell nothing until it is resumed."""
    _say(state, f"PAUSE JOB {name}")


@jobs_app.command()
def resume(name: Job, state: State = None) -> None:
    """Let a job that was paused, or failed, run again."""
    _say(state, f"RESUME JOB {name}")


@jobs_app.command()
def flush(name: Job, state: State = None) -> None:
    """Have a job tell its open windows now, as they stand."""
    _say(state, f"FLUSH JOB {name}")


@jobs_app.command()
def empty(name: Job, state: State = None) -> None:
    """Have a job forget what it knows and begin anew."""
    _say(state, f"EMPTY JOB {name}")


@jobs_app.command()
def drop(name: Job, state: State = None) -> None:
    """Remove a job."""
    _say(state, f"DROP JOB {name}")


def deploy(
    file: Annotated[Path, typer.Argument(help="The Python file with app = ps.app(...) or ps.jobs_app(...).")],
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Drop the jobs that came with this file and are not in it any more."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would happen.")] = False,
    state: State = None,
) -> None:
    """Have the jobs of a file in a running engine: create what is missing, alter what has changed, leave the rest.

    Reports for each job what happens to its state. All of it happens, or nothing does.
    """
    _submit(state, "deploy", file, prune=prune, check=dry_run)


def ask(
    name: Job,
    about: Annotated[
        str | None, typer.Option(help='A message to the job, as JSON: \'{"product": "Angry Birds"}\'.')
    ] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """A job's latest answer, or what it answers to a message."""
    with JobClient(running_state(state)) as client:
        if about is not None:
            print(json_text.dumps(client.route(name, _message(about)), indent=1, default=str))
            return
        answer = client.ask(name)
    if json:
        print(json_text.dumps(answer))
    elif answer is None:
        Console(highlight=False).print(f"{name} has told nothing yet")
    else:
        _table(answer["columns"], answer["rows"], title=f"{name}, epoch {answer['epoch']}")


def _message(text: str) -> Any:
    try:
        return json_text.loads(text)
    except ValueError as failure:
        raise UserError(
            "BAD_MESSAGE", f"the message is not JSON: {failure}", hint='As in --about \'{"page": "/a"}\'.'
        ) from failure


def _said(state: Path | None, sql: str) -> list[dict[str, Any]]:
    with JobClient(running_state(state)) as client:
        return client.say(sql)


def _say(state: Path | None, sql: str) -> None:
    for answer in _said(state, sql):
        print(answer["says"])


def _submit(state: Path | None, request: str, file: Path, **more: Any) -> None:
    with JobClient(running_state(state)) as client:
        for answer in client.submit(request, file, **more):
            print(answer["says"])


def _one_of(text: str | None, source: str | None) -> str:
    """What is said in SQL; raises unless either that or a file is given."""
    if (text is None) == (source is None):
        raise UserError(
            "BAD_OPTION",
            "give either SQL or --from",
            hint='As in jobs create hits "SELECT ...", or jobs create hits --from app.py:query.',
        )
    return text or ""


def _file_and_attribute(source: str) -> tuple[Path, str]:
    file, colon, attribute = source.rpartition(":")
    if not colon or not file or not attribute:
        raise UserError(
            "BAD_OPTION", f"{source!r} names no query in a file", hint="As in --from app.py:query."
        )
    return Path(file), attribute


def _table(columns: Any, rows: Any, title: str | None = None) -> None:
    table = Table(title=title)
    for column in columns:
        table.add_column(str(column), overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    Console(highlight=False).print(table)
