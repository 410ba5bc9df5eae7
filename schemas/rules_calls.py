"""What is known about tools, and how their calls are read (design 3, Keys; design 2, Time and order)."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from .rule_fields import RulesBase
from .vocabulary import ToolClass


class ToolRules(RulesBase, kw_only=True, frozen=True):
    """What is known about tools: their classes and how their failure keys are made (design 3, Keys).

    Attributes:
        classes: tool name → class; beats annotations and names.
        key_by: `family` (default) or `args` for a key per distinct arguments.
        expected_failures: tools whose failures are informational and never count.
    """

    classes: dict[str, ToolClass] = {}
    key_by: Annotated[str, Meta(pattern="^(family|args)$")] = "family"
    expected_failures: frozenset[str] = frozenset()


class CallRules(RulesBase, kw_only=True, frozen=True):
    """Pairing of started and finished events (design 2, Time and order).

    Attributes:
        overdue_after_ms: milliseconds after which an unfinished call is overdue for `stalled_call`, where its start
            states no deadline. It stays open and counts as nothing. Older files call it `deadline_ms`.
        security_on_attempt: judge dangerous commands of successful calls too; default: failed calls only.
        security_patterns: own regular expressions over the command or arguments of a failed call.
    """

    overdue_after_ms: Annotated[int, Meta(ge=1, le=86_399_999)] = 600_000
    security_on_attempt: bool = False
    security_patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse patterns that are no regular expressions."""
        for pattern in self.security_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"security pattern {pattern!r} is no regular expression: {error}") from None
