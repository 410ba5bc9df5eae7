"""`trustfold status`: incidents, keys that are not trusted, circuits that are not closed, and how they recover."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, NamedTuple

import click
import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..errors import ConfigError
from ..projections.incidents import NEEDED
from ..schemas.decision_text import (
    circuit_next,
    circuit_word,
    counted,
    failures_words,
    measured_failures,
    place_of,
    plain,
    recovery_words,
)
from ..schemas.public_state import (
    BreakerUpdated,
    IncidentUpdated,
    ModelUpdated,
    PublicState,
    QualityUpdated,
    TrustUpdated,
)
from ..schemas.vocabulary import BreakerMode, BreakerState, TrustState
from .behavior import is_profile
from .clients.client import DecisionRecord, DeploymentClient, Record, ServerInfo
from .clients.selection import keys_for_completion
from .connect import ConnectionFile
from .options import json_option, with_target
from .quality import title_of
from .render import ExitCode, console, echo, note, write_json
from .service import UserService
from .terminal import BAD, GOOD, QUIET, STYLES, WARN, KeyText, fact_table, lined_table, note_unreadable

HISTORY = 20  # Number of decisions shown with --include-history, and by `trustfold reliability history`
MOST_DECISIONS = 1_000  # Largest number of decisions shown
MAX_INCIDENTS = 50  # Maximum number of incidents shown
MAX_WITHHELD = 10  # Maximum number of shown answers that were withheld in shadow mode


@click.command()
@click.argument("key", required=False, shell_complete=keys_for_completion)
@with_target
@click.option("--all", "everything", is_flag=True, help="Include trusted keys with recent failures.")
@click.option("--include-history", is_flag=True, help=f"Include the last {HISTORY} decisions about the key.")
@click.option("--session", metavar="ID", help="Whether this session of an agent, or `last`, was paused; 1 if it was.")
@json_option("Print the state records as one JSON document.")
def status(
    *,
    key: str | None,
    target: DeploymentClient,
    everything: bool,
    include_history: bool,
    session: str | None,
    as_json: bool,
) -> None:
    """Show incidents, keys that are not trusted, and open circuits; with KEY, all details of that key.

    With --session, for CI: the reason for which an agent's session was paused, and exit code 1; else 0. `last` is the
    session that was heard last.

    A KEY as shown in the table: `bash|command=rm`, `bash`, `service:atlassian`; long keys are abbreviated on a
    narrow terminal, and complete in a pipe and with --json. Reads the store of a local `up`, its address, or Kafka.
    """
    if session is not None:
        _show_session(target.server(), session, as_json=as_json)
        return
    records, mode, fault, unfolded = target.overview()
    incidents = target.incidents() if key is None else []
    near = get_close_matches(key or "", {str(one.record.get("key")) for one in records}, n=1)
    records = [one for one in records if key is None or _belongs(str(one.record.get("key")), key)]
    history: list[DecisionRecord] | None = None
    if include_history:
        history = [one for one in target.history(1000) if key is None or _belongs(_subject(one), key)][-HISTORY:]
    now = datetime.now(UTC)
    server = target.server()
    heard = _heard(target.name, server)
    withheld = [one for one in server.said if one.get("shadow")] if server else []
    if as_json:
        facts = msgspec.structs.asdict(server.about) if server and server.about else {}
        about = {name: value for name, value in facts.items() if value}
        document: dict[str, Any] = {
            "source": target.name,
            "time": now.isoformat(timespec="milliseconds"),
            "server": server and {"url": server.url, "answers": server.about is not None} | about,
            "agents": [one._asdict() | {"last_time": one.last_time or None} for one in heard] if server else None,
            "incidents": incidents if key is None else None,
            "states": [one.record for one in records],
            "recovery_mode": mode,
            "rules_fault": fault,
            "unfolded": unfolded or None,
            "history": history and [one.record for one in history],
            "unsaid": withheld or None,
        }
        write_json({name: value for name, value in document.items() if value is not None})
        return
    known = [one.state for one in records if one.state is not None]
    states = [state for state in known if not is_profile(state)]
    out = console(wide_in_pipes=True)
    if key is None:
        complete = len(records) == len(known) and not unfolded
        out.print(overview_table(states, mode, now, incidents=incidents, everything=everything, complete=complete))
    if key is not None or history:
        complete = len(records) == len(known)
        out.print(details(key, states if key is not None else [], history or [], now, complete=complete))
    for line in source_lines(target.name, server, heard, now) if key is None else ():
        out.print(line, style=QUIET)
    if near and not records:
        note(f"nothing is known of {key!r}; did you mean {near[0]!r}?")
    for one in withheld[-MAX_WITHHELD:] if key is None else ():
        echo(f"in shadow mode, {one['agent']} would have received ({one['kind']}): {' '.join(one['text'].split())}")
    note_unreadable(records)
    if unfolded:
        note(f"{unfolded}: what is shown may be old")
    if fault is not None:
        note(f"{fault}; the previous rules stay in force")


@click.command()
@click.argument("words", nargs=-1, metavar="[[limit] N]")
@with_target
@json_option("Print the decisions as one JSON document.")
def decisions(*, words: tuple[str, ...], target: DeploymentClient, as_json: bool) -> None:
    """Show the latest N decisions about tools, 20 by default, each with its reason; the newest is the last."""
    number = words[1:] if words[:1] == ("limit",) else words
    if len(number) > 1 or not all(word.isdecimal() and 0 < int(word) <= MOST_DECISIONS for word in number):
        raise click.UsageError(f"N is a number up to {MOST_DECISIONS}, as in `trustfold reliability history 50`")
    found = target.history(int(number[0]) if number else HISTORY)
    if as_json:
        write_json({"source": target.name, "history": [one.record for one in found]})
    elif found:
        console(wide_in_pipes=True).print(_decisions_table(found))
    else:
        note("nothing has been decided about a tool yet")


def _show_session(server: ServerInfo | None, session: str, *, as_json: bool) -> None:
    """Print whether a session is paused.

    Raises:
        ConfigError: the server does not know it.
        SystemExit: it is paused.
    """
    session = server.named(session) if server else session
    if server is None or session not in server.paused:
        raise ConfigError(f"no server knows a session {session!r}; `claude -p --output-format json` prints its id")
    reason = server.paused[session]
    if as_json:
        write_json({"session": session, "paused": bool(reason), "reason": reason or None})
    else:
        echo(f"{session}: {f'paused: {reason}' if reason else 'not paused'}")
    if reason:
        sys.exit(ExitCode.FAILED)


class HookActivity(NamedTuple):
    """Hooks of an agent."""

    agent: str  # its name
    shadow: bool  # it gets no answers, as it is connected now, else as its last hook said
    last_time: str = ""  # time of its last hook since the server started; empty if there was none


def _heard(name: str, server: ServerInfo | None) -> list[HookActivity]:
    """Agents that the server has heard, and for the user's own server, or its store, those that are connected."""
    service = UserService()
    agents = server.agents if server else {}
    own = service.is_at(server.url) if server else name == str(service.store)
    connected = ConnectionFile(service.home).in_shadow() if own else {}
    found = {agent: HookActivity(agent, shadow) for agent, shadow in connected.items()}
    found |= {
        name: HookActivity(name, connected.get(name, bool(one.get("shadow"))), str(one.get("last_time")))
        for name, one in agents.items()
    }
    return [found[name] for name in sorted(found)]


def source_lines(name: str, server: ServerInfo | None, heard: Sequence[HookActivity], now: datetime) -> list[str]:
    """Return the lines that name what was read: store, server, its start, and the latest hooks of agents."""
    if server is None:
        unheard = f"; no server runs, and the hooks of {', '.join(one.agent for one in heard)} get no answer"
        return [f"Read from {name}" + (f"{unheard}: `trustfold up --detach`" if heard else "")]
    place = f"Read from {name}" + (f", kept by the server {server.url}" if server.url != name else "")
    if server.about is None:
        return [
            f"{place}, which does not answer: these are its last states. `trustfold up --stop` ends this user's server"
        ]
    since = f" since {_moment(server.about.since)} ({_ago(server.about.since, now)} ago)" if server.about.since else ""
    lines = [f"{place}, up{since}"]
    for one in heard:
        mode = "shadow, it only observes" if one.shadow else "enforcing"
        last = f"last hook {_ago(one.last_time, now)} ago" if one.last_time else "no hook since the server started"
        lines.append(f"{one.agent}: {mode}; {last}")
    return lines


def _ago(time: str, now: datetime) -> str:
    seconds = max(0, int((now - datetime.fromisoformat(time)).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _subject(decision: DecisionRecord) -> str:
    """Key or circuit that a decision is about."""
    return str(decision.record.get("key") or decision.record.get("breaker_key"))


def _belongs(name: str, key: str) -> bool:
    """True if a name is that of a key: the key itself, one of its finer keys, or the circuit of its tool."""
    return name == key or name.startswith(f"{key}|") or name == f"tool:{key}"


_ORDER = (TrustState.BLOCKED, TrustState.REMOVED, TrustState.ESCALATED, TrustState.RECOVERING, TrustState.TRUSTED)
_PLACES: dict[str, int] = {word: place for place, word in enumerate(_ORDER)}
_STYLES = {"blocked": BAD, "removed": BAD, "escalated": WARN, "recovering": WARN, "trusted": GOOD}
_KINDS = ("trust", "breaker", "quality", "model", "incident")
_BY_HAND = ((BreakerMode.DISABLED, "switched off"), (BreakerMode.OBSERVE, "only observed"))
_CIRCUITS = {"open": BAD, "forced_open": BAD, "half-open": WARN, "closed": GOOD}


def overview_table(
    states: Sequence[PublicState],
    mode: str | None,
    now: datetime,
    *,
    incidents: Sequence[Record] = (),
    everything: bool,
    complete: bool = True,
) -> RenderableType:
    """One table: incidents, most urgent first, then the other keys and circuits that are not well; and the totals.

    Durations are counted from `now`. `everything` shows trusted keys with recent failures, too; `complete` is False if
    there are states that this version cannot read, or events that are not folded yet. The recovery `mode` is None if
    unknown.
    """
    shown = [one for one in incidents if one["state"] in NEEDED][:MAX_INCIDENTS]
    parts = {(one["workspace"], part): one for one in shown for part in one.get("parts", ())}
    told: dict[int, list[PublicState]] = {}
    others: list[TrustUpdated | BreakerUpdated] = []
    for state in states:
        where = f"user:{state.user_id}" if state.scope == "user" else state.workspace_id or ""
        name = f"{state.kind} {state.key}: "
        part = next((one for (place, text), one in parts.items() if place == where and text.startswith(name)), None)
        if part is not None:
            told.setdefault(id(part), []).append(state)
        elif isinstance(state, BreakerUpdated) or (
            isinstance(state, TrustUpdated) and (everything or state.dangerous_calls or state.state != "trusted")
        ):
            others.append(state)
    rows = [_incident_row(one, told.get(id(one), []), now) for one in shown]
    others.sort(key=lambda one: (_PLACES.get(one.state, len(_PLACES)), one.key))
    rows += [_state_row(one, now) for one in others]
    several = len({row[0] for row in rows}) > 1 or any(row[0].startswith("user ") for row in rows)
    table = lined_table(*(["Workspace"] if several else []))
    table.add_column("Tool/Parameters", overflow="fold", min_width=16)
    table.add_column("State", no_wrap=True)
    table.add_column("Failures", no_wrap=True, justify="right")
    table.add_column("Recovery", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*row[0 if several else 1 :])
    rest = Counter(one["state"] for one in incidents if one not in shown)
    lines = (
        ["Incidents not listed: " + ", ".join(f"{number} {state}" for state, number in rest.items())] if rest else []
    )
    trust = [one for one in states if isinstance(one, TrustUpdated)]
    circuits = [one for one in states if isinstance(one, BreakerUpdated)]
    lines.append(_totals(trust, circuits, everything=everything, complete=complete and not shown))
    lines += [f"Recovery mode: {mode}"] if mode is not None else []
    return Group(Text("Reliability Status", "bold"), *([table] if rows else []), *(Text(line, QUIET) for line in lines))


_Row = tuple[str, KeyText, Text, str, Text]  # Workspace or user, key, state, failures, and what leads back


def _incident_row(one: Record, parts: Sequence[PublicState], now: datetime) -> _Row:
    """Row of an incident: what leads back, then its cause, and the orders that resolve it."""
    rows = [_state_row(state, now) for state in parts if isinstance(state, TrustUpdated | BreakerUpdated)]
    recovery = Text("; ".join(dict.fromkeys(row[4].plain for row in rows if row[4].plain)))
    recovery.append("\n" if recovery else "").append(str(one.get("cause", "")))
    hit = one.get("sessions_hit", 0)
    if one["kind"] != "session" and hit:
        recovery.append(f" ({counted(hit, 'session')})", QUIET)
    if "acknowledged" in one:
        by = f" by {one['acknowledged_by']}" if "acknowledged_by" in one else ""
        grown = f"; since then {one['grown']}" if "grown" in one else ""
        recovery.append(f"\nacknowledged {_ago(one['acknowledged'], now)} ago{by}{grown}", QUIET)
    for line in (*(one.get("waiting", ()) if one["kind"] != "session" else ()), *one.get("orders", ())):
        recovery.append(f"\n{line}", QUIET)
    shown = Text(one["state"].upper(), BAD if one["severity"] == "severe" else WARN)
    shown.append(f"\n{_ago(one['since'], now)}", QUIET)
    failures = next((row[3] for row in rows if row[3] != "-"), "-")
    return one["workspace"].replace("user:", "user "), KeyText(one["subject"]), shown, failures, recovery


def _state_row(state: TrustUpdated | BreakerUpdated, now: datetime) -> _Row:
    if isinstance(state, TrustUpdated):
        failures = "-" if state.state in {TrustState.BLOCKED, TrustState.REMOVED} else failures_words(state)
        shown = Text(state.state.upper(), _STYLES[state.state])
        return place_of(state), KeyText(state.key), shown, failures, Text(recovery_words(state, now))
    word = circuit_word(state, now)
    shown = Text(plain(word).upper(), _CIRCUITS.get(word, ""))
    next_ = Text(circuit_next(state, now))
    return place_of(state), KeyText(state.key), shown, measured_failures(state) or "-", next_


def details(
    key: str | None,
    states: Sequence[PublicState],
    history: Sequence[DecisionRecord],
    now: datetime,
    *,
    complete: bool = True,
) -> RenderableType:
    """State of one key, and the decisions about it; `complete` is False if there are states unreadable here."""
    parts: list[RenderableType] = []
    if key is not None and not states:
        clean = Text(f"{key}: trusted, no recent failures", GOOD)
        parts.append(clean if complete else Text(f"{key}: in a state of a later version, unknown here", WARN))
    for state in sorted(states, key=lambda one: (_KINDS.index(one.kind), one.key)):
        if isinstance(state, QualityUpdated | ModelUpdated):
            title, facts = title_of(state, now)
        elif isinstance(state, IncidentUpdated):
            title = Text(f"{state.key}  incident acknowledged", "bold")
            who = f"{_moment(state.acknowledged_at)}, by {state.acknowledged_by or 'somebody'}"
            facts = [("Severity", str(state.severity)), ("Acknowledged", who)]
        else:
            facts = _facts(state, now)
            title = Text(f"{state.key}  ", "bold")
            if isinstance(state, BreakerUpdated):
                word = circuit_word(state, now)
                title.append(f"circuit {plain(word)}", _CIRCUITS.get(word, ""))
            else:
                title.append(plain(state.state), _STYLES[state.state])
        parts += [title, Padding(fact_table(facts), (0, 0, 1, 2))]
    if history:
        parts += [Text("History", "bold"), Padding(_decisions_table(history), (0, 0, 0, 2))]
    return Group(*parts)


def _decisions_table(history: Sequence[DecisionRecord]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style=QUIET)
    table.add_column(width=1)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for decision in history:
        line = decision.line
        style, clock = STYLES[line.tone], _clock(str(decision.record.get("time")))
        table.add_row(clock, Text(line.mark, style), Text(line.what, style), Text(line.why, QUIET))
    return table


def _totals(
    trust: Sequence[TrustUpdated], circuits: Sequence[BreakerUpdated], *, everything: bool, complete: bool
) -> str:
    counts = Counter(state.state for state in trust)
    words = [f"{counts[word]} {word}" for word in _ORDER[:-1] if counts[word]]
    stuck = sum(state.state is not BreakerState.CLOSED for state in circuits)
    words += [f"{counted(stuck, 'circuit')} not closed"] if stuck else []
    by_hand = Counter(state.mode for state in circuits if state.state is BreakerState.CLOSED)
    words += [f"{counted(by_hand[mode], 'circuit')} {word}" for mode, word in _BY_HAND if by_hand[mode]]
    if not words:
        words = ["every tool is trusted, every circuit closed" if complete else "nothing else is known to be amiss"]
    if trusted := counts[TrustState.TRUSTED]:
        words.append(f"{trusted} trusted with recent failures{'' if everything else ' (--all shows them)'}")
    return ", ".join(words)


def _facts(state: TrustUpdated | BreakerUpdated, now: datetime) -> list[tuple[str, str]]:
    """Names and texts of a state's fields that have a value."""
    if isinstance(state, TrustUpdated):
        facts = [
            ("because", state.reason or ""),
            ("failures", failures_words(state).removeprefix("-")),
            ("escalated at", _moment(state.escalated_at)),
            ("expires at", _moment(state.expires_at)),
            ("recovery", recovery_words(state, now)),
            ("declined by users", f"{state.denials} times" if state.denials else ""),
            ("dangerous calls", str(state.dangerous_calls or "")),
        ]
    else:
        facts = [
            ("because", plain(state.reason or "")),
            ("opened at", _moment(state.opened_at)),
            ("open until", _moment(state.open_until)),
        ]
    facts = [(name, value) for name, value in facts if value]
    if isinstance(state, BreakerUpdated):
        facts += [("next", circuit_next(state, now)), ("opened", f"{state.reopen_count or 0} times")]
    if place_of(state):
        facts.append(("workspace" if state.workspace_id else "where", place_of(state)))
    return facts


def _clock(time: str) -> str:
    return time[:19].replace("T", " ")


def _moment(time: str | None) -> str:
    return f"{_clock(time)} UTC" if time else ""
