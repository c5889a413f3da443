"""`penstock serve --ha`: its engines and its service are killed in turn, with events pushed and a subscription open.

The engines run without Spark (`--master inline`); everything else is real.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from penstock.client import connect
from penstock.client.own_token import OwnToken
from penstock.errors import PenstockError
from penstock.ha.launch import Launch
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Unit, UnitEngine, UnitRecord, unit_name
from tests.cli.kit import run_command
from tests.cli.served_unit import WAIT, Feeder, Listener, Site, event, is_alive

STREAM = """CREATE STREAM clicks FROM segments('{folder}/clicks') FORMAT json(at TIMESTAMP, n BIGINT)
    EVENT TIME at LATENESS 1 HOUR"""
APP = """
import penstock as ps

columns = {"at": ps.Datetime("us", "UTC"), "n": ps.Int64()}
clicks = ps.stream("clicks", ps.files("in/*.jsonl"), ps.json_lines(columns), time="at", lateness="1h")
app = ps.app("numbers", ps.output("seen", clicks.select("n"), ps.jsonl("out")))
"""


Start = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Start]:
    sites: list[Site] = []

    def start_site(*arguments: str) -> Site:
        sites.append(Site(tmp_path, *arguments))
        return sites[-1]

    yield start_site
    for one in sites:
        one.close()


@pytest.mark.kill
@pytest.mark.parametrize(
    ("scheme", "ready"),
    [("passive-hot", "ready"), ("active-replication", "following")],
    ids=["hot", "active"],
)
def test_jobs_survive_kills_of_the_leader_of_all_engines_and_of_the_service(
    scheme: str, ready: str, site: Start, tmp_path: Path
) -> None:
    unit = site("--empty", "--files", str(tmp_path), "--coordination", "store", "--scheme", scheme)
    service = unit.start()
    with connect(unit.url, timeout_seconds=WAIT) as client:

        def phase(expected: str) -> Callable[[], bool]:
            def has_phase() -> bool:
                assert service.poll() is None
                with suppress(PenstockError):
                    return client.status().phase == expected
                return False

            return has_phase

        unit.wait_for(phase("starting engines"))
        client.sql(STREAM.format(folder=tmp_path))
        assert client.create("seen", "SELECT n FROM clicks").says.startswith("created job seen")
        listener = Listener(unit.url, "seen")
        feeder = Feeder(lambda n: client.push("clicks", [event(n)]) and None)
        unit.wait_for(lambda: len(listener.results) >= 3)
        unit.wait_for(lambda: unit.find_ready_engines(ready))
        first = unit.record().leader
        assert first is not None

        # the leader is killed, and the job altered meanwhile
        unit.kill(first)
        assert client.alter("seen", where="n % 2 = 0").state == "kept"
        unit.wait_for(lambda: unit.record().leader not in (None, first))
        pushed = feeder.count
        unit.wait_for(lambda: max(listener.numbers()) > pushed)
        assert [job.query for job in client.jobs()] == [client.job("seen").query]
        assert "n % 2 = 0" in client.job("seen").query

        # no engine is left to lead: commands are accepted all the same
        unit.wait_for(lambda: unit.find_ready_engines(ready))
        other = unit.command(
            "coordinator", "--empty", "--state", "state", "--coordination", "store", "--name", "other"
        )
        unit.kill(*unit.engines())
        unit.wait_for(phase("no primary"))
        assert [one.name for one in client.sql("PAUSE JOB seen; RESUME JOB seen")] == ["seen", "seen"]
        assert client.create("more", "SELECT n FROM clicks").says.startswith("created job more")
        everything = Listener(unit.url, "more")
        assert client.ask("seen").columns == ["n"]
        pushed = feeder.count
        unit.wait_for(lambda: everything.numbers() and max(everything.numbers()) > pushed)

        # the service is killed; the engines continue, and another coordinator accepts commands
        before = unit.wait_for(lambda: unit.find_ready_engines(ready))
        url = unit.wait_for(lambda: [one for one in unit.logged("listening") if one["url"] != unit.url])[0][
            "url"
        ]
        own = OwnToken(url)
        unit.wait_for(lambda: len(httpx.get(f"{url}/coordinators", auth=own).json()) == 2)
        service.kill()
        service.wait()
        response = httpx.post(
            f"{url}/sql", json={"sql": "ALTER JOB more SET WHERE n % 3 = 0"}, timeout=60, auth=own
        )
        assert response.status_code == 200, response.text
        assert httpx.get(f"{url}/jobs/seen/answer", auth=own).json()["rows"]
        service = unit.start()
        unit.wait_for(phase("running"))
        pushed = feeder.count
        unit.wait_for(lambda: max(listener.numbers()) > pushed and max(everything.numbers()) > pushed)
        assert unit.engines().keys() == before.keys(), "it found the engines that were up"
        assert "n % 3 = 0" in client.job("more").query

        count = feeder.stop()
        unit.wait_for(lambda: max(listener.numbers()) >= count - 2 and max(everything.numbers()) >= count - 3)
        numbers = listener.numbers()
        odd = [n for n in numbers if n % 2]
        assert numbers == sorted(set(numbers)), "each once, in order"
        assert odd == list(range(1, len(odd) * 2, 2)), "the alteration holds from an epoch on"
        assert len(odd) < count / 2
        assert [n for n in numbers if n % 2 == 0] == list(range(0, count, 2)), "none is lost"
        more_numbers = everything.numbers()
        change = next(i for i, n in enumerate(more_numbers) if n + 1 not in more_numbers)
        assert more_numbers[: change + 1] == list(range(more_numbers[0], more_numbers[0] + change + 1))
        last = more_numbers[change]
        assert more_numbers[change + 1 :] == [n for n in range(last + 1, count) if n % 3 == 0]
        results_by_epoch = {one.epoch: one.dicts() for one in client.results("seen")}
        assert [(one.epoch, one.dicts()) for one in listener.results] == sorted(results_by_epoch.items())

        unit.wait_for(lambda: client.status().events > 0 and client.status().backlog == {"clicks": 0})
        status = client.status()
        assert status.epoch >= listener.results[-1].epoch
        assert status.last_epoch_seconds is not None
        assert sum(one.events for one in client.epochs()) == status.events
        assert "penstock_events_total" in client.metrics()
        # the service polls its engine, and the leader may have changed since
        unit.wait_for(lambda: client.engine().pid == unit.engines()[unit.record().leader or ""].pid)
        recovery = client.recovery()
        assert recovery.scheme == scheme
        assert recovery.unit is not None
        assert len(recovery.unit["recoveries"]) == 2
        assert recovery.unit["leader"] == unit.record().leader
        assert [restart.first_epoch is not None for restart in recovery.restarts] == [True]
        for page in ("/ui/", "/ui/recovery"):
            assert httpx.get(f"{unit.url}{page}", auth=OwnToken(unit.url)).status_code == 200

        pids = {engine.pid for engine in unit.engines().values()}
        unit.wait_for(unit.is_coordinated_again)
        service.terminate()
        assert service.wait(60) == 0
        assert other.poll() is None, "it waits for the unit to be back"
    assert not unit.engines()
    unit.wait_for(lambda: not any(map(is_alive, pids)))
    assert unit.logged("ended")[-1]["recoveries"] == 2


@pytest.mark.kill
@pytest.mark.parametrize(
    ("options", "ready"),
    [
        (["--scheme", "active-standby"], "following"),
        (["--scheme", "passive-cold", "--checkpoint-every", "7"], "ready"),
    ],
    ids=["follows", "in-memory"],
)
def test_results_of_an_app_are_served_whichever_engine_leads(
    site: Start, tmp_path: Path, options: list[str], ready: str
) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "in").mkdir()
    file = (tmp_path / "in" / "a.jsonl").open("a")

    def append(n: int) -> None:
        file.write(json.dumps(event(n)) + "\n")
        file.flush()

    unit = site("app.py", *options)
    service, feeder = unit.start(), Feeder(append)
    with connect(unit.url, timeout_seconds=WAIT) as client:
        listener = Listener(unit.url, "seen")
        unit.wait_for(lambda: len(listener.results) >= 3)
        unit.wait_for(lambda: unit.find_ready_engines(ready))
        first = unit.record().leader or ""
        unit.kill(first)
        unit.wait_for(lambda: unit.record().leader not in (None, first))
        pushed = feeder.count
        unit.wait_for(lambda: max(listener.numbers()) > pushed)
        service.kill()
        service.wait()
        pushed, service = feeder.count, unit.start()
        unit.wait_for(lambda: max(listener.numbers()) > pushed)
        unit.wait_for(lambda: client.status().events > 0 and client.engine().measured)
        count = feeder.stop()
        file.close()
        unit.wait_for(lambda: max(listener.numbers()) >= count - 1)
        assert listener.numbers() == list(range(count)), "each once, in order"
        results = [(one.epoch, one.dicts()) for one in client.results("seen")]
        assert [(one.epoch, one.dicts()) for one in listener.results] == results
        delivered = [
            json.loads(line)["n"]
            for path in sorted((tmp_path / "out").glob("epoch-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        assert delivered == listener.numbers(), "and so is what the sink has"
        assert client.recovery().scheme == options[1]
        client.sql("PAUSE JOB seen")
        unit.wait_for(lambda: client.job("seen").life == "paused")
        unit.wait_for(unit.is_coordinated_again)
        service.send_signal(signal.SIGINT)
        assert service.wait(60) == 0
    assert not unit.engines()


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (["jobs.sql", "--ha", "--elastic", "on"], "BAD_OPTION"),
        (["jobs.sql", "--ha", "--executors", "2"], "BAD_OPTION"),
        (["jobs.sql", "--ha", "--unit", "elsewhere"], "BAD_OPTION"),
        (["jobs.sql", "--scheme", "passive-hot"], "BAD_OPTION"),
        (["jobs.sql", "--checkpoint-every", "5"], "BAD_OPTION"),
        (["jobs.sql", "--lease-timeout", "1s"], "BAD_OPTION"),
        (["jobs.sql", "--ha", "--recovery-time", "9s", "--scheme", "deployed"], "BAD_OPTION"),
        (["jobs.sql", "--empty", "--ha"], "BAD_OPTION"),
        (["jobs.sql", "--ha", "--listen", "0.0.0.0:0"], "TOKEN_NEEDED"),
        (["bad.sql", "--ha"], "UNKNOWN_STREAM"),
    ],
)
def test_invalid_options_are_refused(
    options: list[str],
    condition: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.sql").write_text("")
    Path("bad.sql").write_text("CREATE JOB j AS SELECT n FROM nowhere")
    listen = [] if "--listen" in options else ["--listen", "127.0.0.1:0"]
    code, text = run_command(capsys, "serve", *options, *listen, "--state", "state", "--no-ui")
    assert code == 2
    assert f"[{condition}]" in text
    assert not list(Path().glob("state/ha/logs/*")), "no engine was started"


def test_engines_that_keep_no_results_are_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    root = tmp_path / "state"
    unit = Unit.create(
        root, Launch(unit_name("numbers", root), str(tmp_path / "store"), "app.py", str(tmp_path))
    )
    unit.create_record(UnitRecord(Scheme.passive_cold, str(root)))
    session = unit.store.start_session(60)
    unit.join(session, "e1", UnitEngine(os.getpid(), socket.gethostname(), "passive", since=time.time()))
    code, text = run_command(
        capsys, "serve", "app.py", "--ha", "--state", "state", "--listen", "127.0.0.1:0", "--no-ui"
    )
    assert code == 2
    assert "[UNIT_NOT_SERVED]" in text
    session.close()
    unit.close()
