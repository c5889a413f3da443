"""The path of an event: one epoch from admission to its manifest.

`admission` decides the spans. `runner` writes the epoch record, has the stages executed, gathers their messages,
delivers the results to sinks and commits the manifest. `stages` defines what tasks do (scan, exchange, slice, merge)
and executes them in one process; `penstock.spark` executes them on Spark. Nothing here imports Spark.
"""
