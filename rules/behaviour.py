"""Which behaviour is told, from when on, and in which words (docs/design/semantics.md#behaviour)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from ..schemas.vocabulary import NudgeLevel, Pattern, PatternSeverity
from .fields import Count, RulesBase, Seconds


class Ladder(RulesBase, kw_only=True, frozen=True):
    """Repetitions at which a pattern is minor, moderate and severe.

    Raises:
        ValueError: when the steps do not rise.
    """

    minor: Annotated[int, Meta(ge=1, le=100_000)]
    moderate: Annotated[int, Meta(ge=1, le=100_000)]
    severe: Annotated[int, Meta(ge=1, le=100_000)]
    enabled: bool = True

    def __post_init__(self) -> None:
        """Refuse ladders that cannot rise."""
        if not self.minor <= self.moderate <= self.severe:
            msg = f"steps must rise: minor {self.minor} <= moderate {self.moderate} <= severe {self.severe}"
            raise ValueError(msg)

    def step(self, count: int) -> int:
        """Severity reached by this many repetitions: 0 none, 1 minor, 2 moderate, 3 severe."""
        if count < self.minor or not self.enabled:
            return 0
        return 3 if count >= self.severe else 2 if count >= self.moderate else 1

    def rung_after(self, count: int) -> int:
        """The next step beyond this many repetitions; 0 when there is none."""
        if not self.enabled or count >= self.severe:
            return 0
        return self.minor if count < self.minor else self.moderate if count < self.moderate else self.severe


class BehaviourRules(RulesBase, kw_only=True, frozen=True):
    """Thresholds of the behaviour detectors (docs/design/semantics.md#behaviour).

    Attributes:
        enabled: False keeps the outcomes flowing and finds no patterns.
        window_steps: steps a session remembers for repetition; other steps may lie between repeats.
        poll_no_progress: takes the place of `repetitive_calls` for polling tools, whose answer may well stay the same.
        read_only_cap: reads in a row, news or not, that are flagged anyway.
        stalled_turn: multiples of `max_silence_seconds` (and of `max_turn_duration_seconds`).
        stalled_call: multiples of the call's own deadline.
        max_silence_seconds: seconds in which a model whose turn it is must do something.
        max_turn_duration_seconds: seconds that a turn may take as a whole; None: as long as it likes.
        call_budget: calls in one turn, all together and of each tool.
        cold_start_exempt: reads before the first other call since the user spoke are exploration, and not capped.
        error_retry_by_tool: takes the place of `error_retry_loop` for the tools named.

    Raises:
        ValueError: when a single lap would make a cycle, or a ladder counts beyond the window: it could never hold.
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
        """Refuse what any two calls would fulfil."""
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
    """How detected patterns are told to the model (docs/design/semantics.md#nudges).

    Attributes:
        level: strongest nudge allowed; stronger ones are clamped down to it, never dropped. `off`: none.
        cooldown_calls: calls before the same pattern and fingerprint may be nudged again at the same severity.
        effective_within_calls: calls in which the pattern must not repeat for a nudge to count as effective.
        texts: own texts, `pattern.severity` → template with {tool_name}, {count}, {pattern}, {seconds} (how long it
            has gone on) and {required_tool} (the tool to call, for `prerequisite_violated` and `tool_avoidance`).

    Raises:
        ValueError: when a text is filed under no pattern and severity, or names an unknown placeholder.
    """

    enabled: bool = True
    level: NudgeLevel = NudgeLevel.FULL
    cooldown_calls: Count = 10
    effective_within_calls: Count = 5
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse texts that could never be shown, or shown only with a hole."""
        check_texts(self.texts.items())


ToolPattern = Annotated[str, Meta(min_length=1, max_length=256)]
"""A tool's name, in which `*`, `?` and `[...]` stand for others (case counts)."""


class Policy(RulesBase, kw_only=True, frozen=True):
    """A prerequisite: this tool before those tools (docs/detection.md).

    Attributes:
        requires: tool that must have succeeded, or be in flight, when a call of a tool in `before` starts.
        before: tools it must come before, as names or globs; `requires` itself is never meant.
        within_turns: how many turns back it may lie; 0: anywhere in the session.
        enabled: False keeps the policy and does not apply it.
        message: own text for its nudges, with the placeholders of `nudges.texts`; empty: the shipped texts.
        texts: own texts by severity; they go before `message`.
        expected_action: own text of what the model should do, with the same placeholders.
        severity_thresholds: severity → violations before this one from which it holds (0: at the first). What it
            leaves out holds as in `behaviour.prerequisite_violated`; where several hold, the highest counts.

    Raises:
        ValueError: when `before` is empty or a text names an unknown placeholder.
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
        """Refuse a policy about no tool."""
        if not self.before:
            msg = f"a policy that requires {self.requires!r} must name at least one tool in `before`"
            raise ValueError(msg)
        for name, text in (("message", self.message), ("expected_action", self.expected_action), *self.texts.items()):
            check_template(f"{name} of the policy that requires {self.requires!r}", text)

    def step(self, count: int, ladder: Ladder) -> int:
        """Severity of this many violations: 0 none, 1 minor, 2 moderate, 3 severe; by its own thresholds first."""
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
