"""Detector of a call that repeatedly fails the same way, with no successful action in between."""

from __future__ import annotations

import msgspec

from ....schemas.vocabulary import Pattern
from ...emitter import MAX_CAUSES
from ..records import Context, Sighting
from .detector import Detector, Finished

MAX_RETRIES = 16


class Retry(msgspec.Struct, array_like=True):
    """A call that repeatedly fails the same way; `since_ms` is the start of the first failure, milliseconds."""

    call: int
    error: int
    step: int
    tool_name: str
    event_ids: list[str]
    count: int = 1
    since_ms: int = 0


class ErrorRetryLoop(Detector, array_like=True):
    """Detector that counts, per failing call, how often it has failed the same way; a parallel batch counts once.

    Attributes:
        retries: the latest failing calls, oldest first.
    """

    pattern = Pattern.ERROR_RETRY_LOOP
    ends_with = "a success, another error, or progress"
    texts = (
        "{tool_name} has failed the same way {count} times. Read the error and change something before trying again.",
        "NOTICE: {count} unchanged retries of {tool_name} failed the same way. Do not repeat it; fix the cause or use another way.",
        "PAUSED: {tool_name} failed the same way {count} times in a row. The session waits for the user.",
    )
    reported = 1
    ended_by_progress = ended_by_call = outgrown = True

    retries: list[Retry] = []

    def on_finish(self, done: Finished, ctx: Context) -> None:
        """Count a failure; a success or a different failure of the call ends its streak."""
        verdict, retries = done.verdict, self.retries
        if not retries and not verdict.failed:
            return
        call = done.call
        known = next((retry for retry in retries if retry.call == call.fingerprint), None)
        if not verdict.failed:
            if known is not None:
                retries.remove(known)
            return
        event_id = done.event.id
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
        rules = ctx.rules.behaviour
        severity = rules.error_retry_by_tool.get(known.tool_name, rules.error_retry_loop).step(known.count)
        if severity:
            tools = [known.tool_name] * min(known.count, MAX_CAUSES)
            seen = Sighting(
                self.pattern, severity, call.fingerprint, known.count, tools, known.event_ids,
                "change the arguments or the approach before trying again", since_ms=known.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def on_progress(self) -> None:
        """Clear all counted failures."""
        self.retries = []
