"""Rules of behaviour: thresholds of patterns, nudges and policies (docs/design/semantics.md#behaviour)."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from ..schemas.vocabulary import NudgeLevel, Pattern, PatternSeverity
from .base import Count, RulesBase, Seconds


class Ladder(RulesBase, kw_only=True, frozen=True):
    """Repetitions at which a pattern is minor, moderate and severe.

    Raises:
        ValueError: the steps do not rise.
    """

    minor: Annotated[int, Meta(ge=1, le=100_000)]
    moderate: Annotated[int, Meta(ge=1, le=100_000)]
    severe: Annotated[int, Meta(ge=1, le=100_000)]
    enabled: bool = True

    def __post_init__(self) -> None:
        """Validate that the steps rise."""
        if not self.minor <= self.moderate <= self.severe:
            msg = f"steps must rise: minor {self.minor} <= moderate {self.moderate} <= severe {self.severe}"
            raise ValueError(msg)

    def step(self, count: int) -> int:
        """Return the severity of this many repetitions: 0 none, 1 minor, 2 moderate, 3 severe."""
        if count < self.minor or not self.enabled:
            return 0
        return 3 if count >= self.severe else 2 if count >= self.moderate else 1

    def rung_after(self, count: int) -> int:
        """Return the next step after this many repetitions; 0 if there is none."""
        if not self.enabled or count >= self.severe:
            return 0
        return self.minor if count < self.minor else self.moderate if count < self.moderate else self.severe


class BehaviourRules(RulesBase, kw_only=True, frozen=True):
    """Thresholds of the behaviour detectors (docs/design/semantics.md#behaviour).

    Attributes:
        enabled: False detects no patterns; outcomes are still written.
        window_steps: number of latest steps in which repetitions are searched; other steps may lie between repeats.
        poll_no_progress: replaces `repetitive_calls` for polling tools, whose results may legitimately be equal.
        read_only_cap: number of consecutive reads that is flagged even if each result is new.
        stalled_turn: thresholds as multiples of `max_silence_seconds` (and of `max_turn_duration_seconds`).
        stalled_call: thresholds as multiples of the call's own deadline.
        max_silence_seconds: seconds without any event in a model's turn.
        max_turn_duration_seconds: seconds that a turn may take in all; None: unlimited.
        call_budget: number of calls in one turn, in all and per tool.
        cold_start_exempt: reads after a user message and before the first other call are exploration, and not capped.
        error_retry_by_tool: replaces `error_retry_loop` for the named tools.

    Raises:
        ValueError: a cycle of a single lap, or a threshold above the window, which could never be reached.
    """

    enabled: bool = True
    window_steps: Annotated[int, Meta(ge=6, le=100)] = 30
    repetitive_calls: Ladder = Ladder(minor=3, moderate=4, severe=6)
    poll_no_progress: Ladder = Ladder(minor=10, moderate=15, severe=20)
    error_retry_loop: Ladder = Ladder(minor=3, moderate=4, severe=6)
    alternating_loop: Ladder = Ladder(minor=3, moderate=4, severe=6)
    introspection_loop: Ladder = Ladder(minor=2, moderate=4, severe=6)
    read_only_loop: Ladder = Ladder(minor=6, moderate=10, severe=15)
    read_only_cap: Ladder = Ladder(minor=40, moderate=60, severe=90)
    announce_no_action: Ladder = Ladder(minor=2, moderate=3, severe=4)
    announce_phrases: tuple[str, ...] = ()
    same_error_loop: Ladder = Ladder(minor=5, moderate=8, severe=12)
    paging_loop: Ladder = Ladder(minor=12, moderate=20, severe=30)
    planning_loop: Ladder = Ladder(minor=3, moderate=5, severe=8)
    unknown_tool: Ladder = Ladder(minor=3, moderate=5, severe=10)
    monologue: Ladder = Ladder(minor=4, moderate=6, severe=8)
    text_loop: Ladder = Ladder(minor=5, moderate=8, severe=10)
    tool_avoidance: Ladder = Ladder(minor=2, moderate=3, severe=4)
    prerequisite_violated: Ladder = Ladder(minor=1, moderate=2, severe=3)
    call_budget: Ladder = Ladder(minor=200, moderate=400, severe=800)
    stalled_turn: Ladder = Ladder(minor=1, moderate=2, severe=4)
    stalled_call: Ladder = Ladder(minor=1, moderate=2, severe=4)
    max_silence_seconds: Seconds = 120
    max_turn_duration_seconds: Seconds | None = None
    cold_start_exempt: bool = False
    error_retry_by_tool: dict[str, Ladder] = {}

    def __post_init__(self) -> None:
        """Validate the thresholds."""
        if self.alternating_loop.enabled and self.alternating_loop.minor < 2:
            msg = f"alternating_loop needs at least 2 laps to be a cycle, not {self.alternating_loop.minor}"
            raise ValueError(msg)
        for name, ladder in (("repetitive_calls", self.repetitive_calls), ("poll_no_progress", self.poll_no_progress)):
            if ladder.enabled and ladder.severe > self.window_steps:
                msg = (
                    f"{name} is severe at {ladder.severe} repetitions, but only the last {self.window_steps} steps "
                    f"(window_steps) are looked at: raise window_steps (up to 100), lower {name}, or switch it off"
                )
                raise ValueError(msg)


class NudgeRules(RulesBase, kw_only=True, frozen=True):
    """Rules of nudges about detected patterns (docs/design/semantics.md#nudges).

    Attributes:
        level: strongest nudge allowed; stronger ones are reduced to it, never dropped. `off`: none.
        cooldown_calls: calls before the same pattern and fingerprint may be nudged again at the same severity.
        effective_within_calls: calls in which the pattern must not repeat for a nudge to count as effective.
        texts: own texts, `pattern.severity` → template with {tool_name}, {count}, {pattern}, {seconds} (how long it
            has gone on) and {required_tool} (the tool to call, for `prerequisite_violated` and `tool_avoidance`).

    Raises:
        ValueError: a text's key is no pattern and severity, or a text names an unknown placeholder.
    """

    enabled: bool = True
    level: NudgeLevel = NudgeLevel.FULL
    cooldown_calls: Count = 10
    effective_within_calls: Count = 5
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Validate the texts and their keys."""
        for key, template in self.texts.items():
            pattern, _, severity = key.partition(".")
            if pattern not in set(Pattern):
                known = ", ".join(Pattern)
                raise ValueError(f"nudge text {key!r} names no pattern; write PATTERN.SEVERITY with one of {known}")
            if severity not in set(PatternSeverity):
                known = ", ".join(PatternSeverity)
                raise ValueError(f"nudge text {key!r} names no severity; write {pattern}.SEVERITY with one of {known}")
            check_template(f"nudge text {key!r}", template)


ToolPattern = Annotated[str, Meta(min_length=1, max_length=256)]
"""Name of a tool with the wildcards `*`, `?` and `[...]` (case-sensitive)."""


class Policy(RulesBase, kw_only=True, frozen=True):
    """Prerequisite: a tool that must be called before other tools (docs/detection.md).

    Attributes:
        requires: tool that must have succeeded, or be running, when a call of a tool in `before` starts.
        before: tools that need it, as names or globs; `requires` itself is excluded.
        within_turns: number of past turns in which it counts; 0: the whole session.
        enabled: False disables the policy.
        message: own text for its nudges, with the placeholders of `nudges.texts`; empty: the shipped texts.
        texts: own texts by severity; they take precedence over `message`.
        expected_action: own text of what the model should do, with the same placeholders.
        severity_thresholds: severity → number of earlier violations from which it applies (0: at the first). Missing
            ones are those of `behaviour.prerequisite_violated`; the highest that applies is used.

    Raises:
        ValueError: `before` is empty, or a text names an unknown placeholder.
    """

    requires: Annotated[str, Meta(min_length=1, max_length=256)]
    before: tuple[ToolPattern, ...]
    within_turns: Annotated[int, Meta(ge=0, le=10_000)] = 0
    enabled: bool = True
    message: str = ""
    texts: dict[PatternSeverity, str] = {}
    expected_action: str = ""
    severity_thresholds: dict[PatternSeverity, Annotated[int, Meta(ge=0, le=100_000)]] = {}

    def __post_init__(self) -> None:
        """Validate the policy."""
        if not self.before:
            msg = f"a policy that requires {self.requires!r} must name at least one tool in `before`"
            raise ValueError(msg)
        for name, text in (("message", self.message), ("expected_action", self.expected_action), *self.texts.items()):
            check_template(f"{name} of the policy that requires {self.requires!r}", text)

    def step(self, count: int, ladder: Ladder) -> int:
        """Return the severity of this many violations: 0 none, 1 minor, 2 moderate, 3 severe; own thresholds first."""
        if not (self.severity_thresholds and ladder.enabled):
            return ladder.step(count)
        own = self.severity_thresholds
        for rank, (word, usual) in enumerate(
            ((PatternSeverity.SEVERE, ladder.severe), (PatternSeverity.MODERATE, ladder.moderate),
             (PatternSeverity.MINOR, ladder.minor))
        ):  # fmt: skip
            if count > own.get(word, usual - 1):
                return 3 - rank
        return 0


PLACEHOLDERS = ("tool_name", "count", "pattern", "seconds", "required_tool")
"""Placeholders of texts: tool, number, pattern in words, duration in seconds, tool to call."""

_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
_BRACED = re.compile(r"\{(\w*)\}")


def check_template(where: str, template: str) -> None:
    """Reject a text with an unknown placeholder; other braces are kept as written.

    Raises:
        ValueError: the message names the place, the placeholder and the allowed ones.
    """
    for name in _BRACED.findall(template):
        if name not in PLACEHOLDERS:
            allowed = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ValueError(f"{where} names the placeholder {{{name}}}, which nothing fills; use {allowed}")


def filled(template: str, **values: str | int) -> str:
    """Fill the placeholders of a text; those without a value are kept as written."""
    return _PLACEHOLDER.sub(lambda found: str(values.get(found.group(1), found.group())), template)
