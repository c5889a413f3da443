"""A rehearsal: one empty epoch through Spark's streaming, so that an engine that stands by starts its first at once.

The first streaming query of a session loads classes and starts Spark's planner process, which takes a second or more.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading

from pyspark.sql import SparkSession

from penstock.engine.lines import LineServer
from penstock.engine.source import FORMAT

_PATIENCE_SECONDS = 60.0


def rehearsed(spark: SparkSession) -> bool:
    """Run an empty epoch into nothing; whether it went through."""
    folder = tempfile.mkdtemp(prefix="penstock-rehearsal-")
    done = threading.Event()

    def answered(text: bytes) -> bytes:
        question = json.loads(text)[0]
        answer = {"initial": {"epoch": -1}, "latest": {"epoch": 0}}.get(question, {})
        return json.dumps(["ok", answer]).encode()

    server = LineServer(os.path.join(folder, "source"), "penstock-rehearsal", answered)
    try:
        rows = spark.readStream.format(FORMAT).option("socket", os.path.join(folder, "source")).load()
        writer = rows.writeStream.foreachBatch(lambda frame, number: done.set())
        query = writer.option("checkpointLocation", os.path.join(folder, "spark")).start()
        try:
            return done.wait(_PATIENCE_SECONDS)
        finally:
            query.stop()
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
