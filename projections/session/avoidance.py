"""Detector of avoidance: a tool that exists is named again and again, and not called (docs/detection.md).

The model names it in a sentence that announces work, or a policy names it when it is violated. A call of the tool ends
it, whatever comes of the call. A name that may be an ordinary word ("Edit", "bash") counts where the sentence says that
it is to be used ("I'll use the Edit tool"); one that may not (`read_file`, `readFile`) counts anywhere in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ...rules.rules import BehaviourRules
from ...schemas.events import ModelText
from ...schemas.vocabulary import Pattern
from ..calls.fingerprints import digest
from ..emit import MAX_CAUSES
from .patterns import Sighting
from .state import MAX_NAMED_TOOLS, NamedTool, SessionState

MAX_TEXT_CHARS = 4000
_UNMISTAKABLE = re.compile(r"_|[a-z][A-Z]|[A-Za-z]\d")


def named(
    state: SessionState, event: ModelText, at: int, announcing: Iterable[str], rules: BehaviourRules
) -> list[Sighting]:
    """The model has named tools: those the publisher says, and those of this session in its `announcing` sentences."""
    tools = _tools_of(state, event, announcing)
    found = [name_tool(state, tool, event.id, at, rules) for tool in tools] if tools else []
    return [sighting for sighting in found if sighting is not None] if found else []


def name_tool(state: SessionState, tool_name: str, event_id: str, at: int, rules: BehaviourRules) -> Sighting | None:
    """A tool has been named once more since it was last called."""
    tools = state.named_tools
    known = next((one for one in tools if one.tool_name == tool_name), None)
    if known is None:
        known = NamedTool(tool_name, [], since_ms=at)
        tools.append(known)
        del tools[:-MAX_NAMED_TOOLS]
    known.count += 1
    known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
    severity = rules.tool_avoidance.step(known.count)
    if not severity:
        return None
    return Sighting(
        Pattern.TOOL_AVOIDANCE, severity, digest(tool_name.encode()), known.count,
        [tool_name], known.event_ids, f"call {tool_name}", required_tool=tool_name,
        since_ms=known.since_ms,
    )  # fmt: skip


def called(state: SessionState, tool_name: str) -> None:
    """The tool has been called: what was said of it before no longer counts."""
    state.named_tools = [one for one in state.named_tools if one.tool_name != tool_name]


def _tools_of(state: SessionState, event: ModelText, announcing: Iterable[str]) -> list[str]:
    mentions = event.mentions
    found = list(dict.fromkeys(mentions[:MAX_NAMED_TOOLS])) if mentions else []
    text = (event.text or "")[:MAX_TEXT_CHARS]
    tools = [tool for tool in state.tools if tool in text and tool not in mentions]
    if tools:  # most texts hold none
        sentences = set(announcing)
        for tool in tools:
            pattern = _mention(tool)
            if any(pattern.search(sentence) for sentence in sentences):
                found.append(tool)
    return found


@lru_cache(maxsize=1024)
def _mention(tool_name: str) -> re.Pattern[str]:
    """What counts as naming a tool in a lower-case sentence."""
    name = re.escape(tool_name.lower())
    if _UNMISTAKABLE.search(tool_name):
        return re.compile(rf"(?<![\w./-]){name}(?![\w/-])")
    verb = r"\b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|try(?:ing)?) (?:the |my )?"
    return re.compile(rf"{verb}[`'\"]?{name}(?:[`'\"]| tool\b|[.,:]|$)")
