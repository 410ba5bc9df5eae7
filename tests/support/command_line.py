"""The command `trustfold` as people start it: a process of its own, with its own working directory."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any
from urllib.parse import urlsplit

from warm_process import WarmProcess

COMMAND = [sys.executable, "-m", "trustfold"]
PATIENCE = 200
"""Seconds for one command, on a busy machine; below the time limit of a test."""
SETTINGS: dict[str, str] = {}
"""Environment of every command, unless a test gives another; the fixture `fixed_rules_file` names a file of rules."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without any setting of ours but `SETTINGS`, and with a plain terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRUSTFOLD_")}
    nobody = {"XDG_DATA_HOME": "/nonexistent"}  # the server of whoever runs the tests is not asked
    return kept | nobody | {"COLUMNS": "80", "NO_COLOR": "1"} | SETTINGS | dict(extra or {})


def trustfold(
    *arguments: str | Path, cwd: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    with started(*arguments, cwd=cwd, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        try:
            out, said = process.communicate(stdin, PATIENCE)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, said)


def completions(line: str, shell: str, folder: Path) -> list[str]:
    """Lines that the command gives to a shell whose user asks to complete a line of it."""
    words = f"trustfold {line}"
    asked = {"_TRUSTFOLD_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = "from trustfold.cli.main import main; main(prog_name='trustfold')"
    with WarmProcess([sys.executable, "-c", code], cwd=folder, env=environment(asked), stdout=PIPE) as process:
        out: bytes = process.communicate(timeout=PATIENCE)[0]
    return out.decode().splitlines()


def run_line(line: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, as a person types it."""
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder, env=environment(env), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def started(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None, **streams: Any) -> WarmProcess:
    """Start a command; `streams` as for `Popen`."""
    return WarmProcess([*COMMAND, *map(str, words)], cwd=cwd, env=environment(env), **streams)


@dataclass
class Up:
    """A running `trustfold up` or `trustfold web`."""

    process: subprocess.Popen[str]
    url: str

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request; returns the status and the body."""
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the server."""
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)

    def get(self, path: str) -> Any:
        """The JSON answer to a GET."""
        status, body = self.request("GET", path)
        assert status == 200, body
        return json.loads(body)

    def lines(self, path: str) -> list[Any]:
        """The answer to a GET, a JSON value a line."""
        status, body = self.request("GET", path)
        assert status == 200, body
        return [json.loads(line) for line in body.splitlines()]

    def post(self, path: str, body: bytes, **headers: str) -> Any:
        """The JSON answer to a POST."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        status, answer = self.request("POST", path, body, {"Content-Type": "application/x-ndjson"} | given)
        assert status == 200, answer
        return json.loads(answer)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to stop; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def up(*arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None, orders: bool = True) -> Iterator[Up]:
    """Start `trustfold up` on a free port, by default with orders from this machine; gone when the block is left."""
    allowed = ["--allow-local-orders"] if orders else []
    with serving("up", "--port", "0", *allowed, *arguments, cwd=cwd, env=env) as server:
        yield server


@contextmanager
def serving(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Up]:
    """Start a command that serves and says where; gone when the block is left."""
    with started(*words, cwd=cwd, env=env, stderr=PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield Up(process, _address(process.stderr))
        finally:
            process.kill()


def _address(log: IO[str]) -> str:
    said = ""
    for line in log:
        said += line
        found = re.search(r"(?:trustfold is up|the dashboard is) at (http://\S+),", line)
        if found:
            return found[1]
    raise AssertionError(f"trustfold did not come up: {said}")
