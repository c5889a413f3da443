"""Metrics: each declared once with kind, unit, labels and meaning; a registry of their values; one Prometheus exporter.

`fold_epoch` is the one fold from an epoch's report to the registry; `facts` sets gauges from what an engine, a service,
an HA unit, a gateway and an agent report about themselves. Only the standard library is imported: agents use it too.
"""

from penstock.metrics.declared import METRICS
from penstock.metrics.epoch import fold_epoch
from penstock.metrics.prometheus import CONTENT_TYPE, expose
from penstock.metrics.registry import Metric, Registry

__all__ = ["CONTENT_TYPE", "METRICS", "Metric", "Registry", "expose", "fold_epoch"]
