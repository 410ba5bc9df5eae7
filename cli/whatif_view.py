"""Output of `trustfold whatif`: comparisons and searches as tables, as JSON and as an HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schemas.codec import rfc3339
from ..schemas.decision_text import counted
from .render import console, echo, note

if TYPE_CHECKING:
    from ..history.filters import Filters
    from ..history.whatif.choice import Score, Trial, Weights
    from ..history.whatif.compare import Compared, Seen, Told
    from ..history.whatif.decisions import Difference, Kind
    from ..history.whatif.grid import Alarm
    from ..history.whatif.search import Found, Judged, Wanted

LONG_S = 600
"""Estimated seconds from which on it is said what shortens them."""

EVENTS_A_SECOND = 20_000
"""Approximate inputs per second that one core folds under one set of rules; used to estimate the duration."""

DIFFERENCES = ("caught", "lost", "earlier", "later", "otherwise")
"""Possible differences of a streak or an incident under other rules."""

STREAK = "streak"


def show_comparison(compared: Compared, limit: int) -> None:
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


def _counts(kind: Kind) -> dict[str, int]:
    return {name: getattr(kind, name) for name in _COUNTS}


def _show_examples(difference: Difference) -> None:
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
    title: str, columns: Sequence[str], shifts: Sequence[Told], row: Callable[[Told], Sequence[Any]], limit: int
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


def _rank(one: Told) -> tuple[Any, ...]:
    return DIFFERENCES.index(one.how) // 2, -abs(one.calls_earlier or 0), one.workspace, one.subject, one.session


def _streak_row(one: Told) -> Sequence[Any]:
    last = one.after or one.before
    return one.session, one.subject, one.how, _by(one), _streak(one.before), _streak(one.after), _link(last)


def _key_row(one: Told) -> Sequence[Any]:
    last = one.after or one.before
    place = last.session if last else one.session
    began = datetime.fromtimestamp(last.time_ms / 1000, UTC).replace(tzinfo=None) if last else None
    return one.workspace, one.subject, one.how, _by(one), began, _key(one.before), _key(one.after), place, _link(last)


def _by(one: Told) -> str:
    """Number of calls by which it is detected earlier or later; a duration if no call is between."""
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


def comparison_as_json(compared: Compared, filters: Filters, limit: int) -> dict[str, Any]:
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


def _grouped(shifts: Iterable[Told], *names: str) -> list[tuple[tuple[str, ...], list[Told]]]:
    """Shifts grouped by subject, the largest groups first."""
    found: dict[tuple[str, ...], list[Told]] = {}
    for one in shifts:
        found.setdefault(tuple(getattr(one, name) for name in names), []).append(one)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _count_differences(shifts: Iterable[Told]) -> dict[str, int]:
    count = Counter[str](one.how for one in shifts)
    return {how: count[how] for how in DIFFERENCES}


def _shift_json(one: Told) -> dict[str, Any]:
    return {**one._asdict(), "before": _seen_json(one.before), "after": _seen_json(one.after)}


def _seen_json(seen: Seen | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    body = seen._asdict()
    calls = [{"session": session, "call_id": call_id} for session, call_id in body.pop("calls")]
    return {"time": rfc3339(body.pop("time_ms")), **body, "calls": calls}


def lasts(inputs: int, folds: int, cores: int = 1) -> str:
    """Estimated duration of folding as text, with what shortens it if it is long; empty if short."""
    seconds = inputs * folds / EVENTS_A_SECOND / cores
    if seconds >= LONG_S:
        return f", about {seconds / 60:.0f} min on an idle machine; --since 7d folds the last week alone"
    return f", about {seconds / 60:.0f} min" if seconds >= 90 else f", about {seconds:.0f} s" if seconds >= 3 else ""


def judged_in_words(known: Judged, alarm: Alarm, labels: Path | None) -> str:
    """Description of the sessions a search is evaluated on, and of the source of their labels."""
    from ..history.whatif.choice import counted as by_source
    from ..history.whatif.labels import CALLS, LABELS, LOOP, VERDICTS

    truth = known.truth
    of_calls = (
        f"what the calls themselves say (stuck: {LOOP} times the same result or more; healthy: less than 3 times)"
        if alarm == "pattern"
        else "how the calls went (stuck: one broke or was denied by the user; healthy: none, approved ones among them)"
    )
    sources = {LABELS: f"labels in {labels}", VERDICTS: "false alarms that operators reported", CALLS: of_calls}
    found = by_source((*truth.healthy, *truth.stuck), truth)
    by = ", ".join(f"{found[name]:,} by {words}" for name, words in sources.items() if found.get(name))
    return f"evaluated on {len(truth.healthy):,} healthy and {len(truth.stuck):,} stuck sessions" + (
        f": {by}" if by else ""
    )


def split_in_words(found: Found, wanted: Wanted) -> str:
    """Description of the sessions used to choose, and of those used to check the choice."""
    by, held = found.parts
    if not wanted.hold_out:
        return "chosen by all of them, none is held out"
    return (
        f"chosen by {len(by.healthy):,} healthy and {len(by.stuck):,} stuck sessions, checked by "
        f"{len(held.healthy):,} and {len(held.stuck):,} held out (share {wanted.hold_out:g}, seed {wanted.seed})"
    )


def weights_in_words(weigh: Weights) -> str:
    """Description of the costs of a false alarm and of a miss."""
    why = ", so that both shares weigh alike (Youden's J)" if weigh.balanced else ""
    return f"a false alarm costs {weigh.false_alarm:g}, a miss {weigh.miss:.3g}{why}"


def label(trial: Trial, score: Score) -> str:
    """Label of a combination of thresholds."""
    return f"{_values(trial)}: {score.false_alarms:.1%} of healthy, {score.recall:.0%} of stuck sessions"


def rows_of(found: Found) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of trials, counted over the sessions used to choose; the best ones are marked."""
    from ..history.whatif.choice import best

    by = found.parts.by
    front = best(found.trials, by)
    names = [name.removesuffix(".minor").rpartition(".")[2] for name in found.trials[0].values]
    asks = found.in_force.for_nothing is not None
    columns = [
        "", *names, "false alarms", "share", "95 %", "caught", "share", "95 %", "at call", "cost",
        *(["calls asked", "for nothing"] if asks else ["alarms"]),
    ]  # fmt: skip
    rows: list[list[Any]] = []
    for number, trial in enumerate(found.trials):
        score = trial.score(by)
        marks = (("◀", trial in front), ("★", number == found.chosen), ("now", trial.in_force))
        rows.append(
            [
                "".join(word for word, holds in marks if holds),
                *("null" if value is None else value for value in trial.values.values()),
                f"{score.alarmed} of {score.healthy}",
                f"{score.false_alarms:.1%}",
                _bounds(score.false_alarms_95),
                f"{score.caught} of {score.stuck}",
                f"{score.recall:.1%}",
                _bounds(score.recall_95),
                "" if score.at_call is None else f"{score.at_call:g}",
                round(found.weigh.cost(score), 2),
                trial.alarms,
                *([trial.for_nothing] if asks else []),
            ]
        )
    return columns, rows


def _bounds(bounds: tuple[float, float]) -> str:
    return f"{100 * bounds[0]:.1f}–{100 * bounds[1]:.1f}"


def show_search(found: Found, wanted: Wanted) -> None:
    """Print the trials as a table and as a plot, the choice and its price."""
    from .history_view import table_of

    columns, rows = rows_of(found)
    console().print(table_of(columns, rows, "Thresholds tried"))
    console().print(scatter(found))
    note("◀ no other combination catches as many with fewer false alarms; now: the rules in force; at call: median")
    note(f"{split_in_words(found, wanted)}; {weights_in_words(found.weigh)}")
    for line in choice_in_words(found):
        echo(line)


def choice_in_words(found: Found) -> list[str]:
    """Text of the choice and its price, or why there is no choice."""
    from ..history.whatif.choice import LEAST
    from ..history.whatif.rules_file import price_lines

    if found.chosen is None:
        by = found.parts.by
        few = f"{len(by.healthy)} healthy and {len(by.stuck)} stuck sessions are too few to choose by"
        return [f"no ★: {few}, {LEAST} of each are needed; record more, or --labels"]
    trial = found.trials[found.chosen]
    values = _values(trial)
    if found.choice.refuted is not None:
        cheap = (
            f"{_values(found.choice.refuted)} costs less on the sessions it was chosen by, but more on those held out"
        )
        return [f"★ {values}: the rules in force; {cheap}"]
    if found.choice.price_by is None:
        return [f"★ {values}: the rules in force cost least; nothing better was found"]
    lines = [
        f"★ {values} costs least; against the rules in force, on the sessions it was chosen by:",
        *price_lines(found.choice.price_by),
    ]
    if found.choice.price is None:
        lines.append("no session was held out: on others it will do less well")
    else:
        lines += [f"on those held out ({found.choice.price.verdict}):", *price_lines(found.choice.price)]
    lines.append(f"its price: {price_in_words(found)}")
    return lines


def _values(trial: Trial) -> str:
    return ", ".join(f"{path}={value}" for path, value in trial.values.items())


def price_in_words(found: Found) -> str:
    """Text of what the choice makes worse, in counts over all evaluated sessions."""
    assert found.chosen is not None  # noqa: S101 - the caller has checked it
    now, then = found.in_force, found.trials[found.chosen]
    before, after = now.score(found.judged.truth), then.score(found.judged.truth)
    worse = [
        f"{number:,} more {what}"
        for number, what in (
            (after.alarmed - before.alarmed, f"of {before.healthy:,} healthy sessions with an alarm"),
            (after.missed - before.missed, f"of {before.stuck:,} stuck sessions missed"),
            ((then.for_nothing or 0) - (now.for_nothing or 0), "calls asked about for nothing"),
        )
        if number > 0
    ]
    if (after.at_call or 0) > (before.at_call or 0) and before.at_call is not None:
        worse.append(f"caught at call {after.at_call:g} in place of {before.at_call:g} (median)")
    return "; ".join(worse) or "nothing counted here gets worse"


def search_as_json(found: Found, wanted: Wanted) -> dict[str, Any]:
    """A search as one JSON document."""
    from ..history.whatif.choice import best
    from ..history.whatif.choice import counted as by_source

    truth, (by, held) = found.judged.truth, found.parts
    front = best(found.trials, by)
    price = {
        name: change
        and change._asdict()
        | {"before": _score_json(change.before), "after": _score_json(change.after), "verdict": change.verdict}
        for name, change in (("chosen_by", found.choice.price_by), ("held_out", found.choice.price))
    }
    return {
        "alarm": str(found.alarm),
        "judged": {
            "healthy": len(truth.healthy),
            "stuck": len(truth.stuck),
            "left_out": found.judged.left_out,
            "sources": by_source((*truth.healthy, *truth.stuck), truth),
        },
        "hold_out": wanted.hold_out,
        "seed": wanted.seed,
        "weights": found.weigh._asdict(),
        "trials": [
            {
                "values": dict(trial.values),
                "in_force": trial.in_force,
                "best": trial in front,
                "recommended": number == found.chosen,
                "alarms": trial.alarms,
                "for_nothing": trial.for_nothing,
                "cost": found.weigh.cost(trial.score(by)),
                **_score_json(trial.score(truth)),
                "chosen_by": _score_json(trial.score(by)),
                "held_out": _score_json(trial.score(held)),
            }
            for number, trial in enumerate(found.trials)
        ],
        "recommended": found.chosen,
        "against_in_force": price,
        "price": "" if found.choice.price_by is None else price_in_words(found),
        "refuted": None if found.choice.refuted is None else dict(found.choice.refuted.values),
    }


def _score_json(score: Score) -> dict[str, Any]:
    return {
        **score._asdict(),
        "false_alarms": score.false_alarms,
        "false_alarms_95": score.false_alarms_95,
        "recall": score.recall,
        "recall_95": score.recall_95,
    }


def search_as_page(found: Found, known: Judged, wanted: Wanted) -> str:
    """A search as a self-contained HTML page."""
    from html import escape

    from ..history.page import document, figure, table
    from ..history.plots import points
    from ..history.whatif.choice import best

    by = found.parts.by
    front = best(found.trials, by)
    scores = [(trial, trial.score(by)) for trial in found.trials]
    plot = points(
        ((score.false_alarms, score.recall, label(trial, score), trial in front) for trial, score in scores),
        "alarms in healthy sessions", "stuck sessions caught",
    )  # fmt: skip
    truth = known.truth
    lines = [
        f"{len(truth.healthy)} healthy sessions, {len(truth.stuck)} stuck ones.",
        f"{split_in_words(found, wanted)}; {weights_in_words(found.weigh)}",
        *choice_in_words(found),
    ]
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines)
    finding = "The best of the tried thresholds are marked."
    return document("Thresholds tried", paragraphs + figure(plot, "Thresholds tried", finding, table(*rows_of(found))))


def scatter(found: Found, *, width: int = 60, height: int = 12) -> str:
    """Text plot of the trade-off: y is the fraction of stuck sessions caught, x that of healthy ones with an alarm."""
    from ..history.whatif.choice import best

    by = found.parts.by
    front = best(found.trials, by)
    scores = [(trial.score(by), trial in front) for trial in found.trials]
    widest = max((score.false_alarms for score, _ in scores), default=0.0) or 0.01
    field = [[" "] * (width + 1) for _ in range(height + 1)]
    for score, is_best in sorted(scores, key=lambda one: one[1]):
        column = round(score.false_alarms / widest * width)
        field[round((1 - score.recall) * height)][column] = "●" if is_best else "·"
    lines = ["".join(line).rstrip() for line in field]
    lines = [f"100% ┤{lines[0]}", *(f"     │{line}" for line in lines[1:-1]), f"  0% ┤{lines[-1]}"]
    axis = f"      0% alarms in healthy sessions{widest:>{width - 29}.1%}"
    return "\n".join(["stuck sessions caught", *lines, f"     └{'─' * width}", axis])
