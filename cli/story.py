"""`trustfold story`: one session as a timeline: what the agent did, what was decided, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..errors import ConfigError
from ..schemas.decision_text import circuit_reason, counted, line_of, plain, times
from .clients.base import Record
from .clients.selection import target_of, target_options
from .render import console, write_json
from .terminal import BAD, GOOD, QUIET, STYLES, WARN

SHOWN = 200
"""Entries shown unless told otherwise."""


@click.command()
@click.argument("session")
@target_options
@click.option("--history", metavar="DIR", help="Read from a recorded history instead.")
@click.option("--errors", is_flag=True, help="Only failures and decisions about faults.")
@click.option(
    "--limit", type=click.IntRange(0), default=SHOWN, metavar="N", show_default=True, help="Latest N entries; 0: all."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def story(
    *,
    session: str,
    store: str | None,
    url: str | None,
    bootstrap: str | None,
    history: str | None,
    errors: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Show a session as a timeline: calls with their outcome, loops and their cost, nudges and their effect.

    Asks the store of a local `up`, its address, or a recorded history.
    """
    if history is not None:
        if store or url or bootstrap:
            raise ConfigError("--history names another place than --store, --url and --bootstrap; give one of them")
        found = _recorded(Path(history), session)
    else:
        found = target_of(store, url, bootstrap).session(session)
    if found is None:
        raise ConfigError(f"nothing is kept of a session {session!r} there; `trustfold history look-first` lists some")
    items = [one for one in found["items"] if one["failing"] or not errors]
    shown = items[-limit:] if limit else items
    if as_json:
        write_json(found | {"items": shown, "items_left_out": len(items) - len(shown)})
        return
    out = console()
    for line in (*_head(found), Text(), *map(_told, shown)):
        out.print(line)
    if left_out := len(items) - len(shown):
        out.print(Text(f"{counted(left_out, 'earlier entry', 'earlier entries')} left out; --limit 0 shows all", QUIET))


def _recorded(root: Path, session: str) -> Record | None:
    from ..history.catalogue import connect
    from ..history.sessions.json_view import timeline_document
    from ..history.sessions.recorded import recorded_session

    with connect(root) as connection:
        found = recorded_session(connection, session)
    return timeline_document(found) if found.items else None


def _head(found: Record) -> Iterable[RenderableType]:
    verdicts = ", ".join(f"{count:,} {word}" for word, count in found["verdicts"].items())
    yield Text.assemble((f"Session {found['session_id']}", "bold"), "  ", ", ".join(found["models"]))
    yield Text(
        f"{found['began'][:19]} to {found['ended'][:19]} UTC, {counted(found['calls'], 'call')}: {verdicts}", QUIET
    )
    for loop in found["loops"][:5]:
        spent = "" if loop["tool_ms"] is None else f", {loop['tool_ms'] / 1000:.1f} s in the tool"
        money = "" if loop["cost_usd"] is None else f", {loop['cost_usd']:.4g} US$"
        yield Text.assemble(
            ("loop  ", BAD),
            f"{loop['tool_name']} {loop['arguments']} ×{loop['times']}, same result: "
            f"{counted(loop['wasted_calls'], 'call')} wasted ({loop['share_of_calls']:.0%} of all){spent}{money}",
        )
    for one in found["patterns"][-10:]:
        grown = " → ".join(str(step["repetitions"]) for step in one["steps"])
        of = f" of {', '.join(map(str, one['thresholds']))}" if one["thresholds"] else ""
        nudges = ", ".join(f"{nudge['kind']} nudge {nudge['effect']}" for nudge in one["nudges"]) or "no nudge"
        ended = "over" if one["cleared"] else "not over"
        yield Text.assemble(("pattern  ", WARN), f"{plain(one['pattern'])} {grown}{of}: {nudges}; {ended}")


def _told(item: Record) -> RenderableType:
    return row(item["time"][11:19], _line(item))


def _line(item: dict[str, Any]) -> Text:
    if "who" in item:
        said = f"“{item['text']}”" if item["text"] else "…"
        return Text.assemble((f"{item['who']}  ", QUIET), (said, "italic"))
    if "tool_name" in item and "verdict" in item:
        times = f"×{item['repeats']}, same arguments, same result  " if "repeats" in item else ""
        again = item["same_result"] or 0
        more = f"  (this result {again} times so far)" if again > 2 and not times else ""
        style = BAD if item["failing"] else GOOD
        why = f": {item['signature']}" if item["signature"] else ""
        took = "" if item["duration_ms"] is None else f"  {item['duration_ms'] / 1000:.1f} s"
        return Text.assemble(
            (item["tool_name"], "bold"), "  ", (times, "bold"), item["arguments"], ("  →  ", QUIET),
            (f"{item['verdict']}{why}", style), (f"{took}{more}", QUIET),
        )  # fmt: skip
    if "decision" in item:
        line = line_of(item["decision"])
        led = f"  [{item['effect']}]" if item.get("effect") else ""
        return Text.assemble((f"{line.mark} {line.what}", STYLES[line.tone]), f"  {line.why}{led}")
    event = item["event"]
    return Text(
        f"{plain(event['type'].replace('.', ' '))} {event.get('reason') or event.get('tool_name') or ''}", QUIET
    )


CLOCK_WIDTH = 8
NAME_WIDTH = 9
"""Of the words before each fact: `why`, `platform`."""

_TRUST = {
    "escalated": (WARN, "asks the user before each such call"),
    "recovering": (WARN, "still asks; {needed} successes in all restore trust"),
    "trusted": (GOOD, "runs it without asking again"),
    "blocked": (BAD, "refuses such calls until a person resets it"),
    "removed": (BAD, "offers the tool no more"),
}
_CIRCUIT = {
    "open": (BAD, "sends no calls for {seconds} s, fails them at once"),
    "half_open": (WARN, "lets one call through, as a probe"),
    "closed": (GOOD, "sends calls again"),
    "forced_open": (BAD, "sends no calls until an operator says so"),
}
_NUDGE = {
    "gentle": (WARN, "adds it to the context as a hint"),
    "direct": (WARN, "says it to the model as guidance"),
    "interrupt": (BAD, "pauses the session and calls the user"),
}


class Block(NamedTuple):
    """One decision, or several of the same kind made at the same moment.

    Attributes:
        title: what happened, in a word or two.
        subjects: the keys it happened to.
        facts: name and text of each further line.
    """

    title: str
    style: str
    subjects: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def told(event: Record, call: Record | None) -> Text | None:
    """One line for what the agent did; None for events that say nothing by themselves.

    `call` is the `tool_call.started` of a finished call.
    """
    match event["type"]:
        case "tool_call.finished":
            return _call(event, (call or {}).get("args") or {})
        case "model.text":
            return Text.assemble(("the model says  ", QUIET), (f"“{event['text']}”", "italic"))
        case "user.message":
            return Text("the user writes", QUIET)
        case "turn.ended":
            return Text(f"end of turn {event['turn_index'] + 1}", QUIET)
    return None


def blocks(decisions: Sequence[Record]) -> list[Block]:
    """What was decided at one moment, alike things together."""
    made: list[Block] = []
    for decision in decisions:
        block = _block(decision, decisions)
        if block is None:
            continue
        twin = next((one for one in made if one.title == block.title and one.facts == block.facts), None)
        if twin is not None:
            made[made.index(twin)] = twin._replace(subjects=tuple(dict.fromkeys((*twin.subjects, *block.subjects))))
        else:
            made.append(block)
    return made


def later(minutes: int) -> RenderableType:
    """Time passes."""
    return Padding(Text(f"… {minutes} minutes later", QUIET), (0, 0, 0, 1))


def row(clock: str, what: RenderableType) -> RenderableType:
    """Something that happened, after its time of day."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=CLOCK_WIDTH, no_wrap=True, style=QUIET)
    table.add_column(overflow="fold")
    table.add_row(clock, what)
    return Padding(table, (0, 0, 0, 1))


def boxed(block: Block) -> RenderableType:
    """A decision, set off by a bar in its colour."""
    body = Table.grid(padding=(0, 2, 0, 0))
    body.add_column(min_width=NAME_WIDTH, no_wrap=True, style=QUIET)
    body.add_column(overflow="fold")
    if block.subjects:
        body.add_row("what", Text("\n".join(block.subjects), "bold"))
    for fact, words in block.facts:
        body.add_row(fact, Text(words))
    return Padding(
        _Barred(Group(Text(block.title.upper(), block.style), body), block.style), (0, 0, 0, CLOCK_WIDTH + 3)
    )


class _Barred:
    """Something with a coloured bar down its left side."""

    def __init__(self, inner: RenderableType, style: str) -> None:
        self._inner = inner
        self._style = style

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        for line in console.render_lines(self._inner, options.update_width(options.max_width - 2), pad=False):
            yield Text("▌ ", self._style, end="")
            yield from line
            yield Text()


def _call(event: Record, args: Record) -> Text:
    status = event["status"]
    error = event.get("error") or {}
    outcome = "ok" if status == "success" else str(error.get("http_status") or error.get("message") or status)
    made = Text.assemble((event["tool_name"], "bold"), "  ")
    made.append(", ".join(str(value) for value in args.values()))
    made.append("  →  ", QUIET)
    made.append(outcome, GOOD if status == "success" else "red")
    return made


def _block(decision: Record, together: Sequence[Record]) -> Block | None:
    match decision["type"]:
        case "trust.changed":
            style, todo = _TRUST[decision["to"]]
            todo = todo.format(needed=decision.get("successes_needed"))
            if decision["to"] == "escalated" and decision.get("expires_at"):
                todo += f", at least until {_clock(decision['expires_at'])}"
            title = "trusted again" if decision["to"] == "trusted" else str(decision["to"])
            subject = decision["key"] + (" (part of it, silent)" if decision.get("part_of") else "")
            return Block(title, style, (subject,), (("why", decision["reason"]), ("platform", todo)))
        case "breaker.changed":
            style, todo = _CIRCUIT[decision["to"]]
            todo = todo.format(seconds=_seconds(decision))
            why = circuit_reason(decision)
            if decision["to"] == "half_open":
                why = f"its time was over at {_clock(decision['time'])}"
            title = f"circuit {plain(decision['to'])}"
            return Block(title, style, (decision["breaker_key"],), (("why", why), ("platform", todo)))
        case "nudge.issued":
            style, todo = _NUDGE[decision["nudge_type"]]
            return Block(
                f"{decision['nudge_type']} nudge",
                style,
                (),
                (*_because(together), ("says", decision["message"]), ("platform", todo)),
            )
        case "pattern.cleared":
            return Block("over", GOOD, (plain(decision["pattern"]),), ())
    return None


def _because(together: Sequence[Record]) -> Iterable[tuple[str, str]]:
    for one in together:
        if one["type"] == "pattern.detected":
            ignored = any(other["type"] == "nudge.judged" and not other["effective"] for other in together)
            after = ", and the last nudge was ignored" if ignored else ""
            yield "why", f"{plain(one['pattern'])}, {times(one['repetitions'])}: {one['severity']}{after}"


class Memory:
    """Which keys were named together before, so that the same three need not be spelled out again."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def shortened(self, block: Block) -> Block:
        """The block, with a group of keys that was shown before cut down to its first."""
        group = block.subjects
        if len(group) < 2 or group not in self._seen:
            self._seen.add(group)
            return block
        others = "the other" if len(group) == 2 else f"the {len(group) - 1} others"
        return block._replace(subjects=(f"{group[0]} and {others} above",))


def _clock(time: str) -> str:
    return time[11:19]


def _seconds(decision: Record) -> int:
    until = decision.get("open_until")
    if not until:
        return 0
    return round((datetime.fromisoformat(until) - datetime.fromisoformat(decision["time"])).total_seconds())
