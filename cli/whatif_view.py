"""Output of `trustfold whatif`: comparisons as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..schemas.codec import rfc3339
from ..schemas.decision_text import counted
from .render import console, echo, note

if TYPE_CHECKING:
    from ..history.filters import HistoryFilters
    from ..history.whatif.compare import ComparedStreak, ComparisonResult, ShiftReport
    from ..history.whatif.decisions import DecisionDifferences, KindCounts

LONG_S = 600  # Estimated seconds from which on it is said what shortens them

# Approximate inputs per second that one core folds under one set of rules; used to estimate the duration
EVENTS_A_SECOND = 20_000

# Possible differences of a streak or an incident under other rules
DIFFERENCES = ("caught", "lost", "earlier", "later", "otherwise")

STREAK = "streak"


def show_comparison(compared: ComparisonResult, limit: int) -> None:
    """Print counts of each kind of decision that differs, streaks and incidents, and examples."""
    from .history_view import table_of

    difference = compared.difference
    if difference.empty:
        console().print("No difference: both rules lead to the same decisions.")
        return
    kinds = [(what, *_counts(kind).values()) for what, kind in difference.kinds.items() if kind.differs]
    console().print(table_of(("decision", *_COUNTS), kinds, "Decisions under the other rules"))
    streaks = [one for one in compared.shifts if one.kind == STREAK]
    keys = [one for one in compared.shifts if one.kind != STREAK]
    _show_shifts("Streaks of behaviour", _STREAK_COLUMNS, streaks, _streak_row, limit)
    _show_shifts("Keys and circuits", _KEY_COLUMNS, keys, _key_row, limit)
    for side, words in (("before", "the rules compared with"), ("after", "the other rules")):
        if held := compared.held[side]:
            note(
                f"{counted(held.total(), 'call')} would have been asked about or refused ({held['well']:,} did their "
                f"work, {held['broke']:,} broke or were denied) under {words}"
            )
    _show_examples(difference)


_COUNTS = ("before", "after", "added", "gone", "changed")


def _counts(kind: KindCounts) -> dict[str, int]:
    return {name: getattr(kind, name) for name in _COUNTS}


def _show_examples(difference: DecisionDifferences) -> None:
    from .history_view import table_of

    for title, examples in (
        ("Would have been decided", difference.added),
        ("Would not have been decided", difference.gone),
        ("Would have been worded differently", difference.changed),
    ):
        if examples:
            shown = [(e.what, e.time[:19], e.session, e.subject, e.after or e.before or e.reason) for e in examples]
            console().print(table_of(("decision", "time", "session", "about", "how"), shown, title))


_STREAK_COLUMNS = ("session", "pattern", "how", "calls_earlier", "before", "after", "look_at")
_KEY_COLUMNS = ("workspace", "key", "how", "calls_earlier", "began", "before", "after", "session", "look_at")


def _show_shifts(
    title: str,
    columns: Sequence[str],
    shifts: Sequence[ShiftReport],
    row: Callable[[ShiftReport], Sequence[Any]],
    limit: int,
) -> None:
    """Print a table of differences; caught and missed ones first."""
    from .history_view import table_of

    if not shifts:
        return
    count = Counter[str](one.how for one in shifts)
    totals = ", ".join(f"{count[how]:,} {how}" for how in DIFFERENCES if count[how])
    ranked = sorted(shifts, key=_rank)
    if limit:
        console().print(table_of(columns, [row(one) for one in ranked[:limit]], f"{title}: {totals}"))
    else:
        echo(f"{title}: {totals}")
    if len(ranked) > limit:
        note(f"... and {len(ranked) - limit:,} more; --limit shows more")


def _rank(one: ShiftReport) -> tuple[Any, ...]:
    return DIFFERENCES.index(one.how) // 2, -abs(one.calls_earlier or 0), one.workspace, one.subject, one.session


def _streak_row(one: ShiftReport) -> Sequence[Any]:
    last = one.after or one.before
    return one.session, one.subject, one.how, _by(one), _streak(one.before), _streak(one.after), _link(last)


def _key_row(one: ShiftReport) -> Sequence[Any]:
    last = one.after or one.before
    place = last.session if last else one.session
    began = datetime.fromtimestamp(last.time_ms / 1000, UTC).replace(tzinfo=None) if last else None
    return one.workspace, one.subject, one.how, _by(one), began, _key(one.before), _key(one.after), place, _link(last)


def _by(one: ShiftReport) -> str:
    """Number of calls by which it is detected earlier or later; a duration if no call is between."""
    if one.calls_earlier:
        return f"{one.calls_earlier:+,}"
    return f"{one.seconds_earlier:+,g} s" if one.seconds_earlier else ""


def _streak(seen: ComparedStreak | None) -> str:
    return f"call {seen.call}, {seen.worst}{f', {seen.nudges}' if seen.nudges else ''}" if seen else ""


def _key(seen: ComparedStreak | None) -> str:
    if seen is None:
        return ""
    held = [f"{count} {word}" for count, word in ((seen.asked, "asked"), (seen.refused, "refused")) if count]
    went = [f"{count} {word}" for count, word in ((seen.went_well, "for nothing"), (seen.broke, "rightly")) if count]
    return ", ".join([seen.worst, *held, *went])


def _link(seen: ComparedStreak | None) -> str:
    return (seen.call_id or seen.event_id) if seen else ""


def comparison_as_json(compared: ComparisonResult, filters: HistoryFilters, limit: int) -> dict[str, Any]:
    """A comparison as a JSON document; at most `limit` streaks and incidents each, caught and missed ones first."""
    difference, recorded = compared.difference, compared.recorded
    streaks = sorted((one for one in compared.shifts if one.kind == STREAK), key=_rank)
    keys = sorted((one for one in compared.shifts if one.kind != STREAK), key=_rank)
    return {
        "empty": difference.empty,
        "filters": filters.description(),
        "rules_recorded": compared.versions,
        "recorded": recorded.count,
        "recorded_decided_again": recorded.again,
        "recorded_decided_otherwise": recorded.otherwise,
        "kinds": {what: _counts(kind) for what, kind in difference.kinds.items()},
        "alike": compared.alike,
        "sessions": [
            {"session": name, **_count_differences(several)} for (name,), several in _grouped(streaks, "session")
        ],
        "streaks": [_shift_json(one) for one in streaks[:limit]],
        "streaks_left_out": max(0, len(streaks) - limit),
        "keys": [
            {
                "kind": kind,
                "workspace": workspace,
                "key": key,
                **_count_differences(several),
                **{
                    f"{name}_{side}": sum(getattr(seen, name) for one in several if (seen := getattr(one, side)))
                    for name in ("asked", "refused", "went_well", "broke")
                    for side in ("before", "after")
                },
            }
            for (kind, workspace, key), several in _grouped(keys, "kind", "workspace", "subject")
        ],
        "incidents": [_shift_json(one) for one in keys[:limit]],
        "incidents_left_out": max(0, len(keys) - limit),
        "held": {
            side: {went: count[went] for went in ("well", "broke", "neither")} for side, count in compared.held.items()
        },
        "added": [example._asdict() for example in difference.added],
        "gone": [example._asdict() for example in difference.gone],
        "changed": [example._asdict() for example in difference.changed],
    }


def _grouped(shifts: Iterable[ShiftReport], *names: str) -> list[tuple[tuple[str, ...], list[ShiftReport]]]:
    """Shifts grouped by subject, the largest groups first."""
    found: dict[tuple[str, ...], list[ShiftReport]] = {}
    for one in shifts:
        found.setdefault(tuple(getattr(one, name) for name in names), []).append(one)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _count_differences(shifts: Iterable[ShiftReport]) -> dict[str, int]:
    count = Counter[str](one.how for one in shifts)
    return {how: count[how] for how in DIFFERENCES}


def _shift_json(one: ShiftReport) -> dict[str, Any]:
    return {**one._asdict(), "before": _seen_json(one.before), "after": _seen_json(one.after)}


def _seen_json(seen: ComparedStreak | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    body = seen._asdict()
    calls = [{"session": session, "call_id": call_id} for session, call_id in body.pop("calls")]
    return {"time": rfc3339(body.pop("time_ms")), **body, "calls": calls}


def lasts(inputs: int, folds: int) -> str:
    """Estimated duration of folding as text, with what shortens it if it is long; empty if short."""
    seconds = inputs * folds / EVENTS_A_SECOND
    if seconds >= LONG_S:
        return f", about {seconds / 60:.0f} min on an idle machine; --since 7d folds the last week alone"
    return f", about {seconds / 60:.0f} min" if seconds >= 90 else f", about {seconds:.0f} s" if seconds >= 3 else ""
