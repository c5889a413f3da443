"""`penstock recover exclude-job` lets an HA unit continue where a job stops an epoch; the unit runs, or is stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.ha.schemes import Scheme
from penstock.state.directory import StateDirectory
from tests.cli.kit import run_in_process
from tests.ha.test_jobs_unit import JobsKit, rows_by_epoch
from tests.ha.test_unit import is_complete
from tests.ha.unit_kit import JOBS, Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

#: the job with `gap` loses rows where a leader is replaced that no active follower follows
NO_GAP = JOBS.replace("CREATE JOB sessions RECOVERY gap AS", "CREATE JOB sessions AS")
#: `risky` does not return while there is the mark, in all processes or in the one that it names
HANGING = NO_GAP.replace(
    """    mark, own = marked.read_text() if marked.exists() else "", str(os.getpid())
    if mark == own or (mark.startswith("not ") and mark != f"not {{own}}"):
        raise ValueError("not in this process")
""",
    """    while marked.exists() and marked.read_text() in ("", str(os.getpid())):
        time.sleep(0.02)
""",
).replace("import pathlib\n", "import pathlib\nimport time\n")


class HangingKit(JobsKit):
    """A unit of jobs of which one can be made to hang."""

    def __init__(self, folder: Path, scheme: Scheme) -> None:
        Kit.__init__(self, folder, scheme, app=HANGING, count=2_000, pause_seconds=0.4, job_seconds=0.0)
        self.filters = []
        self.mark = folder / "fails"

    def hang(self, *, in_leader: bool = False) -> int:
        """Make a job hang, in all engines or in the leader; returns the epoch that waits for it."""
        self.execute(
            f"CREATE JOB stuck AS SELECT risky(user) AS u FROM events INTO jsonl('{self.folder}/stuck')"
        )
        self.wait_for_epochs()
        written = self.mark.with_name("written")
        written.write_text(str(self.engines()[str(self.leader())].pid) if in_leader else "")
        written.rename(self.mark)
        self.wait_until("an epoch hangs", lambda: self.waiting() == self.waiting(0.5) != -1)
        return self.waiting()

    def waiting(self, after_seconds: float = 0.0) -> int:
        """The epoch that has a record and no manifest; -1 if there is none."""
        time.sleep(after_seconds)
        committed = StateDirectory(Path(self.record().directory)).manifests.epochs()[-1]
        return self.epoch() if self.epoch() > committed else -1

    def kill_all(self) -> None:
        """End the coordinator and all engines."""
        assert self.coordinator is not None
        for pid in (self.coordinator.pid, *(engine.pid for engine in self.engines().values())):
            os.kill(pid, signal.SIGKILL)
        self.coordinator.wait()

    def check_the_rest(self, epoch: int) -> None:
        self.wait_until("epochs continue without it", lambda: self.epoch() > epoch + 2, 120)
        assert self.job_state("stuck") == "failed"
        self.mark.unlink()
        self.execute("RESUME JOB stuck")
        self.wait_for_epochs()
        self.finish()
        assert epoch not in rows_by_epoch(self.folder / "stuck"), "the epoch was executed without it"
        assert max(rows_by_epoch(self.folder / "stuck")) > epoch, "it was resumed"


@pytest.fixture
def kits() -> Iterator[list[HangingKit]]:
    made: list[HangingKit] = []
    yield made
    for kit in made:
        kit.mark.unlink(missing_ok=True)
        kit.close()


@pytest.mark.parametrize("scheme", [Scheme.active_standby, Scheme.passive_hot])
def test_a_running_unit_continues_without_the_job(
    scheme: Scheme, tmp_path: Path, kits: list[HangingKit]
) -> None:
    kit = HangingKit(tmp_path / "unit", scheme)
    kits.append(kit)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    # an active follower would hang in an epoch that the leader has committed
    epoch, generation = kit.hang(in_leader=scheme is Scheme.active_standby), kit.record().generation
    wrong = run_in_process("recover", "exclude-job", str(kit.root), "another")
    assert (wrong.returncode, "UNKNOWN_JOB" in wrong.stderr) == (2, True)
    assert kit.record().generation == generation, "nobody was interrupted"
    done = run_in_process("recover", "exclude-job", str(kit.root), "stuck")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"epoch {epoch} without stuck" in done.stdout
    kit.check_the_rest(epoch)
    assert kit.record().phase == "running"


def test_a_stopped_unit_continues_without_the_job(tmp_path: Path, kits: list[HangingKit]) -> None:
    kit = HangingKit(tmp_path / "unit", Scheme.active_standby)
    kits.append(kit)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, Scheme.active_standby))
    epoch = kit.hang()
    kit.kill_all()
    done = run_in_process("recover", "exclude-job", str(kit.root), "stuck")
    assert (done.returncode, done.stderr) == (0, "")
    kit.start_coordinator()
    kit.check_the_rest(epoch)
