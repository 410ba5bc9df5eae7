"""A user's background `trustfold up` service: its files, starting and stopping it.

All files are below the XDG data folder, readable by the user alone: store, tokens, and the client for agents' hooks.
With systemd it is a user unit that restarts after a reboot; without, a plain process.
"""

from __future__ import annotations

import contextlib
import fcntl
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
from importlib.util import find_spec
from pathlib import Path

from ..config import INSTALLATION, EnvironmentSettings
from ..errors import EXTRAS, ConfigError, NotInstalled, TrustfoldError
from ..guard.backends.engine_process import answers, running_at
from ..integrations.agent_config import CLIENT, client_source
from ..integrations.hook_client import LATE, SOCKET
from ..security.private_files import DIRECTORY_MODE, FILE_MODE, locked, make_directory, replace_file
from .clients.client import ServerIdentity, TargetRights
from .clients.http import HttpTarget
from .origin import order_of_an_agent

UNIT = "trustfold.service"
HOST = "127.0.0.1"
START_S = 30.0

STOP_S = 15.0  # Seconds that a server may take to finish its requests

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


# Escapes of special characters in the quoted command of a unit
_ESCAPED = str.maketrans({"%": "%%", "$": "$$", '"': r"\"", "\\": r"\\"})


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
        try:
            return (self.home / "endpoint").read_text(encoding="ascii").partition("\n")[0]
        except (OSError, ValueError):
            return ""

    @property
    def token(self) -> str:
        """The publishers' token; empty before the first start."""
        return self._secrets().get("TRUSTFOLD_TOKEN", "")

    @property
    def operator_token(self) -> str:
        """The operator's token; empty before the first start."""
        return self._secrets().get("TRUSTFOLD_OPERATOR_TOKEN", "")

    def rights(self, given: str = "") -> TargetRights:
        """Return the rights of this command: an order needs a person at a terminal or the token `given`, and no agent.

        What an agent runs usually has no terminal, and it is refused where it opens one.
        """
        if refusal := order_of_an_agent():
            return TargetRights(self.token, refusal=refusal)
        if given:
            return TargetRights(self.token, given)
        if sys.stdin.isatty() and sys.stdout.isatty():
            return TargetRights(self.token, self.operator_token)
        return TargetRights(
            self.token,
            refusal="orders to this user's server need a terminal; a script gives TRUSTFOLD_OPERATOR_TOKEN, as "
            f"{self.secrets_file} has it",
        )

    @property
    def socket(self) -> Path:
        """Socket at which hooks reach the service."""
        return self.home / SOCKET

    def latest_timeout(self) -> str:
        """When a hook had no answer in time, within the last day, as local time; empty without one."""
        try:
            at = (self.home / LATE).stat().st_mtime
        except OSError:
            return ""
        return time.strftime("%H:%M:%S", time.localtime(at)) if 0 <= time.time() - at < 86_400 else ""

    def is_at(self, url: str) -> bool:
        """Whether an address is that of this service."""
        return bool(self.address) and url.rpartition("//")[2].rstrip("/").replace("localhost", HOST) == self.address

    def running(self) -> tuple[int, str] | None:
        """Process id and URL of the service; None if it does not answer."""
        found = running_at(self.store)
        return found if found is not None and answers(found[1]) else None

    def about(self) -> ServerIdentity | None:
        """Which server answers at the service's address; None if none does."""
        if (found := self.running()) is None:
            return None
        with contextlib.closing(HttpTarget(found[1], TargetRights(self.token))) as target:
            try:
                return target.about()
            except TrustfoldError:
                return None

    # --- start and stop -------------------------------------------------------------------------------------------

    def prepare(self, address: str = "") -> None:
        """Create the folder, the tokens and the client for hooks, unless they exist; record the address, if given."""
        try:
            with locked(self.home):  # two concurrent starts must not create different tokens
                self._prepare(address)
        except OSError as error:
            raise ConfigError(
                f"{self.home} cannot be written ({error}); set XDG_DATA_HOME to another folder"
            ) from error

    def _prepare(self, address: str) -> None:
        self.home.chmod(DIRECTORY_MODE)  # its socket is trusted because nobody else can have made it
        known = self._secrets()
        wanted = {
            "TRUSTFOLD_TOKEN": known.get("TRUSTFOLD_TOKEN") or secrets.token_urlsafe(24),
            "TRUSTFOLD_OPERATOR_TOKEN": known.get("TRUSTFOLD_OPERATOR_TOKEN") or secrets.token_urlsafe(24),
            "TRUSTFOLD_USER": known.get("TRUSTFOLD_USER") or _user(),
        }
        replace_file(self.secrets_file, "".join(f"{name}={value}\n" for name, value in wanted.items()))
        if address:
            replace_file(self.home / "endpoint", f"{address}\n{wanted['TRUSTFOLD_TOKEN']}\n")
        replace_file(self.home / CLIENT, client_source())

    def start(self, port: int | None = None) -> str:
        """Start the service in the background unless it runs; returns a text that says how it runs.

        Its address is recorded once it answers there, so that a failed start changes nothing for hooks.
        """
        found = self.running()
        if found is not None:
            address = found[1].partition("//")[2]
            if port and not address.endswith(f":{port}"):
                raise ConfigError(
                    f"this user's server runs at {found[1]}; to move it: trustfold up --stop; "
                    f"trustfold up --detach --port {port}"
                )
            if not self._is_outdated():
                self.prepare(address)
                return f"already running at {found[1]}"
            self.stop()
        for name, extra in EXTRAS.items():  # before a file is written
            if extra == "web" and find_spec(name) is None:
                raise NotInstalled("the server", ImportError(f"No module named '{name}'", name=name))
        address = self._free_address(port)
        self.prepare()
        try:
            how = self._start_unit(address) or self._start_process(address)
        except ConfigError:
            if port or self.address or _is_free(int(address.rpartition(":")[2])):
                raise
            how = self._start_process(self._free_address(None))  # another program was quicker at that port
        if (found := self.running()) is not None:  # possibly one that was started at the same time
            self.prepare(found[1].partition("//")[2])
        return how

    def _is_outdated(self) -> bool:
        """Whether the running server is what an upgrade or a removal of its installation has left behind."""
        about = self.about()
        if about is None or about.is_this or not about.installation:
            return False
        return about.installation == str(INSTALLATION) or not Path(about.installation).exists()

    def _start_unit(self, address: str) -> str:
        """Start the service as a systemd unit; returns how it runs, empty if that is impossible here."""
        if not self._systemd("show-environment"):
            return ""
        make_directory(self._unit_file.parent)
        replace_file(self._unit_file, unit_text(self.secrets_file, self._command(address)))
        if self._systemd("daemon-reload") and self._systemd("enable", "--now", UNIT) and self._started_in_time():
            return "a systemd unit of this user; it restarts after a reboot"
        self._systemd("disable", "--now", UNIT)
        return ""

    def _start_process(self, address: str) -> str:
        """Start the service as a process of its own; returns how it runs."""
        environ = {name: value for name, value in self._environ.items() if not name.startswith("TRUSTFOLD_")}
        log = self.home / "up.log"
        descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "wb") as output:
            process = subprocess.Popen(  # noqa: S603 - runs trustfold itself
                self._command(address),
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
        """Stop the service, also one that does not answer; returns True if it ran. What it acknowledged is kept."""
        found = running_at(self.store) if self._is_held() else None
        if self._unit_file.exists():
            self._systemd("disable", "--now", UNIT)
            self._unit_file.unlink(missing_ok=True)
            self._systemd("daemon-reload")
        if found is None:
            return False
        for number, patience in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[0], number)
                os.kill(found[0], signal.SIGCONT)
            until = time.monotonic() + patience
            while time.monotonic() < until:
                if not self._is_held():
                    return True
                time.sleep(0.05)
        raise ConfigError(f"the server at {self.address} does not stop; its log is {self.home / 'up.log'}")

    def _is_held(self) -> bool:
        """Whether a process holds the store, whatever its lock file says."""
        try:
            with self.store.with_name(f"{self.store.name}.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _free_address(self, port: int | None) -> str:
        """Address to start at: the given port, else that of the last start, else any free one."""
        if port is None and not self.address:
            return f"{HOST}:{_free_port()}"
        address = f"{HOST}:{port}" if port else self.address
        if not _is_free(int(address.rpartition(":")[2])):
            other = 8322 if address.endswith(":8321") else 8321
            raise ConfigError(
                f"another program listens at {address}; choose another port: trustfold up --detach --port {other}"
            )
        return address

    def _command(self, address: str) -> list[str]:
        host, _, port = address.rpartition(":")
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
    def has_unit(self) -> bool:
        """Whether it is a systemd unit."""
        return self._unit_file.exists()

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
    default = EnvironmentSettings().port
    if _is_free(default):
        return default
    with socket.create_server((HOST, 0)) as listener:
        found: int = listener.getsockname()[1]
        return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


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
