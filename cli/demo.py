"""`trustfold demo`: a bad day of one agent, folded by the embedded engine and told as a story."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import orjson
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from ..projections.topology import DECISION_TOPICS
from ..rules.rules import Rules
from ..streams.embedded.engine import EmbeddedEngine
from .render import console, data
from .scenarios.bad_day import CHAPTERS, events
from .status import overview_table
from .story import Memory, blocks, boxed, later, row, told
from .terminal import QUIET

Record = dict[str, Any]

WIDEST = 100
"""Columns; longer lines are hard to read."""

LONG = timedelta(minutes=5)
"""A silence worth telling."""

INTRO = (
    "trustfold reads the events of an agent's tool calls and says, while it happens: is this tool healthy, may it run "
    "without asking, is this model stuck? Here are {events} recorded events, folded one after another by the real "
    "engine. After the time stands what the agent does; behind the bar what trustfold decides, why, and what the "
    "platform does."
)

NEXT = (
    ("trustfold demo --json", "the same decisions, as consumers read them"),
    ("trustfold replay FILE", "fold what you have recorded"),
    ("trustfold up", "take events over HTTP on this machine"),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The decisions, one a line, as they would go on the wire.")
def demo(*, as_json: bool) -> None:
    """Replay a scripted agent whose tools fail, and show each decision.

    The events are recorded, the pipeline is real: the embedded engine folds them over a store of its own, which is
    deleted at the end.
    """
    with (
        TemporaryDirectory(prefix="trustfold-demo-") as directory,
        EmbeddedEngine.open(Path(directory, "demo.sqlite"), Rules()) as engine,
    ):
        if as_json:
            for output in engine.ingest(events()) + engine.tick(engine.stream_time):
                if output.topic in DECISION_TOPICS and output.value is not None:
                    data().write(output.value + b"\n")
            return
        _tell(engine, console())


def _tell(engine: EmbeddedEngine, out: Console) -> None:
    out.width = min(out.width, WIDEST)
    day = [orjson.loads(event) for event in events()]
    out.print()
    out.print(Text("A bad day of one agent", "bold"))
    out.print(Text(INTRO.format(events=len(day)), QUIET))
    for number, chapter in enumerate(CHAPTERS, 1):
        _heading(out, f"{number}  {chapter.title}")
        out.print(Text(f"{chapter.intro}\n"))
        _chapter(engine, out, [event for event in day if event["session_id"] == chapter.session])
        out.print(Text(chapter.moral, f"{QUIET} italic"))
    _heading(out, "In the evening")
    out.print(Text("What `trustfold status` shows: what recovered is gone from it, the rest is still there.\n"))
    states = [orjson.loads(value) for value in engine.states().values()]
    now = datetime.fromisoformat(day[-1]["time"])
    mode = str(engine.rules.trust.recovery_mode)
    out.print(Padding(overview_table(states, mode, now, everything=False), (0, 0, 1, 1)))
    out.print(Text("Next", "bold"))
    for command, what in NEXT:
        out.print(Text.assemble(f" {command:<23} ", (what, QUIET)))


def _heading(out: Console, title: str) -> None:
    out.print()
    out.print(Rule(Text(f" {title} ", "bold"), align="left", style=QUIET, characters="─"))


def _chapter(engine: EmbeddedEngine, out: Console, day: Sequence[Record]) -> None:
    """Fold one session, event by event, and tell what comes of each."""
    calls: dict[str, Record] = {}
    memory = Memory()
    before = datetime.fromisoformat(day[0]["time"])
    spaced = False
    for event in day:
        outputs = engine.ingest([orjson.dumps(event)])
        decided = blocks(
            [orjson.loads(one.value) for one in outputs if one.topic in DECISION_TOPICS and one.value is not None]
        )
        now = datetime.fromisoformat(event["time"])
        if event["type"] == "tool_call.started":
            calls[event["call_id"]] = event
            if now - before > LONG:
                out.print(later(int((now - before).total_seconds() / 60)))
        before = now
        line = told(event, calls.get(event.get("call_id", "")))
        if line is not None and (decided or event["type"] != "turn.ended"):
            out.print(row(event["time"][11:19], line))
            spaced = False
        for block in decided:
            out.print(boxed(memory.shortened(block)))
        if decided:
            out.print()
            spaced = True
    if not spaced:
        out.print()
