"""Detector of an unchanged look of a waiting kind."""

from __future__ import annotations

import msgspec

from ....schemas.vocabulary import PatternType, ToolClass
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, EventContext, PatternSighting
from .detector import FinishedCall, PatternDetector
from .error_retry_loop import may_pass

MAX_LOOKS = 16


class UnchangedLook(msgspec.Struct, array_like=True):
    """A call that looks at something and has not seen it change."""

    call: int
    result: int
    step: int
    event_ids: list[str]
    count: int = 1
    since_ms: int = 0  # finish of the first look with this result, milliseconds

    def pace_ms(self, at: int) -> float:
        """Average time from look to look, milliseconds."""
        return (at - self.since_ms) / max(1, self.count - 1)


class PollDetector(PatternDetector, array_like=True):
    """Detector of looks that wait for a change and see none.

    Holds when a call of a waiting kind gives the same result, or fails the same way, again and again: a command line
    with `sleep`, `wait`, `watch` or `--follow`, a tool that polls, an empty write to a terminal; or any equal call with
    such a wait, or a minute without a call, between, of failures those that may pass by themselves. Looks that come faster than every ten seconds on average are
    counted; slower ones are judged by time alone, and only the person is told. A line that only waits is no look.

    Ends with another result, or a new successful action.

    Known false alarms: a job that says nothing for half an hour and is fine.
    """

    pattern = PatternType.POLL
    ends_with = "another result, or progress"
    texts = (
        "{request} has been asked {count} times within {seconds} seconds and has not changed. Wait longer between two "
        "looks, do something else meanwhile, or end your turn and say what you are waiting for.",
        "{request} has been asked {count} times within {seconds} seconds and has not changed. Asking more often does "
        "not make it faster: wait for at least a minute, check whether it can still finish, or end your turn.",
    )
    variants = {
        "slow": (
            "{request} has shown the same for {seconds} seconds. Check whether what it waits for can still happen.",
            "{request} has shown the same for {seconds} seconds. Check whether what it waits for can still happen.",
        )
    }
    notice = "The agent has looked {count} times at {request}, which has not changed for {seconds} seconds."
    reported = 12
    ended_by_progress = True
    finishes = "repeated"

    looks: list[UnchangedLook] = []  # the latest looks, oldest first

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a look has seen a change."""
        del ctx
        return all(one.call != active.fingerprint or one.count < 2 for one in self.looks)

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count an unchanged look, and judge it by its pace."""
        call, verdict, at = done.call, done.verdict, ctx.emit.at
        if not call.waits:
            if not done.equal or not (verdict.answer or may_pass(verdict) or not verdict.failed):
                return
            if not _waited_between(done, ctx):
                return
        elif call.only_waits or not verdict.result:
            return
        looks = self.looks
        known = next((one for one in looks if one.call == call.fingerprint), None)
        if known is None and not call.waits:
            first = next(one for one in done.same if one.result == verdict.result)
            known = UnchangedLook(call.fingerprint, verdict.result, first.step, [first.event_id], 1, first.at_ms)
            self._keep(known)
        elif known is None or known.result != verdict.result:
            if known is not None:
                looks.remove(known)
            self._keep(UnchangedLook(call.fingerprint, verdict.result, call.step, [done.event.id], 1, at))
            return
        if known.step != call.step:
            known.step = call.step
            known.count += 1
            known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], done.event.id]
        rules = ctx.rules.behaviour
        is_fast = known.pace_ms(at) < rules.fast_poll_seconds * 1000
        is_slow = at - known.since_ms >= rules.slow_poll_seconds * 1000 and known.count > 2
        severity = rules.poll.step(known.count) if is_fast else int(is_slow and rules.poll.enabled)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, call.fingerprint, known.count, [call.tool_name], known.event_ids,
                "wait longer between two looks", since_ms=known.since_ms, variant="" if is_fast else "slow",
                for_model=is_fast, for_user=not is_fast,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def on_progress(self, tool_name: str) -> None:
        """Forget all looks."""
        del tool_name
        self.looks = []

    def _keep(self, look: UnchangedLook) -> None:
        self.looks.append(look)
        del self.looks[:-MAX_LOOKS]


def _waited_between(done: FinishedCall, ctx: EventContext) -> bool:
    """Whether something waited since the first equal result of the call."""
    if done.call.tool_class is ToolClass.ACTION:
        return False
    first = next(one for one in done.same if one.result == done.verdict.result)
    return ctx.state.steps.waited_since(first.step)
