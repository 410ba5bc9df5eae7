"""Detector of an existing tool that is named repeatedly and not called.

The model names it in a sentence that announces work, or a violated policy names it. Any call of the tool, whatever its
result, ends the pattern. A name that may be an ordinary word ("Edit", "bash") counts only where the sentence says that
the tool will be used ("I'll use the Edit tool"); other names (`read_file`, `readFile`) count anywhere in it.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from ....schemas.vocabulary import PatternType
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, CallRecord, EventContext, PatternSighting, SessionRecord
from .detector import PatternDetector, SpokenText

MAX_NAMED_TOOLS = 8
MAX_TEXT_CHARS = 4000
_UNMISTAKABLE = re.compile(r"_|[a-z][A-Z]|[A-Za-z]\d")


class NamedTool(msgspec.Struct, array_like=True):
    """A tool that was named since its last call; `since_ms` is the time of the first mention, milliseconds."""

    tool_name: str
    event_ids: list[str]
    count: int = 0
    since_ms: int = 0


class ToolAvoidance(PatternDetector, array_like=True):
    """Detector of a tool that exists, is named and is not called.

    Holds when the model names the tool in sentences that announce work, or violated policies name it.

    Ends with any call of the tool, whatever its result.

    Known false alarms: a tool whose name is an ordinary word.
    """

    pattern = PatternType.TOOL_AVOIDANCE
    ends_with = "a call of the tool"
    texts = (
        "{required_tool} was named {count} times and not called. If it is what you need, call it.",
        "{required_tool} was named {count} times and not called. Call it, or say why it cannot be used.",
    )
    reported = 2
    wants_action = True

    named: list[NamedTool] = []  # the latest of these tools

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the tool has been called, or was dropped from the list."""
        del ctx
        return all(digest(one.tool_name.encode()) != active.fingerprint for one in self.named)

    def on_act(self, call: CallRecord) -> None:
        """Reset the count of the called tool."""
        if self.named:
            self.named = [one for one in self.named if one.tool_name != call.tool_name]

    def on_message(self, message: SpokenText, ctx: EventContext) -> None:
        """Count the tools named by the publisher's `mentions`, and the session's tools in announcing sentences."""
        event = message.event
        if message.announces or (event.mentions and event.text is None and event.announces is None):
            for tool_name in _tools_of(message, ctx.state):
                self.name(tool_name, ctx.emit.at, ctx)

    def name(self, tool_name: str, at: int, ctx: EventContext) -> None:
        """Count one more mention of a tool at a time in milliseconds, and report it at a step of the ladder."""
        tools = self.named
        known = next((one for one in tools if one.tool_name == tool_name), None)
        if known is None:
            known = NamedTool(tool_name, [], since_ms=at)
            tools.append(known)
            del tools[:-MAX_NAMED_TOOLS]
        known.count += 1
        known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], ctx.emit.cause]
        severity = ctx.rules.behaviour.tool_avoidance.step(known.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, digest(tool_name.encode()), known.count, [tool_name], known.event_ids,
                f"call {tool_name}", required_tool=tool_name, since_ms=known.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)


def _tools_of(message: SpokenText, state: SessionRecord) -> list[str]:
    event = message.event
    mentions = event.mentions
    found = list(dict.fromkeys(mentions[:MAX_NAMED_TOOLS])) if mentions else []
    text = (event.text or "")[:MAX_TEXT_CHARS]
    tools = [tool for tool in state.tools if tool in text and tool not in mentions]
    if tools:  # most texts contain none
        sentences = set(message.sentences)
        for tool in tools:
            pattern = _mention(tool)
            if any(pattern.search(sentence) for sentence in sentences):
                found.append(tool)
    return found


@lru_cache(maxsize=1024)
def _mention(tool_name: str) -> re.Pattern[str]:
    """Regular expression that finds a mention of a tool in a lower-case sentence."""
    name = re.escape(tool_name.lower())
    if _UNMISTAKABLE.search(tool_name):
        return re.compile(rf"(?<![\w./-]){name}(?![\w/-])")
    verb = r"\b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|try(?:ing)?) (?:the |my )?"
    return re.compile(rf"{verb}[`'\"]?{name}(?:[`'\"]| tool\b|[.,:]|$)")
