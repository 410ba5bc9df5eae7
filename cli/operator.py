"""`trustfold reset`, `recover`, `approve`, `remove`, `restore` and `breaker`: orders of operators.

Also the helpers that all orders share: the operator's name, the confirmation, and the report of the effect.
"""

from __future__ import annotations

import difflib
import getpass
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import click

from ..config import Settings
from ..errors import ConfigError, TrustfoldError
from ..projections.calls.keys import has_scope, in_quotes
from ..projections.orders import EVERYTHING, held, is_meant, trust_subjects
from ..schemas.commands import (
    BreakerClose,
    BreakerDisable,
    BreakerForceOpen,
    BreakerObserve,
    Command,
    KeyCommand,
    ToolRemove,
    ToolRestore,
    TrustApprove,
    TrustRecover,
    TrustReset,
)
from ..schemas.decision_text import line_of
from ..schemas.outcomes import DEFAULT_WORKSPACE
from .clients.base import F, Record, Target
from .clients.selection import keys_for_completion, stuck_keys_for_completion, target_of, target_options
from .render import echo, note, write_json
from .terminal import ELLIPSIS


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@target_options
@click.option("--workspace", metavar="ID", help="Workspace of the key. [env: TRUSTFOLD_WORKSPACE]")
@click.option("--reason", metavar="TEXT", help="Reason, recorded in the history.")
@click.option("--yes", is_flag=True, help="Reset everything without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print the resulting decisions as JSON.")
def reset(
    *,
    key: str,
    store: str | None,
    url: str | None,
    bootstrap: str | None,
    workspace: str | None,
    reason: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Restore KEY to trusted, even if blocked, and close its circuit; `all` resets every key.

    The name of a tool selects the tool and all its keys. Earlier failures no longer count.
    """
    target = target_of(store, url, bootstrap)
    states = _chosen(target.overview().states, key, workspace or Settings.from_env().workspace or None)
    if key == EVERYTHING:
        if not states:
            note("nothing to reset: every tool is trusted, every circuit closed")
            return
        ask(f"Reset {len(states)} keys and circuits at {target.name}?", yes=yes)
    circuits = [state for state in states if state["kind"] == "breaker"]
    commands: list[Command] = [
        *(TrustReset(**order) for order in _trust_orders(states, key, reason)),
        *(BreakerClose(**_envelope(state, reason)) for state in circuits),
    ]
    tell(target, commands, as_json=as_json, otherwise="no state changed; earlier failures no longer count")


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@target_options
@click.option("--workspace", metavar="ID", help="Workspace of the key. [env: TRUSTFOLD_WORKSPACE]")
@click.option("--reason", metavar="TEXT", help="Reason, recorded in the history.")
@click.option("--json", "as_json", is_flag=True, help="Print the resulting decisions as JSON.")
def recover(
    *,
    key: str,
    store: str | None,
    url: str | None,
    bootstrap: str | None,
    workspace: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Restore the trust of an escalated or recovering KEY. A blocked one needs `reset`."""
    target = target_of(store, url, bootstrap)
    states = _asking(_chosen(target.overview().states, key, workspace or Settings.from_env().workspace or None))
    tell(target, [TrustRecover(**order) for order in _trust_orders(states, key, reason)], as_json=as_json)


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@target_options
@click.option("--once", is_flag=True, required=True, expose_value=False, help="Let one call pass.")
@click.option(
    "--for",
    "expires_in_s",
    type=click.FloatRange(1, 86_400),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="How long the approval waits for that call.",
)
@click.option("--workspace", metavar="ID", help="Workspace of the key. [env: TRUSTFOLD_WORKSPACE]")
@click.option("--reason", metavar="TEXT", help="Reason, recorded in the history.")
@click.option("--json", "as_json", is_flag=True, help="Print the resulting decisions as JSON.")
def approve(
    *,
    key: str,
    expires_in_s: float,
    workspace: str | None,
    reason: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Approve one call of an escalated or recovering KEY in advance. Its trust does not change."""
    target = target_of(**where)
    states = _asking(_chosen(target.overview().states, key, workspace or Settings.from_env().workspace or None))
    orders = _trust_orders(states, key, reason)
    commands = [TrustApprove(**order, expires_in_s=expires_in_s) for order in orders]
    tell(target, commands, as_json=as_json, otherwise="one call is approved, unless another key or circuit stops it")


def _asking(states: Sequence[Record]) -> list[Record]:
    """Trust states that an order about a key applies to.

    Raises:
        TrustfoldError: every key that is not trusted is blocked or removed.
    """
    trust = [one for one in states if one["kind"] == "trust"]
    away = [one for one in trust if one["state"] != "trusted"]
    stuck = [one for one in away if one["state"] in {"blocked", "removed"}]
    if stuck and len(stuck) == len(away):
        name, word = stuck[0]["key"], stuck[0]["state"]
        way = f"`trustfold reset {in_quotes(name)}` unblocks it" if word == "blocked" else "restore it first"
        raise TrustfoldError(f"{name} is {word}; {way}")
    return trust


def _chosen(states: Sequence[Record], key: str, workspace: str | None) -> list[Record]:
    """States that an order applies to.

    Raises:
        ConfigError: the key is unknown, or several workspaces have it.
    """
    here = held(states, workspace)
    if key == EVERYTHING:
        return here
    known = sorted({str(one["key"]) for one in here})
    meant = _whole(key, known)
    found = [one for one in here if is_meant(str(one["key"]), meant)]
    if not found:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "`trustfold status --all` lists the known keys"
        where = f" in workspace {workspace}" if workspace else ""
        raise ConfigError(f"{key!r}{where} has no state to change; {hint}")
    places = sorted({str(one.get("workspace_id", "")) for one in found})
    if len(places) > 1:
        raise ConfigError(f"{key!r} is known in {', '.join(places)}; choose with --workspace")
    return found


def _whole(key: str, known: Sequence[str]) -> str:
    """The full key; a key abbreviated by a narrow table is resolved if only one known key matches."""
    if ELLIPSIS not in key or key in known:
        return key
    head, _, tail = key.partition(ELLIPSIS)
    fitting = [one for one in known if one.startswith(head) and one.endswith(tail) and len(one) > len(key)]
    return fitting[0] if len(fitting) == 1 else key


def _trust_orders(states: Sequence[Record], key: str, reason: str | None) -> list[dict[str, Any]]:
    """Commands about the trust of states."""
    return [
        envelope(reason) | {"key": name, "workspace_id": workspace} for workspace, name in trust_subjects(states, key)
    ]


def _envelope(state: Record, reason: str | None) -> dict[str, Any]:
    return envelope(reason) | {"key": str(state["key"]), "workspace_id": state.get("workspace_id")}


def envelope(reason: str | None = None) -> dict[str, Any]:
    """Fields common to all commands and changes of settings."""
    return {
        "schema_version": "1.0",
        "id": str(uuid4()),
        "time": datetime.now(UTC),
        "issued_by": operator_name(),
        "reason": reason,
    }


def tell(target: Target, commands: Sequence[Command], *, as_json: bool, otherwise: str = "no state changed") -> None:
    """Send orders and print the resulting decisions, or `otherwise` if there are none."""
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
    """Ask for confirmation of an order that is hard to undo, unless `yes`.

    Raises:
        ConfigError: standard input is not a terminal.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{why}; add --yes to skip the question")
    click.confirm(question, abort=True, err=True)


def operator_name() -> str | None:
    """Login name of the user who runs the command; None if unknown."""
    try:
        return getpass.getuser()[:256]
    except (OSError, KeyError):
        return None


def _order_options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the resulting decisions as JSON."),
        click.option("--reason", metavar="TEXT", help="Reason, recorded in the history."),
        click.option("--workspace", metavar="ID", help="Workspace of the key. [env: TRUSTFOLD_WORKSPACE]"),
    ):
        command = option(command)
    return target_options(command)


_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@click.argument("tool", shell_complete=keys_for_completion)
@_order_options
@_yes
def remove(*, tool: str, yes: bool, **options: Any) -> None:
    """Refuse all calls of TOOL until it is restored."""
    _give(ToolRemove, tool, options, question=f"Take {tool} away from every agent of workspace {{}}?", yes=yes)


@click.command()
@click.argument("tool", shell_complete=keys_for_completion)
@_order_options
def restore(*, tool: str, **options: Any) -> None:
    """Allow calls of a removed TOOL again, trusted and with its earlier failures cleared."""
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
    help="Close it after this time.",
)
@_yes
def open_(*, key: str, seconds: float | None, yes: bool, **options: Any) -> None:
    """Stop all calls through a circuit until it is closed or the time is over."""
    question = f"Stop all calls through {key} in workspace {{}}?"
    _give(BreakerForceOpen, key, options, question=question, yes=yes, duration_s=seconds)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion)
@_order_options
@_yes
def close(*, key: str, yes: bool, **options: Any) -> None:
    """Close a circuit with clean windows, and enforce it again after `disable` or `observe`."""
    del yes  # accepted so that scripts can pass it to every order; this one never asks
    _give(BreakerClose, key, options)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion)
@_order_options
@_yes
def disable(*, key: str, yes: bool, **options: Any) -> None:
    """Disable a circuit: nothing is counted or refused until `breaker close`."""
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
        raise ConfigError("the name is empty; give a tool or circuit as `trustfold status` shows it")
    target = target_of(options["store"], options["url"], options["bootstrap"])
    workspace = _workspace(target, key, options["workspace"])
    if question:
        ask(question.format(workspace), yes=yes, why=f"this affects every agent of workspace {workspace}")
    about = key if has_scope(key) else f"tool:{key}" if issubclass(kind, _OF_CIRCUITS) else key
    command: Any = kind(**envelope(options["reason"]), key=about, workspace_id=workspace, **fields)
    tell(target, [command], as_json=options["as_json"], otherwise=f"{about} in workspace {workspace}: {_UNMOVED[kind]}")


_UNMOVED: dict[type[KeyCommand], str] = {
    ToolRemove: "it was already removed",
    ToolRestore: "it was not removed",
    BreakerForceOpen: "it was already held open; the new time applies",
    BreakerClose: "it was already closed; it counts and enforces by its rules",
    BreakerDisable: "it was already closed; from now on nothing is counted or refused",
    BreakerObserve: "its state is unchanged; from now on it counts and reports, but refuses nothing",
}
"""Messages for orders that change no state, but may change how the state is enforced."""

_OF_CIRCUITS = (BreakerForceOpen, BreakerClose, BreakerDisable, BreakerObserve)


def _workspace(target: Target, key: str, named: str | None) -> str:
    """The given workspace, else the only one that has the key, else the default.

    Raises:
        ConfigError: several have it.
    """
    chosen = named or Settings.from_env().workspace
    if chosen:
        return chosen
    states = target.overview().states
    places = sorted({str(one["workspace_id"]) for one in states if one.get("key") in {key, f"tool:{key}"}} - {"None"})
    if len(places) > 1:
        raise ConfigError(f"{key!r} is known in {', '.join(places)}; choose with --workspace")
    return places[0] if places else DEFAULT_WORKSPACE
