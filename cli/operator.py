"""`trustfold reset`, `recover` and `approve`: orders that give trust back, or let one call pass."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import click

from ..config import Settings
from ..projections.calls.keys import in_quotes
from ..projections.orders import EVERYTHING, held, is_meant, trust_subjects
from ..schemas.commands import BreakerClose, Command, TrustApprove, TrustRecover, TrustReset
from ..schemas.errors import ConfigError, TrustfoldError
from .clients.base import Record, stuck_keys_for_completion, target_of, target_options
from .key_text import ELLIPSIS
from .orders import ask, envelope, tell
from .render import note


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
    """Give KEY clean trust again, blocked or not, and close its circuit; `all` does it for every key.

    The name of a tool stands for the tool and all of its keys. Older failures never count again.
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
    """Restore the trust of KEY, which is escalated or recovering. Does not unblock: that takes `reset`."""
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
    """Let one call of KEY pass, which is escalated or recovering. Its trust stays as it is."""
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
