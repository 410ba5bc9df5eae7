"""The examples of docs/guard.md run, without a network and a key, and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guard.md"
PAIR = re.compile(
    r"^## (?P<title>[^\n]+)\n(?:(?!^## ).)*?^```python\n(?P<code>.*?)^```\n\n```text\n(?P<says>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = {found["title"]: (found["code"], found["says"]) for found in PAIR.finditer(PAGE.read_text())}

NO_NETWORK = """
import socket
_connect = socket.socket.connect
def connect(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"an example reached for the network: {address}")
    return _connect(self, address)
socket.socket.connect = connect
"""


def test_every_example_is_found() -> None:
    """Each kind of platform has one."""
    titles = [
        "Five lines",
        "What happens in one call",
        "OpenAI tool calls",
        "LangGraph",
        "An MCP client",
        "Limits",
        "Testing with it",
    ]
    assert list(EXAMPLES) == titles


@pytest.mark.slow
@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_prints_what_the_page_says(title: str, tmp_path: Path) -> None:
    """In a process of its own, cut off from the network."""
    code, says = EXAMPLES[title]
    script = tmp_path / "example.py"
    script.write_text(NO_NETWORK + code)
    environ = {**os.environ, "LANGSMITH_TRACING": "false", "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=90, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == says
