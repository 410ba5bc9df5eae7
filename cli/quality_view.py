"""How quality, ranks and models look to a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..projections.ranking import Ranked
from .clients.base import Record
from .styles import BAD, GOOD, QUIET, WARN

_GOOD_FROM, _FAIR_FROM = 0.8, 0.5


def quality_table(states: Sequence[Record], now: datetime) -> RenderableType:
    """Every tool that does not stand at its registered score with nothing against it, the worst first."""
    if not states:
        return Text("every tool stands at the score it was registered with", QUIET)
    several = len({state.get("workspace_id") for state in states}) > 1
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    if several:
        table.add_column("Workspace", overflow="fold")
    table.add_column("Tool", overflow="fold", min_width=16)
    table.add_column("Score", no_wrap=True, justify="right")
    table.add_column("Failures", no_wrap=True, justify="right")
    table.add_column("Against it", overflow="fold")
    for state in sorted(states, key=lambda one: (one["score"], one["key"])):
        row: list[RenderableType] = [
            Text(str(state["key"])),
            Text(score_words(state), _style(state["score"])),
            str(state.get("failures") or 0),
            Text("\n".join(f"{what}: {words}" for what, words in _against(state, now))),
        ]
        table.add_row(*([Text(str(state.get("workspace_id", "")))] if several else []), *row)
    return table


def models_table(states: Sequence[Record]) -> RenderableType:
    """How each model did with each tool and target, a tool's worst model first."""
    several = len({state.get("workspace_id") for state in states}) > 1
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    if several:
        table.add_column("Workspace", overflow="fold")
    table.add_column("Tool/Parameters", overflow="fold", min_width=16)
    table.add_column("Model", overflow="fold", min_width=12)
    for name in ("Calls", "Failed", "Success"):
        table.add_column(name, no_wrap=True, justify="right")
    for state in sorted(states, key=lambda one: (one["key"], one["success_rate"] or 0.0)):
        row = [
            Text(str(state["key"])),
            Text(str(state.get("model") or "all")),
            Text(str(state.get("attempts") or 0)),
            Text(f"{state.get('failures') or 0:g}"),
            Text(f"{state['success_rate'] or 0.0:.0%}", _style(state["success_rate"] or 0.0)),
        ]
        table.add_row(*([Text(str(state.get("workspace_id", "")))] if several else []), *row)
    return table


def rank_table(ranked: Sequence[Ranked]) -> RenderableType:
    """Tools for a scenario, best first, and what led to each place."""
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    table.add_column("Tool", overflow="fold", min_width=16)
    for name in ("Rank", "Similar", "Demoted", "Quality"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("Because", overflow="fold")
    for one in ranked:
        reasons = ["" if one.available else "down now", one.tag, one.failed_at and f"failed at: {one.failed_at}"]
        why = "; ".join(filter(None, reasons))
        table.add_row(
            Text(one.tool, "" if one.rank else QUIET),
            Text(f"{one.rank:.2f}", _style(one.rank) if one.rank else QUIET),
            f"{one.similarity:.2f}",
            f"{one.demotion:.2f}" if one.demotion else "-",
            f"{one.quality:.2f}",
            Text(why),
        )
    return table


def score_words(state: Record) -> str:
    """A score and what it is out of: `0.75 of 0.90`."""
    return f"{state['score']:.2f} of {state['registered_score']:.2f}"


def tags_in_force(state: Record, now: datetime) -> list[str]:
    """Words that a tool is not for, as long as the tags last."""
    expires = state.get("tags_expire_at", {})
    lasting = [tag for tag in state.get("tags", ()) if tag not in expires or datetime.fromisoformat(expires[tag]) > now]
    return [tag.removeprefix("not-for-") for tag in lasting]


def _against(state: Record, now: datetime) -> list[tuple[str, str]]:
    tags, failed = tags_in_force(state, now), state.get("failed_scenarios", {})
    words = [("not for", ", ".join(tags)), ("failed at", "; ".join(reversed(list(failed))))]
    if (until := state.get("unavailable_until")) and datetime.fromisoformat(until) > now:
        words.insert(0, ("out of reach until", f"{datetime.fromisoformat(until):%H:%M:%S}"))
    return [(what, text) for what, text in words if text]


def title_of(state: Record, now: datetime) -> tuple[Text, list[tuple[str, str]]]:
    """Title and facts of a quality or model state, for the view of one key."""
    title = Text(f"{state['key']}  ", "bold")
    facts: list[tuple[str, str]] = []
    if state["kind"] == "quality":
        title.append(f"quality {score_words(state)}", _style(state["score"]))
        facts += _against(state, now)
    else:
        rate = state.get("success_rate")
        title.append(f"with {state.get('model') or 'any model'}", QUIET)
        facts.append(("success rate", f"{rate:.0%}" if rate is not None else "-"))
        facts.append(("calls", f"{state.get('attempts') or 0}, {state.get('failures') or 0:g} failed"))
    if state.get("workspace_id"):
        facts.append(("workspace", str(state["workspace_id"])))
    return title, facts


def _style(score: float) -> str:
    return GOOD if score >= _GOOD_FROM else WARN if score >= _FAIR_FROM else BAD
