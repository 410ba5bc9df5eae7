"""Standard output that takes less than a terminal of today: a full device, ASCII, none at all, and pipes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command_line import COMMAND, environment, trustfold
from trustfold.cli.render import ExitCode

ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def ended(words: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell in which `trustfold` is the command."""
    line = words.replace("trustfold", " ".join(COMMAND), 1)
    return subprocess.run(
        ["sh", "-c", line], cwd=cwd, env=environment(env), capture_output=True, timeout=110, check=False
    )


@pytest.mark.parametrize("words", ["trustfold --help", "trustfold demo"])
def test_a_full_device_is_one_line(words: str, tmp_path: Path) -> None:
    """Whoever wrote last, click or rich: the reason, exit code 1 and no traceback."""
    done = ended(f"{words} > /dev/full", tmp_path)
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.decode().splitlines()[-1:] == [
        "trustfold: No space left on device: the output could not be written; free some space or write it elsewhere"
    ]
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_closed_output_is_no_fault(tmp_path: Path) -> None:
    """As services of a system start programs: nothing is shown, and nothing fails."""
    done = ended("trustfold demo >&-", tmp_path)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


def test_an_ascii_terminal_gets_the_nearest_signs(tmp_path: Path) -> None:
    """Arrows, dots and lines have a sign of ASCII; nothing ends because of one."""
    done = ended("trustfold demo", tmp_path, ASCII)
    assert done.returncode == 0, done.stderr
    assert " -> " in done.stdout.decode("ascii")
    assert ended("trustfold status --store none…", tmp_path, ASCII).stderr.startswith(b"trustfold: ")


def test_lines_in_pipes_end_with_their_last_word(tmp_path: Path) -> None:
    """Tables are padded for the eye on a terminal; `grep ' $'` and `diff` are spared that."""
    shown = trustfold("demo", cwd=tmp_path).stdout.decode().splitlines()
    assert len(shown) > 20
    assert [line for line in shown if line != line.rstrip()] == []
