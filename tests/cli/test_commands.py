"""The command line reports errors with their text and exit code, and without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import commands as cli
from penstock.cli import entry
from penstock.cli.options import as_seconds, default_state
from penstock.errors import UserError


def exit_code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    code = caught.value.code
    return code if isinstance(code, int) else 0


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(cli.app, ["--version"])
    assert result.output == f"penstock {penstock.__version__}\n"


@pytest.mark.parametrize(
    "command", [[], ["run"], ["demo"], ["explain"], ["state"], ["state", "rollback"], ["elastic", "simulate"]]
)
def test_every_command_has_a_help(command: list[str]) -> None:
    result = CliRunner().invoke(cli.app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output


def test_a_missing_file_is_an_error_of_the_user_without_a_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert exit_code(["run", str(tmp_path / "none.py")]) == 2
    output = capsys.readouterr().err
    assert output.startswith("[APP_FILE_MISSING] ")
    assert "Traceback" not in output


def test_debug_shows_the_traceback_wherever_it_stands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert exit_code(["run", str(tmp_path / "none.py"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_the_traceback_of_an_unexpected_error_is_written_to_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: Path) -> None:
        raise ZeroDivisionError("nought")

    monkeypatch.setattr("penstock.cli.run.load", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert exit_code(["explain", "any.py"]) == entry.UNEXPECTED
    assert "ZeroDivisionError: nought" in capsys.readouterr().err
    (file,) = tmp_path.glob("penstock-error-*.txt")
    assert "Traceback" in file.read_text()


def test_explain_shows_every_form_of_the_click_stream(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(penstock.__file__).parent / "demos" / "clickstream.py"
    assert exit_code(["explain", str(file)]) == 0
    output = capsys.readouterr().out
    for heading in ("AS WRITTEN", "LOGICAL", "OPTIMISED", "STAGES", "SPARK STAGES"):
        assert heading in output
    assert "exchange by visitor" in output
    assert "declared at: clickstream.py:" in output, "a demo is a user's program: its lines are named"


def test_a_form_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["explain", "any.py", "--form", "spoken"]) == 2
    assert "as written, logical" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0s", "0", "soon"])
def test_times_must_be_times(text: str) -> None:
    with pytest.raises(UserError):
        as_seconds(text, "--for")


def test_a_bare_number_is_seconds() -> None:
    assert as_seconds("2.5", "--for") == 2.5


def test_the_default_state_is_in_the_working_directory() -> None:
    assert default_state("my app/../x") == Path(".penstock/my-app-..-x")
