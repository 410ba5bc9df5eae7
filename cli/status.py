"""`trustfold status`: what is not trusted, which circuits are not closed, and what leads back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import click
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..errors import TrustfoldError
from ..schemas.decision_text import (
    circuit_next,
    circuit_word,
    counted,
    failures_words,
    line_of,
    place_of,
    plain,
    recovery_words,
)
from .clients.base import Record, Target
from .clients.http import HttpTarget
from .clients.selection import keys_for_completion, target_of, target_options
from .quality import title_of
from .render import console, echo, note, write_json
from .service import UserService
from .terminal import BAD, GOOD, QUIET, STYLES, WARN, KeyText

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
    """Show keys that are not trusted, and open circuits; with KEY, all details of that one.

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


_ORDER = ("blocked", "removed", "escalated", "recovering", "trusted")
_STYLES = {"blocked": BAD, "removed": BAD, "escalated": WARN, "recovering": WARN, "trusted": GOOD}
_KINDS = ("trust", "breaker", "quality", "model")
_BY_HAND = (("disabled", "switched off"), ("observe", "only observed"))
_CIRCUITS = {"open": BAD, "forced_open": BAD, "half-open": WARN, "closed": GOOD}


def overview_table(states: Sequence[Record], mode: str | None, now: datetime, *, everything: bool) -> RenderableType:
    """Every key that is not trusted, every circuit that is not closed, and the totals."""
    trust = [state for state in states if state["kind"] == "trust"]
    circuits = [state for state in states if state["kind"] == "breaker"]
    shown = [state for state in trust if everything or state["state"] != "trusted"]
    places = {place_of(state) for state in (*shown, *circuits)}
    several = len(places) > 1 or any(state.get("scope") == "user" for state in shown)
    parts: list[RenderableType] = [Text("Reliability Status", "bold")]
    if shown:
        parts.append(_trust_table(shown, now, workspaces=several))
    if circuits:
        parts.append(_circuit_table(circuits, now, workspaces=several))
    parts.append(Text(_totals(trust, circuits, everything=everything), QUIET))
    if mode is not None:
        parts.append(Text(f"Recovery mode: {mode}", QUIET))
    return Group(*parts)


def details(key: str | None, states: Sequence[Record], history: Sequence[Record], now: datetime) -> RenderableType:
    """All that is known of one key, and what was decided about it."""
    parts: list[RenderableType] = []
    if key is not None and not states:
        parts.append(Text(f"{key}: trusted, nothing is held against it", GOOD))
    for state in sorted(states, key=_importance):
        if state["kind"] not in {"trust", "breaker"}:
            title, facts = title_of(state, now)
            parts += [title, Padding(_fact_table(facts), (0, 0, 1, 2))]
            continue
        circuit = state["kind"] == "breaker"
        word = circuit_word(state, now) if circuit else str(state["state"])
        style = (_CIRCUITS if circuit else _STYLES).get(word, "")
        title = Text(f"{state['key']}  ", "bold")
        title.append(f"circuit {plain(word)}" if circuit else plain(word), style)
        parts += [title, Padding(_facts(state, now), (0, 0, 1, 2))]
    if history:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True, style=QUIET)
        table.add_column(width=1)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for decision in history:
            line = line_of(decision)
            when = str(decision["time"])[:19].replace("T", " ")
            table.add_row(
                when, Text(line.mark, STYLES[line.tone]), Text(line.what, STYLES[line.tone]), Text(line.why, QUIET)
            )
        parts += [Text("History", "bold"), Padding(table, (0, 0, 0, 2))]
    return Group(*parts)


def _importance(state: Record) -> tuple[int, str]:
    """Trust before circuits before what is only measured; a key before its finer ones."""
    return _KINDS.index(state["kind"]), str(state["key"])


def _trust_table(states: Sequence[Record], now: datetime, *, workspaces: bool) -> Table:
    table = _table(("Tool/Parameters", "State", "Failures", "Recovery"), workspaces=workspaces)
    for state in sorted(states, key=lambda one: (_ORDER.index(one["state"]), one["key"])):
        word = str(state["state"])
        failures = "-" if word in {"blocked", "removed"} else failures_words(state)
        row: list[RenderableType] = [
            KeyText(str(state["key"])),
            Text(word.upper(), _STYLES[word]),
            failures,
            recovery_words(state, now),
        ]
        table.add_row(*([place_of(state)] if workspaces else []), *row)
    return table


def _circuit_table(states: Sequence[Record], now: datetime, *, workspaces: bool) -> Table:
    table = _table(("Circuit", "State", "Failures", "Next"), workspaces=workspaces)
    for state in sorted(states, key=lambda one: str(one["key"])):
        word = circuit_word(state, now)
        measured = state.get("measured") or 0
        failures = f"{round((state.get('failure_rate') or 0) * measured)}/{measured}" if measured else "-"
        row: list[RenderableType] = [
            KeyText(str(state["key"])),
            Text(plain(word).upper(), _CIRCUITS.get(word, "")),
            failures,
            circuit_next(state, now),
        ]
        table.add_row(*([place_of(state)] if workspaces else []), *row)
    return table


def _table(names: Sequence[str], *, workspaces: bool) -> Table:
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    if workspaces:
        table.add_column("Workspace", overflow="fold")
    first, state, failures, last = names
    table.add_column(first, overflow="fold", ratio=None, min_width=16)
    table.add_column(state, no_wrap=True)
    table.add_column(failures, no_wrap=True, justify="right")
    table.add_column(last, overflow="fold")
    return table


def _totals(trust: Sequence[Record], circuits: Sequence[Record], *, everything: bool) -> str:
    counts = Counter(str(state["state"]) for state in trust)
    words = [f"{counts[word]} {word}" for word in _ORDER if counts[word] and word != "trusted"]
    stuck = sum(state["state"] != "closed" for state in circuits)
    words += [f"{counted(stuck, 'circuit')} not closed"] if stuck else []
    by_hand = Counter(str(state.get("mode")) for state in circuits if state["state"] == "closed")
    words += [f"{counted(by_hand[mode], 'circuit')} {word}" for mode, word in _BY_HAND if by_hand[mode]]
    if not words:
        words = ["every tool is trusted, every circuit closed"]
    if counts["trusted"]:
        hidden = "" if everything else " (--all shows them)"
        words.append(f"{counts['trusted']} trusted with recent failures{hidden}")
    return ", ".join(words)


def _facts(state: Record, now: datetime) -> Table:
    """The fields of a state that say something, in words."""
    facts: list[tuple[str, str]] = []
    if state.get("reason"):
        facts.append(("because", plain(str(state["reason"])) if state["kind"] == "breaker" else str(state["reason"])))
    if state["kind"] == "trust" and failures_words(state) != "-":
        facts.append(("failures", failures_words(state)))
    facts += [
        (plain(name), str(state[name])[:19].replace("T", " ") + " UTC")
        for name in ("escalated_at", "expires_at", "opened_at", "open_until")
        if state.get(name)
    ]
    if state["kind"] == "trust" and recovery_words(state, now):
        facts.append(("recovery", recovery_words(state, now)))
    if state["kind"] == "breaker":
        facts.append(("next", circuit_next(state, now)))
        facts.append(("opened", f"{state.get('reopen_count') or 0} times"))
    if state.get("denials"):
        facts.append(("declined by users", f"{state['denials']} times"))
    if place_of(state):
        facts.append(("workspace" if state.get("workspace_id") else "where", place_of(state)))
    return _fact_table(facts)


def _fact_table(facts: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table
