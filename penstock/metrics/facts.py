"""Sets metrics from what a service, an HA unit, a gateway or an agent reports about itself as JSON.

Values that are no longer reported leave the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.metrics import declared as m
from penstock.metrics.registry import Metric, Registry

Facts = Mapping[str, Any]


def set_service(
    registry: Registry, status: Facts, jobs: Sequence[Facts], responses: Mapping[int, int]
) -> None:
    """What a service reports: rates, streams, jobs, subscriptions and responses (`GET /status`, `GET /jobs`)."""
    for metric, name in (
        (m.UP_SECONDS, "up_seconds"),
        (m.EPOCH, "epoch"),
        (m.EVENTS_PER_SECOND, "events_per_second"),
        (m.STREAMS, "streams"),
        (m.SUBSCRIBERS, "subscribers"),
    ):
        registry.replace(metric, [((), status[name])])
    latency = status["latency_seconds"] or {}
    quantiles = [((f"{place / 100:g}",), latency.get(f"p{place}")) for place in (50, 99)]
    registry.replace(m.LATENCY_QUANTILES, quantiles)
    registry.replace(m.BACKLOG, (((stream,), units) for stream, units in status["backlog"].items()))
    registry.replace(m.JOBS, (((life,), count) for life, count in status["jobs"].items()))
    dropped = status["subscribers_dropped"].items()
    registry.replace(m.SUBSCRIBERS_DROPPED, (((reason,), count) for reason, count in dropped))
    registry.replace(m.HTTP_RESPONSES, (((str(code),), count) for code, count in responses.items()))
    registry.replace(m.JOB_ROWS, (((job["name"],), job["rows"]) for job in jobs))
    registry.replace(m.JOB_EPOCH, (((job["name"],), job["epoch"]) for job in jobs))


def set_connections(registry: Registry, counts: Mapping[str, int]) -> None:
    """The connections of a service: how many are `open`, and how many were ended, by reason."""
    registry.replace(m.CONNECTIONS, [((), counts.get("open"))])
    ended = ((reason, count) for reason, count in counts.items() if reason != "open")
    registry.replace(m.CONNECTIONS_ENDED, (((reason,), count) for reason, count in ended))


def set_unit(registry: Registry, unit: Facts) -> None:
    """What an HA unit reports (`penstock ha status --json`)."""
    engines: Mapping[str, Facts] = unit["engines"]
    registry.replace(m.UNIT_SCHEME, [((unit["scheme"],), 1)])
    registry.set(m.UNIT_GENERATION, unit["generation"])
    registry.replace(m.UNIT_EPOCH, [((), unit["last_epoch"])])
    registry.replace(m.UNIT_DURABLE, [((), unit["durable_epoch"])])
    registry.replace(m.UNIT_THRESHOLD, [((), unit["threshold_seconds"])])
    counts: dict[tuple[str, str], int] = {}
    for one in engines.values():
        key = one["role"], one["phase"]
        counts[key] = counts.get(key, 0) + 1
    registry.replace(m.UNIT_ENGINES, counts.items())
    for metric, name in ((m.UNIT_LAG, "lag"), (m.UNIT_HELD, "held"), (m.UNIT_CACHED, "cached_bytes")):
        _set_each(registry, metric, engines, name)
    registry.set(m.UNIT_RECOVERIES, len(unit["recoveries"]))
    registry.set(m.UNIT_SWITCHES, len(unit["switches"]))
    took = [one["first_result_after"] for one in unit["recoveries"]][-1:]
    registry.replace(m.UNIT_RECOVERY_SECONDS, (((), seconds) for seconds in took))


def set_gateway(registry: Registry, figures: Facts) -> None:
    """What a gateway has counted (`GET /status` of its HTTP door)."""
    for metric, name in (
        (m.GATEWAY_CONNECTIONS, "connections"),
        (m.GATEWAY_WAITING_CONNECTIONS, "waiting_connections"),
        (m.GATEWAY_REFUSED, "refused"),
        (m.GATEWAY_GROUPS, "groups"),
        (m.GATEWAY_FRAMES, "frames"),
        (m.GATEWAY_LINES, "lines"),
        (m.GATEWAY_DUPLICATES, "duplicate_frames"),
        (m.GATEWAY_WAITING, "waiting_bytes"),
    ):
        registry.set(metric, figures[name])
    _set_each(registry, m.GATEWAY_PRODUCERS, figures["streams"], "producers")
    _set_each(registry, m.GATEWAY_DROPPED, figures["streams"], "given_up_bytes")


def set_agent(registry: Registry, sources: Sequence[Facts]) -> None:
    """What each source of an agent has shipped."""
    by_producer = {str(one["producer"]): one for one in sources}
    for metric, name in (
        (m.AGENT_LINES, "lines"),
        (m.AGENT_FRAMES, "frames"),
        (m.AGENT_BYTES, "bytes_sent"),
        (m.AGENT_DROPPED, "dropped_lines"),
        (m.AGENT_WAITING, "unacknowledged_bytes"),
        (m.AGENT_REDUCED, "reduced_lines"),
    ):
        _set_each(registry, metric, by_producer, name)


def _set_each(registry: Registry, metric: Metric, of: Mapping[str, Facts], name: str) -> None:
    registry.replace(metric, (((key,), facts.get(name)) for key, facts in of.items()))
