"""Errors of the engine, without Spark except for a Spark that does not start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.engine import Engine
from penstock.engine.job_client import JobClient, running_state
from penstock.engine.job_server import socket_of
from penstock.epoch.job_failures import JobFailures, explain_failure
from penstock.epoch.message import JobError, open_message
from penstock.epoch.migration import MapChange
from penstock.errors import ExternalError, InternalError, UserError
from penstock.settings import Settings
from penstock.state.bucket_map import BucketMaps
from penstock.testing import ListSink, run_inline
from penstock.testing.inline import InlineEngine
from tests.epoch.map_changes import Killed, kill_at, new_history
from tests.operators.harness import events_stream


def app() -> ps.App:
    rows = events_stream(new_history(5)).key_by("user").last(2, "n", partial=True)
    return ps.app("any", ps.output("out", rows, ListSink()))


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a name that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_an_engine_that_has_not_started_has_no_maps_to_change(state: Path) -> None:
    with pytest.raises(InternalError, match="NOT_RUNNING"):
        Engine(app(), Settings(state=state, master="inline")).request_map_change(
            MapChange(BucketMaps((0,) * 64, {}, ()))
        )


def test_the_number_of_buckets_is_fixed_for_the_life_of_a_state(state: Path) -> None:
    run_inline(app(), state, buckets=8)
    with pytest.raises(InternalError, match="BUCKETS_CHANGED") as caught:
        run_inline(app(), state, buckets=16)
    assert "buckets=8" in str(caught.value.hint)


def test_an_epoch_is_not_repeated_with_other_spans_than_recorded(state: Path) -> None:
    with kill_at("recorded", 0), pytest.raises(Killed):
        run_inline(app(), state, epoch_units=4)
    engine = InlineEngine(app(), state, epoch_units=4)
    try:
        start = engine._start
        with pytest.raises(InternalError, match="EPOCH_OUT_OF_STEP"):
            engine.runner.run(0, start, start)
    finally:
        engine.close()


def test_an_unexpected_exception_of_a_job_fails_that_job() -> None:
    failures = JobFailures()
    with failures.isolate((3,), 0.0):
        raise ZeroDivisionError("by nought")
    (message,) = (open_message(data) for data in failures.messages())
    assert isinstance(message, JobError)
    assert (message.job, message.error.condition) == (3, "JOB_FAILED")
    assert "ZeroDivisionError: by nought" in message.error.primary


def test_an_unexpected_exception_of_an_epoch_is_explained() -> None:
    error = explain_failure(ValueError("first line\nand more"))
    assert error.condition == "EPOCH_FAILED"
    assert "ValueError: first line" in error.primary
    assert "and more" in str(error.detail)


def test_without_a_running_engine_a_client_must_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"WHICH_ENGINE.*none"):
        running_state(None)


def test_an_engine_that_ends_before_it_responds_is_reported(short: Path) -> None:
    state = short / "state"
    (state / "commands").mkdir(parents=True)
    path = socket_of(state)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()

        def hang_up() -> None:
            line, _ = listener.accept()
            line.makefile("rb").readline()
            line.close()

        threading.Thread(target=hang_up, daemon=True).start()
        with JobClient(state) as client, pytest.raises(ExternalError, match="ENGINE_GONE"):
            client.since("any", 0)
    os.unlink(path)


def test_a_socket_folder_of_another_user_is_not_used(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    socket_of(short)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)  # the folder belongs to another than this user
    with pytest.raises(InternalError, match="SOCKET_FOLDER_TAKEN"):
        socket_of(short)


@pytest.mark.spark
def test_a_spark_that_does_not_start_is_reported(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from penstock.spark.session import session\n"
        "from penstock.settings import Settings\n"
        "session(Settings(state=Path(sys.argv[1]), master='no such master'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "SPARK_DID_NOT_START" in done.stderr
