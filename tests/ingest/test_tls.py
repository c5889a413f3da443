"""Agents and HTTP clients reach a gateway by TLS and trust only the configured authority."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.ingest.processes import Processes, numbered, token_file, until

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def certificate(folder: Path, name: str, host: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """Create a self-signed certificate and its key."""
    file, key = folder / f"{name}.pem", folder / f"{name}.key"
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    outputs = ["-keyout", str(key), "-out", str(file)]
    subprocess.run(
        ["openssl", "req", *options, *outputs, "-subj", f"/CN={name}", "-addext", f"subjectAltName={host}"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return file, key


def test_lines_arrive_by_tls_and_survive_a_gateway_killed(processes: Processes, tmp_path: Path) -> None:
    ours, key = certificate(tmp_path, "ours")
    tls = ("--tls-cert", ours, "--tls-key", key)
    gateway = processes.gateway(*tls)
    assert gateway.reports("listening")[0]["tls"] is True
    sent = list(numbered(0, 60_000))
    file = tmp_path / "access"
    file.write_bytes(b"\n".join(sent[:30_000]) + b"\n")
    agent = processes.agent("--tail", file, "--spool", tmp_path / "spool", "--ca", ours, "--drain", "60s")
    until(lambda: (processes.log / "logs").exists() and processes.lines(), 60, "lines")
    gateway.kill()
    with file.open("ab") as more:
        more.write(b"\n".join(sent[30_000:]) + b"\n")
    processes.gateway(*tls)
    until(lambda: len(processes.lines()) == len(sent), 60, "all lines")
    assert agent.stop() == 0
    assert processes.lines() == sent


@pytest.mark.parametrize("wrong", ["authority", "host", "system", "plain"])
def test_an_agent_sends_nothing_to_a_gateway_that_cannot_prove_its_identity(
    processes: Processes, tmp_path: Path, wrong: str
) -> None:
    ours, key = certificate(tmp_path, "ours", "DNS:elsewhere.example" if wrong == "host" else "IP:127.0.0.1")
    other, _ = certificate(tmp_path, "other")
    processes.gateway("--tls-cert", ours, "--tls-key", key)
    (tmp_path / "input").write_bytes(b"secret\n")
    options = {"authority": ("--ca", other), "host": ("--ca", ours), "system": ("--tls",), "plain": ()}[wrong]
    with open(tmp_path / "input", "rb") as file:
        agent = processes.agent("--drain", "1s", "--token-file", _token(tmp_path), *options, stdin=file)
    assert agent.wait() == 3
    (report, *_) = agent.reports("not connected")
    if wrong != "plain":
        assert "certificate verify failed" in report["reason"]
    assert not (processes.log / "logs").exists()


def _token(folder: Path) -> Path:
    return token_file(folder / "token", "a-long-enough-token")


def test_http_works_over_tls(processes: Processes, tmp_path: Path) -> None:
    ours, key = certificate(tmp_path, "ours")
    other, _ = certificate(tmp_path, "other")
    processes.gateway("--tls-cert", ours, "--tls-key", key, http=True)
    url = f"https://127.0.0.1:{processes.http_port}/streams/logs/events"
    good = ssl.create_default_context(cafile=ours)
    lines = urllib.request.Request(url, b"a\nb\n", {"Content-Type": "application/x-ndjson"})
    with urllib.request.urlopen(lines, timeout=30, context=good) as reply:
        assert json.load(reply)["lines"] == 2
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        urllib.request.urlopen(url, b"c\n", timeout=30, context=ssl.create_default_context(cafile=other))
    assert processes.lines() == [b"a", b"b"]


def test_invalid_certificate_files_are_refused(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "none").write_text("not a certificate")
    gateway = processes.gateway("--tls-cert", tmp_path / "none", "--tls-key", tmp_path / "none", ready=False)
    assert gateway.wait() == 2
    assert "BAD_CERTIFICATE" in gateway.text()
    gateway = processes.gateway("--tls-cert", tmp_path / "none", ready=False)
    assert gateway.wait() == 2
    agent = processes.agent("--ca", tmp_path / "none")
    assert agent.wait() == 2
    assert "BAD_CERTIFICATE" in agent.text()
