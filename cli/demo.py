"""`trustfold demo`: folds one agent's scripted day with the embedded engine and prints each decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import msgspec
import orjson
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..projections.topology import DECISION_TOPICS
from ..rules.rules import RuleSet
from ..schemas.codec import decode_decision, decode_event, encode
from ..schemas.decision_text import circuit_reason, plain, times
from ..schemas.decisions import (
    BreakerChanged,
    Decision,
    NudgeIssued,
    NudgeJudged,
    PatternCleared,
    PatternDetected,
    TrustChanged,
)
from ..schemas.events import Event, ModelText, ToolCallFinished, ToolCallStarted, TurnEnded, UserMessage
from ..schemas.vocabulary import BreakerState, CallStatus, TrustState
from ..streams.embedded.engine import EmbeddedEngine
from .clients.client import StateOverview, state_records
from .options import json_option
from .render import console, data
from .status import overview_table
from .terminal import BAD, CLOCK_WIDTH, GOOD, QUIET, WARN, timed

WIDEST = 100  # Width in columns; longer lines are hard to read
LONG = timedelta(minutes=5)  # Shortest pause that is printed
NAME_WIDTH = 9  # Width in characters of the labels before each fact: `why`, `platform`

INTRO = (
    "trustfold folds the events of an agent's tool calls into decisions: is this tool healthy, may it run without "
    "asking, is this model stuck? The embedded engine folds {events} scripted events, one after another. Beside each "
    "time is an event of the agent; behind each bar is a decision, its reason, and what the platform should do."
)

NEXT = (
    ("trustfold demo --json", "the same decisions, as consumers read them"),
    ("trustfold demo --events", "its events, a file for replay, record and publish"),
    ("trustfold replay FILE", "fold what you have recorded"),
    ("trustfold up", "take events over HTTP on this machine"),
)


EVENTS = "demo.ndjson"  # File of the scripted events; `tests/support/demo_script.py` writes it


class DemoChapter(NamedTuple):
    """Part of the day, with a session of its own."""

    session: str
    title: str
    intro: str  # text before its events
    result: str  # text after its events: what trustfold did, and why


CHAPTERS = (
    DemoChapter(
        "morning-report",
        "An API starts to fail",
        "The agent collects figures page by page, and the server answers 503.",
        "One outage gives one notification, which names the service. Trust asks the user; the circuit stops the calls.",
    ),
    DemoChapter(
        "tidy-up",
        "A dangerous command",
        "Two commands are refused. The third one is dangerous.",
        "A dangerous command blocks its key at once, until a person resets it. Other commands still run.",
    ),
    DemoChapter(
        "tickets",
        "One server fails, another one works",
        "Two tools of one MCP server time out. Another server answers.",
        "Calls of all its tools count for the service: its outage is found before one tool alone has failed often.",
    ),
    DemoChapter(
        "research",
        "The same call again and again",
        "Every call succeeds, but the agent makes no progress: same arguments, same result.",
        "The same call with the same result is a loop. Its nudges become stronger until the session is paused.",
    ),
    DemoChapter(
        "restore",
        "Announcements without actions",
        "Turn after turn the model announces work; it lists its tools once, and announces again.",
        "Turns without an action are counted across the session: a hint, guidance, a pause that the next call ends.",
    ),
)


def events() -> list[bytes]:
    """The scripted events, in order."""
    return files(__package__).joinpath(EVENTS).read_bytes().splitlines()


def _ending_now() -> list[bytes]:
    """The scripted events, the last one now."""
    told = [orjson.loads(event) for event in events()]
    later = datetime.now(UTC) - datetime.fromisoformat(told[-1]["time"])
    moved = [(datetime.fromisoformat(event["time"]) + later).isoformat(timespec="milliseconds") for event in told]
    return [orjson.dumps(event | {"time": time}) for event, time in zip(told, moved, strict=True)]


@click.command()
@json_option("Print decisions as JSON, one per line, exactly as published.")
@click.option("--events", "as_events", is_flag=True, help="Print the events instead, a file for the other commands.")
@click.option("--now", is_flag=True, help="With --events: let the day end now, so that pages of the last days show it.")
def demo(*, as_json: bool, as_events: bool, now: bool) -> None:
    """Replay a scripted agent whose tools fail, and show each decision.

    The events are scripted; the embedded engine folds them in a temporary store, which is deleted at the
    end. `trustfold demo --events > run.ndjson` makes a file to replay, record and publish.
    """
    if as_events:
        data().writelines(event + b"\n" for event in (_ending_now() if now else events()))
        return
    with (
        TemporaryDirectory(prefix="trustfold-demo-") as directory,
        EmbeddedEngine.open(Path(directory, "demo.sqlite"), RuleSet()) as engine,
    ):
        if as_json:
            for output in engine.ingest(events()) + engine.tick(engine.stream_time):
                if output.topic in DECISION_TOPICS and output.value is not None:
                    data().write(output.value + b"\n")
            return
        _print_day(engine, console())


def _print_day(engine: EmbeddedEngine, out: Console) -> None:
    out.width = min(out.width, WIDEST)
    day = [decode_event(event) for event in events()]
    out.print()
    out.print(Text("One day of an agent whose tools fail", "bold"))
    out.print(Text(INTRO.format(events=len(day)), QUIET))
    for number, chapter in enumerate(CHAPTERS, 1):
        _heading(out, f"{number}  {chapter.title}")
        out.print(Text(f"{chapter.intro}\n"))
        _print_chapter(engine, out, [event for event in day if event.session_id == chapter.session])
        out.print(Text(chapter.result, f"{QUIET} italic"))
    _heading(out, "At the end of the day")
    out.print(Text("`trustfold status` lists what has not recovered:\n"))
    states = StateOverview(state_records(orjson.loads(value) for value in engine.views.states().values()), None).states
    mode = str(engine.rules.trust.recovery_mode)
    out.print(Padding(overview_table(states, mode, day[-1].time, everything=False), (0, 0, 1, 1)))
    out.print(Text("Next", "bold"))
    for command, what in NEXT:
        out.print(Text.assemble(f" {command:<23} ", (what, QUIET)))


def _heading(out: Console, title: str) -> None:
    out.print()
    out.print(Rule(Text(f" {title} ", "bold"), align="left", style=QUIET, characters="─"))


def _print_chapter(engine: EmbeddedEngine, out: Console, day: Sequence[Event]) -> None:
    """Fold one session, event by event, and print the decisions of each."""
    calls: dict[str, ToolCallStarted] = {}
    printed: set[tuple[str, ...]] = set()
    before = day[0].time
    spaced = False
    for event in day:
        outputs = engine.ingest([encode(event)])
        found = blocks([decode_decision(one.value) for one in outputs if one.topic in DECISION_TOPICS])
        if isinstance(event, ToolCallStarted):
            calls[event.call_id] = event
            if event.time - before > LONG:
                minutes = int((event.time - before).total_seconds() / 60)
                out.print(Padding(Text(f"… {minutes} minutes later", QUIET), (0, 0, 0, 1)))
        before = event.time
        line = _line(event, calls)
        if line is not None and (found or not isinstance(event, TurnEnded)):
            out.print(timed(f"{event.time:%H:%M:%S}", line))
            spaced = False
        for block in found:
            out.print(_boxed(block, _subjects(block, printed)))
        if found:
            out.print()
            spaced = True
    if not spaced:
        out.print()


_TRUST = {
    TrustState.ESCALATED: (WARN, "asks the user before each such call"),
    TrustState.RECOVERING: (WARN, "still asks; {needed} successes in all restore trust"),
    TrustState.TRUSTED: (GOOD, "runs it without asking again"),
    TrustState.BLOCKED: (BAD, "refuses such calls until a person resets it"),
    TrustState.REMOVED: (BAD, "offers the tool no more"),
}
_CIRCUIT = {
    BreakerState.OPEN: (BAD, "sends no calls for {seconds} s, fails them at once"),
    BreakerState.HALF_OPEN: (WARN, "lets one call through, as a probe"),
    BreakerState.CLOSED: (GOOD, "sends calls again"),
    BreakerState.FORCED_OPEN: (BAD, "sends no calls until an operator closes it"),
}
_NUDGE = {
    "gentle": (WARN, "adds it to the context as a hint"),
    "direct": (WARN, "adds it to the context as guidance"),
    "interrupt": (BAD, "pauses the session and calls the user"),
}


class DecisionBlock(NamedTuple):
    """One decision, or several of the same kind at the same time."""

    title: str  # the decision, in a word or two
    style: str  # style of the title and the bar
    subjects: tuple[str, ...]  # keys it applies to
    facts: tuple[tuple[str, str], ...]  # label and text of each further line


def _line(event: Event, calls: dict[str, ToolCallStarted]) -> Text | None:
    """One line of text about an event; None for events that are not shown by themselves.

    `calls` are the started calls by id.
    """
    match event:
        case ToolCallFinished():
            return _call(event, calls.get(event.call_id))
        case ModelText():
            return Text.assemble(("model  ", QUIET), (f"“{event.text}”", "italic"))
        case UserMessage():
            return Text("message of the user", QUIET)
        case TurnEnded():
            return Text(f"end of turn {(event.turn_index or 0) + 1}", QUIET)
    return None


def _call(event: ToolCallFinished, call: ToolCallStarted | None) -> Text:
    succeeded = event.status is CallStatus.SUCCESS
    fault = event.error and (event.error.http_status or event.error.message)
    args: dict[str, Any] = msgspec.json.decode(call.args) if call is not None and call.args else {}
    return Text.assemble(
        (event.tool_name, "bold"),
        f"  {', '.join(map(str, args.values()))}",
        ("  →  ", QUIET),
        ("ok", GOOD) if succeeded else (str(fault or event.status), "red"),
    )


def blocks(decisions: Sequence[Decision]) -> list[DecisionBlock]:
    """Decisions at one time as blocks, equal ones grouped."""
    made: list[DecisionBlock] = []
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


def _block(decision: Decision, together: Sequence[Decision]) -> DecisionBlock | None:
    match decision:
        case TrustChanged():
            style, todo = _TRUST[decision.to]
            todo = todo.format(needed=decision.successes_needed)
            if decision.to is TrustState.ESCALATED and decision.expires_at:
                todo += f", at least until {_clock(decision.expires_at)}"
            title = "trusted again" if decision.to is TrustState.TRUSTED else str(decision.to)
            subject = decision.key + (" (part of it, silent)" if decision.part_of else "")
            return DecisionBlock(title, style, (subject,), (("why", decision.reason), ("platform", todo)))
        case BreakerChanged():
            style, todo = _CIRCUIT[decision.to]
            todo = todo.format(seconds=_seconds(decision))
            why = circuit_reason(decision)
            if decision.to is BreakerState.HALF_OPEN:
                why = f"it expired at {_clock(decision.time)}"
            title = f"circuit {plain(decision.to)}"
            return DecisionBlock(title, style, (decision.breaker_key,), (("why", why), ("platform", todo)))
        case NudgeIssued():
            style, todo = _NUDGE[decision.nudge_type]
            facts = (*_reasons(together), ("message", decision.message), ("platform", todo))
            return DecisionBlock(f"{decision.nudge_type} nudge", style, (), facts)
        case PatternCleared():
            return DecisionBlock("over", GOOD, (plain(decision.pattern),), ())
    return None


def _reasons(together: Sequence[Decision]) -> Iterable[tuple[str, str]]:
    """Label and text of each pattern detected at the same time, and of what a person is told about it."""
    ignored = any(isinstance(one, NudgeJudged) and not one.effective for one in together)
    for one in together:
        if isinstance(one, PatternDetected):
            after = ", and the last nudge was ignored" if ignored else ""
            yield "why", f"{plain(one.pattern)}, {times(one.repetitions)}: {one.severity}{after}"
            if one.notify_user and one.message:
                yield "person", one.message


def _subjects(block: DecisionBlock, printed: set[tuple[str, ...]]) -> tuple[str, ...]:
    """Keys of a block; a group of keys that was printed before is abbreviated to its first key."""
    group = block.subjects
    if len(group) < 2 or group not in printed:
        printed.add(group)
        return group
    others = "the other" if len(group) == 2 else f"the {len(group) - 1} others"
    return (f"{group[0]} and {others} above",)


def _boxed(block: DecisionBlock, subjects: Sequence[str]) -> RenderableType:
    """A decision, marked by a bar in its colour."""
    body = Table.grid(padding=(0, 2, 0, 0))
    body.add_column(min_width=NAME_WIDTH, no_wrap=True, style=QUIET)
    body.add_column(overflow="fold")
    if subjects:
        body.add_row("what", Text("\n".join(subjects), "bold"))
    for fact, words in block.facts:
        body.add_row(fact, Text(words))
    bar = _WithBar(Group(Text(block.title.upper(), block.style), body), block.style)
    return Padding(bar, (0, 0, 0, CLOCK_WIDTH + 3))


class _WithBar:
    """Rich renderable with a coloured bar on its left side."""

    def __init__(self, inner: RenderableType, style: str) -> None:
        self._inner = inner
        self._style = style

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        for line in console.render_lines(self._inner, options.update_width(options.max_width - 2), pad=False):
            yield Text("▌ ", self._style, end="")
            yield from line
            yield Text()


def _clock(time: str) -> str:
    return time[11:19]


def _seconds(decision: BreakerChanged) -> int:
    """Seconds that an open circuit stays open; 0 for others."""
    if not decision.open_until:
        return 0
    return round((datetime.fromisoformat(decision.open_until) - datetime.fromisoformat(decision.time)).total_seconds())
