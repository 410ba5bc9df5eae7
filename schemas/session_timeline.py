"""One session as a timeline, as `/v1/sessions/ID` answers with: calls, messages, patterns, decisions.

Readers decode it with these structs; `history.sessions.json_view` writes it. Fields that only programs need are not
here. Unknown fields are ignored, and all words of the contract are plain text, so that a later server's can be shown.
"""

from __future__ import annotations

from typing import Any

import msgspec


class TimelineLoop(msgspec.Struct, frozen=True):
    """Equal calls with equal results.

    Attributes:
        tool_name: tool of the calls.
        arguments: their arguments, shortened.
        times: number of calls.
        wasted_calls: number of calls after the first.
        share_of_calls: wasted share of the session's calls, 0 to 1.
        tool_ms: milliseconds in the tool; None if unknown.
        cost_usd: US dollars; None if unknown.
    """

    tool_name: str
    arguments: str
    times: int
    wasted_calls: int
    share_of_calls: float
    tool_ms: float | None = None
    cost_usd: float | None = None


class TimelineStep(msgspec.Struct, frozen=True):
    """Severity that a pattern reached.

    Attributes:
        repetitions: number of repetitions.
    """

    repetitions: int


class TimelineNudge(msgspec.Struct, frozen=True):
    """Nudge about a pattern.

    Attributes:
        kind: `gentle`, `direct` or `interrupt`.
        effect: `followed`, `ignored` or `unknown`.
    """

    kind: str
    effect: str


class TimelinePattern(msgspec.Struct, frozen=True):
    """Pattern from its first detection to its end.

    Attributes:
        pattern: kind of pattern.
        steps: severities it reached, oldest first.
        request: latest call that shows it; None for a pattern of texts.
        message: what a person should be told about it; None if nobody should.
        thresholds: repetitions of the severities that it has, mildest first; None if unknown.
        cleared: time of its end; None while it is open.
        nudges: nudges about it.
    """

    pattern: str
    steps: tuple[TimelineStep, ...]
    request: str | None = None
    message: str | None = None
    thresholds: tuple[int | float, ...] | None = None
    cleared: str | None = None
    nudges: tuple[TimelineNudge, ...] = ()


class TimelineItem(msgspec.Struct, frozen=True):
    """Message, call (or equal consecutive calls), decision, or another event.

    Attributes:
        kind: kind of item, as in the page's filter.
        time: time of its event.
        who: of a message: `user` or `model`.
        text: of a message: its text, shortened; empty if only a digest is known.
        tool_name: of a call: its tool.
        arguments: of a call: its arguments, shortened.
        verdict: of a call: how it ended.
        failing: whether it is a failure, or a decision about a fault.
        signature: of a call: what identifies its error; None without an error.
        duration_ms: of a call: milliseconds; None if unknown.
        same_result: of a call: how often this result has been returned for these arguments so far.
        repeats: number of equal consecutive calls; None for one call.
        decision: of a decision: its record.
        effect: of a nudge: `followed`, `ignored` or `unknown`.
        event: of another event: its record.
    """

    kind: str
    time: str
    failing: bool = False
    who: str | None = None
    text: str = ""
    tool_name: str | None = None
    arguments: str = ""
    verdict: str | None = None
    signature: str | None = None
    duration_ms: float | None = None
    same_result: int | None = None
    repeats: int | None = None
    decision: dict[str, Any] | None = None
    effect: str | None = None
    event: dict[str, Any] | None = None


class SessionTimeline(msgspec.Struct, frozen=True):
    """Timeline of a session.

    Attributes:
        session_id: id of the session.
        models: names of its models.
        began: time of its first event.
        ended: time of its last event.
        calls: number of calls.
        verdicts: number of calls of each verdict.
        loops: equal calls with equal results.
        patterns: detected patterns.
        items: what happened, oldest first.
    """

    session_id: str
    models: tuple[str, ...]
    began: str
    ended: str
    calls: int
    verdicts: dict[str, int]
    loops: tuple[TimelineLoop, ...]
    patterns: tuple[TimelinePattern, ...]
    items: tuple[TimelineItem, ...]
