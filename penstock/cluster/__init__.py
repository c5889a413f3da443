"""Runs a local cluster: Spark's standalone master and workers as processes of this machine."""

from penstock.cluster.local import LocalCluster

__all__ = ["LocalCluster"]
