"""Names and paths that users of 0.1 know still work, and say what they are now."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.coordination.contract import Record as StoreRecord
from penstock.coordination.contract import Session, Store
from penstock.coordination.files import FileStore
from penstock.logs.contract import Log
from penstock.moved import MOVED, RENAMED, former_overrides, former_parameters
from penstock.scaling import Move
from penstock.scaling.history import History, Smoothed
from penstock.scaling.measurements import Measured, Snapshot
from penstock.testing import ListLog

#: every import of the documentation, the demos and the notebook of 0.1, and the names that its pages give in full
IMPORTS = """
from penstock import col
from penstock.client import connect
from penstock.decode import Decoder
from penstock.elastic import Provision
from penstock.elastic.decisions import Decommission, Move
from penstock.elastic.simulate import Run, simulate
from penstock.elastic.traces import Trace
from penstock.engine.closing import Closing
from penstock.engine.settings import Settings
from penstock.ha import ControllerSettings, Load, Measured, begun, decide
from penstock.jobs.app import JobsApp
from penstock.jobs.program import Jobs
from penstock.logs import Log
from penstock.logs.contract import Log
from penstock.logs.draw import Ints, draws
from penstock.logs.generated import ORIGIN, MadeLog
from penstock.logs.rates import Profile, Rate
from penstock.sinks import Sink
from penstock.testing import ListLog, ListSink, ManualClock, run_inline
from penstock.testing.coordination_contract import CoordinationContract
from penstock.testing.inline import InlineEngine
from penstock.testing.log_contract import LogContract
from penstock.testing.serving import PushedLog, serving
from penstock.testing.sink_contract import SinkContract
from penstock.testing.three_ways import three_ways
from penstock.testing.zookeeper_server import ZooKeeperServer
import penstock as ps
"""
#: what `import penstock as ps` gave in 0.1
PUBLIC = """
App Boolean Context Cookie CustomOperator Date Datetime Delimited Float64 Int32 Int64 Out Pattern Stream String
aggregate_function app approx_count_distinct approx_quantile avg by_function by_range call_lines call_records col
collect combined_log console count count_distinct count_of earliest files first generated http_push jobs_app
json_lines jsonl kafka last latest lit max_ median min_ output parquet postgres prev quantile redis replicated
segments segments_by_producer spark_source sqlite stddev step stream sum_ to_kafka to_redis variance
"""
#: imports of names that are as they were, which must not warn
UNCHANGED = [
    line for line in IMPORTS.split("\n") if line and line.split()[1] not in MOVED and "begun" not in line
]


def forget(*former: str) -> None:
    """Forget former paths that were imported, so that an import warns again."""
    for name in [name for name in sys.modules if name in former]:
        del sys.modules[name]


@pytest.mark.parametrize("line", IMPORTS.strip().split("\n"))
def test_an_import_that_0_1_shows_works_and_warns_if_it_has_changed(line: str) -> None:
    forget(*MOVED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(line, {})
    messages = [str(one.message) for one in caught if one.category is DeprecationWarning]
    assert any("the next version removes the former name" in one for one in messages) == (
        line not in UNCHANGED
    )


def test_every_name_of_0_1_is_public() -> None:
    assert set(PUBLIC.split()) <= set(ps.__all__)


@pytest.mark.parametrize("former", MOVED)
def test_a_former_path_gives_what_the_new_one_has_and_warns(former: str) -> None:
    forget(*(name for name in sys.modules if name == former or name.startswith(f"{former}.")))
    with pytest.warns(DeprecationWarning, match=MOVED[former].replace(".", r"\.")):
        alias = importlib.import_module(former)
    now = importlib.import_module(MOVED[former])
    public = [name for name in getattr(now, "__all__", vars(now)) if not name.startswith("_")]
    assert public
    assert all(getattr(alias, name) is getattr(now, name) for name in public)


@pytest.mark.parametrize("former", RENAMED)
def test_a_former_name_is_the_renamed_object(former: str) -> None:
    alias, now = importlib.import_module(former), importlib.import_module(MOVED[former])
    for name, new in RENAMED[former].items():
        with pytest.warns(DeprecationWarning, match=f"{former}.{name} is now .*{new}") as caught:
            assert getattr(alias, name) is getattr(now, new)
        assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize(
    ("module", "former", "now"),
    [
        ("penstock.catalogue.program", "Jobs", "Program"),
        ("penstock.client", "Told", "Result"),
        ("penstock.coordination.contract", "checked", "split_path"),
        ("penstock.ha", "begun", "initial_state"),
    ],
)
def test_a_former_name_in_a_module_warns(module: str, former: str, now: str) -> None:
    found = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{former} is now {now}") as caught:
        assert getattr(found, former) is getattr(found, now)
    assert caught[0].filename == __file__


def test_an_unknown_name_is_still_an_import_error() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("penstock.jobs.nowhere")
    with pytest.raises(ImportError):
        exec("from penstock.jobs.program import Nothing", {})


def test_former_names_of_ha_warn() -> None:
    ha = importlib.import_module("penstock.ha")
    _, decision = ha.decide(ha.initial_state(ha.ControllerSettings(), 0.0), (), ha.ControllerSettings(), 0.0)
    with pytest.warns(DeprecationWarning, match="Decision.told is now describe"):
        assert decision.told() == decision.describe()


def test_the_former_name_of_execute_warns(tmp_path: Path) -> None:
    from penstock.catalogue.program import Program

    with pytest.warns(DeprecationWarning, match="most of Program is now max_jobs"):
        program = Program("empty", tmp_path, most=3)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="execute"):
        (reply,) = program.say("SHOW JOBS")  # type: ignore[attr-defined]
    assert reply.message == "0 jobs"
    with pytest.warns(DeprecationWarning, match="message"):
        assert reply.says == reply.message


# ---------------------------------------------------------------- what a manager reads and returns


class AsBefore:
    """A manager that reads measurements by the names of 0.1."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.stage = ""

    def decide(self, now: Any) -> list[Any]:
        history, snapshot = now.history, now.snapshot
        ((name, measured),) = snapshot.sub_queries.items()
        self.stage = name
        self.seen = [
            history.whole,
            history.rising(),
            history.waiting(),
            history.smoothed[name].slow(2.0),
            measured.sub_query,
            list(now.past.watched()),
        ]
        return [Move(sub_query=name, buckets={0: (0, 1)}, reason="as before")]  # type: ignore[call-arg]


def test_a_manager_of_0_1_decides_as_before() -> None:
    from penstock.simulate.loads import Trace
    from penstock.simulate.scaling import ScalingRun, simulate_scaling

    manager, reported = AsBefore(), list[float]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result: Any = simulate_scaling(ScalingRun(Trace("steady"), hours=0.1), manager, tell=reported.append)  # type: ignore[call-arg]
    messages = " ".join(str(one.message) for one in caught)
    for former in ("whole", "rising", "waiting", "slow", "sub_queries", "sub_query", "watched", "tell"):
        assert f"{former} " in messages
    assert reported
    assert manager.seen == [True, False, pytest.approx(0.0), {}, manager.stage, []]
    assert {entry.decision.stage for entry in result.changes} == {manager.stage}


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (History, {"whole": "is_complete", "rising": "is_rising", "waiting": "waiting_core_seconds"}),
        (Smoothed, {"slow": "find_slow"}),
        (Measured, {"sub_query": "stage"}),
        (Snapshot, {"sub_queries": "stages"}),
        (Move, {"sub_query": "stage"}),
        (Store, {"session": "start_session", "alive": "is_alive", "end": "end_session"}),
        (Session, {"held": "is_held", "after_each_beat": "add_heartbeat_listener"}),
        (Log, {"begun_late": "started_late"}),
    ],
)
def test_each_former_name_of_a_class_is_another_name(owner: type, names: Mapping[str, str]) -> None:
    for former, now in names.items():
        assert former in vars(owner)
        assert now in dir(owner) or now in getattr(owner, "__dataclass_fields__", {})


# ---------------------------------------------------------------- what users derive from


def test_a_store_is_used_by_its_former_names(tmp_path: Path) -> None:
    store: Any = FileStore(tmp_path)
    with pytest.warns(DeprecationWarning, match="session is now start_session"):
        session = store.session(5.0)
    with pytest.warns(DeprecationWarning, match="held is now is_held"):
        assert session.held()
    with pytest.warns(DeprecationWarning, match="end is now end_session"):
        store.end(session.id)
    with pytest.warns(DeprecationWarning, match="alive is now is_alive"):
        assert not store.alive(session.id)
    session.close()
    store.close()


def test_a_store_of_0_1_is_a_store() -> None:
    with pytest.warns(DeprecationWarning, match=r"OldStore\.\w+ is now") as caught:

        class OldStore(Store):
            def get(self, path: str) -> StoreRecord | None:
                return None

            def create(self, path: str, value: bytes) -> int | None:
                return None

            def replace(self, path: str, value: bytes, version: int) -> int | None:
                return None

            def delete(self, path: str, version: int) -> bool:
                return False

            def children(self, path: str) -> list[str]:
                return []

            def wait(self, path: str, seen: int | None, seconds: float) -> StoreRecord | None:
                return None

            def session(self, timeout_seconds: float = 2.0) -> Any:
                return f"for {timeout_seconds} s"

            def alive(self, session: str) -> bool:
                return session == "s"

            def end(self, session: str) -> None:
                raise KeyError(session)

            def members(self, group: str) -> Mapping[str, bytes]:
                return {}

            def describe(self) -> str:
                return "old"

            def close(self) -> None:
                return

    assert [one.filename for one in caught] == 3 * [__file__]
    store = OldStore()  # type: ignore[abstract]
    assert store.start_session(3.0) == "for 3.0 s"
    assert store.is_alive("s")
    with pytest.raises(KeyError):
        store.end_session("s")


def test_a_log_of_0_1_names_the_partitions_that_it_starts_late() -> None:
    with pytest.warns(DeprecationWarning, match="OldLog.begun_late is now started_late"):

        class OldLog(ListLog):
            begun_late = frozenset({"p0"})

    log: Any = OldLog([])
    assert log.started_late == {"p0"}
    with pytest.warns(DeprecationWarning, match="started_late"):
        log.begun_late = frozenset({"p1"})
    assert log.started_late == {"p1"}
    assert pickle.loads(pickle.dumps(ListLog(["a"]))).started_late == frozenset()


def test_an_override_of_a_former_name_may_call_the_function_that_it_overrides(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="CountingStore.session is now"):

        class CountingStore(FileStore):
            calls = 0

            def session(self, timeout_seconds: float = 2.0) -> Any:
                self.calls += 1
                return super().session(timeout_seconds)  # type: ignore[misc]

    with pytest.warns(DeprecationWarning, match="LateLog.begun_late is now"):

        class LateLog(ListLog):
            @property
            def begun_late(self) -> frozenset[str]:
                return super().begun_late | {"p0"}  # type: ignore[misc]

    store = CountingStore(tmp_path)
    with pytest.warns(DeprecationWarning, match="session is now start_session"):
        session = store.start_session(5.0)
    assert store.is_alive(session.id)
    assert store.calls == 1
    session.close()
    store.close()
    with pytest.warns(DeprecationWarning, match="begun_late is now started_late"):
        assert LateLog([]).started_late == {"p0"}


@pytest.mark.process
def test_a_former_package_finds_its_former_modules() -> None:
    code = (
        "import penstock.scaling.decisions; from penstock.elastic import decisions; print(decisions.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "penstock.elastic.decisions"


@former_overrides(opened="open_store")
class Base:
    """A test class of the kit, as far as its subclasses define it."""

    @staticmethod
    def open_store(address: str) -> str:
        raise NotImplementedError


with pytest.warns(DeprecationWarning, match="Derived.opened is now open_store"):

    class Derived(Base):
        @staticmethod
        def opened(address: str) -> str:
            return f"opened {address}"


def test_a_static_function_of_a_former_name_can_be_sent_to_a_process() -> None:
    assert Derived.open_store("a") == "opened a"
    assert pickle.loads(pickle.dumps(Derived().open_store))("b") == "opened b"


def test_a_contract_of_stores_takes_the_former_name_of_open_store() -> None:
    from penstock.testing.coordination_contract import CoordinationContract

    with pytest.warns(DeprecationWarning, match="opened is now open_store"):
        derived = type("TestOldStore", (CoordinationContract,), {"opened": staticmethod(FileStore)})
    assert derived.open_store is FileStore


def test_a_former_keyword_wins_over_the_default_and_the_caller_is_warned() -> None:
    @former_parameters(tell="report")
    def run(report: str = "none") -> str:
        return report

    with pytest.warns(DeprecationWarning, match="tell of .*run is now report") as caught:
        assert run(tell="mine") == "mine"  # type: ignore[call-arg]
    assert caught[0].filename == __file__
    assert run("yours") == "yours"


def test_the_command_line_shows_the_warnings_of_a_file_that_it_runs(tmp_path: Path) -> None:
    from penstock.cli.commands import app
    from penstock.cli.entry import run_cli

    forget("penstock.jobs.app")
    file = tmp_path / "old.py"
    file.write_text(
        "import penstock as ps\nfrom penstock.jobs.app import JobsApp\napp = ps.jobs_app('old')\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # as Python does outside the main file
        with pytest.raises(SystemExit):
            run_cli(app, ["explain", str(file)])
    # the package warns too, if no earlier test has imported it
    (warning,) = [
        one for one in caught if "penstock.jobs.app is now penstock.catalogue.jobs_app" in str(one.message)
    ]
    assert (warning.filename, warning.lineno) == (str(file), 2)
