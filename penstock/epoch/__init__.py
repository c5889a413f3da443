"""The path of an event: one epoch from admission to its manifest.

Admission fixes the spans; the runner writes the epoch record, has the stages executed, gathers what they send, hands
results to the sinks and commits the manifest. `stages` says what tasks do (scan, exchange, slice, gather tree); who
executes them is in `penstock.spark`, or `local_stages` without Spark. Nothing here imports Spark.
"""
