"""Detectors of repetition: the same call with the same result, the same failure again, the same cycle again.

All three compare fingerprints of calls and results (calls/fingerprints.py). A changed result is polling, not a loop;
progress (a successful action that is new) starts the count afresh; a parallel batch is one step.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...rules.rules import BehaviourRules
from ...schemas.vocabulary import Pattern, ToolClass
from ..calls.fingerprints import digest
from ..emit import MAX_CAUSES
from .patterns import Sighting
from .state import MAX_CYCLE, MAX_RETRIES, Done, OpenCall, Retry, SessionState
from .verdicts import Verdict

_MASK = (1 << 64) - 1
"""Numbers are kept to 64 bits; by a mask, which is faster than a remainder."""

_ODD, _ODDER = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Odd, so that multiplying loses nothing, with bits spread evenly."""


def remember(state: SessionState, call: OpenCall, verdict: Verdict, event_id: str, rules: BehaviourRules) -> list[Done]:
    """Add a finished call to the window, drop what has left it, and give the same call's earlier ones in it."""
    window, fingerprint = state.window, call.fingerprint
    oldest = state.step - rules.window_steps
    if window and window[0].step <= oldest:
        window = state.window = [done for done in window if done.step > oldest]
    same = [done for done in window if done.call == fingerprint]
    window.append(Done(call.step, fingerprint, verdict.result, call.tool_name, event_id, call.started_ms))
    if len(window) > 4 * rules.window_steps:
        del window[0]
    return same


def is_news(same: list[Done], verdict: Verdict) -> bool:
    """Whether a call, made before or not, has not given this result within the window. An unknown result is news."""
    return not same or not verdict.result or all(done.result != verdict.result for done in same)


def repetitive_calls(state: SessionState, call: OpenCall, same: list[Done], rules: BehaviourRules) -> Sighting | None:
    """The call just remembered, with the same known result, in several steps since progress or a changed result."""
    last = state.window[-1]
    if not same or not last.result:
        return None
    ladder = rules.poll_no_progress if call.tool_class is ToolClass.POLL else rules.repetitive_calls
    repeats: list[Done] = []
    step = -1
    for done in (last, *reversed(same)):
        if done.result != last.result or done.step < state.progress_step:
            break
        if done.step != step:
            repeats.append(done)
            step = done.step
    severity = ladder.step(len(repeats))
    if not severity:
        return None
    repeats.reverse()
    return Sighting(
        Pattern.REPETITIVE_CALLS,
        severity,
        last.call,
        len(repeats),
        [done.tool_name for done in repeats[-MAX_CAUSES:]],
        [done.event_id for done in repeats],
        since_ms=repeats[0].at_ms,
    )


def error_retry_loop(
    state: SessionState, call: OpenCall, verdict: Verdict, event_id: str, rules: BehaviourRules
) -> Sighting | None:
    """The same call failing the same way, with no successful action between."""
    retries = state.retries
    known = next((retry for retry in retries if retry.call == call.fingerprint), None) if retries else None
    if not verdict.failed:
        if known is not None:
            retries.remove(known)
        return None
    if known is None or known.error != verdict.result:
        if known is not None:
            retries.remove(known)
        known = Retry(call.fingerprint, verdict.result, call.step, call.tool_name, [event_id])
        known.since_ms = call.started_ms
        retries.append(known)
        del retries[:-MAX_RETRIES]
    elif known.step != call.step:
        known.step = call.step
        known.count += 1
        known.event_ids.append(event_id)
        del known.event_ids[:-MAX_CAUSES]
    severity = rules.error_retry_by_tool.get(known.tool_name, rules.error_retry_loop).step(known.count)
    if not severity:
        return None
    tools = [known.tool_name] * min(known.count, MAX_CAUSES)
    return Sighting(
        Pattern.ERROR_RETRY_LOOP, severity, call.fingerprint, known.count, tools, known.event_ids,
        "change the arguments or the approach before trying again", since_ms=known.since_ms,
    )  # fmt: skip


def finish_in_step(state: SessionState, call: OpenCall, verdict: Verdict) -> bool:
    """Count a finished call in its step; True when the step is complete and was added to the cycle's memory.

    A neutral call says nothing of the step, and a straggler nothing any more: its step was closed without it.
    """
    if call.step != state.step:
        return False
    state.step_sealed = True
    state.step_open -= 1
    if not verdict.neutral:
        result = verdict.result or digest(call.event_id.encode())  # two unknown results are never the same
        state.step_mix = state.step_mix + _mix(call.fingerprint, result) & _MASK
    return state.step_open <= 0 and close_step(state)


def _mix(call: int, result: int) -> int:
    """One number for a call with its result; the sum of several tells which call gave which."""
    mixed = (call ^ result * _ODD) & _MASK
    return (mixed ^ mixed >> 29) * _ODDER & _MASK or 1


def close_step(state: SessionState) -> bool:
    """Add the current step to the cycle's memory, with what is known of it; False when that is nothing."""
    fingerprint, state.step_mix = state.step_mix, 0
    if not fingerprint:
        return False
    tail, runs = state.cycle_tail, state.cycle_runs
    if fingerprint not in tail:  # nothing repeats: the usual case
        if any(runs):
            state.cycle_runs = [0] * MAX_CYCLE
    else:
        for period in range(1, MAX_CYCLE + 1):
            same = len(tail) >= period and tail[-period] == fingerprint
            runs[period - 1] = runs[period - 1] + 1 if same else 0
    tail.append(fingerprint)
    del tail[:-MAX_CYCLE]
    return True


def alternating_loop(state: SessionState, rules: BehaviourRules) -> Sighting | None:
    """A cycle of two to six steps with the same results that repeats without a break, as of the step just closed."""
    runs = state.cycle_runs
    if not any(runs):
        return None
    for period in range(2, MAX_CYCLE + 1):
        run = runs[period - 1]
        laps = run // period + 1
        if not run or run % period or not rules.alternating_loop.step(laps):
            continue
        if any(runs[shorter - 1] >= run for shorter in _divisors(period)):
            continue  # a shorter cycle explains it; one call repeated is not a cycle
        cycle = sorted(state.cycle_tail[-period:])
        done = _latest_steps(state, period * min(laps, MAX_CAUSES // period or 1))
        return Sighting(
            Pattern.ALTERNATING_LOOP,
            rules.alternating_loop.step(laps),
            digest(b"".join(part.to_bytes(8, "big") for part in cycle)),
            laps,
            [entry.tool_name for entry in done],
            [entry.event_id for entry in done],
            since_ms=done[0].at_ms if done else 0,
        )
    return None


def _divisors(period: int) -> Iterator[int]:
    return (shorter for shorter in range(1, period) if period % shorter == 0)


def _latest_steps(state: SessionState, steps: int) -> list[Done]:
    return [done for done in state.window if done.step > state.step - steps][-MAX_CAUSES:]
