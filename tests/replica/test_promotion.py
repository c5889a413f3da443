"""An engine is promoted while an epoch is executing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.errors import ExternalError
from penstock.settings import Settings


def test_an_engine_that_fails_during_its_promotion_takes_over_nothing(tmp_path: Path) -> None:
    """It gets the lease while its last epoch is executing, and that fails."""
    engine: Any = Engine(Program("t", tmp_path), Settings(state=tmp_path, master="inline"))
    taken, raised = list[str](), list[BaseException]()
    engine.role.promote = lambda fence, program: taken.append("the epoch records")
    waiting = threading.Event()

    def promote() -> None:
        waiting.set()
        try:
            engine.promote(None, lambda: taken.append("the unit's directory"))
        except BaseException as failure:
            raised.append(failure)

    engine._ready.set()
    with engine._busy:  # an epoch is under way
        thread = threading.Thread(target=promote)
        thread.start()
        waiting.wait(10)
        engine._failure = ExternalError("FOLLOWS_OTHERWISE", "a job fails here alone")
    thread.join(10)
    assert raised == [engine._failure]
    assert not taken
    assert not engine.role.is_leader
