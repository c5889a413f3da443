"""`./run bench peers` and `./run bench growth`: run what is wanted, keep raw runs, make the report.

Receives the user's choice; hands lines or JSON to standard output, raw runs to a folder,
the report to the documentation.
"""

from __future__ import annotations

import dataclasses
import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.dataset import cache_root
from bench.peers import growth as growing
from bench.peers import raw
from bench.peers.comparison import QUICK, Comparison, Size, chosen
from bench.peers.environments import install as installed
from bench.peers.report import report, written
from penstock.errors import PenstockError

Json = Annotated[bool, typer.Option("--json", help="One line, one JSON object a run.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Small inputs, one run each: a look, not a measurement.")
]
Only = Annotated[
    list[str] | None, typer.Option(help="A workload, a peer, or workload:peer; several by commas.")
]


def default_folder() -> Path:
    """Where raw runs are kept unless the user says otherwise."""
    return cache_root().parent / "peers-runs"


def peers(
    json: Json = False,
    quick: Quick = False,
    only: Only = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each.")] = None,
    events: Annotated[int | None, typer.Option(min=1_000, help="Events of the largest workloads.")] = None,
    limit: Annotated[float | None, typer.Option(min=1, help="Seconds a run may take.")] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only make the inputs, for a run later.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Install peers with pip, each for itself.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where raw runs are kept; those there are not made again.")
    ] = None,
    busy_again: Annotated[
        bool, typer.Option("--busy-again", help="Make those again during which the machine was busy.")
    ] = False,
    report_of: Annotated[
        Path | None, typer.Option("--report", help="Only make the report, of the raw runs in this folder.")
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder of documentation that gets the report.")] = Path(
        "docs"
    ),
) -> None:
    """Penstock, PySpark, Flink, Bytewax, Pathway, and plain batch programs on the same input, answers compared."""
    people = Console(stderr=True, soft_wrap=True)

    def show_progress(text: str) -> None:
        people.print(text, markup=False, highlight=False)

    try:
        if report_of is not None:
            show_progress(f"written: {_reported(report_of, to)}")
            return
        size = QUICK if quick else Size()
        changes: dict[str, Any] = {"runs": runs, "events": events, "limit_seconds": limit}
        size = dataclasses.replace(
            size, **{name: value for name, value in changes.items() if value is not None}
        )
        pairs = chosen(only or [])
        for peer in dict.fromkeys(peer.name for _, peer in pairs) if install else ():
            reason = installed(next(other for _, other in pairs if other.name == peer), show_progress)
            if reason is not None:
                show_progress(f"{peer}: {reason}")
        place = folder or default_folder()
        comparison = Comparison(size, place, cache_root(), show_progress, busy_again=busy_again)
        if prepare:
            comparison.prepare(pairs)
            return
        for run in comparison.run(pairs):
            print(json_.dumps(dataclasses.asdict(run)) if json else line(run), flush=True)
        show_progress(f"raw runs: {place}; the report of them: ./run bench peers --report {place}")
    except PenstockError as error:
        show_progress(error.text())
        raise typer.Exit(error.exit_code) from None


def growth(
    json: Json = False,
    quick: Quick = False,
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(growing.AXES)}; may be repeated.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where raw points are kept; those there are not made again.")
    ] = None,
) -> None:
    """How cost grows with events per epoch, keys, window length, jobs, slices and state; `peers --report` draws it."""
    people = Console(stderr=True, soft_wrap=True)

    def show_progress(text: str) -> None:
        people.print(text, markup=False, highlight=False)

    names = [part for text in only or growing.AXES for part in text.split(",")]
    if unknown := [name for name in names if name not in growing.AXES]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(growing.AXES)}")
    try:
        for found in growing.measure(names, quick, (folder or default_folder()) / "growth", show_progress):
            output = f"{found['axis']} {found['at']:,.0f}: {found['cost']:.3g}"
            print(json_.dumps(found) if json else output, flush=True)
    except PenstockError as error:
        show_progress(error.text())
        raise typer.Exit(error.exit_code) from None


def line(run: raw.Run) -> str:
    """A run for people."""
    head = f"{run.workload}, {run.peer}, run {run.number}: "
    if run.status != "ok":
        return f"{head}{run.status}: {run.reason}"
    tail = f"start-up {run.start_up:.1f} s, {run.peak_bytes / 1e9:.2f} GB"
    if run.delays:
        middle = sorted(run.delays)[len(run.delays) // 2]
        return f"{head}{middle:.2f} s behind at {run.rate:,.0f} events/s, {tail}"
    return f"{head}{run.events_per_second:,.0f} events/s, {tail}"


def _reported(folder: Path, docs: Path) -> Path:
    about = folder / raw.MACHINE
    machine = json_.loads(about.read_text()) if about.exists() else {}
    return written(*report(raw.read(folder), machine, growing.read(folder / "growth")), docs)
