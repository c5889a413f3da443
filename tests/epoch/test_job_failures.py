"""A failed epoch is explained by its cause, without the text that Spark puts around it."""

from __future__ import annotations

from pyspark.errors import PySparkException

from penstock.epoch.job_failures import explain_failure
from penstock.errors import ExternalError, InternalError

LATE = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure:
org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:281)"""
RAISED = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "app.py", line 3, in halve
    return 1 // 0
           ~~^^~~
ZeroDivisionError: integer division or modulo by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)"""


def test_results_that_spark_may_not_collect_are_explained() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 2 "
        "tasks (1757.9 KiB) is bigger than spark.driver.maxResultSize (1024.0 KiB)"
    )
    error = explain_failure(PySparkException(text))
    assert error.condition == "RESULT_TOO_LARGE"
    assert "1757.9 KiB" in str(error.detail)
    assert "penstock recover exclude-job" in str(error.hint)


def test_the_cause_is_reported_and_not_the_end_of_a_stack_trace() -> None:
    late = explain_failure(PySparkException(LATE))
    assert isinstance(late, ExternalError)
    assert late.condition == "WORKER_TOO_LATE"
    assert "overloaded" in str(late.hint)
    raised = explain_failure(PySparkException(RAISED))
    assert isinstance(raised, InternalError)
    assert (
        raised.primary == "A task of the epoch failed: ZeroDivisionError: integer division or modulo by zero"
    )
    assert "PythonRunner" not in raised.primary
    assert explain_failure(KeyError("x\ny")).primary == "KeyError: 'x\\ny'"
    assert explain_failure(ValueError("first\nsecond")).primary == "ValueError: first"
    assert explain_failure(ValueError()).primary == "ValueError: ValueError"
