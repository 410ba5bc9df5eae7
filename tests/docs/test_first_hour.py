"""docs/tutorial.md and docs/install.md: their commands run as a newcomer types them, and say what the pages show."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import environment, run_line, trustfold
from local_kafka_probe import free_port
from waiting import wait_until

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)

AS_LONG_AS_NEEDED = (
    "await asyncio.sleep(1)",
    "while guard.view.only_defaults and (session_id, service) == ('broken', 'search'): await asyncio.sleep(0.02)",
)
"""The pause of the tutorial's agent, and one that ends when the guard knows what the third failure led to."""


def shown_in(expected: str, printed: str) -> list[str]:
    """Lines of a page that a command did not print; `…` stands for anything, and blanks do not count."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    patterns = [
        (line, ".*".join(re.escape(part) for part in " ".join(line.split()).split("…")))
        for line in expected.splitlines()
    ]
    return [line for line, pattern in patterns if not any(re.match(pattern, one) for one in lines)]


@pytest.mark.slow
def test_the_tutorial_shows_what_it_says(home: dict[str, str], tmp_path: Path) -> None:
    """From the server's start to the history, with the times of today."""
    folder, port = tmp_path / "folder", str(free_port())
    folder.mkdir()
    blocks = BLOCK.findall((DOCS / "tutorial.md").read_text())
    (start, agent) = (blocks[0][1].strip(), blocks[1][1])
    (folder / "agent.py").write_text(agent.replace("8321", port).replace(*AS_LONG_AS_NEEDED))
    log = folder / "up.log"
    log.touch()
    server = subprocess.Popen(["sh", "-c", f"exec {start} --port {port} 2>{log}"], cwd=folder, env=environment(home))
    try:
        wait_until(lambda: "is up at" in log.read_text(), what="the server's first line")
        printed = ""
        for kind, text in blocks[2:]:
            if kind == "text":
                assert shown_in(text, printed) == [], printed
                continue
            printed = ""
            for command in text.splitlines():
                if command.startswith("trustfold history"):
                    server.send_signal(signal.SIGINT)
                    assert server.wait(100) == 130
                done = run_line(command, folder, home)
                assert done.returncode == 0, f"{command}: {done.stderr}"
                printed += done.stdout + done.stderr
    finally:
        server.kill()
        server.wait()


def test_uninstall_of_the_install_page_runs(home: dict[str, str], tmp_path: Path) -> None:
    """Where nothing was connected it finds nothing to remove."""
    commands = [
        line.partition("#")[0].split()[1:]
        for kind, text in BLOCK.findall((DOCS / "install.md").read_text())
        if kind == "sh"
        for line in text.splitlines()
    ]
    assert [words[0] for words in commands] == ["uninstall", "uninstall"]
    for words in commands:
        done = trustfold(*words, cwd=tmp_path, env=home)
        assert (done.returncode, done.stderr) == (0, b"nothing of trustfold is installed for this user\n")
