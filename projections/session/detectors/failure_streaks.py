"""Detectors of a tool whose calls fail with other arguments: the same way, or in ever new ways."""

from __future__ import annotations

import msgspec

from ....schemas.vocabulary import PatternType
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, EventContext, PatternSighting
from .detector import FinishedCall, PatternDetector
from .error_retry_loop import may_pass

MAX_STREAKS = 16
TELLING_CHARS = 20  # A shorter message is not taken for the same failure of another tool
MAX_STREAK_CALLS = 32  # Maximum number of distinct calls remembered per streak; a forgotten call counts again


class ErrorStreak(msgspec.Struct, array_like=True):
    """A streak of calls of one tool, with different arguments, that fail the same way; other tools may join it."""

    tool_name: str  # the first tool
    error: int  # fingerprint of the failure, its text included
    calls: list[int]  # fingerprints of the latest of these calls, so that a repeated call is not counted twice
    event_ids: list[str]
    step: int
    count: int = 1
    since_ms: int = 0  # start of the first of these calls, milliseconds
    others: list[str] = []  # the other tools that fail with the same message

    def is_of(self, tool_name: str) -> bool:
        """Whether the latest calls of a tool belong to the streak."""
        return tool_name == self.tool_name or tool_name in self.others

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the streak: a digest of the tool and the error."""
        return digest(f"{self.tool_name}\x00{self.error}".encode())


class SameErrorLoop(PatternDetector, array_like=True):
    """Detector of a tool that fails the same way with different arguments.

    Holds when distinct calls of a tool fail in the same way and with the same text, without what moves in it and
    without what it repeats of the arguments. A repeated call counts once, and so do the calls of one step. Expected
    failures and searches that find nothing are no failures here. Other tools that fail with the same message of twenty
    characters and more count with it: what is wrong lies behind all of them.

    Ends with a success of the tool or of one that has joined, another failure, or a command line that edits a file
    before what fails.

    Known false alarms: attempts that a checker rejects in the same words ("Test case did not pass").
    """

    pattern = PatternType.SAME_ERROR_LOOP
    ends_with = "a success of the tool, or another error"
    texts = (
        "{count} different calls of {tool_name} have failed the same way, the last one {request}. The arguments may not "
        "be the cause: read the message and look for what all of them share.",
        "{count} different calls of {tool_name} have failed the same way, the last one {request}. Varying the arguments "
        "does not help: find the cause, use another way, or end your turn and say what you need.",
    )
    variants = {
        "tools": (
            "{count} calls of different tools have failed the same way, the last one {request}. The cause lies behind "
            "all of them: read the message, and find out whether you can remove it.",
            "{count} calls of different tools have failed the same way, the last one {request}. Another tool of this "
            "kind will not help: find the cause, go on without it, or end your turn and say what you need.",
        )
    }
    reported = 6

    streaks: list[ErrorStreak] = []  # streaks of the latest failing tools, oldest first

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the streak has ended or was dropped."""
        del ctx
        return all(streak.fingerprint != active.fingerprint for streak in self.streaks)

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a failure; a success of the tool or a different failure ends its streak."""
        verdict, streaks = done.verdict, self.streaks
        if not streaks and not verdict.failed:
            return
        call = done.call
        known = next((streak for streak in streaks if streak.is_of(call.tool_name)), None)
        if not verdict.failed or call.edits:
            if known is not None:
                streaks.remove(known)
            return
        if verdict.expected or verdict.answer or call.waits:
            return
        event_id, error = done.event.id, verdict.kind ^ verdict.text
        if known is not None and known.error != error:
            streaks.remove(known)
            known = None
        if known is None and len(verdict.message) >= TELLING_CHARS:
            known = next((streak for streak in streaks if streak.error == error), None)
            if known is not None:
                known.others = [*known.others[1 - MAX_STREAKS :], call.tool_name]
        if known is None:
            known = ErrorStreak(call.tool_name, error, [call.fingerprint], [event_id], call.step)
            known.since_ms = call.started_ms
            streaks.append(known)
            del streaks[:-MAX_STREAKS]
        elif call.fingerprint in known.calls or call.step == known.step:
            return
        else:
            known.step = call.step
            known.count += 1
            known.calls = [*known.calls[1 - MAX_STREAK_CALLS :], call.fingerprint]
            known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
        severity = ctx.rules.behaviour.same_error_loop.step(known.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, known.fingerprint, known.count,
                [call.tool_name] * min(known.count, MAX_CAUSES), known.event_ids, "find out why the tool fails",
                since_ms=known.since_ms, variant="tools" if known.others else "",
            )  # fmt: skip
            ctx.sightings.append(seen)


class ToolFailures(msgspec.Struct, array_like=True):
    """Failures of one tool in a row; `since_ms` is the start of the first, milliseconds."""

    tool_name: str
    event_ids: list[str]
    step: int
    count: int = 1
    since_ms: int = 0


class FailureStreak(PatternDetector, array_like=True):
    """Detector of a tool whose calls fail one after another, whatever their arguments and errors.

    Holds when a tool has failed in several steps in a row, without progress of another tool between.

    Ends with a success of the tool, a command line that edits a file before what fails, a new successful action of
    another tool, or a new success of another tool whose effect is unknown. Calls that wait, retries after a wait of what
    may pass by itself, and programs that answer by their exit code, do not count.

    Known false alarms: trial and error that is about to succeed, and attempts that a checker rejects; none in coding
    sessions at six.
    """

    pattern = PatternType.FAILURE_STREAK
    ends_with = "a success of the tool, or progress of another one"
    texts = (
        "The last {count} calls of {tool_name} have failed, the last one was {request}. Step back: "
        "check what you assume about its arguments or its environment before the next try.",
        "The last {count} calls of {tool_name} have failed; the last one was {request}. More tries of this kind will "
        "likely fail as well: look up how it is used, take another way, or end your turn and say what you need.",
    )
    reported = 8

    streaks: list[ToolFailures] = []  # the latest failing tools, oldest first

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the streak has ended or was dropped."""
        del ctx
        return all(digest(streak.tool_name.encode()) != active.fingerprint for streak in self.streaks)

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a failure; a success of the tool ends its streak."""
        verdict, streaks = done.verdict, self.streaks
        if not streaks and not verdict.failed:
            return
        call = done.call
        known = next((streak for streak in streaks if streak.tool_name == call.tool_name), None)
        if not verdict.failed or call.edits:
            if known is not None:
                streaks.remove(known)
            return
        if call.waits or verdict.expected or (verdict.answer and call.runs):
            return
        if done.same and may_pass(verdict) and ctx.state.steps.waited_since(done.same[-1].step):
            return
        if known is None:
            known = ToolFailures(call.tool_name, [done.event.id], call.step, since_ms=call.started_ms)
            streaks.append(known)
            del streaks[:-MAX_STREAKS]
        elif known.step != call.step:
            known.step = call.step
            known.count += 1
            known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], done.event.id]
        severity = ctx.rules.behaviour.failure_streak.step(known.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, digest(call.tool_name.encode()), known.count,
                [call.tool_name] * min(known.count, MAX_CAUSES), known.event_ids,
                "check what is assumed about the tool before the next try", since_ms=known.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def on_progress(self, tool_name: str) -> None:
        """End the streaks of all other tools."""
        self.streaks = [streak for streak in self.streaks if streak.tool_name == tool_name]

    on_effect = on_progress
