"""Numbers of a period compared with the previous period, and findings to look at first.

What asks a connection raises HistoryError if the files cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import hypot
from typing import TYPE_CHECKING, NamedTuple

from ..projections.tool.models import Z_95, wilson_bounds
from ..schemas.decision_text import counted
from .charts import objects
from .findings import ratio
from .plots import FEW, TimeAxis, meaning, moment, number_text, share_text, words
from .queries import run
from .reports import QuestionAnswer

if TYPE_CHECKING:
    import duckdb

MOST_POINTERS = 8


class SummaryPeriod(NamedTuple):
    """Period and the preceding period of the same length."""

    before: datetime  # start of the preceding period; equal to `begin` if nothing was recorded then
    # begin, end: bounds of the period
    begin: datetime
    end: datetime
    first: datetime | None = None  # start of the recording; None if not later than `before`

    @property
    def comparable(self) -> bool:
        """True if there is a preceding period."""
        return self.before < self.begin


class SummaryNumber(NamedTuple):
    """Number of a period, its meaning, and its previous value."""

    name: str  # what was counted, as text
    value: str  # value in the period, as text
    means: str  # meaning of the number, as text
    before: str = ""  # previous value, as text; empty if not comparable
    verdict: str = ""  # `worse`, `better`, or empty if no significant change
    section: str = ""  # question with details


class SummaryFinding(NamedTuple):
    """Finding to look at."""

    mark: str  # reason in one word
    colour: str  # meaning of the colour of its mark, as in `--state-MEANING`
    subject: str
    says: str  # the reason in one sentence
    section: str  # question that has more about it
    order: str = ""  # command that resolves it; empty if none


_COUNTS = """
WITH calls AS (
    SELECT time >= $begin AS recent, verdict <> 'neutral' AS judged, verdict = 'failure' AND expected IS NOT TRUE AS failed, session_id,
           coalesce(same_result >= 2 AND max(same_result)
                    OVER (PARTITION BY session_id, call_digest, coalesce(result_digest, signature), time >= $begin) >= 3, false) AS wasted, duration_ms, cost_usd
    FROM tool_calls, recorded_until WHERE time <= until
), repeated AS (
    SELECT recent, count(*) AS wasted, sum(duration_ms) / 1000 AS seconds, sum(cost_usd) AS usd FROM calls WHERE wasted GROUP BY recent
), stuck AS (
    SELECT DISTINCT session_id, time >= $begin AS recent FROM patterns, recorded_until WHERE time <= until
), active AS (
    SELECT session_id, recent FROM calls UNION SELECT session_id, recent FROM stuck
)
SELECT 'calls', count(*) FILTER (recent), 0, count(*) FILTER (NOT recent), 0 FROM calls
UNION ALL SELECT 'failures', count(*) FILTER (recent AND failed), count(*) FILTER (recent AND judged),
    count(*) FILTER (NOT recent AND failed), count(*) FILTER (NOT recent AND judged) FROM calls
UNION ALL SELECT 'stuck', (SELECT count(*) FROM stuck WHERE recent), count(*) FILTER (recent),
    (SELECT count(*) FROM stuck WHERE NOT recent), count(*) FILTER (NOT recent) FROM active
UNION ALL SELECT 'wasted', coalesce(sum(wasted) FILTER (recent), 0), (SELECT count(*) FROM calls WHERE recent),
    coalesce(sum(wasted) FILTER (NOT recent), 0), (SELECT count(*) FROM calls WHERE NOT recent) FROM repeated
UNION ALL SELECT 'seconds', coalesce(round(sum(seconds) FILTER (recent)), 0), 0, coalesce(round(sum(seconds) FILTER (NOT recent)), 0), 0 FROM repeated
UNION ALL SELECT 'cents', coalesce(round(100 * sum(usd) FILTER (recent)), 0), 0, coalesce(round(100 * sum(usd) FILTER (NOT recent)), 0), 0 FROM repeated
UNION ALL SELECT 'asks', count(*) FILTER (time >= $begin AND for_nothing), count(*) FILTER (time >= $begin),
    count(*) FILTER (time < $begin AND for_nothing), count(*) FILTER (time < $begin)
    FROM asks, recorded_until WHERE time <= until AND answered IS NOT NULL AND coalesce(method, '') NOT IN ('policy', 'whitelist')
UNION ALL SELECT 'nudges', count(*) FILTER (time >= $begin AND effective), count(*) FILTER (time >= $begin AND effective IS NOT NULL),
    count(*) FILTER (time < $begin AND effective), count(*) FILTER (time < $begin AND effective IS NOT NULL) FROM nudges, recorded_until WHERE delivered AND time <= until
UNION ALL SELECT 'outages', count(*) FILTER (began >= $begin), 0, count(*) FILTER (began < $begin), 0 FROM outages, recorded_until WHERE began <= until
"""


def period_of(connection: duckdb.DuckDBPyConnection, since: datetime | None, span: timedelta) -> SummaryPeriod | None:
    """Period of a summary: from `since` on, else the last `span` of the recording; None if nothing is recorded."""
    _, ((first, end),) = run(connection, "SELECT first, until FROM recorded_first, recorded_until")
    if first is None or end is None:
        return None
    begin = max(end - span, first) if since is None else since.astimezone(UTC).replace(tzinfo=None)
    if begin <= first:
        return SummaryPeriod(begin, begin, end)
    before = begin - (end - begin if since is not None else span)
    return SummaryPeriod(before, begin, end, first if first > before else None)


def window_of(connection: duckdb.DuckDBPyConnection) -> TimeAxis | None:
    """The time that the filters let pass, from its beginning or the first event to the last known instant; None for nothing."""
    _, ((begin, end),) = run(
        connection,
        "SELECT coalesce(since, (SELECT min(time) FROM recorded_events)), until FROM recorded_until, recorded_since",
    )
    return TimeAxis(begin, end) if begin is not None and end is not None and begin < end else None


def counts(connection: duckdb.DuckDBPyConnection, begin: datetime) -> dict[str, PeriodShare]:
    """Counts by name from a time on, and before it; the connection's filters bound both periods."""
    _, rows = run(connection, _COUNTS, {"begin": begin})
    return {name: PeriodShare(*map(int, numbers)) for name, *numbers in rows}


def numbers(found: Mapping[str, PeriodShare], needing: int, *, comparable: bool) -> list[SummaryNumber]:
    """Numbers of a summary from `counts`, most urgent first.

    `needing`: number of incidents that need a person now; `comparable`: there is a preceding period.
    """
    calls, failures, stuck, wasted, asks, nudges, outages = (
        found.get(name, PeriodShare()) for name in ("calls", "failures", "stuck", "wasted", "asks", "nudges", "outages")
    )
    seconds, cents = (found.get(name, PeriodShare()).hits for name in ("seconds", "cents"))
    price = f"{number_text(seconds)} s of the tools" + (f" and {cents / 100:,.2f} USD" if cents else "")

    def was(share: PeriodShare) -> str:
        if not comparable:
            return ""
        change = share.change
        before = f"before: {ratio(share.hits_before, share.trials_before)}" if share.trials_before else "before: none"
        if change is None:
            return f"{before}; too few to compare"
        shown = "no change shown" if change[1] <= 0 <= change[2] else f"{change[0] * 100:+z.1f} points"
        return f"{before}; {shown} ({change[1] * 100:+z.1f} to {change[2] * 100:+z.1f}, 95 %)"

    def count_before(share: PeriodShare) -> str:
        return f"before: {share.hits_before:,}" if comparable else ""

    def rate(share: PeriodShare) -> str:
        return share_text(share.hits / share.trials) if share.trials else "–"

    every = [
        SummaryNumber("need somebody now", f"{needing:,}", "incidents: outages, and sessions that wait or are stuck", section="now"),
        SummaryNumber("of the calls failed", rate(failures), f"{failures.hits:,} of {counted(failures.trials, 'call')}", was(failures), failures.verdict(), "failures"),
        SummaryNumber("of the sessions were stuck", rate(stuck), f"{stuck.hits:,} of {counted(stuck.trials, 'session')}, in which a model repeated itself, fell silent or only talked", was(stuck), stuck.verdict(), "patterns"),
        SummaryNumber("of the calls were for nothing", rate(wasted), f"{wasted.hits:,} of {counted(wasted.trials, 'call')} repeated a known result in a loop: {price}", was(wasted), wasted.verdict(), "loop-costs"),
        SummaryNumber("of the nudges helped", rate(nudges), f"{nudges.hits:,} of {nudges.trials:,} that were delivered and judged", was(nudges), nudges.verdict(more_is_worse=False), "nudges"),
        SummaryNumber("of the questions were for nothing", rate(asks), f"{asks.hits:,} of {counted(asks.trials, 'answer')} of people: granted, and the call went well", was(asks), asks.verdict(), "asks"),
        SummaryNumber("outages began", f"{outages.hits:,}", "circuits that opened and keys that lost trust", count_before(outages), section="states"),
        SummaryNumber("calls", f"{calls.hits:,}", f"of {counted(stuck.trials, 'session')}", count_before(calls), section="overview"),
    ]  # fmt: skip
    none = {name for name, share in (("nudges", nudges), ("asks", asks)) if not share.trials}
    return [one for one in every if one.section not in none]


def look_here_first(answers: Mapping[str, QuestionAnswer], most: int = MOST_POINTERS) -> list[SummaryFinding]:
    """Ranked findings, from answers by their questions' names: what needs attention, got worse, is new, cost most."""

    def rows(name: str) -> list[dict[str, object]]:
        return objects(answers[name]) if name in answers else []

    found = [
        SummaryFinding(
            words(str(row["state"])),
            meaning(str(row["state"])),
            f"{row['subject']} in {row['workspace']}" if row["state"] in {"waiting", "stuck"} else str(row["subject"]),
            f"{row['cause'] or 'no reason was given'}, since {moment(row['since'])}",
            "now",
            "; ".join(map(str, row["orders"] or ())),  # type: ignore[call-overload]
        )
        for row in rows("now")
    ]
    left = max(len(found) - (most - 4), 0) + (answers["now"].left_out if "now" in answers else 0)
    found = found[: most - 4]
    if left:
        found.append(SummaryFinding("more", "unknown", f"{left:,} more", "need somebody now", "now"))
    found += [
        SummaryFinding(
            "worse", "degraded", str(row["name"]), f"the {row['kind']} fails in {_rates(row)} before", "worse"
        )
        for row in rows("worse")[:2]
    ]
    found += [
        SummaryFinding("new", "escalated", str(row["name"]), f"first seen {moment(row['first_seen'])}, {row['times']} times in {counted(int(str(row['sessions'])), 'session')}", "new")
        for row in [one for one in rows("new") if one["kind"] == "failure" and int(str(one["times"])) > 1][:2]
    ]  # fmt: skip
    found += [
        SummaryFinding("led nowhere", "degraded", str(row["session_id"]), f"{row['led_nowhere']} of {row['calls']} calls failed or repeated a result in a loop", "look-first")
        for row in rows("look-first")[:2]
    ]  # fmt: skip
    return found[:most]


def _rates(row: Mapping[str, object]) -> str:
    now, before = (ratio(int(str(row[f"failures{when}"])), int(str(row[f"calls{when}"]))) for when in ("", "_before"))
    return f"{now} of its calls, against {before}"


class PeriodShare(NamedTuple):
    """Hits and trials in a period and in the preceding one."""

    hits: int = 0
    trials: int = 0
    hits_before: int = 0
    trials_before: int = 0

    @property
    def change(self) -> tuple[float, float, float] | None:
        """Change of the rate with its 95 % interval (Newcombe); None if a period has too few trials."""
        if min(self.trials, self.trials_before) < FEW:
            return None
        rate, was = self.hits / self.trials, self.hits_before / self.trials_before
        low, high = wilson_bounds(self.hits, self.trials, Z_95)
        low0, high0 = wilson_bounds(self.hits_before, self.trials_before, Z_95)
        return rate - was, rate - was - hypot(rate - low, high0 - was), rate - was + hypot(high - rate, was - low0)

    def verdict(self, *, more_is_worse: bool = True) -> str:
        """`worse` or `better` if the interval of the change excludes 0."""
        change = self.change
        if change is None or change[1] <= 0 <= change[2]:
            return ""
        return "worse" if (change[0] > 0) is more_is_worse else "better"
