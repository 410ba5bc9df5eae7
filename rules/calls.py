"""Rules about tools and how their calls are read (docs/classification.md)."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from ..schemas.vocabulary import ToolClass
from .fields import Ratio, RulesBase

Family = Literal["shell", "code", "file", "directory", "http"]
"""Kind of targets of a tool: command lines, programs, files, directories, URLs."""

ExitCode = Annotated[int, Meta(ge=1, le=255)]


class ToolRules(RulesBase, kw_only=True, frozen=True):
    """Knowledge about tools: their classes, how their failure keys are made, which failures are answers.

    Attributes:
        classes: tool name → class; beats annotations and names.
        key_by: `family` (default) or `args` for a key per distinct arguments.
        volatile_args: tool → arguments by which two calls do not differ, such as the numbers of a page's elements.
        expected_failures: tools whose failures are informational and never count.
        expected_failure_rates: tool → share of its calls that may fail without meaning anything.
        answer_exit_codes: tool or command word → exit codes by which it answers; such a failure is informational.
        families: tool name or glob → what its targets are, in place of what its name says; the first that fits holds.
    """

    classes: dict[str, ToolClass] = {}
    key_by: Annotated[str, Meta(pattern="^(family|args)$")] = "family"
    volatile_args: dict[str, frozenset[str]] = {}
    expected_failures: frozenset[str] = frozenset()
    expected_failure_rates: dict[str, Ratio] = {}
    answer_exit_codes: dict[str, tuple[ExitCode, ...]] = {}
    families: dict[str, Family] = {}


class CallRules(RulesBase, kw_only=True, frozen=True):
    """Pairing of started and finished events, and which commands no agent should run.

    Attributes:
        overdue_after_ms: milliseconds after which an unfinished call is overdue for `stalled_call`, where its start
            states no deadline. It stays open and counts as nothing. Older files call it `deadline_ms`.
        security_on_attempt: judge dangerous commands of successful calls too; default: failed calls only.
        security_patterns: own regular expressions over the command or arguments of a failed call: dangerous.
        risky_patterns: the same for what is only risky: it escalates a key and never blocks it.
        security_allow: the same for what is neither, whatever else matches.
    """

    overdue_after_ms: Annotated[int, Meta(ge=1, le=86_399_999)] = 600_000
    security_on_attempt: bool = False
    security_patterns: tuple[str, ...] = ()
    risky_patterns: tuple[str, ...] = ()
    security_allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse patterns that are no regular expressions."""
        for pattern in (*self.security_patterns, *self.risky_patterns, *self.security_allow):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"security pattern {pattern!r} is no regular expression: {error}") from None
