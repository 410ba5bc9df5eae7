"""Detector of a request that is repeated and fails the same way, with nothing changed in between."""

from __future__ import annotations

import msgspec

from ....rules.behaviour import SeverityLadder
from ....schemas.vocabulary import FailureSeverity, PatternType
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, EventContext, PatternSighting
from ..steps import WAITED
from ..verdicts import FinishVerdict
from .detector import FinishedCall, PatternDetector

MAX_RETRIES = 16


class RetriedRequest(msgspec.Struct, array_like=True):
    """A request that repeatedly fails the same way."""

    call: int
    kind: int  # fingerprint of how it failed (`FinishVerdict.kind`)
    text: int  # fingerprint of the text of its latest failure
    step: int
    tool_name: str
    event_ids: list[str]
    count: int = 1
    same_text: bool = True  # whether all of its failures had that text
    workspace: int = 0  # digest of the workspace after its latest failure; 0 unknown
    waited: bool = False  # whether something waited between two of them
    doubtful: bool = False  # whether something may have changed since, so that only an equal workspace continues it
    since_ms: int = 0  # start of the first failure, milliseconds


class ErrorRetryLoop(PatternDetector, array_like=True):
    """Detector of a request that is repeated and fails the same way, with nothing changed in between.

    Holds when the same call fails with the same severity, status or exit code and error type. If the text differs
    beyond its moving parts, the pattern stays moderate. The calls of one step count once. What may pass by itself (a
    service that is away or answers too late) is a poll where something waited between.

    Ends with a success of the call, another way of failing, a new successful action, or a new success of a call whose
    effect is unknown: a program may have changed what the call depends on. Where the publisher sends the state of the
    workspace, a changed state ends it whatever ran between, and an equal one continues it.

    Known false alarms: waiting for something without a visible wait.
    """

    pattern = PatternType.ERROR_RETRY_LOOP
    ends_with = "a success, another way of failing, or anything that may have changed something"
    texts = (
        "{request} has failed the same way {count} times, and nothing was changed in between. Read its message before "
        "you run it again: change the input or fix the cause. If you are waiting, end your turn.",
        "{request} has failed the same way {count} times with nothing changed in between. As it is, it will very likely "
        "fail again: fix what the message names, use another way, or end your turn and say what you need.",
        "Stopped after {count} equal failures of {request}. Make no further calls. Say what you tried and what you need.",
    )
    variants = {
        "mute": (
            "{request} has failed {count} times without saying why, and nothing was changed in between. Find out what it "
            "needs, or whether it only says no, before you run it again. If you are waiting, end your turn.",
            "{request} has failed {count} times without saying why, with nothing changed in between. As it is, it will very "
            "likely fail again: find the cause, use another way, or end your turn and say what you need.",
            texts[2],
        )
    }
    reported = 1
    outgrown = True

    retries: list[RetriedRequest] = []  # the latest failing calls, oldest first

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the call is no longer counted; where the workspace is known, the next failure shows what changed."""
        mine = (one for one in self.retries if one.call == active.fingerprint)
        return not any(_ladder(one, ctx).step(one.count) for one in mine)

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """End the streak of a call that did not fail, or whose failure is an answer."""
        del ctx
        verdict = done.verdict
        if self.retries and (not verdict.failed or (verdict.answer and done.call.runs)):
            fingerprint = done.call.fingerprint
            self.retries = [one for one in self.retries if one.call != fingerprint]

    def on_failure(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a failure."""
        call, verdict, retries = done.call, done.verdict, self.retries
        if call.waits or (verdict.answer and call.runs):
            return
        event = done.event
        workspace = digest(event.workspace_digest.encode()) if event.workspace_digest else 0
        known = next((one for one in retries if one.call == call.fingerprint), None)
        if known is not None and (known.kind != verdict.kind or _has_changed(known, workspace)):
            retries.remove(known)
            known = None
        if known is None:
            known = RetriedRequest(call.fingerprint, verdict.kind, verdict.text, call.step, call.tool_name, [event.id])
            known.since_ms = call.started_ms
            retries.append(known)
            del retries[:-MAX_RETRIES]
        elif known.step != call.step:
            window, latest = ctx.state.steps.window, known.step
            known.waited = known.waited or any(one.marks & WAITED and one.step > latest for one in window)
            known.step = call.step
            known.count += 1
            known.same_text = known.same_text and known.text == verdict.text
            known.text = verdict.text
            known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event.id]
        known.workspace, known.doubtful = workspace, False
        if known.waited and may_pass(verdict):
            return
        severity = _ladder(known, ctx).step(known.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity if known.same_text else min(severity, 2), call.fingerprint, known.count,
                [known.tool_name] * min(known.count, MAX_CAUSES), known.event_ids,
                "change the arguments or the approach before trying again", since_ms=known.since_ms,
                variant="" if verdict.message.strip() else "mute",
                proven=known.same_text and not known.waited,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def on_progress(self, tool_name: str) -> None:
        """End all streaks but those that an equal workspace may continue."""
        del tool_name
        self.retries = [one for one in self.retries if one.workspace]
        for retry in self.retries:
            retry.doubtful = True

    on_effect = on_progress


def may_pass(verdict: FinishVerdict) -> bool:
    """Whether a failure may pass by itself, so that to wait and to try again is right."""
    if verdict.severity is FailureSeverity.SERVER_ERROR:
        return verdict.http_status is not None
    is_away = bool(verdict.behind) and not verdict.refused and not verdict.answer
    return is_away or verdict.severity in _PASSING


_PASSING = frozenset({FailureSeverity.TRANSIENT, FailureSeverity.TIMEOUT})


def _ladder(retry: RetriedRequest, ctx: EventContext) -> SeverityLadder:
    rules = ctx.rules.behaviour
    return rules.error_retry_by_tool.get(retry.tool_name, rules.error_retry_loop)


def _has_changed(known: RetriedRequest, workspace: int) -> bool:
    """Whether something has changed since the latest failure: the workspace, or possibly anything if it is unknown."""
    if known.workspace and workspace:
        return known.workspace != workspace
    return known.doubtful
