"""Rules of behaviour: thresholds of patterns, nudges and policies (docs/design/semantics.md#behaviour)."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from ..schemas.vocabulary import NudgeLevel, PatternSeverity, PatternType
from .merging import Count, Ratio, RulesBase, Seconds


class SeverityLadder(RulesBase, kw_only=True, frozen=True):
    """Repetitions at which a pattern is minor, moderate and severe; None: it never gets that severe.

    Raises:
        ValueError: the steps do not rise.
    """

    minor: Annotated[int, Meta(ge=1, le=100_000)]
    moderate: Annotated[int, Meta(ge=1, le=100_000)] | None
    severe: Annotated[int, Meta(ge=1, le=100_000)] | None
    enabled: bool = True

    def __post_init__(self) -> None:
        """Validate that the steps rise."""
        if list(self.steps) != sorted(self.steps):
            msg = f"steps must rise: minor {self.minor} <= moderate {self.moderate} <= severe {self.severe}"
            raise ValueError(msg)

    @property
    def steps(self) -> tuple[int, ...]:
        """Repetitions of the severities that it has, mildest first."""
        return tuple(step for step in (self.minor, self.moderate, self.severe) if step is not None)

    @property
    def highest(self) -> int:
        """Number of repetitions of the highest step."""
        return self.severe or self.moderate or self.minor

    def step(self, count: float) -> int:
        """Return the severity of this many repetitions: 0 none, 1 minor, 2 moderate, 3 severe."""
        if count < self.minor or not self.enabled:
            return 0
        if self.severe is not None and count >= self.severe:
            return 3
        return 2 if self.moderate is not None and count >= self.moderate else 1

    def rung_after(self, count: int) -> int:
        """Return the next step after this many repetitions; 0 if there is none."""
        if not self.enabled:
            return 0
        return next((step for step in self.steps if step > count), 0)


class BehaviourRules(RulesBase, kw_only=True, frozen=True):
    """Thresholds of the behaviour detectors (docs/design/semantics.md#behaviour).

    A ladder is named as its pattern; a further ladder of a pattern begins with the pattern's name.

    Attributes:
        enabled: False detects no patterns; outcomes are still written.
        window_steps: number of latest steps in which repetitions are searched; other steps may lie between repeats. Of
            parallel calls the latest 40 count, or as many as there are steps.
        repetitive_calls_with_news: replaces `repetitive_calls` where calls between the repeats brought new results.
        repetitive_calls_with_effects: replaces it where calls of unknown effect, which may have changed something, lie
            between the repeats.
        error_retry_by_tool: replaces `error_retry_loop` for the named tools.
        poll: looks that are made faster than every `fast_poll_seconds` on average.
        slow_poll_seconds: time for which a slower look may stay unchanged.
        announce_no_action: consecutive turns that ended with an announcement.
        announce_no_action_in_turn: announcements by a known phrase within a turn.
        announce_no_action_by_structure: messages within a turn that were followed by another message.
        announce_phrases: own phrases that announce work.
        restated_share: share of a message's word sequences that were said before, from which it is a restatement.
        call_budget: number of calls in one turn, in all and per tool.
        stalled_turn: thresholds as multiples of `max_silence_seconds` (and of `max_turn_duration_seconds`).
        stalled_call: thresholds as multiples of the call's own deadline.
        max_silence_seconds: seconds without any event in a model's turn.
        max_turn_duration_seconds: seconds that a turn may take in all; None: unlimited.

    Raises:
        ValueError: a cycle of a single lap, or a threshold above the window, which could never be reached.
    """

    enabled: bool = True
    window_steps: Annotated[int, Meta(ge=6, le=100)] = 30
    repetitive_calls: SeverityLadder = SeverityLadder(minor=3, moderate=4, severe=6)
    repetitive_calls_with_news: SeverityLadder = SeverityLadder(minor=4, moderate=5, severe=7)
    repetitive_calls_with_effects: SeverityLadder = SeverityLadder(minor=6, moderate=None, severe=None)
    error_retry_loop: SeverityLadder = SeverityLadder(minor=3, moderate=4, severe=6)
    error_retry_by_tool: dict[str, SeverityLadder] = {}
    same_error_loop: SeverityLadder = SeverityLadder(minor=5, moderate=8, severe=12)
    failure_streak: SeverityLadder = SeverityLadder(minor=6, moderate=9, severe=None)
    missing_environment: SeverityLadder = SeverityLadder(minor=3, moderate=5, severe=None)
    alternating_loop: SeverityLadder = SeverityLadder(minor=3, moderate=4, severe=6)
    stagnation: SeverityLadder = SeverityLadder(minor=6, moderate=10, severe=15)
    reread: SeverityLadder = SeverityLadder(minor=6, moderate=10, severe=None)
    self_appending: SeverityLadder = SeverityLadder(minor=5, moderate=8, severe=None)
    introspection_loop: SeverityLadder = SeverityLadder(minor=3, moderate=5, severe=8)
    planning_loop: SeverityLadder = SeverityLadder(minor=3, moderate=5, severe=8)
    poll: SeverityLadder = SeverityLadder(minor=10, moderate=20, severe=None)
    fast_poll_seconds: Seconds = 10
    slow_poll_seconds: Seconds = 1800
    announce_no_action: SeverityLadder = SeverityLadder(minor=2, moderate=3, severe=4)
    announce_no_action_in_turn: SeverityLadder = SeverityLadder(minor=3, moderate=4, severe=6)
    announce_no_action_by_structure: SeverityLadder = SeverityLadder(minor=4, moderate=6, severe=8)
    announce_phrases: tuple[str, ...] = ()
    restated: SeverityLadder = SeverityLadder(minor=4, moderate=6, severe=10)
    restated_share: Ratio = 0.3
    tool_avoidance: SeverityLadder = SeverityLadder(minor=2, moderate=3, severe=4)
    prerequisite_violated: SeverityLadder = SeverityLadder(minor=1, moderate=2, severe=3)
    unknown_tool: SeverityLadder = SeverityLadder(minor=3, moderate=5, severe=10)
    monologue: SeverityLadder = SeverityLadder(minor=6, moderate=8, severe=10)
    text_loop: SeverityLadder = SeverityLadder(minor=5, moderate=8, severe=10)
    unproven_claim: SeverityLadder = SeverityLadder(minor=1, moderate=None, severe=None)
    call_budget: SeverityLadder = SeverityLadder(minor=400, moderate=800, severe=1600)
    stalled_turn: SeverityLadder = SeverityLadder(minor=1, moderate=2, severe=4)
    stalled_call: SeverityLadder = SeverityLadder(minor=1, moderate=2, severe=4)
    max_silence_seconds: Seconds = 120
    max_turn_duration_seconds: Seconds | None = None

    def __post_init__(self) -> None:
        """Validate the thresholds."""
        if self.alternating_loop.enabled and self.alternating_loop.minor < 2:
            msg = f"alternating_loop needs at least 2 laps to be a cycle, not {self.alternating_loop.minor}"
            raise ValueError(msg)
        for name in ("repetitive_calls", "repetitive_calls_with_news", "repetitive_calls_with_effects"):
            ladder: SeverityLadder = getattr(self, name)
            if ladder.enabled and ladder.highest > self.window_steps:
                msg = (
                    f"{name} has a step at {ladder.highest} repetitions, but only the last {self.window_steps} steps "
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
            has gone on), {request} (the call, as `pytest -x`) and {required_tool} (the tool to call, for
            `prerequisite_violated` and `tool_avoidance`; what is missing, for `missing_environment`).

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
            if pattern not in set(PatternType):
                known = ", ".join(PatternType)
                raise ValueError(f"nudge text {key!r} names no pattern; write PATTERN.SEVERITY with one of {known}")
            if severity not in set(PatternSeverity):
                known = ", ".join(PatternSeverity)
                raise ValueError(f"nudge text {key!r} names no severity; write {pattern}.SEVERITY with one of {known}")
            check_template(f"nudge text {key!r}", template)


ToolPattern = Annotated[str, Meta(min_length=1, max_length=256)]
"""Name of a tool with the wildcards `*`, `?` and `[...]` (case-sensitive)."""


class PrerequisitePolicy(RulesBase, kw_only=True, frozen=True):
    """Prerequisite: a tool that must be called before other tools (docs/detection.md).

    Attributes:
        requires: tool that must have succeeded, or be running, when a call of a tool in `before` starts.
        before: tools that need it, as names or globs; `requires` itself is excluded.
        within_turns: number of past turns in which it counts; 0: the whole session.
        enabled: False disables the policy.
        message: own text for its nudges, with the placeholders of `nudges.texts`; empty: the shipped texts.
        texts: own texts by severity; they take precedence over `message`.
        expected_action: own text of what the model should do, with the same placeholders.
        interrupts: whether a severe violation may pause the run; otherwise it is guidance.
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
    interrupts: bool = False
    severity_thresholds: dict[PatternSeverity, Annotated[int, Meta(ge=0, le=100_000)]] = {}

    def __post_init__(self) -> None:
        """Validate the policy."""
        if not self.before:
            msg = f"a policy that requires {self.requires!r} must name at least one tool in `before`"
            raise ValueError(msg)
        for name, text in (("message", self.message), ("expected_action", self.expected_action), *self.texts.items()):
            check_template(f"{name} of the policy that requires {self.requires!r}", text)

    def step(self, count: int, ladder: SeverityLadder) -> int:
        """Return the severity of this many violations: 0 none, 1 minor, 2 moderate, 3 severe; own thresholds first."""
        if not (self.severity_thresholds and ladder.enabled):
            return ladder.step(count)
        own = self.severity_thresholds
        usual = (ladder.severe, ladder.moderate, ladder.minor)
        for rank, word in enumerate((PatternSeverity.SEVERE, PatternSeverity.MODERATE, PatternSeverity.MINOR)):
            start = own.get(word, None if (step := usual[rank]) is None else step - 1)
            if start is not None and count > start:
                return 3 - rank
        return 0


PLACEHOLDERS = ("tool_name", "count", "pattern", "seconds", "request", "required_tool")
"""Placeholders of texts: tool, number, pattern in words, duration in seconds, the call, tool to call."""

_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
_BRACED = re.compile(r"\{(\w*)\}")


def check_template(where: str, template: str) -> None:
    """Reject a text with an unknown placeholder; other braces are kept as written."""
    for name in _BRACED.findall(template):
        if name not in PLACEHOLDERS:
            allowed = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ValueError(f"{where} names the placeholder {{{name}}}, which nothing fills; use {allowed}")


def filled(template: str, **values: str | int) -> str:
    """Fill the placeholders of a text; those without a value are kept as written."""
    return _PLACEHOLDER.sub(lambda found: str(values.get(found.group(1), found.group())), template)
