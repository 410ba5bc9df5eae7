"""Recognises answers to calls of tools that do not exist (docs/detection.md).

By error type or code first, then by message. The forms, and where they come from:

- JSON-RPC `-32601` (method not found), and "Unknown tool: NAME": Model Context Protocol, Tools, Error Handling; its
  `-32602` alone also means bad arguments and is not enough.
- `AI_NoSuchToolError`, "tried to call unavailable tool 'NAME'": Vercel AI SDK, opencode.
- "No such tool available: NAME": Claude Code.
- "NAME is not a valid tool, try one of […]": LangChain, LangGraph.
- "Unknown tool NAME, should be instead one of […]": smolagents; "Unknown tool name: 'NAME'": Pydantic AI.
- "Tool NAME not found", "Tool "NAME" not found in registry", "Tool with name NAME not found", "Function NAME not
  found", "Action 'NAME' don't exist": OpenAI Agents SDK, openclaw, Gemini CLI, LlamaIndex, AutoGen, CrewAI. Here the
  name of the called tool must stand between, so that a tool whose search found nothing is not taken for missing.

A shell's "command not found" is the shell's answer: the shell tool exists.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .errors import MAX_TYPE_CHARS

MAX_MESSAGE_CHARS = 600
"""Number of characters of a message that are searched: the fault is named first, long lists of tools may follow."""

_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_TYPES = frozenset(
    """nosuchtool nosuchtoolerror ainosuchtoolerror toolnotfound toolnotfounderror toolnotfoundexception unknowntool
    unknowntoolerror unavailabletool unavailabletoolerror unavailabletoolagenterror toolnotregistered
    toolnotregisterederror functionnotfound functionnotfounderror""".split()
)
_PLAIN = re.compile(
    r"\b(?:no such tool|unknown tool|unavailable tool|(?:not a valid|is an invalid) tool)\b", re.IGNORECASE
)
_BEFORE = re.compile(r"\b(?:tool|function|action)(?: with)?(?: named?)?[\s:]*[\"'`]*$", re.IGNORECASE)
_AFTER = re.compile(
    r"""["'`]*\s*
    (?: (?:was\ |is\ |could\ |has\ )? not\ (?:be(?:en)?\ )? (?:found|available|registered|defined)
      | (?:does|do) (?:\ not|n['’]t) \ exist )""",
    re.IGNORECASE | re.VERBOSE,
)


@lru_cache(maxsize=1024)
def _is_type(word: str) -> bool:
    return _NOT_LETTERS.sub("", word.lower()) in _TYPES


def is_unknown_tool(tool_name: str, error_type: str, code: str, message: str) -> bool:
    """Whether a failed call was answered by "there is no such tool"."""
    if code == "-32601" or _is_type(error_type[:MAX_TYPE_CHARS]) or _is_type(code[:MAX_TYPE_CHARS]):
        return True
    head = message[:MAX_MESSAGE_CHARS]
    if _PLAIN.search(head):
        return True
    place = head.find(tool_name)
    return (
        place > 0
        and _BEFORE.search(head[:place]) is not None
        and _AFTER.match(head, place + len(tool_name)) is not None
    )
