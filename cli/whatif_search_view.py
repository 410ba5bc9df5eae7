"""What thresholds catch and cost, the choice among them and its price, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .render import console, echo, note

if TYPE_CHECKING:
    from ..history.whatif.choose import Change, Score, Trial, Weights
    from ..history.whatif.grid import Alarm
    from ..history.whatif.search import Found, Judged, Wanted


def judged_in_words(known: Judged, alarm: Alarm, labels: Path | None) -> str:
    """By which sessions a search judges, and where it is known from what they were."""
    from ..history.whatif.choose import counted as by_source
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
    return f"judged are {len(truth.healthy):,} healthy and {len(truth.stuck):,} stuck sessions" + (
        f": {by}" if by else ""
    )


def split_in_words(found: Found, wanted: Wanted) -> str:
    """Which sessions were chosen by, and which the choice was checked by."""
    by, held = found.parts
    if not wanted.hold_out:
        return "chosen by all of them, none is held out"
    return (
        f"chosen by {len(by.healthy):,} healthy and {len(by.stuck):,} stuck sessions, checked by "
        f"{len(held.healthy):,} and {len(held.stuck):,} held out (share {wanted.hold_out:g}, seed {wanted.seed})"
    )


def weights_in_words(weigh: Weights) -> str:
    """What a false alarm and a miss cost."""
    why = ", so that both shares weigh alike (Youden's J)" if weigh.balanced else ""
    return f"a false alarm costs {weigh.false_alarm:g}, a miss {weigh.miss:.3g}{why}"


def label(trial: Trial, score: Score) -> str:
    """A combination in words."""
    values = ", ".join(f"{path}={value}" for path, value in trial.values.items())
    return f"{values}: {score.false_alarms:.1%} of healthy, {score.recall:.0%} of stuck sessions"


def rows_of(found: Found) -> tuple[list[str], list[list[Any]]]:
    """Trials as columns and rows, counted over the sessions that were chosen by; the best ones are marked."""
    from ..history.whatif.choose import best

    by = found.parts.by
    front = best(found.trials, by)
    names = [name.removesuffix(".minor").rpartition(".")[2] for name in found.trials[0].values]
    asks = found.in_force.for_nothing is not None
    columns = [
        *names, "false alarms", "share", "95 %", "caught", "share", "95 %", "at call", "cost",
        *(["calls asked", "for nothing"] if asks else ["alarms"]), "",
    ]  # fmt: skip
    rows: list[list[Any]] = []
    for number, trial in enumerate(found.trials):
        score = trial.score(by)
        marks = (("◀", trial in front), ("★", number == found.chosen), ("now", trial.in_force))
        rows.append(
            [
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
                " ".join(word for word, holds in marks if holds),
            ]
        )
    return columns, rows


def _bounds(bounds: tuple[float, float]) -> str:
    return f"{100 * bounds[0]:.1f}–{100 * bounds[1]:.1f}"


def show_search(found: Found, wanted: Wanted) -> None:
    """The trials as a table and as a plot, the choice and its price."""
    from .history_view import table_of

    columns, rows = rows_of(found)
    console().print(table_of(columns, rows, "Thresholds tried"))
    console().print(scatter(found))
    note("◀ no other combination catches as many with fewer false alarms; now: the rules in force; at call: median")
    note(f"{split_in_words(found, wanted)}; {weights_in_words(found.weigh)}")
    for line in choice_in_words(found):
        echo(line)


def choice_in_words(found: Found) -> list[str]:
    """The choice and its price, or why there is none."""
    from ..history.whatif.choose import LEAST
    from ..history.whatif.rules_file import price_lines

    if found.chosen is None:
        by = found.parts.by
        few = f"{len(by.healthy)} healthy and {len(by.stuck)} stuck sessions are too few to choose by"
        return [f"no ★: {few}, {LEAST} of each are needed; record more, or --labels"]
    trial = found.trials[found.chosen]
    values = ", ".join(f"{path}={value}" for path, value in trial.values.items())
    if found.price_by is None:
        return [f"★ {values}: the rules in force cost least; nothing better was found"]
    lines = [
        f"★ {values} costs least; against the rules in force, on the sessions it was chosen by:",
        *price_lines(found.price_by),
    ]
    if found.price is None:
        lines.append("no session was held out: on others it will do less well")
    else:
        lines += [f"on those held out ({found.price.verdict}):", *price_lines(found.price)]
    lines.append(f"its price: {price_in_words(found)}")
    return lines


def price_in_words(found: Found) -> str:
    """What the choice makes worse, in counts over all judged sessions."""
    assert found.chosen is not None  # noqa: S101 - who asks has looked
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
    return "; ".join(worse) or "nothing that is counted here gets worse"


def search_as_json(found: Found, wanted: Wanted) -> dict[str, Any]:
    """A search as one document."""
    from ..history.whatif.choose import best
    from ..history.whatif.choose import counted as by_source

    truth, (by, held) = found.judged.truth, found.parts
    front = best(found.trials, by)
    price = {
        name: None if change is None else {**_price_json(change), "verdict": change.verdict}
        for name, change in (("chosen_by", found.price_by), ("held_out", found.price))
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
        "price": "" if found.price_by is None else price_in_words(found),
    }


def _score_json(score: Score) -> dict[str, Any]:
    return {
        **score._asdict(),
        "false_alarms": score.false_alarms,
        "false_alarms_95": score.false_alarms_95,
        "recall": score.recall,
        "recall_95": score.recall_95,
    }


def _price_json(change: Change) -> dict[str, Any]:
    return {**change._asdict(), "before": _score_json(change.before), "after": _score_json(change.after)}


def search_as_page(found: Found, known: Judged, wanted: Wanted) -> str:
    """A search as a page of HTML that needs nothing else."""
    from html import escape

    from ..history.page import document, figure, table
    from ..history.plots import points
    from ..history.whatif.choose import best

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
    told = "".join(f"<p>{escape(line)}</p>" for line in lines)
    finding = "The best of the tried thresholds are marked."
    return document("Thresholds tried", told + figure(plot, "Thresholds tried", finding, table(*rows_of(found))))


def scatter(found: Found, *, width: int = 60, height: int = 12) -> str:
    """The trade-off as characters: stuck sessions caught upwards, alarms in healthy ones to the right."""
    from ..history.whatif.choose import best

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
