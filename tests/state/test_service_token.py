"""The token that a service makes for itself: only its user can read it, and programs of that user find it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import PenstockError, UserError
from penstock.state import service_token
from penstock.state.service_token import (
    FILE,
    find_service_token,
    is_proof,
    new_nonce,
    open_service_token,
    prove_token,
    publish_service_token,
    read_service_token,
    renew_service_token,
)

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
root_alone = pytest.mark.may_skip("root, who alone can become another user")
PORT = 18_080


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _open(directory: Path) -> str:
    return read_service_token(open_service_token(directory)[0])


def test_a_token_is_made_once_for_its_user_alone_at_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file, is_renewed = open_service_token(tmp_path / "state")
    finally:
        os.umask(before)
    assert (file, is_renewed) == (tmp_path / "state" / FILE, False)
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    token = read_service_token(file)
    assert len(token) == 48
    assert _open(tmp_path / "state") == token, "after a restart it is the same"
    assert _open(tmp_path / "other") != token
    renew_service_token(tmp_path / "state")
    assert mode(file) == 0o600
    assert read_service_token(file) != token


def test_processes_of_one_directory_share_the_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(_open, [tmp_path / "state"] * 64))) == 1


@pytest.mark.parametrize("open_mode", [0o644, 0o640, 0o620, 0o604])
def test_a_token_that_others_could_read_or_write_is_replaced(tmp_path: Path, open_mode: int) -> None:
    file, _ = open_service_token(tmp_path)
    token = read_service_token(file)
    file.chmod(open_mode)
    with pytest.raises(UserError, match="NOT_PRIVATE"):
        read_service_token(file)
    assert open_service_token(tmp_path) == (file, True)
    assert mode(file) == 0o600
    assert read_service_token(file) != token


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "id_rsa"
    target.write_text("the secret of somebody")
    target.chmod(0o600)
    file = tmp_path / "state" / FILE
    file.parent.mkdir(mode=0o700)
    if kind == "link":
        file.symlink_to(target)
    elif kind == "directory":
        file.mkdir()
    else:
        os.mkfifo(file, 0o600)
    with pytest.raises(UserError, match="NOT_PRIVATE") as refused:
        open_service_token(tmp_path / "state")
    assert "Remove it" in (refused.value.hint or "")
    with pytest.raises(PenstockError):  # a link may not even be opened
        read_service_token(file)
    assert target.read_text() == "the secret of somebody"


@root_alone
@as_root
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file, _ = open_service_token(tmp_path)
    os.chown(file, OTHER, OTHER)
    with pytest.raises(UserError, match="belongs to user 65534"):
        open_service_token(tmp_path)
    with pytest.raises(UserError, match="NOT_PRIVATE"):
        read_service_token(file)


INTRUDER = """
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for path in sys.argv[1:]:
    try:
        print(open(path).read())
    except PermissionError:
        print("refused")
"""


@root_alone
@as_root
@pytest.mark.process
def test_another_user_finds_no_token_and_reads_none() -> None:
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        shared.chmod(0o755)
        file, _ = open_service_token(shared / "state")
        file.parent.chmod(0o755)
        (shared / "open").write_text("everybody's")
        (shared / "open").chmod(0o644)
        with publish_service_token(file, PORT):
            link = service_token.own_folder() / f"token-{PORT}"
            found = subprocess.run(
                [sys.executable, "-c", INTRUDER, *map(str, (shared / "open", file, link))],
                capture_output=True,
                text=True,
                timeout=60,
                cwd="/",
            )
        assert found.stdout.split() == ["everybody's", "refused", "refused"], found.stderr
    finally:
        shutil.rmtree(shared)


def test_programs_of_the_user_find_the_token_by_the_port_while_the_service_listens(tmp_path: Path) -> None:
    file, _ = open_service_token(tmp_path / "state")
    assert find_service_token(PORT) is None
    with publish_service_token(file, PORT):
        assert find_service_token(PORT) == read_service_token(file)
        assert find_service_token(PORT + 1) is None
        renew_service_token(tmp_path / "state")
        assert find_service_token(PORT) == read_service_token(file)
        other, _ = open_service_token(tmp_path / "next")
        with publish_service_token(other, PORT):  # it has taken the port of one that was killed
            pass
        assert find_service_token(PORT) is None
    with publish_service_token(file, PORT):
        file.chmod(0o644)
        assert find_service_token(PORT) is None, "others may have written it"


def test_a_link_that_the_machine_has_removed_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_token, "_KEEP_SECONDS", 0.01)
    file, _ = open_service_token(tmp_path / "state")
    with publish_service_token(file, PORT):
        shutil.rmtree(service_token.own_folder())
        deadline = time.monotonic() + 20
        while find_service_token(PORT) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_directory_that_others_can_change_leads_to_no_token(tmp_path: Path) -> None:
    file, _ = open_service_token(tmp_path / "state")
    with publish_service_token(file, PORT):
        folder = service_token.own_folder()
        folder.chmod(0o777)
        assert find_service_token(PORT) is None
        with publish_service_token(file, PORT + 1) as why_not:
            assert "NOT_PRIVATE" in (why_not or ""), "the service runs, and its log says why it is not found"
        assert not (folder / f"token-{PORT + 1}").is_symlink()
        folder.chmod(0o700)
        assert find_service_token(PORT) is not None


def test_a_proof_is_for_one_token_one_port_and_one_nonce() -> None:
    token, nonce = "t" * 48, new_nonce()
    digest = hashlib.sha256(token.encode()).digest()
    proof = prove_token(digest, PORT, nonce) or ""
    assert is_proof(proof, token, PORT, nonce)
    assert token not in proof
    assert not is_proof(proof, "u" * 48, PORT, nonce)
    assert not is_proof(proof, token, PORT + 1, nonce)
    assert not is_proof(proof, token, PORT, new_nonce())
    for text in ("", "ü", proof[:-1]):
        assert not is_proof(text, token, PORT, nonce)
    for no_nonce in ("", "x" * 32, f"{nonce} ", f"{nonce}\n", f"1 {nonce}"):
        assert prove_token(digest, PORT, no_nonce) is None
