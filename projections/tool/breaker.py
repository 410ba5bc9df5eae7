"""Circuit breaker: decides whether a tool or service may be called (docs/design/semantics.md#circuit-breaker).

Theory of operation. Results of calls (after their retries) fill a window of the latest calls; enough consecutive
failures, or a high enough failure rate, open the circuit. After `open_s` it is half-open; readers derive this from
`open_until`, so no timer is needed and the result is the same with and without one. While it is half-open, one probe is
in flight for the whole fleet, granted as a lease; enough successful probes close the circuit, a failed or lost one
opens it for longer.

Failures are server_error, crash, corruption, timeout and transient. An answered application error (invalid input, not
found, permission, validation) proves that the transport is healthy: it is not measured, and it ends a run of failures.
The same holds for a failure that the tool of an MCP server reports as a result
(docs/subsystems/calls.md).

The circuit of a tool that has fine keys opens only while at least `MIN_FAILING_KEYS` of them fail: one command that
always crashes is no evidence about the others (docs/subsystems/trust.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...rules.rules import BreakerPolicy
from ...schemas.commands import BreakerClose, BreakerDisable, BreakerForceOpen, BreakerObserve
from ...schemas.outcomes import CallOutcome, ProbeRequest
from ...schemas.vocabulary import BreakerMode, BreakerState, BreakerTrigger, FailureSeverity
from .tool_state import MAX_FAILING, BreakerRecord, ProbeHolder, may_be_answer

HEALTH_FAILURES = frozenset(
    {
        FailureSeverity.SERVER_ERROR,
        FailureSeverity.CRASH,
        FailureSeverity.CORRUPTION,
        FailureSeverity.TIMEOUT,
        FailureSeverity.TRANSIENT,
    }
)


MIN_FAILING_KEYS = 3  # Number of fine keys of a tool that must be failing before its circuit opens

_C, _O, _H, _F = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.FORCED_OPEN
STATES = (_C, _O, _H, _F)

TRANSITIONS: Mapping[tuple[BreakerState, BreakerTrigger], BreakerState] = {
    (_C, BreakerTrigger.CONSECUTIVE): _O,
    (_C, BreakerTrigger.RATE): _O,
    (_C, BreakerTrigger.SLOW_RATE): _O,
    (_O, BreakerTrigger.COOLDOWN_OVER): _H,
    (_H, BreakerTrigger.PROBES_SUCCEEDED): _C,
    (_H, BreakerTrigger.PROBE_FAILED): _O,
    (_H, BreakerTrigger.PROBE_LOST): _O,
    **{(state, BreakerTrigger.FORCE_OPEN): _F for state in (_C, _O, _H)},
    **{(state, order): _C for state in (_O, _H, _F) for order in (BreakerTrigger.RESET, BreakerTrigger.DISABLE)},
}


BreakerOrder = BreakerForceOpen | BreakerClose | BreakerDisable | BreakerObserve  # Operator command about a circuit


class CircuitChange(NamedTuple):
    """Transition of a circuit; `at` in milliseconds."""

    before: BreakerState
    after: BreakerState
    trigger: BreakerTrigger
    at: int


class ProbeGrant(NamedTuple):
    """Answer to a probe request; `lease_until` in milliseconds."""

    granted: bool
    lease_until: int


def move_by_time(record: BreakerRecord, policy: BreakerPolicy, at: int) -> list[CircuitChange]:
    """Make the next transition due by `at`: a lost probe, an expired cooldown or an expired forced opening.

    The transition gets the time at which it was due. Call this until it returns nothing, so that each change is emitted
    together with the state it led to.
    """
    lease = record.lease
    if lease is not None and lease.until <= at:
        record.lease = None
        return move(record, BreakerTrigger.PROBE_LOST, policy, lease.until)
    if record.state is _O and record.open_until <= at:
        return move(record, BreakerTrigger.COOLDOWN_OVER, policy, record.open_until)
    if record.state is _F and 0 < record.open_until <= at:
        return move(record, BreakerTrigger.RESET, policy, record.open_until)
    return []


def may_move_by_time(record: BreakerRecord) -> bool:
    """Whether time alone can move a circuit; False for a closed one without a lease, the usual case."""
    return record.state is not _C or record.lease is not None


def due_at(record: BreakerRecord) -> int | None:
    """Time of the end of the lease or of a forced opening, milliseconds; None if neither is pending."""
    if record.lease is not None:
        return record.lease.until
    return record.open_until if record.state is _F and record.open_until else None


def _clean(record: BreakerRecord) -> None:
    """Clear all results, as after closing."""
    record.results = []
    record.consecutive = []
    record.own_class = []
    record.failing = {}
    record.error = record.failed_session = ""


def note_call(record: BreakerRecord, outcome: CallOutcome, at: int) -> None:
    """Record the declared class of the called tool, and the time of the first use of the circuit."""
    if outcome.class_declared:
        record.tool_class = outcome.tool_class
    if not record.since:
        record.since = at


def fold_call(
    record: BreakerRecord, outcome: CallOutcome, policy: BreakerPolicy, at: int, *, key: int = 0
) -> list[CircuitChange]:
    """Fold one finished call into the circuit; transitions due by `at` must have been made before.

    `key`: digest of the call's fine key if the circuit belongs to a tool with fine keys; else 0.
    """
    if record.mode is BreakerMode.DISABLED:
        return []
    failed, answered, measured = _health(record, outcome, policy)
    if failed:
        record.error, record.failed_session = outcome.error, outcome.session_id
    if key and answered:
        _note_key(record, key, at, failed=failed)
    if record.state is _H:
        return _settle_probe(record, outcome, policy, at, failed=failed, answered=answered)
    if record.state is not _C or not answered:
        return []
    if not measured:
        record.consecutive = []
        return []
    slow = policy.slow_call_ms is not None and (outcome.duration_ms or 0) >= policy.slow_call_ms
    since = at - int(policy.window_s * 1000)
    results = record.results
    if len(results) >= policy.rate_window_calls:
        del results[: len(results) - policy.rate_window_calls + 1]
    while results and results[0] >> 2 <= since:
        del results[0]
    results.append(at << 2 | slow << 1 | failed)
    if failed:
        keep = policy.consecutive_failures or 1
        record.consecutive = (
            [*(seen for seen in record.consecutive[1 - keep :] if seen > since), at] if keep > 1 else [at]
        )
    else:
        record.consecutive = []
    if key and sum(seen > since for seen in record.failing.values()) < MIN_FAILING_KEYS:
        return []
    return _open_by_threshold(record, policy, at)


def fold_call_of_service(
    record: BreakerRecord, outcome: CallOutcome, policy: BreakerPolicy, at: int
) -> list[CircuitChange]:
    """Fold a call that counts in the circuit of its service into the circuit of its tool.

    Such a call never opens the tool's circuit. While that circuit is half-open the call counts as a successful probe,
    even if it failed: the tool ran, and the service failed.
    """
    if record.state is not _H or record.mode is BreakerMode.DISABLED:
        return []
    _, answered, _ = _health(record, outcome, policy)
    return _settle_probe(record, outcome, policy, at, failed=False, answered=answered)


def _note_key(record: BreakerRecord, key: int, at: int, *, failed: bool) -> None:
    """Record whether the latest call of a fine key failed."""
    record.failing.pop(key, None)
    if failed:
        record.failing[key] = at
        if len(record.failing) > MAX_FAILING:
            del record.failing[next(iter(record.failing))]


def _health(record: BreakerRecord, outcome: CallOutcome, policy: BreakerPolicy) -> tuple[bool, bool, bool]:
    """Health of a finished call: (failed, counts as an answer to a probe, counts in the window)."""
    if outcome.verdict == "neutral" or outcome.expected:
        return False, False, False
    if outcome.verdict == "success":
        if record.own_class:
            record.own_class = []
        return False, True, True
    failed = outcome.severity in HEALTH_FAILURES and not outcome.reached
    if failed and outcome.error_type in policy.excluded_errors:
        failed = False
    if failed and outcome.own_class and may_be_answer(record.own_class, outcome.own_class):
        failed = False
    return failed, True, failed


def _open_by_threshold(record: BreakerRecord, policy: BreakerPolicy, at: int) -> list[CircuitChange]:
    """Open the circuit if a configured threshold is reached, checked in the order: consecutive, rate, slow rate."""
    if policy.consecutive_failures is not None and len(record.consecutive) >= policy.consecutive_failures:
        return move(record, BreakerTrigger.CONSECUTIVE, policy, at)
    measured = len(record.results)
    if measured < policy.rate_min_calls:
        return []
    if policy.rate_threshold is not None:
        failures = sum([result & 1 for result in record.results])
        if failures / measured >= policy.rate_threshold - 1e-9:
            return move(record, BreakerTrigger.RATE, policy, at)
    if policy.slow_rate_threshold is not None:
        slow = sum([result >> 1 & 1 for result in record.results])
        if slow / measured >= policy.slow_rate_threshold - 1e-9:
            return move(record, BreakerTrigger.SLOW_RATE, policy, at)
    return []


def _settle_probe(
    record: BreakerRecord, outcome: CallOutcome, policy: BreakerPolicy, at: int, *, failed: bool, answered: bool
) -> list[CircuitChange]:
    """Settle the probe with a call that finished while half-open, if that call is the probe.

    A call that started before the opening is ignored. While a lease is held, only the leased call counts (matched by
    call id and session, as call ids are not unique); without a lease (a platform that only publishes), any call counts.
    """
    if outcome.started_ms < record.opened_at:
        return []
    if record.lease is not None:
        if (record.lease.call_id, record.lease.session_id) != (outcome.call_id, outcome.session_id):
            return []
        record.lease = None
    if not answered:
        return []
    if failed:
        return move(record, BreakerTrigger.PROBE_FAILED, policy, at)
    record.successes += 1
    return move(record, BreakerTrigger.PROBES_SUCCEEDED, policy, at) if record.successes >= policy.close_after else []


def grant_probe(record: BreakerRecord, policy: BreakerPolicy, request: ProbeRequest, at: int) -> ProbeGrant:
    """Grant or refuse the fleet's single probe; a circuit that is closed or not enforced grants without a lease."""
    if record.mode is not BreakerMode.ENFORCE or record.state is _C:
        return ProbeGrant(granted=True, lease_until=0)
    if record.state is not _H:
        return ProbeGrant(granted=False, lease_until=record.open_until)
    if record.lease is not None:
        held = (record.lease.holder, record.lease.call_id, record.lease.session_id)
        mine = held == (request.guard_id, request.call_id, request.session_id)
        return ProbeGrant(granted=mine, lease_until=record.lease.until)
    until = at + int(policy.lease_s * 1000)
    record.lease = ProbeHolder(request.guard_id, request.call_id, until, request.cause, request.session_id)
    return ProbeGrant(granted=True, lease_until=record.lease.until)


def apply_command(record: BreakerRecord, order: BreakerOrder, policy: BreakerPolicy, at: int) -> list[CircuitChange]:
    """Apply an operator's command: force the circuit open, close it, disable it, or set it to observe only."""
    if not record.since:
        record.since = at
    if isinstance(order, BreakerObserve):
        record.mode = BreakerMode.OBSERVE
        return []
    if isinstance(order, BreakerForceOpen):
        record.mode = BreakerMode.ENFORCE
        changes = move(record, BreakerTrigger.FORCE_OPEN, policy, at)
        record.open_until = at + int(order.duration_s * 1000) if order.duration_s else 0
        return changes
    closing = isinstance(order, BreakerClose)
    record.mode = BreakerMode.ENFORCE if closing else BreakerMode.DISABLED
    changes = move(record, BreakerTrigger.RESET if closing else BreakerTrigger.DISABLE, policy, at)
    _clean(record)
    return changes


def move(record: BreakerRecord, trigger: BreakerTrigger, policy: BreakerPolicy, at: int) -> list[CircuitChange]:
    """Make the transition that the table has for a trigger; returns an empty list if it has none."""
    before = record.state
    after = TRANSITIONS.get((before, trigger))
    if after is None:
        return []
    if record.since:
        record.spent_ms[STATES.index(before)] += max(0, at - record.since)
    record.since = at
    record.state = after
    record.trigger = trigger
    record.successes = 0
    record.lease = None
    if after in {_O, _F} and before is _C:
        record.first_opened = at
    if after is _O:
        record.opened_at = at
        record.open_until = at + int(policy.open_s * 1000 * _backoff(record, policy))
        record.reopened += 1
        record.opened_total += 1
    elif after is _C:
        _clean(record)
        record.reopened = 0
        record.opened_at = record.open_until = record.first_opened = 0
    elif after is _F:
        record.opened_at = at
        record.open_until = 0
    return [CircuitChange(before, after, trigger, at)]


def _backoff(record: BreakerRecord, policy: BreakerPolicy) -> float:
    """Factor on the open time of a circuit, at most `backoff_cap` (also where the power overflows)."""
    try:
        return min(policy.backoff_cap, policy.backoff**record.reopened)
    except OverflowError:
        return policy.backoff_cap


def failure_rate(record: BreakerRecord) -> tuple[float, int]:
    """Failure rate (0 to 1) of the measured calls in the window, and their number."""
    measured = len(record.results)
    return (sum(result & 1 for result in record.results) / measured if measured else 0.0), measured
