"""Secrets: statements name them, connectors look them up, and nothing stores or shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.catalogue.program import Program
from penstock.errors import ExternalError, UserError
from penstock.secret_store import redact, reveal
from penstock.server.statement_guard import AllowedServers, StatementGuard
from penstock.sinks import Postgres
from penstock.sql.parse import parse
from tests.sql.harness import events

PASSWORD = "tiger7"
ADDRESS = f"postgresql://scott:{PASSWORD}@127.0.0.1:1/shop"
STREAM = (
    "CREATE STREAM clicks FROM files('clicks/*.log') FORMAT json(ts TIMESTAMP, page STRING) EVENT TIME ts"
)
JOB = "CREATE JOB pages AS SELECT page FROM clicks INTO postgres(SECRET shop_db, 'pages')"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "secrets"
    file.write_text(f"# of the shop\nshop_db = {ADDRESS}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_SECRETS", str(file))
    return file


def test_a_secret_is_read_from_a_file_of_its_owner(file: Path) -> None:
    assert reveal("SECRET shop_db") == ADDRESS
    assert reveal("redis://cache:6379") == "redis://cache:6379"


def test_a_secret_of_the_environment_comes_before_that_of_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_SHOP_DB", "postgresql://other/shop")
    assert reveal("SECRET shop_db") == "postgresql://other/shop"


def test_a_secret_that_is_not_there_is_an_error_that_says_where_to_put_it(file: Path) -> None:
    with pytest.raises(UserError, match="UNKNOWN_SECRET") as caught:
        reveal("SECRET shop")
    assert "PENSTOCK_SECRET_SHOP" in str(caught.value.hint)


def test_a_file_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(UserError, match="SECRETS_FILE_OPEN"):
        reveal("SECRET shop_db")


def test_a_file_that_cannot_be_read_is_an_error(file: Path) -> None:
    file.unlink()
    with pytest.raises(ExternalError, match="SECRETS_FILE_UNREADABLE"):
        reveal("SECRET shop_db")


def test_what_is_stored_and_shown_is_the_name(file: Path, tmp_path: Path) -> None:
    program = Program("test", tmp_path / "state")
    replies = program.execute(f"{STREAM}; {JOB}; SHOW JOBS; EXPLAIN JOB pages")
    shown = json.dumps([reply.to_json() for reply in replies])
    stored = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert "SECRET shop_db" in shown
    assert b"SECRET shop_db" in stored
    assert PASSWORD not in shown
    assert PASSWORD.encode() not in stored
    (sink,) = program._intake.builder.sinks(program.catalogue.jobs["pages"])
    assert PASSWORD not in repr(vars(sink))


def test_a_secret_stands_for_addresses_only(tmp_path: Path) -> None:
    program = Program("test", tmp_path)
    program.execute(STREAM)
    for sink in ("jsonl(SECRET x)", "postgres('postgresql://host/db', SECRET x)", "http_push(SECRET x)"):
        with pytest.raises(UserError, match="BAD_ARGUMENT"):
            program.execute(f"CREATE JOB x AS SELECT page FROM clicks INTO {sink}")


def test_an_error_of_the_server_does_not_quote_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = Postgres("SECRET shop_db", "pages")
    schema = dict(events("clicks", []).node.schema)
    for value in (
        ADDRESS,
        f"host=127.0.0.1 port=1 password={PASSWORD}",
        PASSWORD,
        f"postgresql://{PASSWORD}?x=y",
    ):
        monkeypatch.setenv("PENSTOCK_SECRET_SHOP_DB", value)
        with pytest.raises(ExternalError, match="SINK_UNWRITABLE") as caught:
            sink.open("pages", {"product": schema["product"]})
        assert PASSWORD not in caught.value.text()


def test_over_http_a_secret_passes_only_for_a_server_that_is_open(file: Path, tmp_path: Path) -> None:
    statements = parse(JOB)
    StatementGuard([], tmp_path, AllowedServers(["127.0.0.1:1"])).check(statements)
    with pytest.raises(UserError, match="ADDRESS_NOT_ALLOWED") as caught:
        StatementGuard([], tmp_path, AllowedServers(["127.0.0.1:2"])).check(statements)
    assert PASSWORD not in caught.value.text()


def test_passwords_in_addresses_are_not_shown(tmp_path: Path) -> None:
    program = Program("test", tmp_path)
    program.execute(
        f"CREATE STREAM clicks FROM redis('redis://me:{PASSWORD}@127.0.0.1:1', 'clicks') "
        "FORMAT json(ts TIMESTAMP, page STRING) EVENT TIME ts; "
        f"CREATE JOB pages AS SELECT page FROM clicks INTO postgres('{ADDRESS}', 'pages')"
    )
    shown = json.dumps([reply.to_json() for reply in program.execute("SHOW STREAMS; SHOW JOBS")])
    assert PASSWORD not in shown
    assert "redis://me:***@127.0.0.1:1" in shown
    with pytest.raises(UserError) as caught:
        program.execute(f"CREATE JOB x AS SELECT page FROM clicks INTO postgres('{ADDRESS}' 'pages')")
    assert PASSWORD not in caught.value.text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:tiger7@cache", "redis://:***@cache"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("host=db password=tiger7 user=me", "host=db password=*** user=me"),
        ("postgresql://host/db?password=tiger7&a=b", "postgresql://host/db?password=***&a=b"),
        ("SELECT a FROM b", "SELECT a FROM b"),
        ("postgresql://me:tig@er@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:tig'er7@host/db", "postgresql://me:***@host/db"),
        ("host=db password='tiger seven' user=me", "host=db password=*** user=me"),
    ],
)
def test_passwords_are_redacted(text: str, shown: str) -> None:
    assert redact(text) == shown
