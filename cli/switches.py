"""`trustfold remove`, `restore` and `breaker`: taking tools away, and handling circuits by hand."""

from __future__ import annotations

from typing import Any

import click

from ..config import Settings
from ..projections.calls.keys import has_scope
from ..schemas.commands import (
    BreakerClose,
    BreakerDisable,
    BreakerForceOpen,
    BreakerObserve,
    KeyCommand,
    ToolRemove,
    ToolRestore,
)
from ..schemas.errors import ConfigError
from ..schemas.outcomes import DEFAULT_WORKSPACE
from .clients.base import F, Target, keys_for_completion, target_of, target_options
from .orders import ask, envelope, tell


def _order_options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the decisions that this caused."),
        click.option("--reason", metavar="TEXT", help="Why; kept in history."),
        click.option("--workspace", metavar="ID", help="Workspace it is about. [env: TRUSTFOLD_WORKSPACE]"),
    ):
        command = option(command)
    return target_options(command)


_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@click.argument("tool", shell_complete=keys_for_completion)
@_order_options
@_yes
def remove(*, tool: str, yes: bool, **options: Any) -> None:
    """Take TOOL away: every call of it is refused until it is restored."""
    _give(ToolRemove, tool, options, question=f"Take {tool} away from every agent of workspace {{}}?", yes=yes)


@click.command()
@click.argument("tool", shell_complete=keys_for_completion)
@_order_options
def restore(*, tool: str, **options: Any) -> None:
    """Give a removed TOOL back, trusted and with a clean record."""
    _give(ToolRestore, tool, options)


@click.group()
def breaker() -> None:
    """Open, close, disable or only observe a circuit; KEY is a tool, or `service:NAME`, `tier:NAME`."""


@breaker.command("open")
@click.argument("key", shell_complete=keys_for_completion)
@_order_options
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Close it by itself after that.",
)
@_yes
def open_(*, key: str, seconds: float | None, yes: bool, **options: Any) -> None:
    """Stop all traffic through a circuit, until it is closed or the time is over."""
    question = f"Stop all calls through {key} in workspace {{}}?"
    _give(BreakerForceOpen, key, options, question=question, yes=yes, duration_s=seconds)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion)
@_order_options
@_yes
def close(*, key: str, yes: bool, **options: Any) -> None:
    """Close a circuit with clean windows, and have it enforced again after `disable` or `observe`."""
    del yes  # taken so that scripts may say it to every order; this one never asks
    _give(BreakerClose, key, options)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion)
@_order_options
@_yes
def disable(*, key: str, yes: bool, **options: Any) -> None:
    """Switch a circuit off: nothing is counted and nothing refused, until `breaker close`."""
    _give(
        BreakerDisable,
        key,
        options,
        question=f"Let every call through {key} in workspace {{}}, whatever happens?",
        yes=yes,
    )


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion)
@_order_options
@_yes
def observe(*, key: str, yes: bool, **options: Any) -> None:
    """Let a circuit count and report but never refuse, until `breaker close`."""
    del yes
    _give(BreakerObserve, key, options)


def _give(
    kind: type[KeyCommand], key: str, options: dict[str, Any], *, question: str = "", yes: bool = True, **fields: Any
) -> None:
    if not key.strip():
        raise ConfigError("the name is empty; say which tool or circuit, as `trustfold status` shows it")
    target = target_of(options["store"], options["url"], options["bootstrap"])
    workspace = _workspace(target, key, options["workspace"])
    if question:
        ask(question.format(workspace), yes=yes, why=f"this is about every agent of workspace {workspace}")
    about = key if has_scope(key) else f"tool:{key}" if issubclass(kind, _OF_CIRCUITS) else key
    command: Any = kind(**envelope(options["reason"]), key=about, workspace_id=workspace, **fields)
    tell(target, [command], as_json=options["as_json"], otherwise=f"{about} in workspace {workspace}: {_UNMOVED[kind]}")


_UNMOVED: dict[type[KeyCommand], str] = {
    ToolRemove: "it was removed already",
    ToolRestore: "it was not removed",
    BreakerForceOpen: "it was held open already; the time given now counts",
    BreakerClose: "it was closed already; it counts and enforces as its rules say",
    BreakerDisable: "it was closed already; from now on nothing is counted and nothing refused",
    BreakerObserve: "its state stays; from now on it counts and reports, and refuses nothing",
}
"""What to say of an order that moved no state: it may still have changed what the state means."""

_OF_CIRCUITS = (BreakerForceOpen, BreakerClose, BreakerDisable, BreakerObserve)


def _workspace(target: Target, key: str, named: str | None) -> str:
    """The workspace named, else the only one that knows the key, else the default.

    Raises:
        ConfigError: several know it.
    """
    chosen = named or Settings.from_env().workspace
    if chosen:
        return chosen
    states = target.overview().states
    places = sorted({str(one["workspace_id"]) for one in states if one.get("key") in {key, f"tool:{key}"}} - {"None"})
    if len(places) > 1:
        raise ConfigError(f"{key!r} is known in {', '.join(places)}; choose with --workspace")
    return places[0] if places else DEFAULT_WORKSPACE
