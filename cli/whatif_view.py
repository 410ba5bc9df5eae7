"""What other rules would have decided, for people and for programs, and how far a fold has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..schemas.codec import rfc3339
from ..schemas.decision_text import counted
from .render import console, echo, note, side_console

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..history.filters import Filters
    from ..history.whatif.compare import Compared, Seen, Told
    from ..history.whatif.decisions import Difference

EVENTS_A_SECOND = 20_000
"""About what one core folds under one set of rules; only for saying beforehand how long it will take."""

HOWS = ("caught", "lost", "earlier", "later", "otherwise")
"""What other rules can make of a streak or an incident."""

STREAK = "streak"


class Folding:
    """A bar on standard error where that is a terminal, with the time that is left; nothing elsewhere."""

    def __init__(self, total: int, what: str, *, step: int = 500) -> None:
        """Prepare for so many things of a name; the bar moves every `step` of them."""
        self._total, self._step, self._what = total, step, what
        self._done = 0
        self._bar: Progress | None = None

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._done % self._step == 0:
            self._move()

    def reached(self, done: int) -> None:
        """So many are done."""
        self._done = done
        self._move()

    def _move(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def __enter__(self) -> Self:
        """Show the bar."""
        console = side_console()
        if console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn(self._what), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it away again; after an interrupt it says how far it had come."""
        if self._bar is not None:
            self._bar.stop()
        if kind is KeyboardInterrupt:
            note(f"{self._done:,} of {self._total:,} {self._what} were folded; nothing is shown or written")


def show_comparison(compared: Compared, limit: int) -> None:
    """Counts of every kind of decision that differs, streaks and incidents, and examples."""
    difference = compared.difference
    if difference.empty:
        console().print("No difference: these rules decide the same.")
        return
    _show_kinds(difference)
    streaks = [one for one in compared.shifts if one.kind == STREAK]
    keys = [one for one in compared.shifts if one.kind != STREAK]
    _show_shifts("Streaks of behaviour", _STREAK_COLUMNS, streaks, _streak_row, limit)
    _show_shifts("Keys and circuits", _KEY_COLUMNS, keys, _key_row, limit)
    for side, words in (("before", "the rules compared with"), ("after", "the other rules")):
        if held := compared.held[side]:
            note(f"{_held_in_words(held)} under {words}")
    _show_examples(difference)


def _show_kinds(difference: Difference) -> None:
    from .history_view import table_of

    columns = ("decision", "before", "after", "added", "gone", "changed")
    rows = [
        (what, kind.before, kind.after, kind.added, kind.gone, kind.changed)
        for what, kind in difference.kinds.items()
        if kind.differs
    ]
    console().print(table_of(columns, rows, "What the other rules decide"))


def _show_examples(difference: Difference) -> None:
    from .history_view import table_of

    for title, examples in (
        ("Would have been caught", difference.added),
        ("Would have been spared", difference.gone),
        ("Would have been said otherwise", difference.changed),
    ):
        if examples:
            shown = [(e.what, e.time[:19], e.session, e.subject, e.after or e.before or e.reason) for e in examples]
            console().print(table_of(("decision", "time", "session", "about", "how"), shown, title))


_STREAK_COLUMNS = ("session", "pattern", "how", "calls_earlier", "before", "after", "look_at")
_KEY_COLUMNS = ("workspace", "key", "how", "calls_earlier", "began", "before", "after", "session", "look_at")


def _show_shifts(
    title: str, columns: Sequence[str], shifts: Sequence[Told], row: Callable[[Told], Sequence[Any]], limit: int
) -> None:
    """A table of what differs, what is caught or lost first."""
    from .history_view import table_of

    if not shifts:
        return
    count = Counter[str](one.how for one in shifts)
    told = ", ".join(f"{count[how]:,} {how}" for how in HOWS if count[how])
    ranked = sorted(shifts, key=_rank)
    if limit:
        console().print(table_of(columns, [row(one) for one in ranked[:limit]], f"{title}: {told}"))
    else:
        echo(f"{title}: {told}")
    if len(ranked) > limit:
        note(f"... and {len(ranked) - limit:,} more; --limit shows more")


def _rank(one: Told) -> tuple[Any, ...]:
    return HOWS.index(one.how) // 2, -abs(one.calls_earlier or 0), one.workspace, one.subject, one.session


def _streak_row(one: Told) -> Sequence[Any]:
    last = one.after or one.before
    return one.session, one.subject, one.how, _by(one), _streak(one.before), _streak(one.after), _link(last)


def _key_row(one: Told) -> Sequence[Any]:
    last = one.after or one.before
    place = last.session if last else one.session
    began = datetime.fromtimestamp(last.time_ms / 1000, UTC).replace(tzinfo=None) if last else None
    return one.workspace, one.subject, one.how, _by(one), began, _key(one.before), _key(one.after), place, _link(last)


def _by(one: Told) -> str:
    """By how many calls it comes earlier, or by how long where no call lies between."""
    if one.calls_earlier:
        return f"{one.calls_earlier:+,}"
    return f"{one.seconds_earlier:+,g} s" if one.seconds_earlier else ""


def _streak(seen: Seen | None) -> str:
    return f"call {seen.call}, {seen.worst}{f', {seen.nudges}' if seen.nudges else ''}" if seen else ""


def _key(seen: Seen | None) -> str:
    if seen is None:
        return ""
    held = [f"{count} {word}" for count, word in ((seen.asked, "asked"), (seen.refused, "refused")) if count]
    went = [f"{count} {word}" for count, word in ((seen.went_well, "for nothing"), (seen.broke, "rightly")) if count]
    return ", ".join([seen.worst, *held, *went])


def _link(seen: Seen | None) -> str:
    return (seen.call_id or seen.event_id) if seen else ""


def _held_in_words(held: Counter[str]) -> str:
    return (
        f"{counted(held.total(), 'call')} would have been asked about or refused ({held['well']:,} did their work, "
        f"{held['broke']:,} broke or were denied)"
    )


def comparison_as_json(compared: Compared, filters: Filters, limit: int) -> dict[str, Any]:
    """A comparison as one document; of streaks and incidents at most `limit` of each, what is caught or lost first."""
    difference, recorded = compared.difference, compared.recorded
    streaks = sorted((one for one in compared.shifts if one.kind == STREAK), key=_rank)
    keys = sorted((one for one in compared.shifts if one.kind != STREAK), key=_rank)
    return {
        "empty": difference.empty,
        "filters": filters.told(),
        "rules_recorded": compared.versions,
        "recorded": recorded.count,
        "recorded_decided_again": recorded.again,
        "recorded_decided_otherwise": recorded.otherwise,
        "kinds": {
            what: {name: getattr(kind, name) for name in ("before", "after", "added", "gone", "changed")}
            for what, kind in difference.kinds.items()
        },
        "alike": compared.alike,
        "sessions": [{"session": name, **_hows(several)} for (name,), several in _grouped(streaks, "session")],
        "streaks": [_told_json(one) for one in streaks[:limit]],
        "streaks_left_out": max(0, len(streaks) - limit),
        "keys": [
            {
                "kind": kind,
                "workspace": workspace,
                "key": key,
                **_hows(several),
                **{
                    f"{name}_{side}": sum(getattr(seen, name) for one in several if (seen := getattr(one, side)))
                    for name in ("asked", "refused", "went_well", "broke")
                    for side in ("before", "after")
                },
            }
            for (kind, workspace, key), several in _grouped(keys, "kind", "workspace", "subject")
        ],
        "incidents": [_told_json(one) for one in keys[:limit]],
        "incidents_left_out": max(0, len(keys) - limit),
        "held": {
            side: {went: count[went] for went in ("well", "broke", "neither")} for side, count in compared.held.items()
        },
        "added": [example._asdict() for example in difference.added],
        "gone": [example._asdict() for example in difference.gone],
        "changed": [example._asdict() for example in difference.changed],
    }


def _grouped(shifts: Iterable[Told], *names: str) -> list[tuple[tuple[str, ...], list[Told]]]:
    """Shifts by what they are about, those with most of them first."""
    found: dict[tuple[str, ...], list[Told]] = {}
    for one in shifts:
        found.setdefault(tuple(getattr(one, name) for name in names), []).append(one)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _hows(shifts: Iterable[Told]) -> dict[str, int]:
    count = Counter[str](one.how for one in shifts)
    return {how: count[how] for how in HOWS}


def _told_json(one: Told) -> dict[str, Any]:
    return {**one._asdict(), "before": _seen_json(one.before), "after": _seen_json(one.after)}


def _seen_json(seen: Seen | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    body = seen._asdict()
    calls = [{"session": session, "call_id": call_id} for session, call_id in body.pop("calls")]
    return {"time": rfc3339(body.pop("time_ms")), **body, "calls": calls}


def lasts(inputs: int, folds: int, cores: int = 1) -> str:
    """About how long folding takes, where that is long enough to say."""
    seconds = inputs * folds / EVENTS_A_SECOND / cores
    return f", about {seconds / 60:.0f} min" if seconds >= 90 else f", about {seconds:.0f} s" if seconds >= 3 else ""
