"""Detection of a log's format by its first objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...schemas.otlp_spans import is_span
from .reading import Numbered

_CODEX = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CLAUDE = frozenset({"user", "assistant", "system", "summary", "progress", "attachment", "result"})
_CLAUDE_FIELDS = frozenset({"sessionId", "session_id", "parentUuid", "leafUuid", "isSidechain"})
_OTEL = frozenset({"resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "batches"})
_OPENAI = frozenset(
    """role messages traj trajectory choices output input conversation simulations custom_id tool_calls transcripts
    history request response data items""".split()
)


def recognised(records: Iterable[Numbered]) -> str:
    """Name of the detected format; empty if unknown."""
    for _, record in records:
        found = _one(record)
        if found:
            return found
    return ""


def _one(record: dict[str, Any]) -> str:
    kind = record.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind in _CODEX and isinstance(record.get("payload"), dict):
        return "codex"
    if "record_type" in record or {"id", "timestamp", "instructions"} <= record.keys():
        return "codex"
    if isinstance(record.get("session"), dict) and isinstance(record.get("items"), list):
        return "codex"
    if {"sessionId", "projectHash"} <= record.keys():
        return "gemini"
    trace = record.get("trace")
    if record.keys() & _OTEL or is_span(record) or (isinstance(trace, dict) and trace.keys() & _OTEL):
        return "otel"
    if kind in _CLAUDE and (record.keys() & _CLAUDE_FIELDS or isinstance(record.get("message"), dict)):
        return "claude-code"
    if record.keys() & _OPENAI or kind.endswith(("_call", "_call_output")):
        return "openai"
    return ""
