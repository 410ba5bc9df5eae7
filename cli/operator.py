"""`trustfold reset`, `recover`, `approve`, `acknowledge`, `remove`, `restore` and `breaker`: orders of operators.

Also the helpers that all orders share: the operator's name, the confirmation, and the report of the effect.
"""

from __future__ import annotations

import difflib
import getpass
import shlex
import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import click

from ..config import EnvironmentSettings
from ..errors import ConfigError, TrustfoldError
from ..ingest.workspaces import workspace_of
from ..projections.calls.attempt import danger_of_key
from ..projections.calls.keys import has_scope, in_quotes
from ..projections.incidents import NEEDED
from ..projections.orders import EVERYTHING, held, is_affected, trust_subjects
from ..schemas.commands import (
    BreakerClose,
    BreakerDisable,
    BreakerForceOpen,
    BreakerObserve,
    Command,
    IncidentAcknowledge,
    KeyCommand,
    ToolRemove,
    ToolRestore,
    TrustApprove,
    TrustRecover,
    TrustReset,
)
from ..schemas.outcomes import DEFAULT_WORKSPACE
from ..schemas.public_state import BreakerUpdated, TrustUpdated
from ..schemas.vocabulary import PatternSeverity, TrustState
from .clients.client import DeploymentClient, Record
from .clients.selection import keys_for_completion, stuck_keys_for_completion
from .options import json_option, reason_option, with_target, workspace_option
from .render import echo, note, write_json
from .service import UserService
from .terminal import ELLIPSIS


class OrderOptions(NamedTuple):
    """Options that all orders share."""

    target: DeploymentClient
    workspace: str | None  # workspace of the key; None if neither the option nor the environment names one
    reason: str | None
    as_json: bool

    def fields(self, key: str, workspace: str | None) -> dict[str, Any]:
        """Fields of a command about a key."""
        return envelope(self.reason) | {"key": key, "workspace_id": workspace}

    def trust_fields(self, states: Sequence[TrustUpdated | BreakerUpdated], key: str) -> list[dict[str, Any]]:
        """Fields of each command about the trust of states."""
        return [self.fields(name, workspace) for workspace, name in trust_subjects(states, key)]

    def send(self, commands: Sequence[Command], *, otherwise: str = "no state changed", done: str = "") -> None:
        """Send commands and print the resulting decisions, or `otherwise` if there are none, and what is done."""
        decisions = self.target.order(commands)
        if self.as_json:
            write_json({"sent": len(commands), "decisions": decisions and [one.record for one in decisions]})
            return
        if decisions is None:
            note(f"sent to {self.target.name}; the workers apply it as they read it, `trustfold status` shows it")
            return
        for decision in decisions:
            echo(f"{decision.line.mark} {decision.line.what}: {decision.line.why}")
        if done or not decisions:
            note(done or otherwise)


def _refuse_empty(_context: click.Context, _argument: click.Parameter, name: str) -> str:
    """Callback of an argument: returns the name of a tool or circuit."""
    if not name.strip():
        raise ConfigError("the name is empty; give a tool or circuit as `trustfold status` shows it")
    return name


def _order_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: adds the options that all orders share; the command gets them as `order`."""

    @with_target
    @workspace_option()
    @reason_option
    @json_option("Print the resulting decisions as JSON.")
    @wraps(command)
    def ordering(
        *, target: DeploymentClient, workspace: str | None, reason: str | None, as_json: bool, **rest: Any
    ) -> None:
        command(
            order=OrderOptions(target, workspace or EnvironmentSettings.from_env().workspace or None, reason, as_json),
            **rest,
        )

    return ordering


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@_order_options
@click.option("--yes", is_flag=True, help="Reset everything without asking.")
def reset(*, key: str, order: OrderOptions, yes: bool) -> None:
    """Restore KEY to trusted, even if blocked, and close its circuit; `all` resets every key.

    The name of a tool selects the tool and all its keys. Earlier failures no longer count.
    """
    states = _affected(order, key)
    if key == EVERYTHING:
        if not states:
            note("nothing to reset: every tool is trusted, every circuit closed")
            return
        ask(f"Reset {len(states)} keys and circuits at {order.target.name}?", yes=yes)
    commands: list[Command] = [
        *(TrustReset(**fields) for fields in order.trust_fields(states, key)),
        *(BreakerClose(**order.fields(one.key, one.workspace_id)) for one in states if isinstance(one, BreakerUpdated)),
    ]
    order.send(commands, otherwise="no state changed; earlier failures no longer count")


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@_order_options
def recover(*, key: str, order: OrderOptions) -> None:
    """Restore the trust of an escalated or recovering KEY. A blocked one needs `reset`."""
    states = _escalated(_affected(order, key))
    order.send([TrustRecover(**fields) for fields in order.trust_fields(states, key)])


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@click.option("--once", is_flag=True, help="Let one call pass.")
@click.option(
    "--for-session",
    "session",
    metavar="[SESSION]",
    is_flag=False,
    flag_value="",
    help="Let all calls of a session pass; by default of the agent's session that was refused last.",
)
@click.option(
    "--for",
    "expires_in_s",
    type=click.FloatRange(1, 86_400),
    metavar="SECONDS",
    help="How long the approval lasts; by default an hour, for a session a day.",
)
@_order_options
def approve(*, key: str, once: bool, session: str | None, expires_in_s: float | None, order: OrderOptions) -> None:
    """Approve one call of an escalated, recovering or dangerous KEY in advance, or all of a session."""
    if once == (session is not None):
        raise click.UsageError("say --once or --for-session")
    lasts = expires_in_s or (3600.0 if once else 86_400.0)
    if danger_of_key(key) is not None:  # nothing need be known of it yet
        name = None if session is None else session or _refused_session(order.target, {key})
        _send(order, TrustApprove, key, expires_in_s=lasts, session_id=name)
        return
    states = _escalated(_affected(order, key))
    name = None if session is None else session or _refused_session(order.target, {one.key for one in states})
    commands = [
        TrustApprove(**fields, expires_in_s=lasts, session_id=name) for fields in order.trust_fields(states, key)
    ]
    what = f"all calls of session {name} are" if name else "one call is"
    order.send(commands, otherwise=f"{what} approved, unless another key or circuit stops it")


@click.command()
@click.argument("key", shell_complete=stuck_keys_for_completion)
@click.option("--withdraw", is_flag=True, help="Take it back: nobody deals with it.")
@_order_options
def acknowledge(*, key: str, withdraw: bool, order: OrderOptions) -> None:
    """Say that somebody deals with an incident: it stands below the others until it is over or gets more severe.

    KEY as `trustfold status` shows it: a key, a service, or the id of a session. The webhook no longer announces it.
    """
    names: dict[str, Record] = {}
    for one in order.target.incidents():
        where = one.get("workspace", "")
        if one["state"] in NEEDED and order.workspace in {None, where} and not where.startswith("user:"):
            parts = (part.partition(" ")[2].rpartition(": ")[0] for part in one.get("parts", ()))
            names |= {f"{where}\x1f{name}": one for name in (*parts, one["subject"])}
    known = [name.partition("\x1f")[2] for name in names]
    meant = _whole(key, known)
    places = {name.partition("\x1f")[0] for name in names if name.partition("\x1f")[2] == meant}
    if not places:
        raise _unknown(
            key, order.workspace, known, "is no incident that needs somebody", "`trustfold status` lists them"
        )
    where = _only_one(key, places)
    one = names[f"{where}\x1f{meant}"]
    if withdraw and "acknowledged" not in one:
        raise ConfigError(f"{one['subject']} is not acknowledged: there is nothing to take back")
    subject = f"session:{one['subject']}" if one["kind"] == "session" else one["subject"]
    fields = order.fields(subject, where or None)
    said = "is acknowledged: it stands below the others until it is over or gets more severe"
    severity, size = PatternSeverity(one["severity"]), one.get("size")
    order.send(
        [IncidentAcknowledge(**fields, severity=severity, size=size, withdraw=withdraw)],
        done=f"{one['subject']} {'is open again: nobody deals with it' if withdraw else said}",
    )


def _refused_session(target: DeploymentClient, keys: AbstractSet[str]) -> str:
    """The agent's session in which a call of one of the keys was refused or asked about last."""
    server = target.server()
    for said in reversed(server.said if server else ()):
        if said.get("kind") in {"refusal", "question"} and any(key in str(said.get("text")) for key in keys):
            return str(said["session_id"])
    raise ConfigError("no session is known in which that was refused; name one: --for-session SESSION")


def _escalated(states: Sequence[TrustUpdated | BreakerUpdated]) -> list[TrustUpdated]:
    """Trust states among those of a key that `recover` and `approve` apply to."""
    trust = [one for one in states if isinstance(one, TrustUpdated)]
    away = [one for one in trust if one.state is not TrustState.TRUSTED]
    stuck = [one for one in away if one.state in {TrustState.BLOCKED, TrustState.REMOVED}]
    if stuck and len(stuck) == len(away):
        name, word = stuck[0].key, stuck[0].state
        way = f"`trustfold reset {in_quotes(name)}` unblocks it" if word == "blocked" else "restore it first"
        raise TrustfoldError(f"{name} is {word}; {way}")
    return trust


def _affected(order: OrderOptions, key: str) -> list[TrustUpdated | BreakerUpdated]:
    """States that an order about a key applies to."""
    workspace = order.workspace
    here = held(order.target.overview().states, workspace)
    if key == EVERYTHING:
        return here
    known = sorted({one.key for one in here})
    meant = _whole(key, known)
    found = [one for one in here if is_affected(one.key, meant)]
    if not found:
        raise _unknown(key, workspace, known, "has no state to change", "`trustfold status --all` lists the known keys")
    meant_in = _only_one(key, {one.workspace_id or "" for one in found})
    return [one for one in found if (one.workspace_id or "") == meant_in]


def _unknown(key: str, workspace: str | None, known: Sequence[str], fault: str, hint: str) -> ConfigError:
    """Error about a key that nothing has, with the known one that is most like it."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    where = f" in workspace {workspace}" if workspace else ""
    return ConfigError(f"{key!r}{where} {fault}; {f'did you mean {near[0]!r}?' if near else hint}")


def _only_one(key: str, workspaces: set[str]) -> str:
    """Of the workspaces that have a key the one of the current folder, else the only one; empty if there are none."""
    folder = workspace_of(str(Path.cwd()))
    if folder in workspaces:
        return folder
    if len(workspaces) > 1:
        ways = [shlex.join(["trustfold", *sys.argv[1:], "--workspace", one]) for one in sorted(workspaces)]
        raise ConfigError("\n  ".join([f"{key!r} is known in several workspaces; choose one:", *ways]))
    found = next(iter(workspaces), "")
    if found.startswith("/"):
        note(f"in workspace {found}")
    return found


def workspace_here(target: DeploymentClient) -> str:
    """Workspace of an order or setting that names none and no key: agents of this user's server work in folders."""
    own = UserService()
    if target.name == str(own.store) or own.is_at(target.name):
        return workspace_of(str(Path.cwd())) or DEFAULT_WORKSPACE
    return DEFAULT_WORKSPACE


def _whole(key: str, known: Sequence[str]) -> str:
    """The full key; a key abbreviated by a narrow table is resolved if only one known key matches."""
    if ELLIPSIS not in key or key in known:
        return key
    head, _, tail = key.partition(ELLIPSIS)
    fitting = [one for one in known if one.startswith(head) and one.endswith(tail) and len(one) > len(key)]
    return fitting[0] if len(fitting) == 1 else key


def envelope(reason: str | None = None) -> dict[str, Any]:
    """Fields common to all commands and changes of settings."""
    return {
        "schema_version": "1.0",
        "id": str(uuid4()),
        "time": datetime.now(UTC),
        "issued_by": operator_name(),
        "reason": reason,
    }


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


_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@click.argument("tool", shell_complete=keys_for_completion, callback=_refuse_empty)
@_order_options
@_yes
def remove(*, tool: str, order: OrderOptions, yes: bool) -> None:
    """Refuse all calls of TOOL until it is restored."""
    _send(order, ToolRemove, tool, question=f"Take {tool} away from every agent of workspace {{}}?", yes=yes)


@click.command()
@click.argument("tool", shell_complete=keys_for_completion, callback=_refuse_empty)
@_order_options
def restore(*, tool: str, order: OrderOptions) -> None:
    """Allow calls of a removed TOOL again, trusted and with its earlier failures cleared."""
    _send(order, ToolRestore, tool)


@click.group()
def breaker() -> None:
    """Open, close, disable or only observe a circuit; KEY is a tool, or `service:NAME`, `tier:NAME`."""


@breaker.command("open")
@click.argument("key", shell_complete=keys_for_completion, callback=_refuse_empty)
@_order_options
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Close it after this time.",
)
@_yes
def open_(*, key: str, order: OrderOptions, seconds: float | None, yes: bool) -> None:
    """Stop all calls through a circuit until it is closed or the time is over."""
    question = f"Stop all calls through {key} in workspace {{}}?"
    _send(order, BreakerForceOpen, key, question=question, yes=yes, duration_s=seconds)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion, callback=_refuse_empty)
@_order_options
@_yes
def close(*, key: str, order: OrderOptions, yes: bool) -> None:
    """Close a circuit with clean windows, and enforce it again after `disable` or `observe`."""
    del yes  # accepted so that scripts can pass it to every order; this one never asks
    _send(order, BreakerClose, key)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion, callback=_refuse_empty)
@_order_options
@_yes
def disable(*, key: str, order: OrderOptions, yes: bool) -> None:
    """Disable a circuit: nothing is counted or refused until `breaker close`."""
    question = f"Let every call through {key} in workspace {{}}, whatever happens?"
    _send(order, BreakerDisable, key, question=question, yes=yes)


@breaker.command()
@click.argument("key", shell_complete=keys_for_completion, callback=_refuse_empty)
@_order_options
@_yes
def observe(*, key: str, order: OrderOptions, yes: bool) -> None:
    """Let a circuit count and report but never refuse, until `breaker close`."""
    del yes
    _send(order, BreakerObserve, key)


def _send(
    order: OrderOptions, kind: type[KeyCommand], key: str, *, question: str = "", yes: bool = True, **fields: Any
) -> None:
    """Send one command about a key; `question` is asked first, with the workspace in the place of `{}`."""
    workspace = order.workspace or _workspace_of(order.target, key)
    if question:
        ask(question.format(workspace), yes=yes, why=f"this affects every agent of workspace {workspace}")
    about = key if has_scope(key) else f"tool:{key}" if issubclass(kind, _OF_CIRCUITS) else key
    command: Any = kind(**order.fields(about, workspace), **fields)
    order.send([command], otherwise=f"{about} in workspace {workspace}: {_UNMOVED[kind]}")


# Messages for orders that change no state, but may change how the state is enforced
_UNMOVED: dict[type[KeyCommand], str] = {
    TrustApprove: "one call is approved, unless another key or circuit stops it, or the key is blocked",
    ToolRemove: "it was already removed",
    ToolRestore: "it was not removed",
    BreakerForceOpen: "it was already held open; the new time applies",
    BreakerClose: "it was already closed; it counts and enforces by its rules",
    BreakerDisable: "it was already closed; from now on nothing is counted or refused",
    BreakerObserve: "its state is unchanged; from now on it counts and reports, but refuses nothing",
}

_OF_CIRCUITS = (BreakerForceOpen, BreakerClose, BreakerDisable, BreakerObserve)


def _workspace_of(target: DeploymentClient, key: str) -> str:
    """The workspace that has a key, of the current folder or the only one; the folder's or default one if none has.

    Raises:
        ConfigError: several have it, and the current folder is none of them.
    """
    states = target.overview().states
    found = {one.workspace_id for one in states if one.key in {key, f"tool:{key}"} and one.workspace_id}
    return _only_one(key, found) or workspace_here(target)
