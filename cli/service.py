"""A user's background `trustfold up` service: its files, starting and stopping it.

All files are below the XDG data folder, readable by the user alone: store, tokens, and the client for agents' hooks.
With systemd it is a user unit that restarts after a reboot; without, a plain process.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..config import Settings
from ..errors import ConfigError
from ..guard.backends.engine import answers, running_at
from ..integrations.agent_config import CLIENT, client_source
from ..security.private_files import FILE_MODE, locked, make_directory, replace_file

UNIT = "trustfold.service"
HOST = "127.0.0.1"
START_S = 30.0

_UNIT_TEXT = """[Unit]
Description=trustfold: decisions about the tool calls of this user's agents

[Service]
EnvironmentFile={environment}
ExecStart={command}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""


_ESCAPED = str.maketrans({"%": "%%", "$": "$$", '"': r"\"", "\\": r"\\"})
"""Escapes of special characters in the quoted command of a unit."""


def unit_text(environment: Path, command: Sequence[str]) -> str:
    """Text of a systemd unit that runs a command with the variables of a file; paths are escaped."""
    path = str(environment).replace("%", "%%")
    return _UNIT_TEXT.format(environment=path, command=" ".join(f'"{word.translate(_ESCAPED)}"' for word in command))


class UserService:
    """Background service of a user, running or not."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Locate the service by the environment; creates nothing."""
        self._environ = os.environ if environ is None else environ
        data = self._environ.get("XDG_DATA_HOME", "")
        base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
        self.home = base / "trustfold"
        self.store = self.home / "trustfold.sqlite"

    # --- address and tokens ---------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Address (`HOST:PORT`) that hooks use; empty before the first start."""
        return self._endpoint()[0]

    @property
    def token(self) -> str:
        """The publishers' token; empty before the first start."""
        return self._endpoint()[1]

    @property
    def operator_token(self) -> str:
        """The operator's token; empty before the first start."""
        return self._secrets().get("TRUSTFOLD_OPERATOR_TOKEN", "")

    def tokens_for_terminal(self) -> tuple[str, str]:
        """The publishers' token, and on a terminal also the operator's.

        Commands run by an agent usually have no terminal, so they can read but not send orders.
        """
        person = sys.stdin.isatty() and sys.stdout.isatty()
        return self.token, self.operator_token if person else ""

    def running(self) -> tuple[int, str] | None:
        """Process id and URL of the service; None if it does not answer."""
        found = running_at(self.store)
        return found if found is not None and answers(found[1]) else None

    # --- start and stop -------------------------------------------------------------------------------------------

    def prepare(self, port: int | None = None) -> None:
        """Create the folder, the tokens, the address and the client for hooks, unless they exist.

        Raises:
            ConfigError: they cannot be written.
        """
        try:
            with locked(self.home):  # two concurrent starts must not create different tokens
                self._prepare(port)
        except OSError as error:
            raise ConfigError(
                f"{self.home} cannot be written ({error}); set XDG_DATA_HOME to another folder"
            ) from error

    def _prepare(self, port: int | None) -> None:
        known = self._secrets()
        wanted = {
            "TRUSTFOLD_TOKEN": known.get("TRUSTFOLD_TOKEN") or secrets.token_urlsafe(24),
            "TRUSTFOLD_OPERATOR_TOKEN": known.get("TRUSTFOLD_OPERATOR_TOKEN") or secrets.token_urlsafe(24),
            "TRUSTFOLD_USER": known.get("TRUSTFOLD_USER") or _user(),
        }
        replace_file(self.secrets_file, "".join(f"{name}={value}\n" for name, value in wanted.items()))
        address = f"{HOST}:{port}" if port else self.address or f"{HOST}:{_free_port()}"
        replace_file(self.home / "endpoint", f"{address}\n{wanted['TRUSTFOLD_TOKEN']}\n")
        replace_file(self.home / CLIENT, client_source())

    def start(self, port: int | None = None) -> str:
        """Start the service in the background unless it runs; returns a text that says how it runs.

        Raises:
            ConfigError: it did not start; the message says why.
        """
        found = self.running()
        if found is not None:
            self.prepare(int(found[1].rpartition(":")[2]))
            return f"already running at {found[1]}"
        self.prepare(port)
        if self._systemd("show-environment"):
            make_directory(self._unit_file.parent)
            replace_file(self._unit_file, unit_text(self.secrets_file, self._command()))
            if self._systemd("daemon-reload") and self._systemd("enable", "--now", UNIT) and self._started_in_time():
                return "a systemd unit of this user; it restarts after a reboot"
            self._systemd("disable", "--now", UNIT)
        environ = {name: value for name, value in self._environ.items() if not name.startswith("TRUSTFOLD_")}
        log = self.home / "up.log"
        descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "wb") as output:
            process = subprocess.Popen(  # noqa: S603 - runs trustfold itself
                self._command(),
                env=environ | self._secrets(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if not self._started_in_time(process):
            raise ConfigError(f"it did not start; see {log}: {_last_line(log)}")
        return "a process in the background; start it again after a reboot with `trustfold up --detach`"

    def stop(self) -> bool:
        """Stop the service; returns True if it ran.

        Raises:
            ConfigError: it does not stop.
        """
        found = self.running()
        if self._unit_file.exists():
            self._systemd("disable", "--now", UNIT)
            self._unit_file.unlink(missing_ok=True)
            self._systemd("daemon-reload")
        if found is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[0], signal.SIGTERM)
        until = time.monotonic() + START_S
        while self.running() is not None:
            if time.monotonic() > until:
                raise ConfigError(f"the server at {self.address} does not stop; its log is {self.home / 'up.log'}")
            time.sleep(0.1)
        return found is not None

    def _command(self) -> list[str]:
        host, _, port = self.address.rpartition(":")
        own = [sys.executable, "-m", "trustfold", "up", "--store", str(self.store)]
        return [*own, "--host", host, "--port", port]

    def _started_in_time(self, process: subprocess.Popen[bytes] | None = None) -> bool:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self.running() is not None:
                return True
            if process is not None and process.poll() is not None:
                return False
            time.sleep(0.05)
        return False

    # --- files ----------------------------------------------------------------------------------------------------

    @property
    def secrets_file(self) -> Path:
        """File of the tokens, readable by the user alone."""
        return self.home / "service.env"

    @property
    def _unit_file(self) -> Path:
        config = self._environ.get("XDG_CONFIG_HOME", "")
        base = Path(config) if config.startswith("/") else Path.home() / ".config"
        return base / "systemd" / "user" / UNIT

    def _secrets(self) -> dict[str, str]:
        try:
            lines = self.secrets_file.read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        return {name: value for name, _, value in (line.partition("=") for line in lines) if value}

    def _endpoint(self) -> tuple[str, str]:
        try:
            address, token, *_ = (self.home / "endpoint").read_text(encoding="ascii").split("\n")
        except (OSError, ValueError):
            return "", ""
        return address, token

    def _systemd(self, *words: str) -> bool:
        """Run `systemctl --user`; returns True if it exists and succeeded."""
        found = shutil.which("systemctl", path=self._environ.get("PATH"))
        if found is None or not self._environ.get("XDG_RUNTIME_DIR"):
            return False
        try:
            done = subprocess.run(  # noqa: S603 - fixed arguments
                [found, "--user", *words], env=dict(self._environ), capture_output=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def _free_port() -> int:
    """The default port if it is free, else any free port."""
    for port in (Settings().port, 0):
        try:
            with socket.create_server((HOST, port)) as listener:
                found: int = listener.getsockname()[1]
                return found
        except OSError:
            continue
    raise ConfigError(f"no port of {HOST} is free; choose one: trustfold up --detach --port N")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "user"


def _last_line(log: Path) -> str:
    try:
        return log.read_text(errors="replace").strip().splitlines()[-1][:300]
    except (OSError, IndexError):
        return "nothing"
