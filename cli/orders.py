"""What all orders share: who gives them, asking first, and saying what came of them."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import click

from ..schemas.commands import Command
from ..schemas.decision_text import line_of
from ..schemas.errors import ConfigError
from .clients.base import Target
from .render import echo, note, write_json


def envelope(reason: str | None = None) -> dict[str, Any]:
    """Fields that every order and every change of settings carries."""
    return {
        "schema_version": "1.0",
        "id": str(uuid4()),
        "time": datetime.now(UTC),
        "issued_by": operator_name(),
        "reason": reason,
    }


def tell(target: Target, commands: Sequence[Command], *, as_json: bool, otherwise: str = "no state changed") -> None:
    """Send orders and say what came of them; `otherwise` where nothing did."""
    decisions = target.order(commands)
    if as_json:
        write_json({"sent": len(commands), "decisions": decisions})
        return
    if decisions is None:
        note(f"sent to {target.name}; the workers apply it as they read it, `trustfold status` shows it")
        return
    for decision in decisions:
        line = line_of(decision)
        echo(f"{line.mark} {line.what}: {line.why}")
    if not decisions:
        note(otherwise)


def ask(question: str, *, yes: bool, why: str = "this changes more than one key") -> None:
    """Ask before something that is not easily undone, unless told not to.

    Raises:
        ConfigError: nobody is there to be asked.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{why}; add --yes to do it without being asked")
    click.confirm(question, abort=True, err=True)


def operator_name() -> str | None:
    """Name of whoever runs the command; None where the machine does not say."""
    try:
        return getpass.getuser()[:256]
    except (OSError, KeyError):
        return None
