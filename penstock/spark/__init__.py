"""Spark: the only importer of pyspark and py4j.

Starts the session, executes the stages of an epoch as one Spark job, exchanges bytes by Spark's shuffle, requests
executors and prefers some for a slice, and brings any Spark source into a log. docs/spark.md lists what is used of
Spark's private API, why, and what would replace it.
"""
