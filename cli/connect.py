"""`trustfold connect`: installs and removes hooks of a coding agent that call this user's `trustfold up`."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
import tomllib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..config import INSTALLATION
from ..errors import ConfigError
from ..integrations.agent_config import (
    AGENTS,
    CLIENT,
    HookLink,
    connected,
    disconnected,
    handlers,
    is_connected,
    mcp_places,
    place_of,
    switched_off,
)
from ..security.private_files import locked, replace_file
from .operator import ask
from .origin import refuse_agents
from .render import echo, note, note_any
from .service import UserService

# Manual steps that remain for the user, by agent
NEXT_STEP = {
    "codex": "Codex asks once before it runs new hooks: start `codex`, type /hooks and trust them "
    "(`codex exec` skips them until then)",
    "gemini": "in a project's own settings hooks run only where the folder is trusted",
    "copilot": "in a project's own folder hooks run only where the folder is trusted",
}

BACKUP = ".before-trustfold"


@click.command()
@click.argument("agent", type=click.Choice(AGENTS))
@click.option("--project", metavar="DIR", type=click.Path(path_type=Path), help="Only for the project in this folder.")
@click.option("--user", is_flag=True, help="For all projects of this user; the default.")
@click.option("--remove", is_flag=True, help="Remove the hooks.")
@click.option("--print", "show", is_flag=True, help="Only print the file; write and start nothing.")
@click.option("--shadow", is_flag=True, help="Only observe; `trustfold status` shows the decisions it would have made.")
@click.option("--yes", is_flag=True, help="Change a read-only file without asking.")
def connect(*, agent: str, project: Path | None, user: bool, remove: bool, show: bool, shadow: bool, yes: bool) -> None:
    """Connect a coding agent: its hooks report every call and deliver nudges and refusals.

    Writes the agent's own configuration, with one backup beside it, and starts `trustfold up` in the background if it
    does not run. If trustfold does not answer, the agent works as without hooks.
    """
    if user and project is not None:
        raise click.UsageError("--user and --project name different places; give one of them")
    if project is not None and not project.is_dir():
        raise ConfigError(f"{project} is not a folder; name the root of a project")
    service = UserService()
    file = Path(os.path.realpath(place_of(agent, project, os.environ, Path.home())))
    connections = ConnectionFile(service.home)
    if remove:
        refuse_agents()
        gone = connections.remove(agent, file)
        note(f"{file}: trustfold's hooks removed" if gone else f"{file}: has no hooks of trustfold")
        return
    before, link = _read(file), _link(service, shadow=shadow)
    try:
        wanted = connected(agent, before, link)  # before anything is started
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    if show:
        echo(wanted, nl=False)
        return
    if shadow:
        refuse_agents()
    how = service.start()
    if wanted != before:
        _ask_about_read_only(file, yes=yes)
    changed = connections.write(agent, file, link)
    note(f"{file}: {'connected' if changed else 'already connected; nothing was changed'}")
    if shadow:
        note(
            "in shadow mode: it observes and says nothing; `trustfold status` shows what it would have said; "
            f"to enforce: {command_of(agent, file)}"
        )
    note(f"trustfold up: {how}")
    note_any(_other_server(service))
    if agent in NEXT_STEP and (agent == "codex" or project is not None):
        note(NEXT_STEP[agent])
    if twice := double_count_warning(agent):
        note(twice)
    note("`trustfold status` shows what is not trusted, `trustfold doctor` whether hooks arrive")


def command_of(agent: str, file: Path, *, shadow: bool = False) -> str:
    """The command that connects an agent by a file, ready for a shell."""
    words = ["trustfold", "connect", agent]
    folders = (folder for folder in file.parents if place_of(agent, folder, {}, Path.home()) == file)
    if file != Path(os.path.realpath(place_of(agent, None, os.environ, Path.home()))) and (
        found := next(folders, None)
    ):
        words += ["--project", str(found)]
    return shlex.join([*words, *(["--shadow"] if shadow else [])])


def _ask_about_read_only(file: Path, *, yes: bool) -> None:
    """Ask before a file is changed that its owner has made read-only.

    Raises:
        ConfigError: nobody can be asked.
        click.Abort: the answer is no.
    """
    if file.exists() and not file.stat().st_mode & stat.S_IWUSR:
        why = f"{file} is read-only, and nothing was changed"
        ask(f"{file} is read-only. Change it nevertheless?", yes=yes, why=why)


def _other_server(service: UserService) -> str:
    """Text about a running server of another installation or version; empty if it is of this one."""
    about = service.about()
    if about is None or about.is_this:
        return ""
    return (
        f"the server that runs is trustfold {about.version or 'of an earlier version'}"
        f"{f' of {about.installation}' if about.installation else ''}, and this is {__version__} of {INSTALLATION}; "
        "to run this one: trustfold up --stop; trustfold up --detach"
    )


def double_count_warning(agent: str) -> str:
    """Warning if a connected agent also runs an MCP server behind `trustfold mcp-proxy`; else an empty text."""
    for file in mcp_places(agent, Path.cwd(), os.environ, Path.home()):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if "mcp-proxy" in text and "trustfold" in text:
            return (
                f"{agent} runs an MCP server behind `trustfold mcp-proxy` ({file}) and reports its calls by hooks as "
                "well: they count twice; remove one of the two"
            )
    return ""


class ConnectionFile:
    """Record of what was written into which file, so that removing it restores the file."""

    def __init__(self, home: Path) -> None:
        """Keep the record in a folder."""
        self._file = home / "connections.json"

    def known(self) -> dict[str, dict[str, Any]]:
        """Connections by file: `agent`, digest of what was `written`, whether the file `existed`, folders `made`."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, agent: str, file: Path, link: HookLink) -> bool:
        """Write the hooks into a file; returns True if that changed it."""
        text, record = _read(file), self.known().get(str(file), {})
        if file.exists() and connected(agent, text, link) == text:
            return False
        untouched = record.get("written") == _digest(text)
        existed = (
            record.get("existed", False)
            if untouched
            else file.exists() and (not text or bool(disconnected(agent, text)))
        )
        base = _read(_backup(file)) if untouched else disconnected(agent, text)
        new = connected(agent, base, link)
        try:
            made = record.get("made", []) if untouched else _make_folders(file.parent)
            mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
            if existed and not untouched:
                replace_file(_backup(file), base, mode)
            replace_file(file, new, mode)
        except OSError as error:
            raise ConfigError(f"{file} cannot be written ({error.strerror})") from error
        self._remember(file, {"agent": agent, "written": _digest(new), "existed": existed, "made": made})
        return True

    def remove(self, agent: str, file: Path) -> bool:
        """Remove the hooks from a file; returns True if there were any."""
        text, record = _read(file), self.known().get(str(file), {})
        if not file.exists() or not _is_connected(agent, text):
            self._remember(file, None)
            return False
        try:
            if record.get("written") == _digest(text) and record["existed"]:
                _backup(file).replace(file)
            else:
                left = disconnected(agent, text)
                if left.strip() and (record.get("existed", True) or not _is_empty_settings(left)):
                    replace_file(file, left, file.stat().st_mode & 0o777)
                else:
                    file.unlink()
                _backup(file).unlink(missing_ok=True)
            for folder in record.get("made", []):
                _remove_empty(Path(folder))
        except OSError as error:
            raise ConfigError(f"{file} cannot be written ({error.strerror})") from error
        self._remember(file, None)
        return True

    def everywhere(self, usual: Sequence[tuple[str, Path]]) -> list[tuple[str, Path]]:
        """Agent and file of each connection, and of the `usual` ones that hold hooks of trustfold."""
        known = [(str(one.get("agent")), Path(path)) for path, one in self.known().items()]
        also = [place for place in usual if place not in known]
        return [(agent, file) for agent, file in known + also if _is_connected(agent, _text_of(file))]

    def in_shadow(self) -> dict[str, bool]:
        """By agent, whether all of its connections only observe."""
        found: dict[str, bool] = {}
        for path, one in self.known().items():
            agent = str(one.get("agent"))
            found[agent] = found.get(agent, True) and _observes(Path(path))
        return found

    def faults(self) -> list[tuple[str, str, str]]:
        """Each connection: agent, file, and why its hooks cannot reach the server; empty if they can."""
        return [
            (str(one.get("agent")), path, _fault(str(one.get("agent")), Path(path)))
            for path, one in self.known().items()
        ]

    def _remember(self, file: Path, record: dict[str, Any] | None) -> None:
        if record is None and str(file) not in self.known():
            return
        with locked(self._file.parent):
            known = self.known()
            known.pop(str(file), None)
            if record is not None:
                known[str(file)] = record
            replace_file(self._file, json.dumps(known, indent=2) + "\n")


def _link(service: UserService, *, shadow: bool) -> HookLink:
    return HookLink(service.home, sys.executable, shadow)


def _observes(file: Path) -> bool:
    text = _text_of(file)
    return "?shadow=1" in text or (CLIENT in text and " --shadow " in text)


def _fault(agent: str, file: Path) -> str:
    try:
        text = _read(file)
    except ConfigError as error:
        return str(error)
    if not _is_connected(agent, text):
        return "trustfold's entries are gone"
    if agent == "codex" and _codex_is_off(file.with_name("config.toml")):
        return "`hooks = false` in config.toml switches hooks off"
    if off := switched_off(agent, text):
        return f"`{off}` switches hooks off"
    return next((reason for one in handlers(text) if (reason := _outdated(one))), "")


def _outdated(handler: dict[str, Any]) -> str:
    """Why a hook of trustfold does not reach the server as it should: it is an older one, or its files moved."""
    if url := handler.get("url"):
        return f"an earlier version wrote trustfold's entries: they send the token to whatever listens at {url}"
    words = shlex.split(handler.get("command") or handler.get("bash") or "")
    gone = [word for word in words[:1] + words[3:4] if not Path(word).exists()]
    return f"trustfold's entries run a file that is missing ({gone[0]})" if gone else ""


def _codex_is_off(config: Path) -> bool:
    try:
        features = tomllib.loads(config.read_text(encoding="utf-8")).get("features", {})
    except (OSError, ValueError):
        return False
    return isinstance(features, dict) and features.get("hooks") is False


def _is_connected(agent: str, text: str) -> bool:
    try:
        return is_connected(agent, text)
    except ValueError:
        return False


def _is_empty_settings(text: str) -> bool:
    try:
        return json.loads(text) in ({}, {"version": 1})
    except ValueError:
        return False


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{file} cannot be read ({why}); correct it first") from error


def _text_of(file: Path) -> str:
    """Text of a file; empty if it cannot be read."""
    try:
        return _read(file)
    except ConfigError:
        return ""


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _backup(file: Path) -> Path:
    return file.with_name(file.name + BACKUP)


def _make_folders(folder: Path) -> list[str]:
    """Make a folder and those above it; returns those that were made, innermost first."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir()
    return [str(one) for one in missing]


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # the folder holds other files
        return
