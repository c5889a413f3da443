"""How events get in: the agent beside a web server, the gateway, and the segment log between them and the engine.

Nothing here imports polars, pyarrow or Spark; `segment_log` alone knows the contract of logs.
"""
