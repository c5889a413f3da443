"""What people say about the figures: why Penstock is slower where it is, and what could be done about it.

Receives nothing; hands sentences. They are part of the report, which says by itself where Penstock loses.
"""

from __future__ import annotations

REASONS = (
    "Why, as far as it is known from profiles ([performance](performance.md)):",
    "",
    "- Against the batch programs: they read, group and forget. Penstock besides cuts the stream into "
    "epochs, each recorded before "
    "and committed after, keeps state that survives a crash, and hands rows from process to process "
    "through Arrow messages; "
    "Spark takes 50 to 70 ms between epochs.",
    "- In the first seconds: the JVM compiles, workers load, and epochs begin small and grow to their target. "
    "The fewer the events, the more of the time that is; engines that are ahead anyway were given more of them.",
    "- taxi: the ranking goes trip by trip, in Python and on one core, in every engine that has a program for "
    "it. What is left to compare is how a trip gets there, and in one process it does not have to travel.",
    "- join: both sides are put in order of time and kept, written to disk, until no later call can meet them; "
    "pairs travel through the driver. The batch programs have all calls at hand and find the pairs in one pass.",
    "- Start-up: a JVM, a Spark session, a Python worker for each core that imports Polars, and a small "
    "job that warms them up. "
    "Engines without a JVM start in a second or two.",
    "- Memory: the JVM, a driver and a worker for each core, each with Polars loaded, and an epoch of up "
    "to 512 MB in flight while "
    "the log is behind.",
    "- Latency: rows are told when an epoch ends, and an epoch has a fixed cost of some 0.15 s; engines "
    "that work event by event tell "
    "a window as soon as its watermark has come.",
)

IDEAS = (
    "Let an epoch's slices begin while the scan of the next one runs: the two tasks of a stage wait for "
    "each other today.",
    "Slices that hand rows to their sinks themselves, so that the driver need not put thousands of jobs' "
    "results on disk.",
    "Keep totals of hot patterns in memory between epochs instead of in runs, with the runs as their log.",
    "Small epochs in a process that stays, without a Spark job: most of what a window's rows wait for is "
    "Spark's start of a stage.",
    "Start workers before the session is there, so that Polars is loaded while the JVM starts.",
)
