"""`trustfold story`: one session as a timeline: calls, decisions, and their reasons."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from ..config import EnvironmentSettings
from ..errors import ConfigError
from ..schemas.decision_text import counted, line_of_record, plain
from ..schemas.session_timeline import SessionTimeline, TimelineItem
from .clients.client import LAST, Record
from .clients.selection import target_of
from .options import json_option, target_options
from .render import console, write_json
from .terminal import BAD, GOOD, QUIET, STYLES, WARN, timed

SHOWN = 200  # Default number of entries shown


@click.command()
@click.argument("session")
@target_options
@click.option("--history", metavar="DIR", help="Recorded history to read instead.")
@click.option("--errors", is_flag=True, help="Show only failures and decisions about faults.")
@click.option(
    "--limit", type=click.IntRange(0), default=SHOWN, metavar="N", show_default=True, help="Latest N entries; 0: all."
)
@json_option()
def story(
    *,
    session: str,
    history: str | None,
    errors: bool,
    limit: int,
    as_json: bool,
    **where: str | None,
) -> None:
    """Show a session as a timeline: calls with their outcome, loops and their cost, nudges and their effect.

    SESSION is an id, or `last` for the session of a connected agent that was heard last.

    Reads the store of a local `up`, its address, or a recorded history. If no place is named, the history is
    read for sessions that the store does not hold.
    """
    found = _found(session, history, where)
    if found is None:
        raise ConfigError(
            f"unknown session {session!r}; `last` is the latest one of a connected agent, "
            "and `trustfold history look-first` lists recorded ones"
        )
    items = [one for one in found["items"] if one.get("failing") or not errors]
    shown = items[-limit:] if limit else items
    left_out = len(items) - len(shown)
    document = found | {"items": shown, "items_left_out": left_out}
    if as_json:
        write_json(document)
        return
    timeline = msgspec.convert(document, SessionTimeline)
    out = console()
    for line in (*_head(timeline), Text(), *map(_row, timeline.items)):
        out.print(line)
    if left_out:
        out.print(Text(f"{counted(left_out, 'earlier entry', 'earlier entries')} left out; --limit 0 shows all", QUIET))


def _found(session: str, history: str | None, where: dict[str, str | None]) -> Record | None:
    named = any(where.values())
    if history is not None:
        if named:
            raise ConfigError("--history names another place than --store, --url and --bootstrap; give one of them")
        return _recorded(Path(history), session)
    usual = EnvironmentSettings.from_env().history
    has_history = not named and any(usual.glob("*/*/*.parquet"))
    try:
        target = target_of(**where, settings=None)
        server = target.server() if session == LAST else None
        found = target.session(server.named(session) if server else session)
    except ConfigError as error:  # no store
        if named:
            raise
        if not has_history:
            raise ConfigError(
                f"{error}; and nothing is recorded in {usual}; `trustfold record FILE` does that"
            ) from error
        found = None
    return found if found is not None or not has_history else _recorded(usual, session)


def _recorded(root: Path, session: str) -> Record | None:
    from ..history.catalogue import connect
    from ..history.sessions.json_view import timeline_document
    from ..history.sessions.recorded import READS, recorded_session

    with connect(root, query=READS) as connection:
        found = recorded_session(connection, session)
    return timeline_document(found) if found.items else None


def _head(found: SessionTimeline) -> Iterable[RenderableType]:
    verdicts = ", ".join(f"{count:,} {word}" for word, count in found.verdicts.items())
    yield Text.assemble((f"Session {found.session_id}", "bold"), "  ", ", ".join(found.models))
    yield Text(f"{found.began[:19]} to {found.ended[:19]} UTC, {counted(found.calls, 'call')}: {verdicts}", QUIET)
    for loop in found.loops[:5]:
        spent = "" if loop.tool_ms is None else f", {loop.tool_ms / 1000:.1f} s in the tool"
        money = "" if loop.cost_usd is None else f", {loop.cost_usd:.4g} US$"
        yield Text.assemble(
            ("loop  ", BAD),
            f"{loop.tool_name} {loop.arguments} ×{loop.times}, same result: "
            f"{counted(loop.wasted_calls, 'call')} wasted ({loop.share_of_calls:.0%} of all){spent}{money}",
        )
    for one in found.patterns[-10:]:
        grown = " → ".join(str(step.repetitions) for step in one.steps)
        of = f" of {', '.join(map(str, one.thresholds))}" if one.thresholds else ""
        nudges = ", ".join(f"{nudge.kind} nudge {nudge.effect}" for nudge in one.nudges) or "no nudge"
        ended = "over" if one.cleared else "not over"
        calls = f" `{one.request}`" if one.request else ""
        yield Text.assemble(("pattern  ", WARN), f"{plain(one.pattern)} {grown}{of}{calls}: {nudges}; {ended}")


def _row(item: TimelineItem) -> RenderableType:
    return timed(item.time[11:19], _line(item))


def _line(item: TimelineItem) -> Text:
    if item.who is not None:
        text = f"“{item.text}”" if item.text else "…"
        return Text.assemble((f"{item.who}  ", QUIET), (text, "italic"))
    if item.tool_name is not None and item.verdict is not None:
        times = "" if item.repeats is None else f"×{item.repeats}, same arguments, same result  "
        again = item.same_result or 0
        more = f"  (this result {again} times so far)" if again > 2 and not times else ""
        style = BAD if item.failing else GOOD
        why = f": {item.signature}" if item.signature else ""
        took = "" if item.duration_ms is None else f"  {item.duration_ms / 1000:.1f} s"
        return Text.assemble(
            (item.tool_name, "bold"), "  ", (times, "bold"), item.arguments, ("  →  ", QUIET),
            (f"{item.verdict}{why}", style), (f"{took}{more}", QUIET),
        )  # fmt: skip
    if item.decision is not None:
        line = line_of_record(item.decision)
        led = f"  [{item.effect}]" if item.effect else ""
        return Text.assemble((f"{line.mark} {line.what}", STYLES[line.tone]), f"  {line.why}{led}")
    event = item.event or {}
    what = plain(str(event.get("type") or item.kind).replace(".", " "))
    return Text(f"{what} {event.get('reason') or event.get('tool_name') or ''}", QUIET)
