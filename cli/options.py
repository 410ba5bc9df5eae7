"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from ..config import DEFAULT_DB
from .clients.selection import target_of

F = TypeVar("F", bound=Callable[..., Any])


def combined(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Decorator that adds several options, in this order in the help."""

    def decorated(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def json_option(text: str = "One JSON document.") -> Callable[[F], F]:
    """Decorator: adds `--json` with a help text; the command gets it as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def bootstrap_option(default: str = "") -> Callable[[F], F]:
    """Decorator: adds `--bootstrap`; `default` says in the help what holds without it."""
    known = f"; {default}" if default else ""
    return click.option("--bootstrap", metavar="HOST:PORT", help=f"Kafka broker. [env: TRUSTFOLD_BROKER{known}]")


def workspace_option(text: str = "Workspace of the key. [env: TRUSTFOLD_WORKSPACE]") -> Callable[[F], F]:
    """Decorator: adds `--workspace` with a help text."""
    return click.option("--workspace", metavar="ID", help=text)


reason_option = click.option("--reason", metavar="TEXT", help="Reason, recorded in the history.")

store_option = click.option(
    "--store", metavar="FILE", help=f"Store of the embedded engine. [env: TRUSTFOLD_DB; default: {DEFAULT_DB}]"
)

# Decorator: adds the options that select the target
target_options = combined(
    store_option,
    click.option("--url", metavar="URL", help="Address of a running `up`. [env: TRUSTFOLD_URL]"),
    bootstrap_option(),
)

# Decorator: adds the options for the files of rules and policies
rules_options = combined(
    click.option("--rules", "rules_file", metavar="FILE", help="Rules file, TOML or JSON. [env: TRUSTFOLD_RULES]"),
    click.option("--policies", "policies_file", metavar="FILE", help="Policies file. [env: TRUSTFOLD_POLICIES]"),
)

# Decorator: adds the options for the address of a server
listen_options = combined(
    click.option(
        "--host",
        metavar="ADDRESS",
        help="Address to listen on; other machines need TRUSTFOLD_TOKEN. [env: TRUSTFOLD_HOST; default: 127.0.0.1]",
    ),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        help="Port to listen on, 0 for any. [env: TRUSTFOLD_PORT; default: 8321]",
    ),
)


def with_target(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: adds the options that select the target; the command gets its client as `target`."""

    @wraps(command)
    def selecting(*arguments: Any, store: str | None, url: str | None, bootstrap: str | None, **options: Any) -> None:
        command(*arguments, target=target_of(store, url, bootstrap), **options)

    return target_options(selecting)
