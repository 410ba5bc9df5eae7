"""Rules of tools and of the interpretation of their calls (docs/classification.md)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta

from ..schemas.vocabulary import FailureSeverity, ToolClass
from .merging import Ratio, RulesBase

Family = Literal["shell", "code", "file", "directory", "http"]
"""Kind of targets of a tool: command lines, programs, files, directories, URLs."""

DangerLevel = Literal["deny", "ask", "observe"]
"""What is done about a dangerous call before it runs: it is refused, a person is asked, or it is only noted."""

Reading = Annotated[str, Meta(pattern=f"^(answer|{'|'.join(FailureSeverity)})$")]
"""What a failure means: `answer` (the tool ran and said no), or a severity."""


class ToolRules(RulesBase, kw_only=True, frozen=True):
    """Rules of tools: classes, failure keys, and failures that are answers.

    Attributes:
        classes: tool name → class; takes precedence over annotations and names.
        key_by: `family` (default) or `args` for a key per distinct arguments.
        volatile_args: tool → arguments that are ignored in comparisons, such as element numbers of a page.
        expected_failures: tools whose failures are informational and never count.
        expected_failure_rates: tool → share of its calls whose failure is normal.
        failures: tool or command word → error type, error code, HTTP status or exit code → what such a failure is:
            `answer`, which is informational, or a severity. Comes before all other classification but that of dangerous
            calls, and replaces the shipped table of programs; an empty table has no answers.
        programs: program → service that it talks to, over the shipped table; empty: to none.
        families: tool name or glob → family of its targets, overriding its name; the first match applies.
    """

    classes: dict[str, ToolClass] = {}
    key_by: Annotated[str, Meta(pattern="^(family|args)$")] = "family"
    volatile_args: dict[str, frozenset[str]] = {}
    expected_failures: frozenset[str] = frozenset()
    expected_failure_rates: dict[str, Ratio] = {}
    failures: dict[str, dict[str, Reading]] = {}
    families: dict[str, Family] = {}
    programs: dict[str, Annotated[str, Meta(max_length=200)]] = {}


class DangerRules(RulesBase, kw_only=True, frozen=True):
    """Levels of dangerous calls by what they would do (docs/trust.md, Before the harm).

    Attributes:
        root: removes, moves or changes a whole root, system or home directory.
        disk: writes to a raw disk, makes a file system, erases a disk.
        credentials: writes to a store of credentials or removes it.
        fork_bomb: starts processes without end.
        pattern: matches one of `security_patterns`.
        download: runs a download or decoded text at once.
        forced_push: overwrites a remote branch by force, or deletes the main one.
        database: drops a table or database, or empties a table.
        resources: destroys resources of a cloud or a cluster.
        above: removes what lies above its directory.
        privileged: runs any other destructive command as somebody else.
        risky_pattern: matches one of `risky_patterns`.
    """

    root: DangerLevel = "ask"
    disk: DangerLevel = "ask"
    credentials: DangerLevel = "ask"
    fork_bomb: DangerLevel = "ask"
    pattern: DangerLevel = "ask"
    download: DangerLevel = "ask"
    forced_push: DangerLevel = "ask"
    database: DangerLevel = "ask"
    resources: DangerLevel = "ask"
    above: DangerLevel = "observe"
    privileged: DangerLevel = "observe"
    risky_pattern: DangerLevel = "observe"


class CallRules(RulesBase, kw_only=True, frozen=True):
    """Rules of pairing started and finished events, and of dangerous commands.

    Attributes:
        overdue_after_ms: milliseconds after which an unfinished call is overdue for `stalled_call`, if its start has no
            deadline and it does not wait for something. The call stays open and is not counted. Older files name it
            `deadline_ms`.
        security_on_attempt: check commands of successful calls too; default: failed calls only.
        security_patterns: own regular expressions over the command or arguments of a call; a match is dangerous.
        risky_patterns: the same for risky commands, whose failure escalates a key and never blocks it.
        security_allow: exceptions: a match is neither dangerous nor risky.
        danger: what is done about dangerous and risky calls before they run.
    """

    overdue_after_ms: Annotated[int, Meta(ge=1, le=86_399_999)] = 600_000
    security_on_attempt: bool = False
    security_patterns: tuple[str, ...] = ()
    risky_patterns: tuple[str, ...] = ()
    security_allow: tuple[str, ...] = ()
    danger: DangerRules = DangerRules()

    def __post_init__(self) -> None:
        """Validate the patterns: regular expressions that take linear time over every text."""
        for pattern in (*self.security_patterns, *self.risky_patterns, *self.security_allow):
            if fault := _fault_of(pattern):
                raise ValueError(f"security pattern {pattern!r} {fault}")


_MOST_STEPS = 200_000
"""Steps of a proof: about a fifth of a second."""


@lru_cache(maxsize=256)
def _fault_of(pattern: str) -> str:
    """Return why an operator's expression is refused; empty if it is not.

    Commands of foreign agents are matched with it, and `re` holds the interpreter meanwhile.
    """
    from .linear_patterns import TooLarge, ambiguity  # noqa: PLC0415 - few rules have such patterns

    try:
        found = ambiguity(re.compile(pattern), steps=_MOST_STEPS)
    except re.error as error:
        return f"is no regular expression: {error}"
    except (TooLarge, NotImplementedError):
        return "is too large to prove that it takes linear time: shorten its repetitions"
    if found is None:
        return ""
    return (
        f"takes more than linear time over some texts, because they can be divided in many ways between {found.first} "
        f"and {found.second}: leave out `.*` at its beginning and between words (or bound it, `.{{0,80}}`)"
    )
