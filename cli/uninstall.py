"""`trustfold uninstall`: removes the hooks of all agents, the service and its data."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import click

from ..errors import TrustfoldError
from ..integrations.agent_config import AGENTS, place_of
from .connect import ConnectionFile
from .operator import ask
from .origin import refuse_agents
from .render import echo, note
from .service import UserService


@click.command()
@click.option("--keep-data", is_flag=True, help="Keep the store with everything that was recorded, and the tokens.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall(*, keep_data: bool, dry_run: bool, yes: bool) -> None:
    """Remove trustfold from this user's agents: their hooks, the server in the background, and its data.

    Stores of projects (`.trustfold/`) and the program itself stay.
    """
    service = UserService()
    connections = ConnectionFile(service.home)
    hooks = connections.everywhere([_place(agent) for agent in AGENTS])
    running, unit, data = service.running(), service.has_unit, service.home.is_dir() and not keep_data
    plan = [f"remove the hooks of {agent} from {file}" for agent, file in hooks]
    plan += [f"stop the server at {running[1]}"] if running else []
    plan += ["remove its systemd unit"] if unit else []
    plan += [f"delete {service.home}: {_size(service.home)}, with everything that was recorded"] if data else []
    for line in plan:
        echo(line)
    if not plan:
        note("nothing of trustfold is installed for this user")
    elif not dry_run:
        refuse_agents()
        ask("Do this?", yes=yes, why="this removes hooks and data")
        failed = [fault for agent, file in hooks if (fault := _removed(connections, agent, file))]
        if failed:
            raise TrustfoldError(f"{'; '.join(failed)}; correct that and try again: nothing else was removed")
        if running or unit:
            service.stop()
        while data and service.home.exists():
            with contextlib.suppress(FileNotFoundError):  # a server that stops removes its socket meanwhile
                shutil.rmtree(service.home)
        note(f"done; `{_program_removal()}` removes the program" + ("" if data else f"; {service.home} is kept"))


def _program_removal() -> str:
    """The command that removes the program, by what installed it."""
    parts = Path(sys.prefix).parts
    tool = "uv tool" if ("uv", "tools") in pairwise(parts) else "pipx" if "pipx" in parts else "pip"
    return f"{tool} uninstall trustfold"


def _place(agent: str) -> tuple[str, Path]:
    return agent, Path(os.path.realpath(place_of(agent, None, os.environ, Path.home())))


def _removed(connections: ConnectionFile, agent: str, file: Path) -> str:
    """Remove the hooks from a file; returns why that failed, empty if it did not."""
    try:
        connections.remove(agent, file)
    except TrustfoldError as error:
        return str(error)
    return ""


def _size(folder: Path) -> str:
    """Total size of the files in a folder, as text."""
    total = 0
    for one in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a server that runs removes files meanwhile
            total += 0 if one.is_dir() else one.lstat().st_size
    return f"{total / 1024**2:,.1f} MiB"
