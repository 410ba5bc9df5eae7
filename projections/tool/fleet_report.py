"""Reports of a tool's trust and failure counts in one workspace to the fleet stages, per user (docs/trust.md).

Theory of operation. Every call of the tool is counted in coarse buckets of time; likewise those of a service and of a
shell's command. While the tool as a whole is trusted, nothing is reported. Otherwise a report is emitted for each of
its users: when the state changes, when there are enough calls for a rate, when the failure rate has moved by a tenth,
and with the first call of each new bucket. The return to trust is reported twice, the second time in a later bucket: if
a crash has swapped the order of a command and a call, the fleet still gets the final state (decision 0012).
"""

from __future__ import annotations

from ...rules.rules import FleetRules
from ...schemas.outcomes import CallOutcome
from ...schemas.standings import ToolStanding
from ...schemas.vocabulary import TrustState, TrustTrigger
from . import trust
from .emitters import TrustCause
from .tool_state import MAX_USERS, FleetReport, ToolFold, ToolState, TrustRecord

BUCKETS = 6  # Number of buckets of the window; the oldest bucket is dropped as a whole
RATE_STEP = 0.1  # Change of the failure rate that causes a report
COMMAND = "|command="  # Part of the fine key of a shell's command

_TRUSTED = TrustState.TRUSTED


def after_call(fold: ToolFold, outcome: CallOutcome) -> None:
    """Count a call that has been folded into its trust records, and report changes of those that the fleet knows.

    These are a tool and a service as a whole, and commands of a shell, from their first counted failure on. A service
    behind a shell is only observed.
    """
    state, rules = fold.state, fold.rules.fleet
    if outcome.verdict == "neutral" or not rules.enabled or state.observed:
        return
    if state.trust is not None:
        if state.fleet_report is None:
            state.fleet_report = FleetReport()
        _count(fold, state.trust, state.fleet_report, outcome)
    if COMMAND in outcome.fine_key and (command := state.fine.get(outcome.fine_key)) is not None:
        report = state.command_reports.get(command.key)
        if report is None:
            if outcome.verdict == "success":
                return
            report = state.command_reports[command.key] = FleetReport()
        _count(fold, command, report, outcome)


def _count(fold: ToolFold, own: TrustRecord, report: FleetReport, outcome: CallOutcome) -> None:
    user = outcome.user_id
    is_new_user = bool(user) and user not in report.users and _add_user(report, user)
    rule = trust.rules_for(fold.rules.trust, outcome).of(own.scope)
    counted = outcome.verdict == "failure" and trust.is_counted(outcome, rule)
    if outcome.verdict == "success" or (counted and outcome.time_ms >= own.watermark):
        if fold.at >= report.until:
            _begin_bucket(report, fold.at, fold.rules.fleet)
        report.tally[0] += 1
        report.tally[1] += counted
    if report.reported_state or own.state is not _TRUSTED:
        _report(fold, own, report, TrustCause(outcome.cause, outcome.session_id), is_new_user=is_new_user)


def reports(state: ToolState) -> list[FleetReport | None]:
    """Return the counts of a scope and of its commands."""
    return [state.fleet_report, *state.command_reports.values()]


def after_order(fold: ToolFold, cause: str) -> None:
    """Report the changes made by an operator's command; one that restores trust resets the counts."""
    if not fold.rules.fleet.enabled:
        return
    state = fold.state
    records = [state.trust, *map(state.fine.get, state.command_reports)]
    for own, report in zip(records, reports(state), strict=True):
        if own is None or report is None:
            continue
        if own.watermark == fold.emit.at:
            report.tally = [0, 0]
        if report.reported_state or own.state is not _TRUSTED:
            _report(fold, own, report, TrustCause(cause), is_new_user=False)


def _add_user(report: FleetReport, user: str) -> bool:
    """Add a user; False if the list is full and a report is open, because each user must get its end."""
    if len(report.users) >= MAX_USERS:
        if report.reported_state:
            return False
        del report.users[0]
    report.users.append(user)
    return True


def _begin_bucket(report: FleetReport, at: int, rules: FleetRules) -> None:
    """Begin a new bucket, and drop the buckets that have left the window."""
    width = max(1, int(rules.window_seconds * 1000) // BUCKETS)
    passed = min(BUCKETS, (at - report.until) // width + 1)
    report.tally = ([0, 0] * passed + report.tally)[: 2 * BUCKETS]
    report.until = at - at % width + width


def _report(fold: ToolFold, own: TrustRecord, report: FleetReport, cause: TrustCause, *, is_new_user: bool) -> None:
    """Emit a report for each user if a change requires it; `is_new_user`: a user has just been added."""
    rules, emit = fold.rules.fleet, fold.emit
    trusted = own.state is _TRUSTED
    changed = own.state != report.reported_state
    if changed and trusted and own.trigger != TrustTrigger.AGED:
        report.tally = [0, 0]  # restored trust resets the counts
    calls, failures = sum(report.tally[::2]), sum(report.tally[1::2])
    due = changed or report.until != report.reported_until
    if not due and (trusted or not (is_new_user or _moved(report, calls, failures, rules))):
        return
    for user in report.users:
        standing = ToolStanding(
            id=emit.next_id("tool.standing"),
            time_ms=emit.at,
            session_id=cause.session_id,
            cause=cause.id,
            origin_topic=emit.origin_topic,
            origin_partition=emit.origin_partition,
            origin=emit.next_origin(),
            user_id=user,
            tool_name=fold.state.name,
            subject="" if own.scope == "tool" else own.key,
            workspace_id=fold.state.workspace_id,
            state=own.state,
            calls=calls,
            failures=failures,
        )
        emit.record("standings", standing.key, standing, standing.id)
    report.reported_state = "" if trusted and not changed else str(own.state)
    report.reported_calls, report.reported_failures, report.reported_until = calls, failures, report.until


def _moved(report: FleetReport, calls: int, failures: int, rules: FleetRules) -> bool:
    """Whether the failure rate moved by RATE_STEP, or gained or lost enough calls, since it was last reported."""
    enough, had_enough = calls >= rules.min_calls, report.reported_calls >= rules.min_calls
    if not (enough and had_enough):
        return enough != had_enough
    return abs(failures / calls - report.reported_failures / report.reported_calls) >= RATE_STEP - 1e-9
