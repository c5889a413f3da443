"""`penstock state`: shows a state directory, verifies it, and rolls it back; and `--fresh` removes it.

`ls`, `show` and `verify` take no lock, so they work beside a running engine.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.options import StateDir
from penstock.cli.screen import result_table
from penstock.cli.tables import plain_table
from penstock.delivery.cursors import roll_back_results
from penstock.delivery.result_log import ResultLog
from penstock.errors import InternalError, UserError
from penstock.formatting import size
from penstock.ha.unit import Unit
from penstock.operators.contract import FOREVER, NEVER
from penstock.state.directory import SHARED, StateDirectory
from penstock.state.manifest import Manifest
from penstock.state.rollback import check_epochs, last_good_epoch, roll_back
from penstock.state.run_file import read_run
from penstock.state.upgrade import BACKUP

state_app = typer.Typer(no_args_is_help=True, help="Show a state directory, verify it, or roll it back.")

EpochOption = Annotated[
    int | None, typer.Option(help="Show the state after this epoch.", show_default="the newest")
]

#: what an engine creates in its state directory
_OWN_ENTRIES = [
    "penstock.json",
    "engine.lock",
    "generations",
    "epochs",
    "manifests",
    "runs",
    BACKUP,
    "dead",
    "late",
    "leaped",
    "service.json",
    "outputs.json",
    "spark",
    "commands",
    "code",
    "failures",
    "results",
    "recoveries.jsonl",
    "elastic.jsonl",
    "elastic.new",
    "elastic-costs.json",
    "elastic-costs.new",
    "revoked-sessions.json",
    "revoked-sessions.lock",
    "service.token",
    "running-jobs",
    SHARED,
]
#: what a killed writer leaves beside penstock.json
_TEMPORARY = re.compile(r"\.penstock\.json.*")
_COMMAND = re.compile(r"\.|\d+\.(json|snapshot)$")


def remove_state_directory(state: Path) -> None:
    """Remove a state directory and the results in it. Refuses one that holds anything else or that an engine uses."""
    directory = StateDirectory(state)
    has_state, shared = directory.read_facts() is not None, (state / SHARED / "unit.json").exists()
    if not has_state and not shared and not _only_commands(state / "commands"):
        return
    others = [
        entry.name
        for entry in state.iterdir()
        if entry.name not in _OWN_ENTRIES
        and not entry.name.startswith(("engine.log", "spark-", "audit"))
        and not _TEMPORARY.match(entry.name)
    ]
    if others or state.is_symlink():
        raise UserError(
            "NOT_A_STATE_DIRECTORY",
            f"{state} is not removed: it is a link"
            if state.is_symlink()
            else f"{state} is not removed: it also holds {', '.join(sorted(others)[:3])}",
            hint="Move the other files away, or name another directory with --state.",
        )
    if shared:  # before the directory is locked: that would stop its engines
        _with_unit(state, Unit.require_down)
    with directory.locked() if has_state else contextlib.nullcontext():
        if shared:
            _with_unit(state, Unit.forget)
        shutil.rmtree(state)


def _with_unit(state: Path, action: Callable[[Unit], None]) -> None:
    with contextlib.closing(Unit.at(state)) as unit:
        action(unit)


def _only_commands(folder: Path) -> bool:
    """Whether the directory holds only commands for an engine that never started."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return bool(names) and all(map(_COMMAND.match, names))


@state_app.command()
def ls(directory: StateDir) -> None:
    """List the epochs whose state is retained, with watermark, size and runs."""
    state, console = _open_state(directory), Console(highlight=False)
    table = plain_table("epoch", "watermark", "events", "state", "runs", left=("watermark",))
    for epoch in state.manifests.epochs():
        try:
            manifest = state.manifests.read(epoch)
        except InternalError:
            if epoch in state.manifests.epochs():
                table.add_row(str(epoch), Text("damaged", style="red"))
            continue
        table.add_row(
            str(epoch),
            _watermark(manifest),
            f"{manifest.counters.get('events', 0):,}",
            size(manifest.state_bytes()),
            str(len(manifest.runs())),
        )
    console.print(table if table.row_count else "No epoch has been committed yet.")


@state_app.command()
def show(
    directory: StateDir,
    operator: Annotated[str | None, typer.Argument(help="Show only this operator, with sample rows.")] = None,
    epoch: EpochOption = None,
    rows: Annotated[int, typer.Option(min=0, help="Sample rows to print of each collection.")] = 5,
) -> None:
    """Show what the state after an epoch consists of: operators, collections, runs, buckets, rows."""
    state, console = _open_state(directory), Console(highlight=False)
    manifest = _manifest(state, epoch)
    if operator is not None and operator not in manifest.collections:
        raise UserError(
            "UNKNOWN_OPERATOR",
            f"epoch {manifest.epoch} has no state of an operator {operator!r}",
            detail=f"Operators with state: {', '.join(manifest.collections) or 'none'}.",
        )
    console.print(Text(f"state after epoch {manifest.epoch}, watermark {_watermark(manifest)}", style="bold"))
    columns = ("operator", "collection", "runs", "buckets", "rows", "size")
    table = plain_table(*columns, left=columns[:2])
    for owner, group in manifest.collections.items():
        if operator in (None, owner):
            for name in group:
                _add_collection(table, manifest, owner, name)
    console.print(table)
    for name in manifest.collections.get(operator, {}) if operator else ():
        _print_sample(console, state, manifest, operator or "", name, rows)


@state_app.command()
def verify(directory: StateDir) -> None:
    """Verify every retained manifest and its runs. Exit code 4 if anything is damaged."""
    state, console = _open_state(directory), Console(highlight=False)
    checked = check_epochs(state)
    for result in reversed(checked):
        if not result.problems:
            console.print(f"epoch {result.epoch}: intact")
        for problem in result.problems:
            short = problem.split(" Hint: ")[0]
            console.print(Text(f"epoch {result.epoch}: {short}", style="red"), soft_wrap=True)
    if not any(result.problems for result in checked):
        console.print(f"All {len(checked)} retained epochs are intact.")
        return
    good = last_good_epoch(state)
    last = "no epoch is intact" if good is None else f"the last intact epoch is {good}"
    raise InternalError(
        "STATE_DAMAGED",
        f"{sum(bool(result.problems) for result in checked)} of {len(checked)} retained epochs are damaged; {last}",
        hint=f"`penstock state rollback {directory}` goes back to it; the engine then repeats the epochs after it."
        if good is not None
        else "Use a new state directory.",
    )


@state_app.command()
def rollback(
    directory: StateDir,
    to: Annotated[
        int | None, typer.Option(help="The epoch to go back to.", show_default="the last intact one")
    ] = None,
) -> None:
    """Roll back to an earlier epoch. The next start repeats the epochs after it from the log."""
    state, console = _open_state(directory), Console(highlight=False)
    with state.locked():
        target, removed = roll_back(state, to)
        roll_back_results(ResultLog(state.path).folder, target)
    if not removed:
        console.print(f"Nothing to roll back: epoch {target} is the newest and intact.")
        return
    reached = "the start" if target < 0 else f"epoch {target}"
    which = str(removed[0]) if len(removed) == 1 else f"{removed[0]} to {removed[-1]}"
    console.print(f"Rolled back to {reached}. The next start repeats epoch {which}.")


def _open_state(directory: StateDir) -> StateDirectory:
    state = StateDirectory(directory)
    state.read_existing_facts()
    return state


def _manifest(state: StateDirectory, epoch: int | None) -> Manifest:
    if epoch is None:
        return state.manifests.latest()
    if epoch not in state.manifests.epochs():
        raise UserError(
            "NO_SUCH_EPOCH", f"the state after epoch {epoch} is not retained", hint="See `penstock state ls`."
        )
    return state.manifests.read(epoch)


def _watermark(manifest: Manifest) -> str:
    marks = [s.watermark for s in manifest.streams.values() if s.watermark is not None]
    lowest = min(marks, default=NEVER)
    if lowest <= NEVER:
        return "none yet"
    if lowest >= FOREVER:
        return "the end"
    return f"{datetime.fromtimestamp(lowest / 1e6, UTC):%Y-%m-%d %H:%M:%S}Z"


def _add_collection(table: Table, manifest: Manifest, operator: str, name: str) -> None:
    entries = manifest.entries(operator, name)
    buckets = {bucket for entry in entries for bucket in entry.sections}
    rows = sum(entry.rows_in(frozenset(entry.sections)) for entry in entries)
    runs = {entry.name: entry.bytes for entry in entries}
    table.add_row(operator, name, str(len(runs)), str(len(buckets)), f"{rows:,}", size(sum(runs.values())))


def _print_sample(
    console: Console, state: StateDirectory, manifest: Manifest, operator: str, name: str, limit: int
) -> None:
    """Print a few rows of the newest run of a collection, as they are in the file."""
    entries = manifest.entries(operator, name)
    if not entries or not limit:
        return
    frame = read_run(state.runs / entries[-1].name)
    console.print()
    hidden = [column for column in frame.columns if column in ("_hash", "_bucket")]
    console.print(result_table(f"{name}: rows of {entries[-1].name}", frame.drop(hidden).head(limit), limit))
