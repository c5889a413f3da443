"""Jobs in Python from files, whose code the state directory stores: created, deployed, altered, dropped; beside them
SQL that calls functions of such a file. The calls are made from numbers, so all versions of a file read the same.

The texts are part of the cases: a file of after the cut must fit the state of those before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import penstock as ps
from penstock.catalogue.jobs_app import JobsApp
from tests.golden.given import FromFile, Given, Named

#: a module that every file imports
CALLS = """
import penstock as ps

log = ps.call_records(
    total=400, callers=20, districts=5, call_seconds=20, rate=4, impossible=0.05, seed=5, live=False
)
calls = ps.stream("calls", log, ps.call_lines(), time="ts", lateness="5s", idle_after=None)
"""

COUNTED = """
import penstock as ps
from calls import calls
from weights import weight


class Counting(ps.CustomOperator):
    commutative = False

    def init_state(self):
        return {}

    def process(self, batch, state, out, context):
        rows = []
        for at, district in batch.select("_time", "district").iter_rows():
            state[district] = state.get(district, 0) + weight(1)
            rows.append({"_time": at, "district": district, "n": state[district]})
        out.emit(rows)
        return state


rows = calls.key_by("district").apply(Counting(), {"district": ps.Int32(), "n": ps.Int64()})
counted = ps.output("counted", rows, ps.jsonl("out/counted"))
"""

DEPLOYED = """
import penstock as ps
from calls import calls

HEAVY = 2


def before(last, row, emit):
    emit({"src": row["src"], "dst": row["dst"], "last": last})
    return row["dst"]


made = ps.aggregate_function(
    "made", add=lambda values: HEAVY * len(values), merge=lambda a, b: a + b, result=lambda n: n, dtype=ps.Int64()
)
texts = {"src": ps.String(), "dst": ps.String(), "last": ps.String()}
districts = calls.key_by("district")
windows = districts.window("40s").aggregate(ps.count("n"), made("lat", "made"))
busiest = ps.job("windows", {"district": ps.Int32(), "n": ps.Int64()}).key_by("district").last(2, "n")
app = ps.app(
    "deployed",
    ps.output("windows", windows, ps.jsonl("out/windows")),
    ps.output("busiest", busiest, ps.jsonl("out/busiest")),
    ps.output("best", districts.running("9s").count("n").top(2), ps.jsonl("out/best")),
    ps.output("followed", calls.key_by("src").apply_rows(before, texts, columns=["dst"]), ps.jsonl("out/followed")),
    ps.output("short", calls.key_by("src").session("8s").count("n"), ps.jsonl("out/short")),
)
"""
_SHORT = '    ps.output("short", calls.key_by("src").session("8s").count("n"), ps.jsonl("out/short")),\n'

CALLED = """
import penstock as ps
from calls import calls

SQL = '''
CREATE JOB farthest AS SELECT src, MAX(moved(lat)) AS lat FROM calls GROUP BY src WINDOWING 30 SECONDS
    INTO jsonl('out/farthest');
CREATE JOB plain AS SELECT district, COUNT(*) AS n FROM calls GROUP BY district WINDOWING 25 SECONDS
    INTO jsonl('out/plain')
'''


def by(degrees):
    return degrees + 1


app = ps.jobs_app(
    "called",
    SQL,
    streams={"calls": calls},
    functions={"moved": lambda lat: lat.map_batches(by, return_dtype=ps.Float64())},
)
"""


def counted(weight: str) -> Mapping[str, str]:
    """A file whose operator adds up a `weight`, which a module beside it defines."""
    return {
        "counted.py": COUNTED,
        "calls.py": CALLS,
        "weights.py": f"def weight(n):\n    return {weight}\n",
    }


def deployed(*changes: tuple[str, str]) -> Mapping[str, str]:
    """A file with an app, changed."""
    return _changed("deployed.py", DEPLOYED, changes)


def called(*changes: tuple[str, str]) -> Mapping[str, str]:
    """A file with jobs in SQL and a function that they call, changed."""
    return _changed("called.py", CALLED, changes)


def _changed(name: str, text: str, changes: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return {name: text, "calls.py": CALLS}


_HEAVIER, _HEAVIEST = ("HEAVY = 2", "HEAVY = 200"), ("HEAVY = 2", "HEAVY = 20_000")
_FAR, _FURTHER = ("degrees + 1", "degrees + 2"), ("degrees + 1", "degrees + 4")
_PAUSE = Named("pause-followed", "PAUSE JOB followed")
#: before which epoch; those after the cut are executed by the engine that continues
CHANGES = {
    0: (FromFile("create", counted("n"), "counted", "counted"),),
    1: (FromFile("deploy", deployed()), FromFile("deploy", called())),
    2: (
        "CREATE JOB reads AS SELECT district, SUM(n) AS n FROM windows GROUP BY district WINDOWING 60 SECONDS "
        "INTO jsonl('out/reads')",
        _PAUSE,
    ),
    3: (
        FromFile("alter", counted("1000 * n"), "counted", "counted"),
        FromFile("deploy", called(_FAR)),
    ),
    4: (FromFile("deploy", deployed(_HEAVIER, (_SHORT, ""))),),
    5: "RESUME JOB followed; DROP JOB plain",
    7: (
        _PAUSE,  # once more: it is remembered that this was done
        FromFile("alter", counted("1_000_000 * n"), "counted", "counted"),
        FromFile(
            "deploy",
            called(_FURTHER, ("JOB plain", "JOB later"), ("out/plain", "out/later")),
        ),
    ),
    8: (
        FromFile("deploy", deployed(_HEAVIEST, (_SHORT, ""))),
        "DROP JOB counted; CREATE JOB counted AS SELECT district, COUNT(*) AS n FROM calls "
        "GROUP BY district WINDOWING 10 SECONDS INTO jsonl('out/counted_again')",
    ),
}


def jobs(given: Given) -> JobsApp:
    """No job to start with: all come with commands."""
    return ps.jobs_app("python-files")
