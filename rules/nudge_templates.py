"""What an operator's own nudge text may say: which names it may be filed under, which placeholders it may hold.

A slip would otherwise show only when a model is stuck, as a text with a hole in it; so rules with one are refused when
they are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..schemas.vocabulary import Pattern, PatternSeverity

PLACEHOLDERS = ("tool_name", "count", "pattern", "seconds", "required_tool")
"""What a text may name in braces: the tool, how often, the pattern in words, how long in seconds, the tool to call."""

_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
_BRACED = re.compile(r"\{(\w*)\}")


def check_template(where: str, template: str) -> None:
    """Refuse a text with a placeholder that nothing fills; other braces stand as they are written.

    Raises:
        ValueError: naming the place, the placeholder and the allowed ones.
    """
    for name in _BRACED.findall(template):
        if name not in PLACEHOLDERS:
            allowed = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ValueError(f"{where} names the placeholder {{{name}}}, which nothing fills; use {allowed}")


def filled(template: str, **values: str | int) -> str:
    """A text with its placeholders filled; one without a value stays as it is written."""
    return _PLACEHOLDER.sub(lambda found: str(values.get(found.group(1), found.group())), template)


def check_texts(texts: Iterable[tuple[str, str]]) -> None:
    """Refuse texts that are filed under no pattern and severity, or that do not pass `check_template`.

    Raises:
        ValueError: naming the key and what it may be.
    """
    for key, template in texts:
        pattern, _, severity = key.partition(".")
        if pattern not in set(Pattern):
            known = ", ".join(Pattern)
            raise ValueError(f"nudge text {key!r} names no pattern; write PATTERN.SEVERITY with one of {known}")
        if severity not in set(PatternSeverity):
            known = ", ".join(PatternSeverity)
            raise ValueError(f"nudge text {key!r} names no severity; write {pattern}.SEVERITY with one of {known}")
        check_template(f"nudge text {key!r}", template)
