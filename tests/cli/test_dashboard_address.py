"""The address of the dashboard has the token on a terminal only, and a browser gets it without an argument."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.dashboard_address import address_with_token, opened_in_browser
from penstock.state.service_token import open_service_token, read_service_token

OPEN = """
import sys, time
from pathlib import Path
from penstock.cli.dashboard_address import opened_in_browser
with opened_in_browser(sys.argv[1]):
    deadline = time.monotonic() + 60
    while not Path("opened").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
"""
#: writes its arguments, and the file that it is started on, with its mode
BROWSER = """#!/bin/sh
echo "$@" > arguments
file="${1#file://}"
cat "$file" > content
stat -c %a "$file" > mode
mv mode opened
"""


def test_the_token_is_in_the_address_on_a_terminal_only(tmp_path: Path) -> None:
    file, _ = open_service_token(tmp_path)
    token = read_service_token(file)
    url = "http://127.0.0.1:8080"
    assert address_with_token(url, file, on_terminal=True) == f"{url}/?token={token}"
    elsewhere = address_with_token(url, file, on_terminal=False)
    assert elsewhere.startswith(f"{url}/ui/ ")
    assert f"penstock token --state {tmp_path}" in elsewhere
    assert token not in elsewhere


@pytest.mark.process
def test_a_browser_is_started_on_a_private_file_and_not_on_the_address(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
    environment |= {"DISPLAY": ":9", "BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path / "tmp")}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    address = "http://127.0.0.1:8080/?token=0123456789abcdef"
    # as from a file, since this process may not show the address either
    script = OPEN.replace("sys.argv[1]", repr(address))
    subprocess.run(
        [sys.executable, "-"],
        input=script,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=100,
    )
    folder = tmp_path / "tmp" / f"penstock-{os.getuid()}"
    file = folder / "dashboard-8080.html"
    assert (tmp_path / "arguments").read_text().strip() == file.as_uri()
    assert (tmp_path / "opened").read_text().strip() == "600"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    content = (tmp_path / "content").read_text()
    assert f'content="0;url={address}"' in content
    assert 'name="referrer" content="no-referrer"' in content
    assert not file.exists(), "it goes with the service"


def test_without_a_desktop_no_browser_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with opened_in_browser("http://127.0.0.1:8080/?token=x"):
        pass
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1")
    with opened_in_browser("http://127.0.0.1:8080/?token=x"):
        pass
    assert list(tmp_path.iterdir()) == []
