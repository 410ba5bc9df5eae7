"""What the thresholds of loop detectors mean as our ladders.

A peer has the detectors that its config names; where it names any, the others of ours are off. A peer's threshold is
where its alarm begins; how fast ours rises beyond it is told with each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import structs
from trustfold.rules.parser import Document
from trustfold.rules.rules import BehaviourRules, Ladder, Rules
from trustfold.schemas.vocabulary import ToolClass

from ..support import fixed_rules
from .case import UnknownWord
from .settings import Levels, policy

MAX_WINDOW = 100
"""Most steps that a session remembers."""

DETECTORS = frozenset(
    name for name in BehaviourRules.__struct_fields__ if isinstance(getattr(BehaviourRules(), name), Ladder)
)
_OF_THE_SEED = frozenset(
    {"repetitive_calls", "error_retry_loop", "introspection_loop", "read_only_loop", "announce_no_action"}
)
"""Detectors of the older plugin and its peer: they are there whether a threshold is set or not."""

_ALWAYS = frozenset({"prerequisite_violated"})
MINOR, MODERATE = 1, 2

_EXACT = "repetitive_calls"
_CYCLE = "alternating_loop"
_POLL = "poll_no_progress"


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
        ours = (_EXACT, _POLL) if self.window else ()
        ladders = {name: getattr(rules.behaviour, name) for name in ours} | ladders
        for name in (self.scaled | set(ours) - self.ladders.keys()) & ladders.keys():
            most = limit // 2 if name == _CYCLE else limit
            steps = ladders[name]
            moderate, severe = (max(steps.minor, min(most, step)) for step in (steps.moderate, steps.severe))
            ladders[name] = structs.replace(steps, moderate=moderate, severe=severe)
        window = self.window or min(MAX_WINDOW, max(30, *(one.severe for one in ladders.values()), 0))
        behaviour = structs.replace(rules.behaviour, window_steps=window, **ladders, **self.fields)
        rules = structs.replace(rules, behaviour=behaviour, tools=structs.replace(rules.tools, **self.tool_fields))
        document = {"prerequisite_policies": [policy(one) for one in self.policies]} if self.policies else {}
        return Document("the case", json.dumps(document)).over(rules)

    def ladder(self, names: tuple[str, ...], minor: int, moderate: int, severe: int, *, enabled: bool = True) -> None:
        """Set detectors to rise at counts that the peer has set."""
        self.ladders |= dict.fromkeys(names, Ladder(minor=minor, moderate=moderate, severe=severe, enabled=enabled))
        self.scaled -= set(names)

    def scale(self, names: tuple[str, ...], first: int, moderate: int = 1, severe: int = 3) -> None:
        """Set detectors to begin where the peer's alarm begins, and to rise so far above it as its window goes."""
        self.ladder(names, first, first + moderate, first + severe)
        self.scaled |= set(names)


_Reader = Callable[[LoopRules, Any], None]


def _whole(name: str) -> Callable[[LoopRules, Any], int]:
    """Reader of a whole number that a peer has, and nothing here depends on."""

    def read(_to: LoopRules, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number from 1 on, not {value!r}")
        return value

    return read


def _names(word: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UnknownWord(f"{word} {value!r}: a list of names is known")
    return value


# --- ladders ----------------------------------------------------------------------------------------------------------


def _from(*names: str, rise: tuple[int, int] = (1, 3), of_plugin: bool = False, stuck: bool = False) -> _Reader:
    """Detectors that begin at the peer's threshold, and are moderate and severe so far above it.

    `of_plugin`: one of the older plugin's, whose detectors are all there. `stuck`: the peer calls a session stuck
    from moderate on.
    """

    def read(to: LoopRules, value: int) -> None:
        to.of_the_plugin |= of_plugin
        to.stuck_from = MODERATE if stuck else to.stuck_from
        to.scale(names, value, *rise)

    return read


def _error_retry(to: LoopRules, value: int) -> None:
    """The older plugin: a clear stall from the threshold on, severe from six."""
    _from("error_retry_loop", rise=(0, max(6 - value, 3)), of_plugin=True)(to, value)


def _error_retry_by_tool(to: LoopRules, value: dict[str, int]) -> None:
    to.fields["error_retry_by_tool"] = {
        tool: Ladder(minor=count, moderate=count, severe=max(6, count + 3)) for tool, count in value.items()
    }


def _limit(to: LoopRules, value: int) -> None:
    """So many calls may be the same; the next is one too many. Nothing or less: as many as it likes."""
    to.ladder((_EXACT,), *[max(value, 0) + 1] * 3, enabled=value > 0)


def _set_step(to: LoopRules, name: str, **step: int) -> None:
    """Set where a detector begins (`minor`) or ends (`severe`), and let the other end follow."""
    known = to.ladders.get(name)
    low = step.get("minor") or (known.minor if known else step.get("severe") or 1)
    high = step.get("severe") or (known.severe if known else low)
    to.ladders[name] = Ladder(minor=min(low, high), moderate=max(low, high), severe=max(low, high))


def _step(step: str) -> _Reader:
    """One step of the same call."""
    return lambda to, value: _set_step(to, _EXACT, **{step: value})


def _earlier(step: str) -> _Reader:
    """So many earlier calls like this one; to and fro, both sides count."""

    def read(to: LoopRules, value: int) -> None:
        count = value + to.counts_before
        for name, least in ((_EXACT, count), (_POLL, count), (_CYCLE, value // 2)):
            _set_step(to, name, **{step: least})

    return read


def _pair(name: str, *shipped: str) -> _Reader:
    """Notice and end; others by the shipped ladder."""

    def read(to: LoopRules, value: list[int]) -> None:
        notice, end = value
        to.ladder((name,), notice, max(notice, end - 1), end)
        for other in shipped:
            to.ladders.setdefault(other, getattr(fixed_rules.BehaviourRules(), other))

    return read


# --- other settings ---------------------------------------------------------------------------------------------------


def _max_cycle(_to: LoopRules, value: int) -> None:
    if not 1 <= value <= 6:
        raise UnknownWord(f"max_cycle {value}: cycles of two to six calls are seen")


def _window(to: LoopRules, value: int) -> None:
    """How many calls the peer looks back."""
    to.window = _whole("window")(to, value)


def _volatile_args(to: LoopRules, value: list[str] | dict[str, list[str]]) -> None:
    """Arguments by which two calls do not differ, of all tools of the case or by tool."""
    by_tool = value if isinstance(value, dict) else dict.fromkeys(to.tools, _names("volatile_args", value))
    named = {tool: frozenset(_names("volatile_args", names)) for tool, names in by_tool.items()}
    to.tool_fields["volatile_args"] = named
    to.volatile_args = tuple(sorted(frozenset().union(*named.values())))


def _pollers_exempt(_to: LoopRules, value: bool | list[str]) -> None:
    """Pollers have a ladder of their own, whatever a peer says."""
    if value is False:
        raise UnknownWord("pollers that are not exempt")


def _by_word(table: dict[str, _Reader]) -> dict[str, _Reader]:
    return {word: reader for words, reader in table.items() for word in words.split()}


WINDOWS = _by_word(
    {
        "window_events": lambda to, value: _window(to, value // 2),  # a call and its result are two events
        "window_calls window history": _window,
        "read_window chunk": _whole("window"),  # reads or characters that it looks back: ours count without a window
    }
)
"""Those that say how far a peer looks back, and not when it tells."""

WORDS = WINDOWS | _by_word(
    {
        "repetitive_call_threshold": _from(_EXACT, of_plugin=True),
        "introspection_loop_threshold": _from("introspection_loop", of_plugin=True),
        # All reads, with news or without: our cap, and our count of stale ones.
        "max_reads_before_action": _from("read_only_loop", "read_only_cap", of_plugin=True),
        "error_retry_threshold": _error_retry,
        "error_retry_overrides": _error_retry_by_tool,
        "policies prerequisite_policies": lambda to, value: to.policies.extend(value),
        "action_observation": _from(_EXACT, rise=(0, 2), stuck=True),
        "action_error": _from("error_retry_loop", stuck=True),
        "monologue": _from("monologue", rise=(0, 2), stuck=True),
        # So many calls to and fro are half as many laps: stuck at once.
        "alternating_pattern": lambda to, value: _from(_CYCLE, rise=(0, 2), stuck=True)(to, value // 2),
        "threshold": _from(_EXACT, _CYCLE, _POLL),
        "max_cycle": _max_cycle,
        "max_repeats global_duplicate consecutive_identical identical": _from(_EXACT),
        "repeats max_identical max_consecutive_identical": _from(_EXACT),
        "read_threshold shell_inspection": _from("read_only_cap"),
        # Reads before the first action are exploration.
        "cold_start_exempt": lambda to, value: to.fields.update(cold_start_exempt=value),
        # The same tool in a row with other arguments is work until the results say otherwise: evidence, no detector.
        "same_name_threshold action_stagnation_threshold action_stagnation": lambda to, value: setattr(
            to, "same_name", _whole("threshold")(to, value)
        ),
        # Tools that read what changes by itself; another answer is progress here, whatever the tool.
        "stateful": lambda to, value: to.tool_fields.update(
            classes=dict.fromkeys(_names("stateful", value), ToolClass.READ)
        ),
        "volatile_args": _volatile_args,
        "thresholds": lambda to, value: to.ladder((_EXACT,), *value),
        "soft soft_threshold": _step("minor"),
        "hard hard_threshold": _step("severe"),
        "limit": _limit,
        "warn warning": _earlier("minor"),
        "critical block": _earlier("severe"),
        "global": _whole("global"),  # a last limit over the others: beyond severe there is nothing here
        # So many calls of a tool that does not exist are a loop, whatever the arguments.
        "unknown_tool": lambda to, value: to.ladder(("unknown_tool",), *[value + to.counts_before] * 3),
        "exact_failure": _pair("error_retry_loop"),  # the same call failing the same way
        "same_tool_failure": _pair("same_error_loop"),  # one tool failing with other arguments
        "no_progress": _pair(_EXACT, _CYCLE, _POLL),  # the same call with the same result
        "hard_stop": lambda to, value: setattr(to, "hard_stop", value),
        "repeat thoughts repetitive_thoughts thought_repeat": _from("text_loop"),
        "alternating alternating_threshold cycle_laps laps abab": _from(_CYCLE),
        "calls_per_turn turn_cap max_calls_per_turn tool_call_cap": lambda to, value: to.ladder(
            ("call_budget",), value, 2 * value, 4 * value
        ),
        "same_error same_error_threshold": _from("same_error_loop"),
        "planning_loop_threshold": _from("planning_loop"),
        "announce_threshold": _from("announce_no_action", rise=(1, 2)),
        "pollers_exempt": _pollers_exempt,
    }
)
"""Every threshold by its peer's name."""


class Thresholds(Levels):
    """Areas whose config may name a peer's thresholds."""

    def prepare(self) -> None:
        """Where a case asks about calls to be made, a peer's counts leave out the call it is asked about."""
        super().prepare()
        asked = any(event.get("name") == "evaluate" and "tool" in event for event in self.case.given)
        tools = dict.fromkeys(str(event["tool"]) for event in self.case.given if "tool" in event)
        self.thresholds = LoopRules(counts_before=asked, tools=tuple(tools))

    def conclude_config(self) -> None:
        """The thresholds are rules."""
        super().conclude_config()
        self.rules = self.thresholds.apply(self.rules)

    def word(self, kind: str, name: str, what: str) -> Callable[..., Any]:
        """A threshold, unless the area has a setting of its own by this name."""
        if kind == "config" and name in WORDS and not hasattr(self, f"config_{name}"):
            return lambda value: WORDS[name](self.thresholds, value)
        return super().word(kind, name, what)
