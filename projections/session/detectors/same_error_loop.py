"""Detector of a tool that fails the same way with different arguments, until it succeeds or fails differently."""

from __future__ import annotations

import msgspec

from ....schemas.vocabulary import Pattern
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, Context, Sighting
from .detector import Detector, Finished

MAX_ERROR_STREAKS = 16
MAX_STREAK_CALLS = 32
"""Maximum number of distinct calls remembered per streak; a forgotten call counts again."""


class ErrorStreak(msgspec.Struct, array_like=True):
    """A streak of calls of one tool, with different arguments, that fail the same way.

    Attributes:
        calls: fingerprints of the latest of these calls, so that a repeated call is not counted twice.
        since_ms: start of the first of these calls, milliseconds.
    """

    tool_name: str
    error: int
    calls: list[int]
    event_ids: list[str]
    step: int
    count: int = 1
    since_ms: int = 0

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the streak: a digest of the tool and the error."""
        return digest(f"{self.tool_name}\x00{self.error}".encode())


class SameErrorLoop(Detector, array_like=True):
    """Detector that counts, per failing tool, the distinct calls that failed the same way.

    A repeated call counts once here (`error_retry_loop` counts repeats), and so does a parallel batch. Expected
    failures are ignored.

    Attributes:
        streaks: streaks of the latest failing tools, oldest first.
    """

    pattern = Pattern.SAME_ERROR_LOOP
    ends_with = "a success of the tool, or another error"
    texts = (
        "{tool_name} has failed the same way {count} times with different arguments. The arguments may not be the problem; read the error.",
        "NOTICE: {count} calls of {tool_name} failed with the same error, whatever the arguments. Stop varying them; find the cause or use another way.",
        "PAUSED: {tool_name} failed with the same error {count} times. The session waits for the user.",
    )
    reported = 6

    streaks: list[ErrorStreak] = []

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """Whether the streak has ended or was dropped."""
        del ctx
        return all(streak.fingerprint != active.fingerprint for streak in self.streaks)

    def on_finish(self, done: Finished, ctx: Context) -> None:
        """Count a failure; a success of the tool or a different failure ends its streak."""
        verdict, streaks = done.verdict, self.streaks
        if not streaks and not verdict.failed:
            return
        call = done.call
        known = next((streak for streak in streaks if streak.tool_name == call.tool_name), None)
        if not verdict.failed:
            if known is not None:
                streaks.remove(known)
            return
        if verdict.expected:
            return
        event_id = done.event.id
        if known is None or known.error != verdict.result:
            if known is not None:
                streaks.remove(known)
            known = ErrorStreak(call.tool_name, verdict.result, [call.fingerprint], [event_id], call.step)
            known.since_ms = call.started_ms
            streaks.append(known)
            del streaks[:-MAX_ERROR_STREAKS]
        elif call.fingerprint in known.calls or call.step == known.step:
            return
        else:
            known.step = call.step
            known.count += 1
            known.calls = [*known.calls[1 - MAX_STREAK_CALLS :], call.fingerprint]
            known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
        severity = ctx.rules.behaviour.same_error_loop.step(known.count)
        if severity:
            seen = Sighting(
                self.pattern, severity, known.fingerprint, known.count,
                [call.tool_name] * min(known.count, MAX_CAUSES), known.event_ids, "find out why the tool fails",
                since_ms=known.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)
