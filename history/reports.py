"""The questions a report answers: each one query over the catalogue, for tables, JSON and plots alike; `asking` runs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from .filters import HistoryFilters


class PlotColumns(NamedTuple):
    """Plot of an answer, by names of its columns."""

    # bars: `label` and `value`; columns: days, `began` along, `label` as colour, `value` as height; heat: `label` down
    # and across, `value` as shade; timeline: `label`, from `began` to `ended`, `value` as colour
    kind: Literal["bars", "columns", "heat", "timeline"]
    label: tuple[str, ...]  # columns of the label, several are joined
    value: str  # column of the length, height, shade or state
    unit: str = ""  # of the value; `share` for shares of 1
    # low, high: columns of the value's 95 % interval
    low: str = ""
    high: str = ""
    # hits, trials: columns of the counts that the value was made of
    hits: str = ""
    trials: str = ""
    # began, ended: columns of times
    began: str = ""
    ended: str = ""


class CatalogueQuestion(NamedTuple):
    """Question answered by one query.

    Attributes:
        name: name on the command line.
        sql: the query; `$limit` is the maximum number of rows. Its columns that begin with `all_` are totals over all rows: no columns of
            the answer, but what its finding is made of.
        plot: its plot; None for only a table.
        reads: how to read the answer.
        empty: meaning of an answer without rows; empty if it only means that nothing is recorded.
    """

    name: str
    title: str
    sql: str
    plot: PlotColumns | None = None
    reads: str = ""
    empty: str = ""


class QuestionAnswer(NamedTuple):
    """Answer to a question.

    Attributes:
        rows: the first rows, with a value for each of `columns`.
        left_out: number of further rows.
        totals: numbers over all rows, those left out and those that the query does not list among them.
    """

    question: CatalogueQuestion
    columns: list[str]
    rows: list[tuple[Any, ...]]
    left_out: int = 0
    totals: Mapping[str, Any] = {}


QUESTIONS: tuple[CatalogueQuestion, ...] = (
    CatalogueQuestion(
        "now",
        "What needs somebody now?",
        "SELECT state, subject, cause, since, orders, sessions, sessions_hit, waiting, parts, workspace, last_news, changes_at, acknowledged, acknowledged_by, grown, "
        "(SELECT histogram(state) FROM incidents) AS all_states FROM incidents WHERE needed LIMIT $limit",
        reads="At the end of what is recorded, or of the chosen time; one row for each outage or session. What was removed or forced open by "
        "an operator is handled. `FROM incidents` has those that are unknown or abandoned, too.",
        empty="Nothing needs anybody: no key is blocked or escalated, no circuit is open, no session waits or is stuck.",
    ),
    CatalogueQuestion(
        "look-first",
        "Which sessions to look at first?",
        "SELECT session_id, model, began, lasted, led_nowhere, calls, share, share_low, failures, wasted_calls, worst, pattern_kinds, "
        "count(*) OVER () AS all_rows "
        "FROM sessions_to_look_at LIMIT $limit",
        reads="Calls that failed, or repeated a result in a loop, led nowhere. Ranked by the lower bound of their share (95 %): neither a long "
        "session that fails as all do nor a single failure leads.",
        empty="No call of any session failed or repeated itself in a loop.",
    ),
    CatalogueQuestion(
        "new",
        "What is new?",
        "SELECT *, histogram(kind) OVER () AS all_kinds FROM new_things(INTERVAL 1 DAY) LIMIT $limit",
        reads="First seen in the last 24 h that are recorded, and never before in this history; in a chosen time, and not in as long before it.",
        empty="Nothing was seen for the first time.",
    ),
    CatalogueQuestion(
        "worse",
        "What got worse?",
        "SELECT kind, name, change, change_low, change_high, rate, failures, calls, rate_before, failures_before, calls_before, "
        "count(*) OVER () AS all_rows FROM compared_rates(INTERVAL 7 DAY) WHERE verdict = 'worse' LIMIT $limit",
        reads="Failure rates of the last 7 days that are recorded, or of a chosen time, against those of as long before, where the 95 % "
        "interval of the change leaves out 0 and both have 10 calls. `trustfold history compare` shows all, and new failures.",
        empty="Nothing got worse as far as the calls of this time and of as long before show; `trustfold history compare` has their numbers.",
    ),
    CatalogueQuestion(
        "loop-costs",
        "What do loops cost each model, in time and money?",
        "SELECT model, loops, wasted_calls, share_of_calls, wasted_seconds, of_seconds, wasted_usd, of_usd, sessions, of_sessions, "
        "sum(wasted_calls) OVER ()::BIGINT AS all_calls, sum(wasted_seconds) OVER () AS all_seconds, sum(wasted_usd) OVER () AS all_usd FROM loops_by_model LIMIT $limit",
        PlotColumns("bars", ("model",), "wasted_calls", "calls for nothing"),
        reads="Seconds are those of the tools, without what the model thought in between.",
        empty="No model repeated a call with the same result three times in a session.",
    ),
    CatalogueQuestion(
        "asks",
        "Who is asked how often, and how often for nothing?",
        "SELECT user_id, tool_name AS tool, false_asks, answers, asked, granted_times, denied, unanswered, share, share_low, share_high, median_wait, "
        "sum(asked) OVER ()::BIGINT AS all_asked, sum(answers) OVER ()::BIGINT AS all_answered, sum(false_asks) OVER ()::BIGINT AS all_false FROM ask_rates LIMIT $limit",
        PlotColumns("bars", ("user_id", "tool"), "share", "share", "share_low", "share_high", "false_asks", "answers"),
        reads="For nothing: it was granted, and the call did not fail.",
        empty="Nobody was asked: the history holds no requests for permission. Session logs have none; hooks and guards publish them.",
    ),
    CatalogueQuestion(
        "retries",
        "Which retries paid off?",
        "SELECT tool_name AS tool, kind, rate, rate_low, rate_high, succeeded, retried, median_wait, "
        "sum(succeeded) OVER ()::BIGINT AS all_succeeded, sum(retried) OVER ()::BIGINT AS all_retried FROM retry_success LIMIT $limit",
        PlotColumns("bars", ("tool", "kind"), "rate", "share", "rate_low", "rate_high", "succeeded", "retried"),
        reads="The same call again after it had failed. After other calls something may have been mended.",
        empty="No call that had failed was made again.",
    ),
    CatalogueQuestion(
        "overview",
        "What is recorded?",
        "SELECT events, sessions, calls, failures, lost, reported, first, last FROM ("
        "SELECT count(*) FILTER (sent) AS events, count(DISTINCT session_id) FILTER (sent) AS sessions, min(time) FILTER (sent) AS first, "
        "max(time) FILTER (sent) AS last FROM (SELECT time, session_id, appended IS NOT TRUE AS sent FROM events)), ("
        "SELECT count(call_id) AS calls, count(call_id) FILTER (failed) AS failures, count(*) FILTER (outcome = 'lost') AS lost, "
        "count(*) FILTER (failed AND call_id IS NULL) AS reported "
        "FROM (SELECT call_id, outcome, verdict = 'failure' AND expected IS NOT TRUE AS failed FROM call_records)) LIMIT $limit",
    ),
    CatalogueQuestion(
        "recent",
        "What was decided last?",
        "SELECT time, type, coalesce(subject, '') AS subject, from_state AS before, to_state AS after, "
        "coalesce(reason, trigger) AS reason, session_id, count(*) OVER () AS all_rows, min(time) OVER () AS all_since, max(time) OVER () AS all_until FROM decisions "
        "WHERE type NOT IN ('pattern.cleared', 'nudge.judged', 'nudge.withdrawn') ORDER BY time DESC, topic, \"offset\" DESC LIMIT $limit",
    ),
    CatalogueQuestion(
        "tools",
        "Which tools fail?",
        "SELECT tool_name AS tool, failure_rate, wilson_low(failures, judged) AS rate_low, wilson_high(failures, judged) AS rate_high, failures, judged, calls, denied, never_finished, lost, p50_ms, p95_ms, sessions, "
        "last_call, sum(failures) OVER ()::BIGINT AS all_failures, sum(judged) OVER ()::BIGINT AS all_judged FROM tool_health(min_calls := 1) QUALIFY calls >= 20 LIMIT $limit",
        PlotColumns("bars", ("tool",), "failure_rate", "share", "rate_low", "rate_high", "failures", "judged"),
        reads="Tools with at least 20 calls, worst first. Refused, cancelled and cached calls are calls, but failure_rate is a share "
        "of those that failed or succeeded.",
        empty="No tool has 20 calls; `trustfold sql 'FROM tool_health(min_calls := 1)'` has all.",
    ),
    CatalogueQuestion(
        "signatures",
        "What are the failures, across all agents?",
        "SELECT *, count(*) OVER () AS all_signatures, sum(failures) OVER ()::BIGINT AS all_failures FROM failure_signatures(min_count := 1) "
        "QUALIFY failures >= 2 ORDER BY failures DESC, signature LIMIT $limit",
        reads="Names, numbers, paths and quotations are taken out, so the same failure of different agents is one row.",
        empty="No failure was seen twice.",
    ),
    CatalogueQuestion(
        "reclassified",
        "Which failures are judged otherwise than they look?",
        "SELECT tool_name AS tool, error, reclassified, severity, judged_by, failures, sessions, last_seen, signature, "
        "count(*) OVER () AS all_rows, sum(failures) OVER ()::BIGINT AS all_failures FROM reclassified_failures LIMIT $limit",
        reads="`reclassified` is what type, code and text of the error say, `severity` what it counts as: by `tools.failures` of the rules, or "
        "because its publisher (a guard, a plugin) says so.",
        empty="No failure was judged by the rules of its tool, or otherwise by its publisher.",
    ),
    CatalogueQuestion(
        "failures",
        "When did calls fail, and how badly?",
        "WITH daily AS (SELECT day, severity, sum(failures)::BIGINT AS failures FROM failures_by_day GROUP BY ALL) "
        "SELECT * FROM daily QUALIFY count(*) OVER (ORDER BY day DESC RANGE UNBOUNDED PRECEDING) <= $limit OR day = (SELECT max(day) FROM daily) ORDER BY ALL",
        PlotColumns("columns", ("severity",), "failures", "failures", began="day"),
        reads="Days in UTC, the latest. The first and the last may be only partly within the chosen time.",
    ),
    CatalogueQuestion(
        "recovery",
        "How long until it worked again?",
        "SELECT subject, machine, outages, recovered, mean, median, longest, "
        "sum(outages) OVER ()::BIGINT AS all_outages, sum(recovered) OVER ()::BIGINT AS all_recovered FROM time_to_recovery LIMIT $limit",
        reads="From the first opening or escalation until the circuit is closed or trust is back.",
        empty="No circuit was open and no trust was lost.",
    ),
    CatalogueQuestion(
        "breakers",
        "When was which circuit open?",
        "SELECT breaker_key AS circuit, time AS began, until AS ended, to_state AS state, workspace FROM breaker_timeline "
        "WHERE to_state <> 'closed' ORDER BY time DESC, \"offset\" DESC LIMIT $limit",
        PlotColumns("timeline", ("circuit", "workspace"), "state", began="began", ended="ended"),
        reads="Without an end: it is still so.",
        empty="No circuit was open.",
    ),
    CatalogueQuestion(
        "states",
        "What was in which state, and when?",
        "SELECT subject, workspace, state, began, ended, machine FROM state_spans ORDER BY worst, changes DESC, subject, workspace, "
        "began, ended LIMIT $limit",
        PlotColumns("timeline", ("subject", "workspace"), "state", began="began", ended="ended"),
        reads="Circuits and trust keys that have changed, the worst first. What began before the chosen time is there from its beginning on. "
        "Without an end: it is still so.",
    ),
    CatalogueQuestion(
        "patterns",
        "Which models get stuck, and how?",
        "SELECT pattern, model, times, sessions, of_sessions, rate, severe, "
        "sum(times) OVER ()::BIGINT AS all_times FROM pattern_rates LIMIT $limit",
        PlotColumns("bars", ("pattern", "model"), "times", "times", hits="sessions", trials="of_sessions"),
        empty="No model was stuck.",
    ),
    CatalogueQuestion(
        "loops",
        "What do loops cost?",
        "SELECT tool_name AS tool, loops, wasted_calls, sessions, wasted_seconds, wasted_usd, longest, "
        "sum(wasted_calls) OVER ()::BIGINT AS all_calls, sum(wasted_seconds) OVER () AS all_seconds, sum(wasted_usd) OVER () AS all_usd FROM cost_of_loops LIMIT $limit",
        PlotColumns("bars", ("tool",), "wasted_calls", "calls for nothing"),
        reads="The same call with the same result three times or more in a session, and nothing new done by others in between; "
        "all but the first are counted as wasted.",
        empty="No call was repeated with the same result three times in a session.",
    ),
    CatalogueQuestion(
        "nudges",
        "Which nudges help?",
        "SELECT pattern || ' ' || nudge_type AS nudge, issued, rate, rate_low, rate_high, delivered, judged, effective, false_alarms, "
        "sum(issued) OVER ()::BIGINT AS all_issued, sum(judged) OVER ()::BIGINT AS all_judged, sum(effective) OVER ()::BIGINT AS all_effective FROM nudge_effectiveness LIMIT $limit",
        PlotColumns("bars", ("nudge",), "rate", "share", "rate_low", "rate_high", "effective", "judged"),
        reads="rate: of those delivered and judged, the share after which the model did not repeat itself, and acted where the pattern "
        "asked for it; with its 95 % interval. Computed over a recording, a nudge was delivered to nobody.",
        empty="No model was nudged.",
    ),
    CatalogueQuestion(
        "models",
        "Which model fails with which tool?",
        "SELECT tool_name AS tool, model, failure_rate, failures, judged, calls, own_making FROM model_tool_matrix "
        "WHERE calls >= 5 ORDER BY calls DESC, tool, model LIMIT $limit",
        PlotColumns("heat", ("tool", "model"), "failure_rate", "share", hits="failures", trials="judged"),
        reads="own_making: failures the model caused by what it sent.",
    ),
    CatalogueQuestion(
        "false-alarms",
        "Which alarms do people call wrong?",
        "SELECT subject, topic, alarms, judged_false, share, sum(judged_false) OVER ()::BIGINT AS all_false FROM alarms_judged_false LIMIT $limit",
        empty="Nobody called a decision wrong (`feedback.false_alarm`).",
    ),
    CatalogueQuestion(
        "reasons",
        "What were the top reasons of each week?",
        "SELECT week, machine, place, reason, times, subjects, min(week) OVER () AS all_since, max(week) OVER () AS all_until, "
        "arg_max({machine: machine, reason: reason, times: times, week: week}, times) OVER () AS all_most FROM top_reasons_per_week WHERE place <= 3 LIMIT $limit",
    ),
    CatalogueQuestion(
        "sessions",
        "Which sessions were stuck most?",
        "SELECT session_id, model, began, ended - began AS lasted, calls, failures, patterns, pattern_kinds AS kinds, "
        "count(*) FILTER (patterns > 0) OVER () AS all_stuck, count(*) OVER () AS all_sessions, min(began) OVER () AS all_since, max(ended) OVER () AS all_until "
        "FROM sessions QUALIFY patterns > 0 ORDER BY patterns DESC, session_id LIMIT $limit",
        empty="No session was stuck.",
    ),
    CatalogueQuestion(
        "dead-letters",
        "What could not be processed?",
        "SELECT reason, path, count(*) AS records, min(time) AS first, max(time) AS last, sum(count(*)) OVER ()::BIGINT AS all_records FROM dead_letters GROUP BY reason, path "
        "ORDER BY records DESC, reason, path LIMIT $limit",
        empty="Everything could be processed.",
    ),
)

BY_NAME = {question.name: question for question in QUESTIONS}


def filters_for(question: CatalogueQuestion, filters: HistoryFilters) -> HistoryFilters:
    """Filters of a question; the question `now` ignores the start time."""
    return filters._replace(since=None) if question.name == "now" else filters


def against_before(question: CatalogueQuestion, length: timedelta) -> CatalogueQuestion:
    """A question about the last days in the form that compares the last `length` with as long before it.

    Filters must include both periods.
    """
    span = f"INTERVAL {int(length.total_seconds() * 1000)} MILLISECOND"
    return question._replace(sql=re.sub(r"INTERVAL \d+ DAY", span, question.sql))
