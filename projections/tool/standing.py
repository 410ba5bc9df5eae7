"""What the fleet is told of a tool in one workspace (docs/design/semantics.md#promotion).

Theory of operation. Every call of the tool is counted in coarse buckets of time. While the tool as a whole is trusted,
that is all: nothing is told. Once it is not, the fleet is told for each of its users: the state whenever it changes,
the counts when they begin to mean something, when the failed share has moved by a tenth, and with the first call of
each new bucket. The end is told twice, the second time in a later bucket: should a crash have let an order and a call
change places, the fleet hears how it ended all the same (decision 0012).
"""

from __future__ import annotations

from ...rules.rules import FleetRules
from ...schemas.outcomes import CallOutcome
from ...schemas.standings import ToolStanding
from ...schemas.vocabulary import TrustState
from ..emit import Emitter
from .standing_state import MAX_USERS, StandingRecord
from .state import ToolState, TrustRecord

BUCKETS = 6
"""Parts of the window in which calls are counted; the oldest leaves the window as a whole."""

RATE_STEP = 0.1
"""Change of the failed share that is worth telling."""

_TRUSTED = TrustState.TRUSTED


def after_call(
    state: ToolState, outcome: CallOutcome, at: int, rules: FleetRules, emit: Emitter, *, counted: bool
) -> None:
    """Count a call that has been folded into the tool's own trust record, and tell the fleet what changed.

    `counted`: it is a failure that the tool's rule counts.
    """
    own, verdict = state.trust, outcome.verdict
    if own is None or own.scope != "tool" or verdict == "neutral" or not rules.enabled:
        return
    record = state.standing
    if record is None:
        record = state.standing = StandingRecord()
    user = outcome.user_id
    joined = bool(user) and user not in record.users and _join(record, user)
    if verdict == "success" or (counted and outcome.time_ms >= own.watermark):
        if at >= record.until:
            _roll(record, at, rules)
        record.tally[0] += 1
        record.tally[1] += counted
    if record.told or own.state is not _TRUSTED:
        _tell(state, own, record, outcome.session_id, outcome.cause, rules, emit, joined=joined)


def after_order(state: ToolState, cause: str, rules: FleetRules, emit: Emitter) -> None:
    """Tell the fleet what an operator's order has changed; one that trusts the tool starts the counts afresh."""
    own, record = state.trust, state.standing
    if own is None or record is None or not rules.enabled:
        return
    if own.watermark == emit.at:
        record.tally = [0, 0]
    if record.told or own.state is not _TRUSTED:
        _tell(state, own, record, "", cause, rules, emit, joined=False)


def _join(record: StandingRecord, user: str) -> bool:
    """Remember a user; False when there is no room, because whoever was told of a trouble must hear of its end."""
    if len(record.users) >= MAX_USERS:
        if record.told:
            return False
        del record.users[0]
    record.users.append(user)
    return True


def _roll(record: StandingRecord, at: int, rules: FleetRules) -> None:
    """Begin a new bucket, and let those go that have left the window."""
    width = max(1, int(rules.window_seconds * 1000) // BUCKETS)
    passed = min(BUCKETS, (at - record.until) // width + 1)
    record.tally = ([0, 0] * passed + record.tally)[: 2 * BUCKETS]
    record.until = at - at % width + width


def _tell(
    state: ToolState,
    own: TrustRecord,
    record: StandingRecord,
    session_id: str,
    cause: str,
    rules: FleetRules,
    emit: Emitter,
    *,
    joined: bool,
) -> None:
    trusted = own.state is _TRUSTED
    changed = own.state != record.told
    if changed and trusted:
        record.tally = [0, 0]  # what was held against it is forgiven
    calls, failures = sum(record.tally[::2]), sum(record.tally[1::2])
    due = changed or record.until != record.told_until
    if not due and (trusted or not (joined or _moved(record, calls, failures, rules))):
        return
    for user in record.users:
        standing = ToolStanding(
            id=emit.next_id("tool.standing"),
            time_ms=emit.at,
            session_id=session_id,
            cause=cause,
            origin_topic=emit.origin_topic,
            origin_partition=emit.origin_partition,
            origin=emit.next_origin(),
            user_id=user,
            tool_name=state.scope.partition(":")[2],
            workspace_id=state.workspace_id,
            state=own.state,
            calls=calls,
            failures=failures,
        )
        emit.record("standings", standing.key, standing, standing.id)
    record.told = "" if trusted and not changed else str(own.state)
    record.told_calls, record.told_failures, record.told_until = calls, failures, record.until


def _moved(record: StandingRecord, calls: int, failures: int, rules: FleetRules) -> bool:
    """Whether the counts say something else than they said when they were told last."""
    means, meant = calls >= rules.min_calls, record.told_calls >= rules.min_calls
    if not (means and meant):
        return means != meant
    return abs(failures / calls - record.told_failures / record.told_calls) >= RATE_STEP - 1e-9
