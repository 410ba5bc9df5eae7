"""Findings: one sentence that summarises an answer, for captions and for readers without the plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..projections.incidents import STATES as INCIDENT_STATES
from ..projections.tool.models import Z_95, wilson_bounds
from ..schemas.decision_text import counted
from .charts import objects
from .plots import FEW, STATES, level, moment, number_text, share_text, words
from .reports import QuestionAnswer

Row = Mapping[str, Any]


def finding(answer: QuestionAnswer) -> str:
    """Finding of an answer; by default its number of rows, or what an empty answer means.

    It speaks of all rows where the answer has totals, else of the listed rows, and says so if others are left out.
    """
    rows = objects(answer)
    if not rows:
        return answer.question.empty or "Nothing is recorded that answers this."
    told = _TOLD.get(answer.question.name)
    count = len(rows) + answer.left_out
    found = told(rows, answer.totals) if told else ""
    if not found:
        return f"{counted(count, 'row')}."
    return f"In the first {len(rows):,} of {count:,} rows: {found}" if answer.left_out and not answer.totals else found


def ratio(hits: int, trials: int) -> str:
    """A percentage with its counts: `40 % (4/10)`."""
    return f"{share_text(hits / trials)} ({hits:,}/{trials:,})" if trials else "0/0"


def rated(hits: int, trials: int) -> str:
    """A percentage with its counts and its 95 % interval, `40 % (4/10), 17 % to 69 %`, which breaks in front of no sign."""
    low, high = wilson_bounds(hits, trials, Z_95)
    return f"{ratio(hits, trials)}, {share_text(low)} to {share_text(high)}".replace(" %", "\u00a0%")


def _by(rows: Sequence[Row], _totals: Row) -> str:
    first, name = max(rows, key=lambda row: (row["rate_low"] or 0, row["failures"])), next(iter(rows[0]))
    if not first["failures"]:
        return "No call failed."
    return f"Fails most, as far as is sure: {first[name]}, {ratio(first['failures'], first['judged'])}."


def _now(rows: Sequence[Row], totals: Row) -> str:
    first, states = rows[0], totals["all_states"]
    listed = ", ".join(f"{states[word]:,} {words(word)}" for word in INCIDENT_STATES if word in states)
    return f"{listed}. First: {first['subject']} is {words(first['state'])} since {moment(first['since'])}."


def _look_first(rows: Sequence[Row], totals: Row) -> str:
    first = rows[0]
    return (
        f"{counted(totals['all_rows'], 'session')} with calls that led nowhere; first {first['session_id']}: "
        f"{ratio(first['led_nowhere'], first['calls'])} of its calls."
        if first["calls"]
        else ""
    )


def _new(_rows: Sequence[Row], totals: Row) -> str:
    named = {
        "trust lost": ("loss of trust", "losses of trust"),
        "circuit opened": ("opening of a circuit", "openings of circuits"),
    }
    found = [counted(number, *named.get(kind, (kind,))) for kind, number in totals["all_kinds"].items()]
    return f"New: {', '.join(found)}."


def _by_day(rows: Sequence[Row], _totals: Row) -> str:
    failed = sum(row["calls"] for row in rows if row["severity"] != "not failed")
    return f"{failed:,} of {counted(sum(row['calls'] for row in rows), 'call')} failed."


def _compare(_rows: Sequence[Row], totals: Row) -> str:
    told = {word: totals[f"all_{word}"] for word in ("worse", "better", "new", "gone")}
    return "Tools and models: " + ", ".join(f"{number:,} {word}" for word, number in told.items()) + "."


def _worse(rows: Sequence[Row], totals: Row) -> str:
    first, number = rows[0], totals["all_rows"]
    return (
        f"{number:,} {'tool or model' if number == 1 else 'tools or models'} got worse; most: {first['name']}, from "
        f"{ratio(first['failures_before'], first['calls_before'])} to {ratio(first['failures'], first['calls'])}."
    )


def _wasted(name: str) -> Callable[[Sequence[Row], Row], str]:
    def told(rows: Sequence[Row], totals: Row) -> str:
        first, cost = rows[0], totals["all_usd"] or 0
        paid = f" and {cost:,.2f} USD" if cost else ""
        return (
            f"Loops took {counted(totals['all_calls'], 'call')}, {number_text(round(totals['all_seconds'] or 0))} s of the tools{paid} for nothing; "
            f"most: {first[name]} with {counted(first['wasted_calls'], 'call')}."
        )

    return told


def _asks(_rows: Sequence[Row], totals: Row) -> str:
    asked, answered = totals["all_asked"], totals["all_answered"]
    if not answered:
        return f"People were asked {counted(asked, 'time')} and have answered none of it."
    waiting = f"; {asked - answered:,} unanswered" if asked > answered else ""
    return f"People were asked {counted(asked, 'time')}; of their answers {ratio(totals['all_false'], answered)} allowed a call that then did not fail{waiting}."


def _retries(_rows: Sequence[Row], totals: Row) -> str:
    tried = totals["all_retried"]
    return f"Of {tried:,} {'retry' if tried == 1 else 'retries'}, {ratio(totals['all_succeeded'], tried)} succeeded."


def _overview(rows: Sequence[Row], _totals: Row) -> str:
    one = rows[0]
    if not one["events"]:
        return "Nothing is recorded that answers this."
    lost = f" and {one['lost']:,} never ended" if one["lost"] else ""
    reported = f"; {counted(one['reported'], 'failure')} reported beside them" if one["reported"] else ""
    return (
        f"{counted(one['events'], 'event')} of {counted(one['sessions'], 'session')}, {moment(one['first'])} to "
        f"{moment(one['last'])}; {counted(one['calls'], 'call')}, of which {one['failures']:,} failed{lost}{reported}."
    )


def _tools(rows: Sequence[Row], totals: Row) -> str:
    first = rows[0]
    return (
        f"{ratio(totals['all_failures'], totals['all_judged'])} of the calls failed; worst: {first['tool']}, "
        f"{ratio(first['failures'], first['judged'])}."
    )


def _signatures(rows: Sequence[Row], totals: Row) -> str:
    first = rows[0]
    return (
        f"{counted(totals['all_failures'], 'failure')}, {totals['all_signatures']:,} of them different; the most frequent, "
        f"{counted(first['failures'], 'time')} in {counted(first['sessions'], 'session')}: {first['signature']}"
    )


def _failures(rows: Sequence[Row], _totals: Row) -> str:
    days: Counter[Any] = Counter()
    kinds: Counter[str] = Counter()
    for row in rows:
        days[row["day"]] += row["failures"]
        kinds[row["severity"]] += row["failures"]
    whole = sum(days.values())
    (day, most), (kind, number) = days.most_common(1)[0], kinds.most_common(1)[0]
    grave = sum(count for name, count in kinds.items() if level(name or "") >= 4)
    return (
        f"{counted(whole, 'failure')}, most on {moment(day)} ({most:,}); most are {words(kind)}, {ratio(number, whole)}; "
        f"severe ones (server error and worse) are {ratio(grave, whole)}."
    )


def _recovery(rows: Sequence[Row], totals: Row) -> str:
    return f"{counted(totals['all_outages'], 'outage')}, of which {totals['all_recovered']:,} have ended; most often out: {rows[0]['subject']}."


def _states(rows: Sequence[Row], _totals: Row) -> str:
    now = [row for row in rows if row["ended"] is None and STATES.get(row["state"], "") not in {"ok", ""}]
    name = "subject" if "subject" in rows[0] else "circuit"
    different = len({(row[name], row["workspace"]) for row in rows})
    subjects = "1 key or circuit" if different == 1 else f"{different:,} keys and circuits"
    still = ", ".join(f"{row[name]} ({words(row['state'])})" for row in now[:3])
    more = f" and {len(now) - 3:,} more" if len(now) > 3 else ""
    return f"{subjects}; not well at the end: {still}{more}." if now else f"{subjects}; all were well at the end."


def _within(totals: Row) -> str:
    return f"{moment(totals['all_since'])} to {moment(totals['all_until'])}"


def _stuck(rows: Sequence[Row], totals: Row) -> str:
    first = rows[0]
    return (
        f"{totals['all_stuck']:,} of {counted(totals['all_sessions'], 'session')} were stuck, {_within(totals)}; "
        f"most: {first['session_id']} with {counted(first['patterns'], 'report')} of patterns."
    )


def _recent(rows: Sequence[Row], totals: Row) -> str:
    return f"{counted(totals['all_rows'], 'decision')}, {_within(totals)}; the last: {rows[0]['type']} {rows[0]['subject']}"


def _reasons(_rows: Sequence[Row], totals: Row) -> str:
    most = totals["all_most"]
    return (
        f"Why trust was lost, circuits opened, models were stuck and calls failed in the weeks of {_within(totals)}; "
        f"most often {words(most['reason'])} ({most['machine']}), {counted(most['times'], 'time')} in that of {moment(most['week'])}."
    )


def _patterns(rows: Sequence[Row], totals: Row) -> str:
    first = rows[0]
    return (
        f"Stuck {counted(totals['all_times'], 'time')}; most: {first['model']} with {words(first['pattern'])}, "
        f"in {ratio(first['sessions'], first['of_sessions'])} of its sessions."
    )


def _nudges(_rows: Sequence[Row], totals: Row) -> str:
    judged = totals["all_judged"]
    if not judged:
        return f"{counted(totals['all_issued'], 'nudge')}, none delivered and judged yet: nothing can be said about their effect."
    few = f" Fewer than {FEW} are no claim." if judged < FEW else ""
    return f"Of {counted(judged, 'nudge')} that were delivered and judged, {ratio(totals['all_effective'], judged)} helped.{few}"


def _models(rows: Sequence[Row], _totals: Row) -> str:
    known = [row for row in rows if row["judged"] >= FEW]
    if not known:
        return f"No model has called a tool {FEW} times: too few for a claim."
    worst = max(known, key=lambda row: (row["failure_rate"], row["judged"]))
    return f"Worst pair: {worst['model']} with {worst['tool']}, {ratio(worst['failures'], worst['judged'])} of the calls failed."


def _false_alarms(rows: Sequence[Row], totals: Row) -> str:
    return f"{counted(totals['all_false'], 'alarm')} judged wrong; most of {rows[0]['subject']}."


def _reclassified(rows: Sequence[Row], totals: Row) -> str:
    return f"{counted(totals['all_failures'], 'failure')} judged otherwise; most of {rows[0]['tool']}, by {rows[0]['judged_by']}."


def _letters(rows: Sequence[Row], totals: Row) -> str:
    return f"{counted(totals['all_records'], 'record')} refused; most for {words(rows[0]['reason'])}."


_TOLD: dict[str, Callable[[Sequence[Row], Row], str]] = {
    "now": _now,
    "look-first": _look_first,
    "new": _new,
    "worse": _worse,
    "by-day": _by_day,
    "compare": _compare,
    "loop-costs": _wasted("model"),
    "loops": _wasted("tool"),
    "asks": _asks,
    "retries": _retries,
    "overview": _overview,
    "tools": _tools,
    "signatures": _signatures,
    "failures": _failures,
    "reclassified": _reclassified,
    "recovery": _recovery,
    "sessions": _stuck,
    "recent": _recent,
    "reasons": _reasons,
    "breakers": _states,
    "states": _states,
    "patterns": _patterns,
    "nudges": _nudges,
    "models": _models,
    "false-alarms": _false_alarms,
    "dead-letters": _letters,
    "by-model": _by,
    "by-agent_id": _by,
    "by-session_id": _by,
}
