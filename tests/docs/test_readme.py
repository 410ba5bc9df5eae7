"""README.md: its commands run from top to bottom, in one home and one folder, as a newcomer would type them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_line

PAGE = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MAX_LINES = 120


@pytest.mark.slow
def test_commands_run_from_top_to_bottom(home: dict[str, str], tmp_path: Path) -> None:
    """Each ends with success and none prints an error; the connected agent's settings name the hooks."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for command in COMMANDS:
        done = run_line(command, folder, home)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "trustfold: " not in done.stderr.replace("trustfold up: ", ""), f"{command}: {done.stderr}"
        if command.startswith("trustfold connect claude  "):
            assert "PreToolUse" in (tmp_path / "home" / ".claude" / "settings.json").read_text()


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code: str, tmp_path: Path) -> None:
    """In a process of their own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "['about Kafka']\n"), done.stderr


def test_the_page_is_read_in_a_minute() -> None:
    """It stays short: what is longer has a page of its own."""
    assert len(PAGE.splitlines()) <= MAX_LINES
    assert len(COMMANDS) >= 10
