"""Spark's checkpoint, made from our own records, so that Spark goes on after the last manifest wherever it starts.

Receives a state directory; hands the path of a checkpoint whose last batch is the last committed epoch.

Every generation of an HA unit has a checkpoint of its own: an engine that was paused and wakes writes into one that
nobody reads, and a replica needs none of another's files. An epoch that Spark had logged and we had not recorded is
forgotten: nothing of it was done. The format is Spark's version 1 of its offset and commit logs.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from pathlib import Path

from penstock.state.directory import StateDirectory
from penstock.state.durable import write_whole
from penstock.state.run_file import unwritable
from penstock.words.errors import InternalError

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


def made(state: StateDirectory, name: str) -> Path:
    """A new checkpoint in a state directory, after its newest manifest; older ones are removed."""
    target = state.path / f"spark-{name}"
    try:
        for old in state.path.glob("spark-*"):
            shutil.rmtree(old, ignore_errors=True)
        write_whole(target / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        epoch = state.latest().epoch
        if epoch < 0:
            return target
        record = state.recorded(epoch)
        if record is None:
            raise InternalError(
                "STATE_DAMAGED",
                f"epoch {epoch} has a manifest but no record",
                detail=str(state.path),
                hint="Run `penstock state rollback DIR` to go back to an epoch that has one.",
            )
        for number, offset in ((epoch - 1, record["start"]), (epoch, record["end"])):
            if number >= 0:
                head = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1e3), "conf": {}}
                content = f"v1\n{json.dumps(head)}\n{json.dumps(offset)}".encode()
                write_whole(target / "offsets" / str(number), content)
                write_whole(target / "commits" / str(number), _COMMIT)
    except OSError as failure:
        raise unwritable(target, failure) from failure
    return target
