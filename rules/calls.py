"""Rules of tools and of the interpretation of their calls (docs/classification.md)."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from ..schemas.vocabulary import ToolClass
from .base import Ratio, RulesBase

Family = Literal["shell", "code", "file", "directory", "http"]
"""Kind of targets of a tool: command lines, programs, files, directories, URLs."""

ExitCode = Annotated[int, Meta(ge=1, le=255)]


class ToolRules(RulesBase, kw_only=True, frozen=True):
    """Rules of tools: classes, failure keys, and failures that are answers.

    Attributes:
        classes: tool name → class; takes precedence over annotations and names.
        key_by: `family` (default) or `args` for a key per distinct arguments.
        volatile_args: tool → arguments that are ignored in comparisons, such as element numbers of a page.
        expected_failures: tools whose failures are informational and never count.
        expected_failure_rates: tool → share of its calls whose failure is normal.
        answer_exit_codes: tool or command word → exit codes that are answers; such a failure is informational. Takes
            precedence over the shipped table of programs; without codes it has no answers.
        programs: program → service that it talks to, over the shipped table; empty: to none.
        families: tool name or glob → family of its targets, overriding its name; the first match applies.
    """

    classes: dict[str, ToolClass] = {}
    key_by: Annotated[str, Meta(pattern="^(family|args)$")] = "family"
    volatile_args: dict[str, frozenset[str]] = {}
    expected_failures: frozenset[str] = frozenset()
    expected_failure_rates: dict[str, Ratio] = {}
    answer_exit_codes: dict[str, tuple[ExitCode, ...]] = {}
    families: dict[str, Family] = {}
    programs: dict[str, Annotated[str, Meta(max_length=200)]] = {}


class CallRules(RulesBase, kw_only=True, frozen=True):
    """Rules of pairing started and finished events, and of dangerous commands.

    Attributes:
        overdue_after_ms: milliseconds after which an unfinished call is overdue for `stalled_call`, if its start has no
            deadline. The call stays open and is not counted. Older files name it `deadline_ms`.
        security_on_attempt: check commands of successful calls too; default: failed calls only.
        security_patterns: own regular expressions over the command or arguments of a failed call; a match is dangerous.
        risky_patterns: the same for risky commands, which escalate a key and never block it.
        security_allow: exceptions: a match is neither dangerous nor risky.
    """

    overdue_after_ms: Annotated[int, Meta(ge=1, le=86_399_999)] = 600_000
    security_on_attempt: bool = False
    security_patterns: tuple[str, ...] = ()
    risky_patterns: tuple[str, ...] = ()
    security_allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate the patterns as regular expressions."""
        for pattern in (*self.security_patterns, *self.risky_patterns, *self.security_allow):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"security pattern {pattern!r} is no regular expression: {error}") from None
