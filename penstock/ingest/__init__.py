"""Ingest: the agent beside a web server, the gateway, and the segment log between them and the engine.

Nothing here imports polars, pyarrow or Spark; only `segment_log` and `producer_log` depend on the contract of logs.
"""
