"""Finds the `trustfold up` process that runs over a store, or starts one for a guard.

A running engine writes its process id and address to `STORE.lock` and holds that file locked while it runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...errors import ConfigError, TrustfoldError
from ...security.private_files import make_directory
from .engine_client import EngineClient

ANSWER_S = 2.0  # Seconds within which a healthy engine answers

_POLL_S = 0.05


@dataclass(slots=True)
class EngineThread:
    """A running engine."""

    url: str  # address of its HTTP server
    process: subprocess.Popen[bytes] | None = None  # the process, if this guard started it

    def stop(self) -> None:
        """Stop the process if this guard started it; acknowledged events are in its store."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def engine_over(path: str | Path, token: str | None = None, wait_s: float = 10.0) -> EngineThread:
    """Return the engine over a store: the running one, or a new one.

    Raises:
        ConfigError: no engine is running and none could be started; the message says why.
    """
    store = Path(path)
    running = running_at(store)
    if running is not None and answers(running[1]):
        return EngineThread(running[1])
    make_directory(store.parent)
    environ = os.environ | ({"TRUSTFOLD_TOKEN": token} if token else {})
    command = [sys.executable, "-m", "trustfold", "up", "--store", str(store), "--port", "0"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=output)  # noqa: S603 - ourselves
        return _started(process, store, output, wait_s)


def _started(process: subprocess.Popen[bytes], store: Path, output: IO[bytes], wait_s: float) -> EngineThread:
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        found = running_at(store)
        if found is not None and answers(found[1]):
            ours = found[0] == process.pid
            if not ours:  # another process was quicker
                process.terminate()
                process.wait()
            return EngineThread(found[1], process if ours else None)
        if process.poll() is not None and found is None:
            break
        time.sleep(_POLL_S)
    if process.poll() is None:
        process.kill()
        process.wait()
    output.seek(0)
    text = output.read()[-500:].decode(errors="replace").strip()
    raise ConfigError(f"no engine could be started over {store}: {text or f'not ready within {wait_s:g} s'}")


def running_at(store: Path) -> tuple[int, str] | None:
    """Process id and address in a store's lock file."""
    try:
        store = store.resolve()
        process, _, address = store.with_name(f"{store.name}.lock").read_text().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    if not process.strip().isdecimal() or not address.strip() or not _is_running(int(process)):
        return None
    return int(process), address.strip()


def _is_running(process: int) -> bool:
    """Whether a process is running; a killed engine leaves its lock file behind."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def answers(url: str) -> bool:
    """Whether a healthy engine answers at an address."""
    client = EngineClient(url, ANSWER_S)
    try:
        client.request("GET", "/healthz")
    except TrustfoldError:
        return False
    finally:
        client.close()
    return True
