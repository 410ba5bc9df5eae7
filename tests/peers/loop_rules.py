"""What the thresholds of loop detectors mean as our ladders.

A peer has the detectors that its config names; where it names any, the others of ours are off. A peer's threshold is
where its alarm begins; how fast ours rises beyond it is told with each.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs
from trustfold.schemas.rules import BehaviourRules, Ladder, Rules

from .case import UnknownWord

DETECTORS = tuple(
    name for name, value in ((name, getattr(BehaviourRules(), name)) for name in BehaviourRules.__struct_fields__)
    if isinstance(value, Ladder)
)  # fmt: skip
_OF_THE_SEED = frozenset(
    {"repetitive_calls", "error_retry_loop", "introspection_loop", "read_only_loop", "announce_no_action"}
)
"""Detectors of seed 2 and its peer: they are there whether a threshold is set or not."""

_ALWAYS = frozenset({"prerequisite_violated"})
MINOR, MODERATE, SEVERE = 1, 2, 3


class LoopRules:
    """Collects a peer's thresholds.

    Attributes:
        stuck_from: severity from which the peer calls a session stuck.
        counts_before: the peer's counts leave out the call it is asked about.
        hard_stop: whether severe patterns end the run.
        of_the_seed: it has the detectors of seed 2, set or not.
    """

    def __init__(self, *, counts_before: bool) -> None:
        """Start with nothing set."""
        self.ladders: dict[str, Ladder] = {}
        self.fields: dict[str, Any] = {}
        self.policies: dict[str, Any] = {}
        self.counts_before = int(counts_before)
        self.stuck_from = MINOR
        self.hard_stop = True
        self.of_the_seed = False

    def apply(self, rules: Rules) -> Rules:
        """Rules with these thresholds."""
        ladders = dict(self.ladders)
        if ladders:
            there = _ALWAYS | (_OF_THE_SEED if self.of_the_seed else frozenset())
            for name in DETECTORS:
                if name not in ladders and name not in there:
                    ladders[name] = structs.replace(getattr(rules.behaviour, name), enabled=False)
        steps = [ladder.severe for ladder in ladders.values() if ladder.enabled and ladder.severe <= 100]
        window = min(100, max(30, *steps, 0))
        behaviour = structs.replace(rules.behaviour, window_steps=window, **ladders, **self.fields)
        rules = structs.replace(rules, behaviour=behaviour)
        return structs.replace(rules, policies=self.policies) if self.policies else rules

    def ladder(self, names: tuple[str, ...], *steps: int) -> None:
        """Set detectors to rise at these counts; beyond the longest window no step could be reached."""
        minor, moderate, severe = (min(step, 100) for step in steps)
        made = Ladder(minor=minor, moderate=moderate, severe=severe)
        self.ladders |= dict.fromkeys(names, made)


def _whole(name: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number from {least} on, not {value!r}")
    return value


# --- each word --------------------------------------------------------------------------------------------------------


def repetitive_call_threshold(to: LoopRules, value: int) -> None:
    """Seed 2: minor from the threshold, then 4–5 and 6 and more, shifted with it."""
    to.of_the_seed = True
    to.ladder(("repetitive_calls",), value, value + 1, value + 3)


def introspection_loop_threshold(to: LoopRules, value: int) -> None:
    """Seed 2, scaled the same way."""
    to.of_the_seed = True
    to.ladder(("introspection_loop",), value, value + 1, value + 3)


def max_reads_before_action(to: LoopRules, value: int) -> None:
    """Seed 2 counts all reads, with news or without: our cap, and our count of stale ones."""
    to.of_the_seed = True
    to.ladder(("read_only_loop", "read_only_cap"), value, value + 1, value + 3)


def error_retry_threshold(to: LoopRules, value: int) -> None:
    """Seed 2: a clear stall from the threshold on, severe from six."""
    to.of_the_seed = True
    to.ladder(("error_retry_loop",), value, value, max(6, value + 3))


def error_retry_overrides(to: LoopRules, value: dict[str, int]) -> None:
    """The same, for single tools."""
    to.fields["error_retry_by_tool"] = {
        tool: Ladder(minor=count, moderate=count, severe=max(6, count + 3)) for tool, count in value.items()
    }


def policies(to: LoopRules, value: list[dict[str, Any]]) -> None:
    """Prerequisites: one tool before others."""
    try:
        from trustfold.schemas.rules import Policy
    except ImportError:
        raise UnknownWord("prerequisite policies, which trustfold does not have yet") from None
    for entry in value:
        unknown = sorted(entry.keys() - {"policy_id", "prerequisite_tool", "gated_tools", "lookback_turns", "enabled"})
        if unknown:
            raise UnknownWord(f"{unknown[0]!r} of a policy")
        to.policies[entry["policy_id"]] = Policy(
            requires=entry["prerequisite_tool"],
            before=tuple(entry["gated_tools"]),
            within_turns=entry.get("lookback_turns", 2),
            enabled=entry.get("enabled", True),
        )


def action_observation(to: LoopRules, value: int) -> None:
    """The same call and observation so often: stuck at once."""
    to.stuck_from = MODERATE
    to.ladder(("repetitive_calls",), value, value, value + 2)


def action_error(to: LoopRules, value: int) -> None:
    """The same failing call so often is told to the model; one more, and it is stuck."""
    to.stuck_from = MODERATE
    to.ladder(("error_retry_loop",), value, value + 1, value + 3)


def monologue(to: LoopRules, value: int) -> None:
    """Messages in a row: stuck at once."""
    to.stuck_from = MODERATE
    to.ladder(("monologue",), value, value, value + 2)


def alternating_pattern(to: LoopRules, value: int) -> None:
    """So many calls to and fro are half as many laps: stuck at once."""
    to.stuck_from = MODERATE
    laps = _whole("alternating_pattern", value) // 2
    to.ladder(("alternating_loop",), laps, laps, laps + 2)


def threshold(to: LoopRules, value: int) -> None:
    """A cycle of one or several calls, so many laps."""
    to.ladder(("repetitive_calls", "alternating_loop", "poll_no_progress"), value, value + 1, value + 3)


def max_cycle(_to: LoopRules, value: int) -> None:
    """Ours sees cycles of up to six calls."""
    if not 1 <= _whole("max_cycle", value) <= 6:
        raise UnknownWord(f"max_cycle {value}: cycles of two to six calls are seen")


def repeats(to: LoopRules, value: int) -> None:
    """The same call so often, in a row or not."""
    to.ladder(("repetitive_calls",), value, value + 1, value + 3)


def read_threshold(to: LoopRules, value: int) -> None:
    """Reads since the last action, whatever they bring: our cap."""
    to.ladder(("read_only_cap",), value, value + 1, value + 3)


def cold_start_exempt(to: LoopRules, value: bool) -> None:
    """Reads before the first action are exploration."""
    to.fields["cold_start_exempt"] = value


def no_detector_of_names(_to: LoopRules, value: int) -> None:
    """The same tool in a row with other arguments is work until the results say otherwise: no detector of its own."""
    _whole("threshold", value)


def window(_to: LoopRules, value: int) -> None:
    """How far the peer looks back; ours looks back at least as far as its thresholds need."""
    _whole("window", value)


def thresholds(to: LoopRules, value: list[int]) -> None:
    """Three steps of the same call."""
    to.ladder(("repetitive_calls",), *value)


def soft(to: LoopRules, value: int) -> None:
    """The same call so often: a word to the model."""
    to.ladders["repetitive_calls"] = _with(to, "repetitive_calls", minor=value)


def hard(to: LoopRules, value: int) -> None:
    """The same call so often: stop."""
    to.ladders["repetitive_calls"] = _with(to, "repetitive_calls", severe=value)


def _with(to: LoopRules, name: str, minor: int | None = None, severe: int | None = None) -> Ladder:
    known = to.ladders.get(name)
    low = minor or (known.minor if known else severe or 1)
    high = severe or (known.severe if known else low)
    return Ladder(minor=min(low, high), moderate=max(low, high), severe=max(low, high))


def limit(to: LoopRules, value: int) -> None:
    """So many calls may be the same; the next is one too many. Nothing or less: as many as it likes."""
    if value <= 0:
        to.ladders["repetitive_calls"] = Ladder(minor=1, moderate=1, severe=1, enabled=False)
        return
    to.ladder(("repetitive_calls",), value + 1, value + 1, value + 1)


def warn(to: LoopRules, value: int) -> None:
    """So many earlier calls like this one are worth a warning; to and fro, both sides count."""
    count = value + to.counts_before
    for name, least in (("repetitive_calls", count), ("poll_no_progress", count), ("alternating_loop", value // 2)):
        to.ladders[name] = _with(to, name, minor=least)


def critical(to: LoopRules, value: int) -> None:
    """So many are a loop."""
    count = value + to.counts_before
    for name, most in (("repetitive_calls", count), ("poll_no_progress", count), ("alternating_loop", value // 2)):
        to.ladders[name] = _with(to, name, severe=most)


def unknown_tool(to: LoopRules, value: int) -> None:
    """So many calls of a tool that does not exist are a loop, whatever the arguments."""
    count = value + to.counts_before
    to.ladders["unknown_tool"] = Ladder(minor=count, moderate=count, severe=count)


def global_limit(_to: LoopRules, value: int) -> None:
    """A last limit over the others: beyond severe there is nothing here."""
    _whole("global", value)


def exact_failure(to: LoopRules, value: list[int]) -> None:
    """Notice and end, for the same call failing the same way."""
    _pair(to, ("error_retry_loop",), value)


def same_tool_failure(to: LoopRules, value: list[int]) -> None:
    """Notice and end, for one tool failing with other arguments."""
    _pair(to, ("same_error_loop",), value)


def no_progress(to: LoopRules, value: list[int]) -> None:
    """Notice and end, for the same call with the same result; cycles by the shipped ladder, pollers apart."""
    _pair(to, ("repetitive_calls",), value)
    to.ladders.setdefault("alternating_loop", BehaviourRules().alternating_loop)
    to.ladders.setdefault("poll_no_progress", BehaviourRules().poll_no_progress)


def _pair(to: LoopRules, names: tuple[str, ...], value: list[int]) -> None:
    notice, end = value
    to.ladder(names, notice, max(notice, end - 1), end)


def hard_stop(to: LoopRules, value: bool) -> None:
    """Whether a loop ends the run."""
    to.hard_stop = value


def repeat(to: LoopRules, value: int) -> None:
    """The same text block so often."""
    to.ladder(("text_loop",), value, value + 1, value + 3)


def laps(to: LoopRules, value: int) -> None:
    """A cycle, so many laps."""
    to.ladder(("alternating_loop",), value, value + 1, value + 3)


def calls_in_a_turn(to: LoopRules, value: int) -> None:
    """So many calls in one turn."""
    to.ladder(("call_budget",), value, 2 * value, 4 * value)


def same_error(to: LoopRules, value: int) -> None:
    """One tool failing so often with other arguments."""
    to.ladder(("same_error_loop",), value, value + 1, value + 3)


def planning(to: LoopRules, value: int) -> None:
    """Planning calls in a row."""
    to.ladder(("planning_loop",), value, value + 1, value + 3)


def announcements(to: LoopRules, value: int) -> None:
    """Announcements without a call."""
    to.ladder(("announce_no_action",), value, value + 1, value + 2)


def exempt_pollers(_to: LoopRules, value: bool | list[str]) -> None:
    """Pollers have a ladder of their own, whatever a peer says."""
    if value is False:
        raise UnknownWord("pollers that are not exempt")


WORDS = {
    "repetitive_call_threshold": repetitive_call_threshold,
    "introspection_loop_threshold": introspection_loop_threshold,
    "max_reads_before_action": max_reads_before_action,
    "error_retry_threshold": error_retry_threshold,
    "error_retry_overrides": error_retry_overrides,
    "policies": policies,
    "prerequisite_policies": policies,
    "action_observation": action_observation,
    "action_error": action_error,
    "monologue": monologue,
    "alternating_pattern": alternating_pattern,
    "threshold": threshold,
    "max_cycle": max_cycle,
    "max_repeats": repeats,
    "global_duplicate": repeats,
    "consecutive_identical": repeats,
    "identical": repeats,
    "read_threshold": read_threshold,
    "shell_inspection": read_threshold,
    "cold_start_exempt": cold_start_exempt,
    "same_name_threshold": no_detector_of_names,
    "action_stagnation_threshold": no_detector_of_names,
    "action_stagnation": no_detector_of_names,
    "window_events": window,
    "window_calls": window,
    "window": window,
    "read_window": window,
    "history": window,
    "chunk": window,
    "thresholds": thresholds,
    "soft": soft,
    "hard": hard,
    "limit": limit,
    "warn": warn,
    "critical": critical,
    "global": global_limit,
    "unknown_tool": unknown_tool,
    "exact_failure": exact_failure,
    "same_tool_failure": same_tool_failure,
    "no_progress": no_progress,
    "hard_stop": hard_stop,
    "repeat": repeat,
    "repeats": repeats,
    "max_identical": repeats,
    "max_consecutive_identical": repeats,
    "alternating": laps,
    "alternating_threshold": laps,
    "cycle_laps": laps,
    "laps": laps,
    "abab": laps,
    "thoughts": repeat,
    "repetitive_thoughts": repeat,
    "thought_repeat": repeat,
    "warning": warn,
    "block": critical,
    "soft_threshold": soft,
    "hard_threshold": hard,
    "calls_per_turn": calls_in_a_turn,
    "turn_cap": calls_in_a_turn,
    "max_calls_per_turn": calls_in_a_turn,
    "tool_call_cap": calls_in_a_turn,
    "same_error": same_error,
    "same_error_threshold": same_error,
    "planning_loop_threshold": planning,
    "announce_threshold": announcements,
    "pollers_exempt": exempt_pollers,
}
"""Every threshold by its peer's name."""
