"""Flink on one machine, as its guides recommend for a small job: what both Flink programs share.

State in the JVM's memory, checkpoints to disk every ten seconds, objects reused between operators.
"""

from __future__ import annotations

from typing import Any

from program import Task

SETTINGS = {
    "parallelism.default": "as many as cores",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "10 s",
    "pipeline.object-reuse": "true",
    "taskmanager.memory.network.max": "256m",
    "restart-strategy.type": "none",
}


def configured(task: Task, further: dict[str, str]) -> dict[str, str]:
    """All settings with their values for this run; those with none are left out."""
    every = (
        SETTINGS
        | further
        | {
            "parallelism.default": str(task.cores),
            "execution.checkpointing.dir": f"file://{task.place}/checkpoints",
            "execution.checkpointing.savepoint-dir": f"file://{task.place}/savepoints",
            "io.tmp.dirs": str(task.place),
        }
    )
    return {key: value for key, value in every.items() if value}


def timed(task: Task, client: Any) -> None:
    """Wait for a job; its time is by Flink's own clock, from its start to its end."""
    task.seconds = client.get_job_execution_result().result().get_net_runtime() / 1000
