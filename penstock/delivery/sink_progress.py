"""Compares what a sink has with what a state directory has emitted, before the sink gets anything.

A sink that is ahead, or has other epochs, was written by another continuation of the same state: the directory was
restored from a copy. Only a person knows which of the two counts, so nothing is written until somebody decides.

    DIR/results/sink-labels.json   {output: text}: by these, sinks take an output for that of another state

Guarantees: a sink that was refused once is refused at every later start, however far the state has come by then: of
sinks that were not compared, the cursors keep the epoch up to which they are known (`Cursors.unchecked`).
Does not guarantee: anything of sinks that remember no epochs, or of epochs that former versions have delivered, which
have no digests.
"""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.delivery.result_log import ResultLog
from penstock.errors import InternalError, UserError
from penstock.sinks.contract import SinkEpoch
from penstock.sinks.recent_epochs import STATE_RESTORED
from penstock.state.durable import write_whole
from penstock.state.run_file import unwritable_error

#: the name of the file, beside the results
SINK_LABELS = "sink-labels.json"


@dataclass(frozen=True)
class RecordedEpochs:
    """The epochs that a state directory has recorded."""

    newest: Callable[[], int]
    #: the digest of an epoch's record; empty where there is no record any more
    digest: Callable[[int], str]


def is_ahead(found: SinkEpoch, known: int, recorded: RecordedEpochs | None, log: ResultLog) -> bool:
    """Whether the newest epoch of a sink is none of this state. `known`: the epoch up to which it is known to be."""
    if found.epoch <= known or recorded is None:
        return False
    if found.epoch > recorded.newest():
        return True
    if not found.digest:  # a former version wrote it
        return False
    return found.digest not in (log.digest_of(found.epoch), recorded.digest(found.epoch))


def restored_error(directory: Path, job: str, place: str, found: SinkEpoch, epoch: int) -> UserError:
    """The error of a sink that has epochs which this state has not emitted, or another epoch than this one."""
    path = shlex.quote(str(directory))
    again = (
        found.hint
        or f"`penstock recover write-again {path} {job}` adds the rows after epoch {epoch} to those there"
    )
    return UserError(
        STATE_RESTORED,
        f"{place} has rows of {job} up to epoch {found.epoch}, and not from the state directory {directory}",
        detail="The directory was restored from a copy, or a copy of it was started too. Of what is emitted here, the "
        f"sink has what came up to epoch {epoch}. Nothing is written.",
        hint="Start with the directory that wrote these rows, if there is one. Otherwise decide: `penstock recover "
        f"skip-delivery {path} {job} --through {found.epoch}` keeps what the sink has, without the rows that are "
        f"emitted here up to that epoch; or {again}, so some may be there twice. Then start again, and resume the job "
        "if it has failed.",
    )


def read_sink_labels(folder: Path) -> Mapping[str, str]:
    """What to add to the labels of outputs, so that sinks take them for those of another state."""
    path = folder / SINK_LABELS
    try:
        return {str(output): str(label) for output, label in json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as failure:
        raise InternalError(
            "STATE_DAMAGED", "the labels of outputs are damaged", detail=f"{failure!r} ({path})"
        ) from failure


def write_again(folder: Path, output: str) -> None:
    """Let the sinks of an output take what is delivered from now on as that of another state."""
    labels = {**read_sink_labels(folder), output: f"~{uuid.uuid4().hex[:8]}"}
    try:
        write_whole(folder / SINK_LABELS, json.dumps(labels).encode())
    except OSError as failure:
        raise unwritable_error(folder / SINK_LABELS, failure) from failure
