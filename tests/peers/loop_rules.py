"""What the thresholds of loop detectors mean as our ladders.

A peer has the detectors that its config names; where it names any, the others of ours are off. A peer's threshold is
where its alarm begins; how fast ours rises beyond it is told with each.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import structs
from trustfold.rules.parser import Document
from trustfold.rules.rules import BehaviourRules, Ladder, Rules
from trustfold.schemas.vocabulary import ToolClass

from .case import UnknownWord
from .levels import policy

MAX_WINDOW = 100
"""Most steps that a session remembers."""

DETECTORS = tuple(
    name for name, value in ((name, getattr(BehaviourRules(), name)) for name in BehaviourRules.__struct_fields__)
    if isinstance(value, Ladder)
)  # fmt: skip
_OF_THE_SEED = frozenset(
    {"repetitive_calls", "error_retry_loop", "introspection_loop", "read_only_loop", "announce_no_action"}
)
"""Detectors of the older plugin and its peer: they are there whether a threshold is set or not."""

_ALWAYS = frozenset({"prerequisite_violated"})
MINOR, MODERATE, SEVERE = 1, 2, 3


class LoopRules:
    """Collects a peer's thresholds.

    Attributes:
        stuck_from: severity from which the peer calls a session stuck.
        counts_before: the peer's counts leave out the call it is asked about.
        hard_stop: whether severe patterns end the run.
        of_the_plugin: it has the detectors of the older plugin, set or not.
    """

    def __init__(self, *, counts_before: bool, tools: tuple[str, ...] = ()) -> None:
        """Start with nothing set."""
        self.ladders: dict[str, Ladder] = {}
        self.fields: dict[str, Any] = {}
        self.policies: list[Any] = []
        self.tools = tools
        self.window: int | None = None
        self.same_name: int | None = None
        self.scaled: set[str] = set()
        self.volatile_args: tuple[str, ...] = ()
        self.tool_fields: dict[str, Any] = {}
        self.counts_before = int(counts_before)
        self.stuck_from = MINOR
        self.hard_stop = True
        self.of_the_plugin = False

    def apply(self, rules: Rules) -> Rules:
        """Rules with these thresholds."""
        ladders = dict(self.ladders)
        if ladders:
            there = _ALWAYS | (_OF_THE_SEED if self.of_the_plugin else frozenset())
            for name in DETECTORS:
                if name not in ladders and name not in there:
                    ladders[name] = structs.replace(getattr(rules.behaviour, name), enabled=False)
        limit = self.window or MAX_WINDOW
        ours = ("repetitive_calls", "poll_no_progress") if self.window else ()
        ladders = {name: getattr(rules.behaviour, name) for name in ours} | ladders
        for name in (self.scaled | set(ours) - self.ladders.keys()) & ladders.keys():
            most = limit // 2 if name == "alternating_loop" else limit
            steps = (getattr(ladders[name], step) for step in ("minor", "moderate", "severe"))
            minor, *higher = steps
            moderate, severe = (max(minor, min(most, step)) for step in higher)
            ladders[name] = structs.replace(ladders[name], moderate=moderate, severe=severe)
        window = self.window or min(MAX_WINDOW, max(30, *(one.severe for one in ladders.values()), 0))
        behaviour = structs.replace(rules.behaviour, window_steps=window, **ladders, **self.fields)
        rules = structs.replace(rules, behaviour=behaviour, tools=structs.replace(rules.tools, **self.tool_fields))
        document = {"prerequisite_policies": [policy(one) for one in self.policies]} if self.policies else {}
        return Document("the case", json.dumps(document)).over(rules)

    def ladder(self, names: tuple[str, ...], minor: int, moderate: int, severe: int) -> None:
        """Set detectors to rise at counts that the peer has set."""
        self.ladders |= dict.fromkeys(names, Ladder(minor=minor, moderate=moderate, severe=severe))
        self.scaled -= set(names)

    def scale(self, names: tuple[str, ...], first: int, moderate: int = 1, severe: int = 3) -> None:
        """Set detectors to begin where the peer's alarm begins, and to rise so far above it as its window goes."""
        self.ladder(names, first, first + moderate, first + severe)
        self.scaled |= set(names)


def _whole(name: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number from {least} on, not {value!r}")
    return value


# --- each word --------------------------------------------------------------------------------------------------------


def repetitive_call_threshold(to: LoopRules, value: int) -> None:
    """The older plugin: minor from the threshold, then 4–5 and 6 and more, shifted with it."""
    to.of_the_plugin = True
    to.scale(("repetitive_calls",), value)


def introspection_loop_threshold(to: LoopRules, value: int) -> None:
    """The older plugin, scaled the same way."""
    to.of_the_plugin = True
    to.scale(("introspection_loop",), value)


def max_reads_before_action(to: LoopRules, value: int) -> None:
    """The older plugin counts all reads, with news or without: our cap, and our count of stale ones."""
    to.of_the_plugin = True
    to.scale(("read_only_loop", "read_only_cap"), value)


def error_retry_threshold(to: LoopRules, value: int) -> None:
    """The older plugin: a clear stall from the threshold on, severe from six."""
    to.of_the_plugin = True
    to.scale(("error_retry_loop",), value, 0, max(6 - value, 3))


def error_retry_overrides(to: LoopRules, value: dict[str, int]) -> None:
    """The same, for single tools."""
    to.fields["error_retry_by_tool"] = {
        tool: Ladder(minor=count, moderate=count, severe=max(6, count + 3)) for tool, count in value.items()
    }


def policies(to: LoopRules, value: list[dict[str, Any]]) -> None:
    """Prerequisites: one tool before others, in the shape of a peer's file."""
    to.policies += value


def action_observation(to: LoopRules, value: int) -> None:
    """The same call and observation so often: stuck at once."""
    to.stuck_from = MODERATE
    to.scale(("repetitive_calls",), value, 0, 2)


def action_error(to: LoopRules, value: int) -> None:
    """The same failing call so often is told to the model; one more, and it is stuck."""
    to.stuck_from = MODERATE
    to.scale(("error_retry_loop",), value)


def monologue(to: LoopRules, value: int) -> None:
    """Messages in a row: stuck at once."""
    to.stuck_from = MODERATE
    to.scale(("monologue",), value, 0, 2)


def alternating_pattern(to: LoopRules, value: int) -> None:
    """So many calls to and fro are half as many laps: stuck at once."""
    to.stuck_from = MODERATE
    laps = _whole("alternating_pattern", value) // 2
    to.scale(("alternating_loop",), laps, 0, 2)


def threshold(to: LoopRules, value: int) -> None:
    """A cycle of one or several calls, so many laps."""
    to.scale(("repetitive_calls", "alternating_loop", "poll_no_progress"), value)


def max_cycle(_to: LoopRules, value: int) -> None:
    """Ours sees cycles of up to six calls."""
    if not 1 <= _whole("max_cycle", value) <= 6:
        raise UnknownWord(f"max_cycle {value}: cycles of two to six calls are seen")


def repeats(to: LoopRules, value: int) -> None:
    """The same call so often, in a row or not."""
    to.scale(("repetitive_calls",), value)


def read_threshold(to: LoopRules, value: int) -> None:
    """Reads since the last action, whatever they bring: our cap."""
    to.scale(("read_only_cap",), value)


def cold_start_exempt(to: LoopRules, value: bool) -> None:
    """Reads before the first action are exploration."""
    to.fields["cold_start_exempt"] = value


def no_detector_of_names(to: LoopRules, value: int) -> None:
    """The same tool in a row with other arguments is work until the results say otherwise: evidence, no detector."""
    to.same_name = _whole("threshold", value)


def window(to: LoopRules, value: int) -> None:
    """How many calls the peer looks back."""
    to.window = _whole("window", value)


def window_events(to: LoopRules, value: int) -> None:
    """How many events it looks back; a call and its result are two."""
    to.window = _whole("window_events", value) // 2


def read_window(_to: LoopRules, value: int) -> None:
    """How many reads it looks back, or characters: ours count without a window."""
    _whole("window", value)


def stateful(to: LoopRules, value: list[str]) -> None:
    """Tools that read what changes by itself; another answer is progress here, whatever the tool."""
    to.tool_fields["classes"] = dict.fromkeys(_names("stateful", value), ToolClass.READ)


def volatile_args(to: LoopRules, value: list[str] | dict[str, list[str]]) -> None:
    """Arguments by which two calls do not differ, of all tools of the case or by tool."""
    by_tool = value if isinstance(value, dict) else dict.fromkeys(to.tools, _names("volatile_args", value))
    named = {tool: frozenset(_names("volatile_args", names)) for tool, names in by_tool.items()}
    to.tool_fields["volatile_args"] = named
    to.volatile_args = tuple(sorted(frozenset().union(*named.values())))


def _names(word: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UnknownWord(f"{word} {value!r}: a list of names is known")
    return value


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
    to.scale(("text_loop",), value)


def laps(to: LoopRules, value: int) -> None:
    """A cycle, so many laps."""
    to.scale(("alternating_loop",), value)


def calls_in_a_turn(to: LoopRules, value: int) -> None:
    """So many calls in one turn."""
    to.ladder(("call_budget",), value, 2 * value, 4 * value)


def same_error(to: LoopRules, value: int) -> None:
    """One tool failing so often with other arguments."""
    to.scale(("same_error_loop",), value)


def planning(to: LoopRules, value: int) -> None:
    """Planning calls in a row."""
    to.scale(("planning_loop",), value)


def announcements(to: LoopRules, value: int) -> None:
    """Announcements without a call."""
    to.scale(("announce_no_action",), value, 1, 2)


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
    "window_events": window_events,
    "window_calls": window,
    "window": window,
    "read_window": read_window,
    "history": window,
    "chunk": read_window,
    "stateful": stateful,
    "volatile_args": volatile_args,
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

WINDOWS = frozenset(name for name, word in WORDS.items() if word in {window, window_events, read_window})
"""Those that say how far a peer looks back, and not when it tells."""
