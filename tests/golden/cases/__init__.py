"""All cases, by name."""

from __future__ import annotations

from tests.golden import unit_app, unit_jobs
from tests.golden.case import Case, Files, Killed, OfUnit, OnSpark, Reduced
from tests.golden.cases import aggregates, custom, dealing, engines, jobs, keyed, meetings, tops, windows
from tests.golden.jobs_unit import OfJobsUnit
from tests.golden.over_logs import Kafka, Redis, Segments

_ALL = (
    Case("time-windows", windows.time_windows),
    Case("emissions", windows.emissions),
    Case("event-windows", windows.event_windows),
    Case("last-and-distinct", keyed.last_and_distinct),
    Case("patterns", keyed.patterns),
    Case("row-functions", keyed.row_functions),
    Case("joins", meetings.joins),
    Case("lookups", meetings.lookups),
    Case("products", meetings.products),
    Case("tops", tops.tops),
    Case("custom-operators", custom.custom_operators),
    Case("user-aggregates", custom.user_aggregates),
    Case("aggregates-in-windows", aggregates.in_windows),
    Case("aggregates-running", aggregates.running),
    Case("aggregates-of-events", aggregates.of_events),
    Case("partitioned", dealing.partitioned),
    Case("united", dealing.united, stateless=frozenset({"late"})),
    Case("jobs-of-one-template", jobs.templates, stateless=frozenset({"chosen"})),
    Case("jobs-of-own-plans", jobs.own_plans),
    Case("jobs-with-feedback", jobs.feedback, commands={0: ""}),
    Case("jobs-that-change", jobs.changing, commands=jobs.CHANGES, stateless=frozenset({"dropped"})),
    Case(
        "jobs-whose-commands-are-folded",
        jobs.changing,
        commands=jobs.CHANGES,
        stateless=frozenset({"dropped"}),
        fold_after=1,
    ),
    Case("jobs-all-in-sql", jobs.all_in_sql, epoch_units=40, cut=6),
    Case("sinks", engines.sinks),
    Case("moved-buckets", engines.some_of_each, moves={2: {0: 1, 5: 0, 7: 2}, 4: {1: 2}}),
    Case("checkpoints-apart", engines.some_of_each, checkpoint_every=4, cut=6),
    Files("files", engines.over_files, epoch_units=2_600),
    Segments("segment-log", engines.over_a_log, epoch_units=2_600),
    Segments("replicated-log", engines.over_a_log, epoch_units=2_600, names=("log-a/events", "log-b/events")),
    Redis("redis-streams", engines.over_a_log),
    Kafka("kafka-topic", engines.over_a_log),
    Case("call-records", engines.over_calls, epoch_units=40),
    Reduced("reduced-by-agents", engines.reduced),
    OnSpark("on-spark", engines.some_of_each),
    OfUnit("unit-passive-replication", unit_app.build),
    OfUnit("unit-active-replication", unit_app.build, scheme="active-replication", fails_over=True),
    OfJobsUnit(
        "unit-of-jobs",
        unit_jobs.build,
        commands=unit_jobs.CHANGES,
        stateless=frozenset({"dropped"}),
        scheme="active-replication",
        fails_over=True,
    ),
    Killed("killed-before-the-manifest", engines.some_of_each, step="sliced"),
    Killed("killed-after-the-record", engines.some_of_each, step="recorded"),
    Killed("killed-after-the-sinks", engines.sinks, step="delivered"),
    Killed("killed-between-checkpoints", engines.some_of_each, checkpoint_every=4, step="sliced", cut=5),
    Killed(
        "killed-between-checkpoints-delivered", engines.sinks, checkpoint_every=4, step="delivered", cut=4
    ),
)
CASES = {case.name: case for case in _ALL}
