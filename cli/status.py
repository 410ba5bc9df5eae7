"""`trustfold status`: what is not trusted, which circuits are not closed, and what leads back."""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import click

from ..schemas.errors import TrustfoldError
from .clients.base import Record, Target, keys_for_completion, target_of, target_options
from .clients.http import HttpTarget
from .render import console, echo, note, write_json
from .service import UserService
from .status_view import details, overview_table

HISTORY = 20
"""Decisions shown with --include-history."""

MAX_UNSAID = 10
"""Answers shown that agents in shadow did not get."""


@click.command()
@click.argument("key", required=False, shell_complete=keys_for_completion)
@target_options
@click.option("--all", "everything", is_flag=True, help="Trusted keys with recent failures too.")
@click.option("--include-history", is_flag=True, help=f"With the last {HISTORY} decisions about the key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document: the state records as they are.")
def status(
    *,
    key: str | None,
    store: str | None,
    url: str | None,
    bootstrap: str | None,
    everything: bool,
    include_history: bool,
    as_json: bool,
) -> None:
    """Show which tools are not trusted and which circuits are open; with KEY, all about that one.

    A KEY is what the table shows: `bash|command=rm`, `bash`, `service:atlassian`; long ones are cut in the middle on a
    narrow terminal, and whole in a pipe and with --json. Asks the store of a local `up`, its address, or Kafka.
    """
    target = target_of(store, url, bootstrap)
    states, mode, fault = target.overview()
    near: list[str] = []
    if key is not None:
        near = get_close_matches(key, {str(state["key"]) for state in states}, n=1)
        states = [state for state in states if _belongs(state, key)]
    history = [one for one in target.history(1000) if _belongs(one, key)][-HISTORY:] if include_history else None
    now = datetime.now(UTC)
    unsaid = _unsaid(target)
    if as_json:
        document: dict[str, Any] = {
            "source": target.name,
            "time": now.isoformat(timespec="milliseconds"),
            "states": states,
        }
        if mode is not None:
            document["recovery_mode"] = mode
        if fault is not None:
            document["rules_fault"] = fault
        if history is not None:
            document["history"] = history
        if unsaid:
            document["unsaid"] = unsaid
        write_json(document)
        return
    states = [state for state in states if state.get("turns") is None]  # `trustfold behavior` shows those
    if key is None:
        console(wide_in_pipes=True).print(overview_table(states, mode, now, everything=everything))
        if history:
            console(wide_in_pipes=True).print(details(None, [], history, now))
    else:
        console(wide_in_pipes=True).print(details(key, states, history or [], now))
        if near and not states:
            note(f"nothing is known of {key!r}; did you mean {near[0]!r}?")
    for one in unsaid[-MAX_UNSAID:] if key is None else ():
        echo(f"in shadow, {one['agent']} would have been told ({one['kind']}): {' '.join(one['text'].split())}")
    if fault is not None:
        note(f"{fault}; the rules read before go on to hold")


def _unsaid(target: Target) -> list[Record]:
    """What agents that are connected in shadow would have been told, oldest first; of the user's own server alone."""
    service = UserService()
    if target.name != str(service.store) or (found := service.running()) is None:
        return []
    try:
        return [one for one in HttpTarget(found[1], service.token).hooks()["said"] if one["shadow"]]
    except TrustfoldError:
        return []  # the table stands without it


def _belongs(record: Record, key: str | None) -> bool:
    """Whether a record is about a key: the key itself, its finer keys, or the circuit of its tool."""
    if key is None:
        return True
    name = str(record.get("key") or record.get("breaker_key"))
    return name == key or name.startswith(f"{key}|") or name == f"tool:{key}"
