"""`trustfold reset`, `recover`, `approve`, `remove`, `restore` and `breaker`: orders of operators.

Also what all orders share: who gives them, the confirmation, and the report of their effect.
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
@click.option("--workspace", metavar="ID", help="Workspace it is about. [env: TRUSTFOLD_WORKSPACE]")
@click.option("--reason", metavar="TEXT", help="Why; kept in history.")
@click.option("--yes", is_flag=True, help="Do not ask before resetting everything.")
@click.option("--json", "as_json", is_flag=True, help="Print the decisions that this caused.")
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
    """Restore clean trust of KEY, blocked or not, and close its circuit; `all` resets every key.

    The name of a tool selects the tool and all of its keys. Older failures never count again.
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
    tell(target, commands, as_json=as_json, otherwise="no state changed; older failures are forgotten")


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@target_options
@click.option("--workspace", metavar="ID", help="Workspace it is about. [env: TRUSTFOLD_WORKSPACE]")
@click.option("--reason", metavar="TEXT", help="Why; kept in history.")
@click.option("--json", "as_json", is_flag=True, help="Print the decisions that this caused.")
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
@click.option("--workspace", metavar="ID", help="Workspace it is about. [env: TRUSTFOLD_WORKSPACE]")
@click.option("--reason", metavar="TEXT", help="Why; kept in history.")
@click.option("--json", "as_json", is_flag=True, help="Print the decisions that this caused.")
def approve(
    *,
    key: str,
    expires_in_s: float,
    workspace: str | None,
    reason: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Let one call of an escalated or recovering KEY pass without a question. Its trust stays as it is."""
    target = target_of(**where)
    states = _asking(_chosen(target.overview().states, key, workspace or Settings.from_env().workspace or None))
    orders = _trust_orders(states, key, reason)
    commands = [TrustApprove(**order, expires_in_s=expires_in_s) for order in orders]
    tell(target, commands, as_json=as_json, otherwise="one call may pass, if nothing else is held against it")


def _asking(states: Sequence[Record]) -> list[Record]:
    """The states of trust among those that an order is about.

    Raises:
        TrustfoldError: all that is not trusted is blocked or removed.
    """
    trust = [one for one in states if one["kind"] == "trust"]
    away = [one for one in trust if one["state"] != "trusted"]
    stuck = [one for one in away if one["state"] in {"blocked", "removed"}]
    if stuck and len(stuck) == len(away):
        name, word = stuck[0]["key"], stuck[0]["state"]
        way = f"`trustfold reset {in_quotes(name)}` unblocks it" if word == "blocked" else "it has to be restored first"
        raise TrustfoldError(f"{name} is {word}; {way}")
    return trust


def _chosen(states: Sequence[Record], key: str, workspace: str | None) -> list[Record]:
    """The states an order is about.

    Raises:
        ConfigError: nothing is known of the key, or several workspaces have it.
    """
    here = held(states, workspace)
    if key == EVERYTHING:
        return here
    known = sorted({str(one["key"]) for one in here})
    meant = _whole(key, known)
    found = [one for one in here if is_meant(str(one["key"]), meant)]
    if not found:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "`trustfold status --all` lists what is known"
        where = f" in workspace {workspace}" if workspace else ""
        raise ConfigError(f"nothing is held against {key!r}{where}; {hint}")
    places = sorted({str(one.get("workspace_id", "")) for one in found})
    if len(places) > 1:
        raise ConfigError(f"{key!r} is known in {', '.join(places)}; choose with --workspace")
    return found


def _whole(key: str, known: Sequence[str]) -> str:
    """A key as it is; of one that a narrow table has cut in the middle, the only known key that it can be."""
    if ELLIPSIS not in key or key in known:
        return key
    head, _, tail = key.partition(ELLIPSIS)
    fitting = [one for one in known if one.startswith(head) and one.endswith(tail) and len(one) > len(key)]
    return fitting[0] if len(fitting) == 1 else key


def _trust_orders(states: Sequence[Record], key: str, reason: str | None) -> list[dict[str, Any]]:
    """Envelopes of orders about the trust of states."""
    return [
        envelope(reason) | {"key": name, "workspace_id": workspace} for workspace, name in trust_subjects(states, key)
    ]


def _envelope(state: Record, reason: str | None) -> dict[str, Any]:
    return envelope(reason) | {"key": str(state["key"]), "workspace_id": state.get("workspace_id")}


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
    """Refuse every call of TOOL until it is restored."""
    _give(ToolRemove, tool, options, question=f"Take {tool} away from every agent of workspace {{}}?", yes=yes)


@click.command()
@click.argument("tool", shell_complete=keys_for_completion)
@_order_options
def restore(*, tool: str, **options: Any) -> None:
    """Allow the calls of a removed TOOL again, trusted and with a clean record."""
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
    """Stop all traffic through a circuit, until it is closed or the time has passed."""
    question = f"Stop all calls through {key} in workspace {{}}?"
    _give(BreakerForceOpen, key, options, question=question, yes=yes, duration_s=seconds)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion)
@_order_options
@_yes
def close(*, key: str, yes: bool, **options: Any) -> None:
    """Close a circuit with clean windows, and enforce it again after `disable` or `observe`."""
    del yes  # taken so that scripts may say it to every order; this one never asks
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
