"""`penstock serve --ha`: a unit's engines and its service killed in turn, while events are pushed and results followed.

The engines run without Spark (`--master inline`); everything else is as it is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import Told, connect
from penstock.ha.schemes import Scheme
from penstock.ha.unit import Launch, Member, Unit, UnitRecord, unit_name
from penstock.service.cli import main
from penstock.words.errors import PenstockError
from tests.http.kit import until

COMMAND = [sys.executable, "-c", "from penstock.service.cli import main; main()"]
WAIT = 90.0
STREAM = """CREATE STREAM clicks FROM segments('{folder}/clicks') FORMAT json(at TIMESTAMP, n BIGINT)
    EVENT TIME at LATENESS 1 HOUR"""
APP = """
import penstock as ps

columns = {"at": ps.Datetime("us", "UTC"), "n": ps.Int64()}
clicks = ps.stream("clicks", ps.files("in/*.jsonl"), ps.json_lines(columns), time="at", lateness="1h")
app = ps.app("numbers", ps.output("seen", clicks.select("n"), ps.jsonl("out")))
"""


def event(n: int) -> dict[str, Any]:
    return {"at": f"2026-03-01T12:{n // 60 % 60:02}:{n % 60:02}Z", "n": n}


class Site:
    """A unit that is served, in a folder. To be closed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.state = folder, folder / "state"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._arguments = [*arguments, "--epoch", "200ms", "--master", "inline", "--lease-timeout", "1500ms"]
        self._started: list[subprocess.Popen[bytes]] = []
        self._pids: set[int] = set()

    def start(self) -> subprocess.Popen[bytes]:
        """The service."""
        return self.command(
            "serve", *self._arguments, "--ha", "--state", "state", "--listen", self.url.partition("//")[2]
        )

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        self._started.append(process)
        return process

    def members(self) -> dict[str, Member]:
        """The engines that are up."""
        unit = Unit.at(self.state)
        try:
            found = {name: member for name, member in unit.members().items() if member.seems_up}
            self._pids |= {member.pid for member in found.values()}
            return found
        finally:
            unit.close()

    def record(self) -> UnitRecord:
        unit = Unit.at(self.state)
        try:
            return unit.record()
        finally:
            unit.close()

    def settled(self, *phases: str) -> dict[str, Member] | None:
        """The engines, once one leads and another is ready for it."""
        with suppress(PenstockError):
            members, leader = self.members(), self.record().leader
            others = [member.phase for name, member in members.items() if name != leader]
            if leader in members and members[leader].phase == "primary" and others == [*phases]:
                return members
        return None

    def coordinated_again(self) -> bool:
        """Whether a service that was started anew coordinates: first it waits whether the one that was killed lives."""
        record = self.record()
        return len(self.logged(f"engine {record.leader} leads (generation {record.generation})")) == 2

    def when(self, what: Callable[[], Any]) -> Any:
        """What comes of a question, once it is something."""
        try:
            return until(what, WAIT)
        except AssertionError:
            logs = sorted((self.state / "ha" / "logs").glob("*.log"))
            said = "\n".join(f"== {log}\n{log.read_text()[-2_000:]}" for log in [*logs, self.folder / "log"])
            raise AssertionError(said) from None

    def kill(self, *names: str) -> None:
        """SIGKILL to engines."""
        members = self.members()
        for name in names:
            os.kill(members[name].pid, signal.SIGKILL)

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = (self.folder / "log").read_text().splitlines()
        return [one for line in lines if line.startswith("{") and (one := json.loads(line))["event"] == event]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
        with suppress(PenstockError):
            unit = Unit.at(self.state)
            unit.change(lambda now: UnitRecord(**vars(now) | {"phase": "stopping"}))
            unit.close()
            until(lambda: not self.members(), 20)  # those that are still starting end by themselves
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Listener:
    """Subscribes on a thread, for good."""

    def __init__(self, url: str, job: str) -> None:
        self.told: list[Told] = []
        self.error: Exception | None = None
        self._url, self._job = url, job
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            with connect(self._url) as client:
                for one in client.subscribe(self._job, since=0):
                    self.told.append(one)
        except Exception as error:
            self.error = error

    def numbers(self) -> list[int]:
        """All that was told, as it came."""
        assert self.error is None, self.error
        return [row["n"] for one in list(self.told) for row in one.dicts()]


class Feeder:
    """Counts, on a thread, and hands every number to whoever takes it."""

    def __init__(self, give: Callable[[int], None]) -> None:
        self.given = 0
        self.error: Exception | None = None
        self._give, self._stop = give, threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        try:
            while not self._stop.wait(0.03):
                self._give(self.given)
                self.given += 1
        except Exception as error:
            self.error = error

    def stop(self) -> int:
        self._stop.set()
        self._thread.join(WAIT)
        assert self.error is None, self.error
        return self.given


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has asked for its end does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


Start = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Start]:
    made: list[Site] = []

    def make(*arguments: str) -> Site:
        made.append(Site(tmp_path, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.kill
def test_jobs_live_through_kills_of_the_primary_of_all_engines_and_of_the_service(
    site: Start, tmp_path: Path
) -> None:
    unit = site("--empty", "--files", str(tmp_path), "--coordination", "store")
    service = unit.start()
    with connect(unit.url, timeout_seconds=WAIT) as client:

        def phase(wanted: str) -> Callable[[], bool]:
            def found() -> bool:
                assert service.poll() is None
                with suppress(PenstockError):
                    return client.status().phase == wanted
                return False

            return found

        unit.when(phase("starting engines"))
        client.sql(STREAM.format(folder=tmp_path))
        assert client.create("seen", "SELECT n FROM clicks").says.startswith("created job seen")
        listener = Listener(unit.url, "seen")
        feeder = Feeder(lambda n: client.push("clicks", [event(n)]) and None)
        unit.when(lambda: len(listener.told) >= 3)
        unit.when(lambda: unit.settled("ready"))
        first = unit.record().leader
        assert first is not None

        # the primary is killed, and the job altered meanwhile
        unit.kill(first)
        assert client.alter("seen", where="n % 2 = 0").state == "kept"
        unit.when(lambda: unit.record().leader not in (None, first))
        behind = feeder.given
        unit.when(lambda: max(listener.numbers()) > behind)
        assert [job.query for job in client.jobs()] == [client.job("seen").query]
        assert "n % 2 = 0" in client.job("seen").query

        # nobody is left to lead: commands are taken all the same
        unit.when(lambda: unit.settled("ready"))
        other = unit.command(
            "coordinator", "--empty", "--state", "state", "--coordination", "store", "--name", "other"
        )
        unit.kill(*unit.members())
        unit.when(phase("no primary"))
        assert [one.name for one in client.sql("PAUSE JOB seen; RESUME JOB seen")] == ["seen", "seen"]
        assert client.create("more", "SELECT n FROM clicks").says.startswith("created job more")
        everything = Listener(unit.url, "more")
        assert client.ask("seen").columns == ["n"]
        behind = feeder.given
        unit.when(lambda: everything.numbers() and max(everything.numbers()) > behind)

        # the service is killed; the engines go on, and another coordinator takes commands
        before = unit.when(lambda: unit.settled("ready"))
        url = unit.when(lambda: [one for one in unit.logged("listening") if one["url"] != unit.url])[0]["url"]
        unit.when(lambda: len(httpx.get(f"{url}/coordinators").json()) == 2)
        service.kill()
        service.wait()
        said = httpx.post(f"{url}/sql", json={"sql": "ALTER JOB more SET WHERE n % 3 = 0"}, timeout=60)
        assert said.status_code == 200, said.text
        assert httpx.get(f"{url}/jobs/seen/answer").json()["rows"]
        service = unit.start()
        unit.when(phase("running"))
        behind = feeder.given
        unit.when(lambda: max(listener.numbers()) > behind and max(everything.numbers()) > behind)
        assert unit.members().keys() == before.keys(), "it found the engines that were up"
        assert "n % 3 = 0" in client.job("more").query

        given = feeder.stop()
        unit.when(lambda: max(listener.numbers()) >= given - 2 and max(everything.numbers()) >= given - 3)
        numbers = listener.numbers()
        odd = [n for n in numbers if n % 2]
        assert numbers == sorted(set(numbers)), "each once, in order"
        assert odd == list(range(1, len(odd) * 2, 2)), "the alteration holds from an epoch on"
        assert len(odd) < given / 2
        assert [n for n in numbers if n % 2 == 0] == list(range(0, given, 2)), "none is lost"
        later = everything.numbers()
        change = next(i for i, n in enumerate(later) if n + 1 not in later)
        assert later[: change + 1] == list(range(later[0], later[0] + change + 1))
        last = later[change]
        assert later[change + 1 :] == [n for n in range(last + 1, given) if n % 3 == 0]
        kept = {one.epoch: one.dicts() for one in client.results("seen")}
        assert [(one.epoch, one.dicts()) for one in listener.told] == sorted(kept.items())

        unit.when(lambda: client.status().events > 0 and client.status().backlog == {"clicks": 0})
        status = client.status()
        assert status.epoch >= listener.told[-1].epoch
        assert status.last_epoch_seconds is not None
        assert sum(one.events for one in client.epochs()) == status.events
        assert "penstock_events_total" in client.metrics()
        engine = client.engine()
        assert engine.pid == unit.members()[unit.record().leader or ""].pid
        recovery = client.recovery()
        assert recovery.scheme == "passive-hot"
        assert recovery.unit is not None
        assert len(recovery.unit["recoveries"]) == 2
        assert recovery.unit["leader"] == unit.record().leader
        assert [restart.first_epoch is not None for restart in recovery.restarts] == [True]
        for page in ("/ui/", "/ui/recovery"):
            assert httpx.get(f"{unit.url}{page}").status_code == 200

        pids = {member.pid for member in unit.members().values()}
        unit.when(unit.coordinated_again)
        service.terminate()
        assert service.wait(60) == 0
        assert other.poll() is None, "it waits for the unit to be back"
    assert not unit.members()
    unit.when(lambda: not any(map(alive, pids)))
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
def test_what_an_app_tells_is_served_whoever_leads(
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
        unit.when(lambda: len(listener.told) >= 3)
        unit.when(lambda: unit.settled(ready))
        first = unit.record().leader or ""
        unit.kill(first)
        unit.when(lambda: unit.record().leader not in (None, first))
        behind = feeder.given
        unit.when(lambda: max(listener.numbers()) > behind)
        service.kill()
        service.wait()
        behind, service = feeder.given, unit.start()
        unit.when(lambda: max(listener.numbers()) > behind)
        unit.when(lambda: client.status().events > 0 and client.engine().measured)
        given = feeder.stop()
        file.close()
        unit.when(lambda: max(listener.numbers()) >= given - 1)
        assert listener.numbers() == list(range(given)), "each once, in order"
        told = [(one.epoch, one.dicts()) for one in client.results("seen")]
        assert [(one.epoch, one.dicts()) for one in listener.told] == told
        delivered = [
            json.loads(line)["n"]
            for path in sorted((tmp_path / "out").glob("epoch-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        assert delivered == listener.numbers(), "and so is what the sink has"
        assert client.recovery().scheme == options[1]
        with pytest.raises(PenstockError, match="NO_COMMANDS"):
            client.sql("PAUSE JOB seen")
        unit.when(unit.coordinated_again)
        service.send_signal(signal.SIGINT)
        assert service.wait(60) == 0
    assert not unit.members()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    told = capsys.readouterr()
    return left.value.code, told.out + told.err


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
        (["jobs.sql", "--ha", "--scheme", "active-standby"], "SCHEME_NOT_FOR_JOBS"),
        (["jobs.sql", "--empty", "--ha"], "BAD_OPTION"),
        (["jobs.sql", "--ha", "--listen", "0.0.0.0:0"], "TOKEN_NEEDED"),
        (["bad.sql", "--ha"], "UNKNOWN_STREAM"),
    ],
)
def test_what_makes_no_sense_is_refused(
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
    code, text = said(capsys, "serve", *options, *listen, "--state", "state", "--no-ui")
    assert code == 2
    assert f"[{condition}]" in text
    assert not list(Path().glob("state/ha/logs/*")), "no engine was started"


def test_engines_that_keep_no_results_are_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    root = tmp_path / "state"
    unit = Unit.made(
        root, Launch(unit_name("numbers", root), str(tmp_path / "store"), "app.py", str(tmp_path))
    )
    unit.begun(UnitRecord(Scheme.passive_cold, str(root)))
    session = unit.store.session(60)
    unit.join(session, "e1", Member(os.getpid(), socket.gethostname(), "passive", since=time.time()))
    code, text = said(
        capsys, "serve", "app.py", "--ha", "--state", "state", "--listen", "127.0.0.1:0", "--no-ui"
    )
    assert code == 2
    assert "[UNIT_NOT_SERVED]" in text
    session.close()
    unit.close()
