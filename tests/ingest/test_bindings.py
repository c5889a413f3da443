"""A name belongs to who shows its secret or its token, and of two copies of a spool one may use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import UserError
from penstock.ingest.bindings import Binding, Bindings, Claim, check_claim
from penstock.ingest.tokens import Tokens
from tests.ingest.processes import token_file

SECRET = "a-secret-of-the-agent"
AGENT = Claim("web1", SECRET, sessions=(), place="here")


def bound() -> Binding:
    binding = check_claim(None, AGENT, 100, 30)
    assert binding is not None
    return binding


def decide(claim: Claim, silent_seconds: float = 100) -> Binding:
    binding = check_claim(bound_now, claim, silent_seconds, 30)
    assert binding is not None
    return binding


bound_now = bound()
SHOWN = Claim("web1", SECRET, sessions=(bound_now.session,), place="here")


def test_a_name_without_a_binding_is_free_for_who_has_no_secret() -> None:
    assert check_claim(None, Claim("web1"), 0, 30) is None


def test_a_binding_holds_no_secret() -> None:
    assert SECRET not in repr(bound_now)


@pytest.mark.parametrize("secret", ["", "another-secret-entirely"])
def test_a_bound_name_is_refused_without_its_secret(secret: str) -> None:
    with pytest.raises(UserError, match="PRODUCER_BOUND"):
        decide(Claim("web1", secret, sessions=(bound_now.session,), place="here"))


def test_every_connection_of_an_agent_gets_another_session() -> None:
    following = decide(SHOWN)
    assert following.session not in ("", bound_now.session)
    with pytest.raises(UserError, match="PRODUCER_COPIED"):
        check_claim(following, SHOWN, 100, 30)


def test_an_agent_that_was_killed_before_it_was_told_shows_both_sessions() -> None:
    killed = Claim("web1", SECRET, sessions=(bound_now.session, "offered"), place="here")
    assert decide(killed).session
    taken = check_claim(bound_now, SHOWN, 100, 30, "offered")
    assert taken is not None
    assert taken.session == "offered"
    assert check_claim(taken, killed, 0, 30) is not None


def test_a_spool_continues_elsewhere_only_once_it_has_been_silent() -> None:
    moved = Claim("web1", SECRET, sessions=(bound_now.session,), place="there")
    with pytest.raises(UserError, match="PRODUCER_COPIED"):
        decide(moved, silent_seconds=29)
    assert decide(moved, silent_seconds=30).place == "there"
    assert decide(SHOWN, silent_seconds=0).place == "here"


def test_a_token_with_a_name_keeps_others_from_a_producer() -> None:
    binding = check_claim(None, Claim("web1", token="alice"), 0, 30)
    assert binding == Binding("web1", token="alice")
    for token in ("", "bob"):
        with pytest.raises(UserError, match="PRODUCER_BOUND"):
            check_claim(binding, Claim("web1", token=token), 0, 30)
    assert check_claim(binding, Claim("web1", token="alice"), 0, 30) == binding


def test_bindings_survive_are_released_and_are_forgotten(tmp_path: Path) -> None:
    bindings = Bindings(tmp_path)
    assert bindings.load("logs", "web1") is None
    bindings.save("logs", bound_now)
    bindings.save("logs", Binding("a/../b"))
    assert Bindings(tmp_path).load("logs", "web1") == bound_now
    (path, *_) = (tmp_path / "logs" / "producers").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    os.utime(path, (1, 1))
    bindings.forget(2, {("logs", "web1"), ("logs", "a/../b")})
    assert len(list((tmp_path / "logs" / "producers").iterdir())) == 2
    bindings.forget(2, set())
    assert len(list((tmp_path / "logs" / "producers").iterdir())) == 1
    bindings.save("logs", bound_now)
    assert bindings.release("logs", "web1")
    assert not bindings.release("logs", "web1")
    assert bindings.load("logs", "web1") is None


def test_tokens_with_names_are_added_and_revoked_while_the_gateway_runs(tmp_path: Path) -> None:
    file = token_file(tmp_path / "tokens", "web1 token-of-web1-00000\nweb2 token-of-web2-00000 # the other")
    tokens = Tokens("the-token-of-all-of-them", file)
    assert [tokens.check(f"token-of-web{n}-00000") for n in (1, 2)] == ["web1", "web2"]
    assert tokens.check("the-token-of-all-of-them") == ""
    token_file(file, "web2 token-of-web2-00000\nweb3 token-of-web3-00000 ")
    os.utime(file, ns=(1, 1))
    assert tokens.check("token-of-web3-00000") == "web3"
    with pytest.raises(UserError, match="BAD_TOKEN"):
        tokens.check("token-of-web1-00000")
    file.chmod(0o644)
    with pytest.raises(UserError, match="TOKEN_FILE_OPEN"):
        tokens.check("token-of-web3-00000")


@pytest.mark.parametrize("text", ["web1", "web1 short", "a token-of-web1-00000\nb token-of-web1-00000"])
def test_a_malformed_file_of_tokens_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="BAD_TOKEN_FILE"):
        Tokens("", token_file(tmp_path / "tokens", text))
