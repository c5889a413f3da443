"""`penstock recover`: shows the epochs that wait to be executed, and decides how one that cannot be executed continues.

A decision is recorded beside the epoch's record, so every repetition of the epoch does the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.catalogue.exclude_job import check_excludable, exclude_job
from penstock.cli.options import StateDir
from penstock.cli.tables import plain_table
from penstock.delivery.cursors import find_unchecked, forget_unchecked, read_cursors, skip_delivery
from penstock.delivery.result_log import ResultLog
from penstock.delivery.sink_progress import write_again
from penstock.errors import UserError
from penstock.ha.interruption import interrupt_leader
from penstock.ha.unit import Unit
from penstock.state.directory import REPLICAS, SHARED, StateDirectory

recover_app = typer.Typer(
    no_args_is_help=True,
    help="Continue where a recorded epoch cannot be executed (see also `state rollback`).",
)
Stream = Annotated[str, typer.Option(help="The stream.")]
Partition = Annotated[str, typer.Option(help="The partition, as the error names it.")]


@recover_app.command()
def show(directory: StateDir) -> None:
    """List what epochs read that are recorded and not executed yet."""
    console = Console(highlight=False)
    with _opened(directory) as state:
        table = plain_table(
            "epoch", "stream", "partition", "from", "to", "", left=("stream", "partition", "")
        )
        for epoch in waiting_epochs(state):
            record = state.records.read(epoch)
            assert record is not None
            for stream, span in record.start.spans_until(record.end):
                is_skipped = (stream, span.partition) in record.skips
                row = (str(epoch), stream, span.partition, f"{span.start:,}", f"{span.end:,}")
                table.add_row(*row, "skipped" if is_skipped else "")
    console.print(table if table.row_count else "No epoch waits that reads anything.")


@recover_app.command(name="skip-span")
def skip_span(directory: StateDir, stream: Stream, partition: Partition) -> None:
    """Execute the waiting epochs without what they read of a partition: the log no longer has it. The engine must be
    stopped."""
    console = Console(highlight=False)
    with _opened(directory, for_change=True) as state:
        skipped = []
        for epoch in waiting_epochs(state):
            record = state.records.read(epoch)
            assert record is not None
            spans = [one for name, one in record.spans if (name, one.partition) == (stream, partition)]
            if spans:
                state.records.skip_spans(epoch, [(stream, partition)])
                skipped.append((epoch, spans[0]))
    if not skipped:
        raise UserError(
            "NO_SUCH_SPAN",
            f"no waiting epoch reads partition {partition} of the stream {stream}",
            hint=f"`penstock recover show {directory}` lists what they read.",
        )
    for epoch, span in skipped:
        console.print(
            f"Epoch {epoch} skips {span.start:,} to {span.end:,} of {partition} ({stream}); the side output says so."
        )


@recover_app.command(name="exclude-job")
def exclude(directory: StateDir, job: Annotated[str, typer.Argument(help="The job.")]) -> None:
    """Execute the waiting epochs without a job, which then counts as failed; its state is kept. The engine must be
    stopped; an HA unit may run: its leader is interrupted."""
    root = _root(directory)
    if (root / SHARED / "unit.json").exists():
        with _opened(directory) as state:
            check_excludable(state, job, waiting_epochs(state), root)
        with contextlib.closing(Unit.at(root)) as unit, interrupt_leader(unit) as state:
            epochs = exclude_job(state, job, waiting_epochs(state), root)
    else:
        with _opened(directory, for_change=True) as state:
            epochs = exclude_job(state, job, waiting_epochs(state))
    which = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}"
    Console(highlight=False).print(
        f"The engine that leads next executes {which} without {job}; then resume or alter the job."
    )


@recover_app.command(name="skip-delivery")
def skip(
    directory: StateDir,
    job: Annotated[str, typer.Argument(help="The job.")],
    through: Annotated[int, typer.Option(help="The last epoch that its sinks do without.")],
) -> None:
    """Let the sinks of a job do without what they lack up to an epoch, because they refuse it, it is damaged, or they
    are ahead of a state directory that was restored from a copy. The engine must be stopped."""
    with _opened(directory, for_change=True) as state:
        root = _root(directory)
        log = ResultLog(root)
        log.load(())
        is_ahead = bool(find_unchecked(log.folder, job))
        _exceed_refusing_sinks(state, log.folder)
        epochs = skip_delivery(log.folder, log, job, through)
        if not epochs and not is_ahead:
            raise UserError(
                "NOTHING_TO_SKIP",
                f"no sink of {job} lacks anything up to epoch {through}",
                detail=f"The state directory is {state.path}.",
                hint="`penstock status` and the error of the job say which epoch a sink lacks.",
            )
    which = f"{len(epochs)} epochs with rows, {epochs[0]} to {epochs[-1]}" if epochs else "no rows so far"
    if is_ahead:
        which += f", and without what the job emits up to epoch {through}"
    Console(highlight=False).print(
        f"The sinks of {job} do without {which}. Start the engine, and resume the job if it has failed."
    )


@recover_app.command(name="write-again")
def again(directory: StateDir, job: Annotated[str, typer.Argument(help="The job.")]) -> None:
    """Let the sinks of a job take rows from a state directory that was restored from a copy, beside those that they got
    meanwhile: some rows may be there twice. The engine must be stopped."""
    with _opened(directory, for_change=True) as state:
        folder = _root(directory) / "results"
        outputs = find_unchecked(folder, job)
        if not outputs:
            raise UserError(
                "NOTHING_TO_WRITE_AGAIN",
                f"no sink of {job} was refused, or is away",
                detail=f"The state directory is {state.path}.",
                hint="This is for a sink that was refused with STATE_RESTORED.",
            )
        for output in outputs:
            write_again(folder, output)
            forget_unchecked(folder, output)
    Console(highlight=False).print(
        f"The sinks of {job} take its rows as those of another state. What they have stays, so some rows may be there "
        "twice. Start the engine, and resume the job if it has failed."
    )


def _exceed_refusing_sinks(state: StateDirectory, folder: Path) -> None:
    """Have the next engine write as a higher generation than the one that sinks know which were refused."""
    cursors = read_cursors(folder)
    if cursors is not None and cursors.refused_generation >= state.newest_generation:
        state.take_over(cursors.refused_generation + 1)


def waiting_epochs(state: StateDirectory) -> list[int]:
    """The epochs that have a record and no manifest."""
    last = max(state.manifests.epochs(), default=-1)
    return [one for one in range(last + 1, state.records.newest_epoch() + 1) if state.records.read(one)]


def _root(directory: Path) -> Path:
    """The directory itself, or the one that the unit of an engine was started on."""
    root = directory.resolve()
    return root.parents[2] if root.parent.name == REPLICAS else root


@contextlib.contextmanager
def _opened(directory: Path, *, for_change: bool = False) -> Iterator[StateDirectory]:
    """The state directory in force; to change something, locked as an engine would lock it."""
    root = _root(directory)
    if not (root / SHARED / "unit.json").exists():
        state = StateDirectory(directory)
        state.read_existing_facts()
        with state.locked() if for_change else contextlib.nullcontext():
            yield state
        return
    with contextlib.closing(Unit.at(root)) as unit:
        if for_change:
            unit.require_down()
        yield StateDirectory(Path(unit.record().directory), unit.shared_records)
