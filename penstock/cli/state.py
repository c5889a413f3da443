"""`penstock state`: lets a person look at a state directory, check it, and go back in it.

Receives a directory; hands tables. Looking takes no lock, so it works beside a running engine.
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

from penstock.cli.formatting import size
from penstock.cli.options import StateDir
from penstock.cli.screen import answer
from penstock.errors import InternalError, UserError
from penstock.ha.unit import Unit
from penstock.operators.contract import FOREVER, NEVER
from penstock.state.directory import SHARED, StateDirectory
from penstock.state.manifest import Manifest
from penstock.state.rollback import check_epochs, last_good_epoch, roll_back
from penstock.state.run_file import read_run
from penstock.state.upgrade import BACKUP

state_app = typer.Typer(no_args_is_help=True, help="Look at a state directory, check it, go back in it.")

EpochOption = Annotated[
    int | None, typer.Option(help="The state after this epoch.", show_default="the newest")
]

#: what an engine puts into its state directory
_OWN = [
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
    SHARED,
]
#: what a writer that was killed leaves beside penstock.json
_DRAFT = re.compile(r"\.penstock\.json.*")
_COMMAND = re.compile(r"\.|\d+\.(json|snapshot)$")


def forget(state: Path) -> None:
    """Remove a state directory and the results in it, if it is one, holds nothing else, and no engine holds it."""
    directory = StateDirectory(state)
    begun, shared = directory.read_facts() is not None, (state / SHARED / "unit.json").exists()
    if not begun and not shared and not _only_commands(state / "commands"):
        return
    others = [
        entry.name
        for entry in state.iterdir()
        if entry.name not in _OWN
        and not entry.name.startswith(("engine.log", "spark-"))
        and not _DRAFT.match(entry.name)
    ]
    if others or state.is_symlink():
        raise UserError(
            "NOT_A_STATE_DIRECTORY",
            f"{state} is not removed: it is a link"
            if state.is_symlink()
            else f"{state} is not removed: it holds {', '.join(sorted(others)[:3])} too",
            hint="Move away what is not Penstock's, or name another directory with --state.",
        )
    if shared:  # before the directory is taken over: that would end its engines
        _with_unit(state, Unit.require_down)
    with directory.locked() if begun else contextlib.nullcontext():
        if shared:
            _with_unit(state, Unit.forget)
        shutil.rmtree(state)


def _with_unit(state: Path, do: Callable[[Unit], None]) -> None:
    unit = Unit.at(state)
    try:
        do(unit)
    finally:
        unit.close()


def _only_commands(folder: Path) -> bool:
    """Whether commands were taken in for an engine that never began; they are all that a directory is known by then."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return bool(names) and all(map(_COMMAND.match, names))


@state_app.command()
def ls(directory: StateDir) -> None:
    """The epochs that are kept, with watermark, size and runs."""
    state, console = _opened(directory), Console(highlight=False)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("epoch", "watermark", "events", "state", "runs"):
        table.add_column(column, justify="left" if column == "watermark" else "right", no_wrap=True)
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
    operator: Annotated[str | None, typer.Argument(help="Only this operator, with sample rows.")] = None,
    epoch: EpochOption = None,
    rows: Annotated[int, typer.Option(min=0, help="Sample rows of each collection.")] = 5,
) -> None:
    """What the state after an epoch consists of: operators, collections, runs, buckets, rows."""
    state, console = _opened(directory), Console(highlight=False)
    manifest = _manifest(state, epoch)
    if operator is not None and operator not in manifest.collections:
        raise UserError(
            "UNKNOWN_OPERATOR",
            f"epoch {manifest.epoch} has no state of an operator {operator!r}",
            detail=f"It has {', '.join(manifest.collections) or 'none at all'}.",
        )
    console.print(Text(f"state after epoch {manifest.epoch}, watermark {_watermark(manifest)}", style="bold"))
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("operator", "collection", "runs", "buckets", "rows", "size"):
        table.add_column(column, justify="left" if column in ("operator", "collection") else "right")
    for owner, group in manifest.collections.items():
        if operator in (None, owner):
            for name in group:
                _add_collection(table, manifest, owner, name)
    console.print(table)
    for name in manifest.collections.get(operator, {}) if operator else ():
        _print_sample(console, state, manifest, operator or "", name, rows)


@state_app.command()
def verify(directory: StateDir) -> None:
    """Check every kept manifest and every run it names. Exit code 4 when something is damaged."""
    state, console = _opened(directory), Console(highlight=False)
    checked = check_epochs(state)
    for found in reversed(checked):
        if not found.problems:
            console.print(f"epoch {found.epoch}: whole")
        for problem in found.problems:
            short = problem.split(" Hint: ")[0]
            console.print(Text(f"epoch {found.epoch}: {short}", style="red"), soft_wrap=True)
    if not any(found.problems for found in checked):
        console.print(f"All {len(checked)} kept epochs are whole.")
        return
    good = last_good_epoch(state)
    offered = "no epoch is whole" if good is None else f"the last good epoch is {good}"
    raise InternalError(
        "STATE_DAMAGED",
        f"{sum(bool(found.problems) for found in checked)} of {len(checked)} kept epochs are damaged; {offered}",
        hint=f"`penstock state rollback {directory}` goes back to it; the engine then repeats what came after."
        if good is not None
        else "Start with a new state directory.",
    )


@state_app.command()
def rollback(
    directory: StateDir,
    to: Annotated[int | None, typer.Option(help="The epoch to go back to.", show_default="last good")] = None,
) -> None:
    """Go back to the last good epoch (or a given one); the engine repeats what came after, from the log."""
    state, console = _opened(directory), Console(highlight=False)
    with state.locked():
        target, taken = roll_back(state, to)
    if not taken:
        console.print(f"Nothing to take back: epoch {target} is the newest and whole.")
        return
    reached = "the beginning" if target < 0 else f"epoch {target}"
    which = str(taken[0]) if len(taken) == 1 else f"{taken[0]} to {taken[-1]}"
    console.print(f"Back at {reached}. The next start repeats epoch {which}.")


def _opened(directory: StateDir) -> StateDirectory:
    state = StateDirectory(directory)
    state.read_existing_facts()
    return state


def _manifest(state: StateDirectory, epoch: int | None) -> Manifest:
    if epoch is None:
        return state.manifests.latest()
    if epoch not in state.manifests.epochs():
        raise UserError(
            "NO_SUCH_EPOCH", f"the state after epoch {epoch} is not kept", hint="See `penstock state ls`."
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
    console: Console, state: StateDirectory, manifest: Manifest, operator: str, name: str, most: int
) -> None:
    """A few rows of a collection's newest run, as they lie in the file."""
    entries = manifest.entries(operator, name)
    if not entries or not most:
        return
    frame = read_run(state.runs / entries[-1].name)
    console.print()
    hidden = [column for column in frame.columns if column in ("_hash", "_bucket")]
    console.print(answer(f"{name}: rows of {entries[-1].name}", frame.drop(hidden).head(most), most))
