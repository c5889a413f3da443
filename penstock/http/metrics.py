"""The engine's figures in Prometheus' text form.

Receives the status, the jobs and the counts; hands text. Every metric is declared once, with its kind and meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: metric, kind, meaning, and the part of the status it is
_OF_STATUS = (
    ("penstock_up_seconds", "gauge", "Seconds since the service was started.", "up_seconds"),
    ("penstock_epoch", "gauge", "The last epoch that is committed.", "epoch"),
    ("penstock_epochs_total", "counter", "Epochs since the service was started.", "epochs"),
    ("penstock_events_total", "counter", "Events since the service was started.", "events"),
    ("penstock_events_per_second", "gauge", "Events a second, of late.", "events_per_second"),
    ("penstock_late_events_total", "counter", "Events that came too late.", "late"),
    (
        "penstock_leaped_total",
        "counter",
        "Times a silent partition, or the beginning of one, was passed over.",
        "leaped",
    ),
    ("penstock_dead_letters_total", "counter", "Records that could not be read.", "dead"),
    ("penstock_last_epoch_seconds", "gauge", "How long the last epoch took.", "last_epoch_seconds"),
    ("penstock_state_bytes", "gauge", "Bytes of state on disk.", "state_bytes"),
    ("penstock_streams", "gauge", "Streams there are.", "streams"),
    ("penstock_subscribers", "gauge", "Subscriptions that are open.", "subscribers"),
)


def metrics(status: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]], answers: Mapping[int, int]) -> str:
    """All metrics."""
    lines: list[str] = []
    for name, kind, meaning, part in _OF_STATUS:
        if status[part] is not None:
            lines += [*_head(name, kind, meaning), f"{name} {_number(status[part])}"]
    if latency := status["latency_seconds"]:
        quantiles = {"0.5": latency["p50"], "0.99": latency["p99"]}
        meaning = "Seconds from an event's time to the commit of its epoch, of late."
        lines += _by("penstock_latency_seconds", "gauge", meaning, "quantile", quantiles)
    lines += _by(
        "penstock_backlog", "gauge", "What waits in a log, in its units.", "stream", status["backlog"]
    )
    lines += _by("penstock_jobs", "gauge", "Jobs, by how they are.", "life", status["jobs"])
    dropped = status["subscribers_dropped"]
    meaning = "Subscribers that were dropped."
    lines += _by("penstock_subscribers_dropped_total", "counter", meaning, "reason", dropped)
    lines += _by("penstock_http_answers_total", "counter", "Answers, by status.", "status", answers)
    told = {job["name"]: job for job in jobs}
    rows = {name: job["rows"] for name, job in told.items()}
    lines += _by("penstock_job_rows_total", "counter", "Rows a job told.", "job", rows)
    epochs = {name: job["epoch"] for name, job in told.items() if job["epoch"] is not None}
    lines += _by("penstock_job_epoch", "gauge", "The last epoch in which a job told anything.", "job", epochs)
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _by(name: str, kind: str, meaning: str, label: str, values: Mapping[Any, Any]) -> list[str]:
    if not values:
        return []
    found = [f'{name}{{{label}="{_escaped(str(key))}"}} {_number(value)}' for key, value in values.items()]
    return [*_head(name, kind, meaning), *found]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(value)
