"""What the thresholds of loop detectors mean as our ladders.

A peer has the detectors that its config names; where it names any, the others of ours are off. A peer's threshold is
where its alarm begins; how fast ours rises beyond it is told with each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import structs
from trustfold.projections.session.steps import MAX_CYCLE
from trustfold.rules.parser import RulesDocument
from trustfold.rules.rules import BehaviourRules, RuleSet, SeverityLadder
from trustfold.schemas.vocabulary import ToolClass

from ..support import fixed_rules
from .area import puts
from .case import UnknownWord
from .settings import Levels, policy

MAX_WINDOW = 100
"""Most steps that a session remembers."""

DETECTORS = frozenset(
    name for name in BehaviourRules.__struct_fields__ if isinstance(getattr(BehaviourRules(), name), SeverityLadder)
)
_OF_THE_SEED = frozenset({"repetitive_calls", "error_retry_loop", "introspection_loop", "announce_no_action"})
"""Detectors of the older plugin and its peer: they are there whether a threshold is set or not."""

MINOR, MODERATE = 1, 2

_EXACT = "repetitive_calls"
_CYCLE = "alternating_loop"
_POLL = "poll"
_AFTER_NEWS, _AFTER_EFFECTS = "repetitive_calls_with_news", "repetitive_calls_with_effects"

_Reader = Callable[["Thresholds", Any], None]


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1 on, not {value!r}")
    return value


def _names(word: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UnknownWord(f"{word} {value!r}: a list of names is known")
    return value


def _from(*names: str, rise: tuple[int, int] = (1, 3), of_plugin: bool = False, stuck: bool = False) -> _Reader:
    """Detectors that begin at the peer's threshold, and are moderate and severe so far above it as its window goes.

    `of_plugin`: one of the older plugin's, whose detectors are all there. `stuck`: the peer calls a session stuck
    from moderate on.
    """

    def read(to: Thresholds, value: int) -> None:
        to.of_the_plugin |= of_plugin
        to.stuck_from = MODERATE if stuck else to.stuck_from
        to.ladder(names, value, value + rise[0], value + rise[1])
        to.scaled |= set(names)

    return read


def _step(step: str) -> _Reader:
    """One step of the same call."""
    return lambda to, value: to.set_step(_EXACT, **{step: value})


def _earlier(step: str) -> _Reader:
    """So many earlier calls like this one; to and fro, both sides count."""

    def read(to: Thresholds, value: int) -> None:
        count = value + to.counts_before
        for name, least in ((_EXACT, count), (_POLL, count), (_CYCLE, value // 2)):
            to.set_step(name, **{step: least})

    return read


def _pair(name: str, *shipped: str) -> _Reader:
    """Notice and end; others by the shipped ladder."""

    def read(to: Thresholds, value: list[int]) -> None:
        notice, end = value
        to.ladder((name,), notice, max(notice, end - 1), end)
        for other in shipped:
            to.ladders.setdefault(other, getattr(fixed_rules.BehaviourRules(), other))

    return read


def _between(ladder: SeverityLadder) -> dict[str, SeverityLadder]:
    """The same with other calls between, whatever they bring; a hint where they may have changed something."""
    return {_AFTER_NEWS: ladder, _AFTER_EFFECTS: structs.replace(ladder, moderate=None, severe=None)}


class Thresholds(Levels):
    """Areas whose config may name a peer's thresholds.

    Attributes:
        ladders: ours, as far as the peer has set them.
        scaled: detectors whose ladder rises no further than the peer's window goes.
        window: how many calls the peer looks back.
        counts_before: the peer's counts leave out the call it is asked about.
        same_name: calls of one tool, whatever the arguments, that are evidence.
        stuck_from: severity from which the peer calls a session stuck.
        hard_stop: whether severe patterns end the run.
        of_the_plugin: it has the detectors of the older plugin, set or not.
        in_a_row: the peer counts equal calls only while nothing lies between.
        max_cycle: the longest cycle that is an alarm of the peer.
    """

    def prepare(self) -> None:
        super().prepare()
        self.ladders: dict[str, SeverityLadder] = {}
        self.scaled: set[str] = set()
        self.fields: dict[str, Any] = {}
        self.tool_fields: dict[str, Any] = {}
        self.prerequisites: list[Any] = []
        self.volatile_args: tuple[str, ...] = ()
        self.window: int | None = None
        self.same_name: int | None = None
        self.stuck_from = MINOR
        self.hard_stop = True
        self.of_the_plugin = False
        self.in_a_row = False
        self.max_cycle = MAX_CYCLE
        self.counts_before = int(any(one.get("name") == "evaluate" and "tool" in one for one in self.case.given))

    def read_settings(self) -> None:
        super().read_settings()
        self.rules = self._with_thresholds(self.rules)

    def _with_thresholds(self, rules: RuleSet) -> RuleSet:
        ladders = dict(self.ladders)
        if ladders:
            there = {"prerequisite_violated"} | (_OF_THE_SEED if self.of_the_plugin else set())
            for name in DETECTORS - ladders.keys() - there:
                ladders[name] = structs.replace(getattr(rules.behaviour, name), enabled=False)
        limit = self.window or MAX_WINDOW
        ours = (_EXACT, _POLL) if self.window else ()
        ladders = {name: getattr(rules.behaviour, name) for name in ours} | ladders
        for name in (self.scaled | set(ours) - self.ladders.keys()) & ladders.keys():
            most = limit // 2 if name == _CYCLE else limit
            steps = ladders[name]
            moderate, severe = (step and max(steps.minor, min(most, step)) for step in (steps.moderate, steps.severe))
            ladders[name] = structs.replace(steps, moderate=moderate, severe=severe)
        if _EXACT in ladders and not self.in_a_row:
            ladders |= _between(ladders[_EXACT])
        window = self.window or min(MAX_WINDOW, max(30, *(one.highest for one in ladders.values()), 0))
        behaviour = structs.replace(rules.behaviour, window_steps=window, **ladders, **self.fields)
        rules = structs.replace(rules, behaviour=behaviour, tools=structs.replace(rules.tools, **self.tool_fields))
        listed = {"prerequisite_policies": [policy(one) for one in self.prerequisites]} if self.prerequisites else {}
        return RulesDocument("the case", json.dumps(listed)).over(rules)

    def ladder(self, names: tuple[str, ...], minor: int, moderate: int, severe: int, *, enabled: bool = True) -> None:
        """Set detectors to rise at counts that the peer has set."""
        self.ladders |= dict.fromkeys(
            names, SeverityLadder(minor=minor, moderate=moderate, severe=severe, enabled=enabled)
        )
        self.scaled -= set(names)

    def set_step(self, name: str, **step: int) -> None:
        """Set where a detector begins (`minor`) or ends (`severe`), and let the other end follow."""
        known = self.ladders.get(name)
        low = step.get("minor") or (known.minor if known else step.get("severe") or 1)
        high = step.get("severe") or (known.severe if known else low)
        self.ladders[name] = SeverityLadder(minor=min(low, high), moderate=max(low, high), severe=max(low, high))

    def config_window(self, value: int) -> None:
        """How many calls the peer looks back."""
        self.window = _whole("window", value)

    def config_error_retry_threshold(self, value: int) -> None:
        """The older plugin: a clear stall from the threshold on, severe from six."""
        _from("error_retry_loop", rise=(0, max(6 - value, 3)), of_plugin=True)(self, value)

    def config_error_retry_overrides(self, value: dict[str, int]) -> None:
        """The same, by tool."""
        self.fields["error_retry_by_tool"] = {
            tool: SeverityLadder(minor=count, moderate=count, severe=max(6, count + 3)) for tool, count in value.items()
        }

    def config_limit(self, value: int) -> None:
        """So many calls may be the same; the next is one too many. Nothing or less: as many as it likes."""
        self.ladder((_EXACT,), *[max(value, 0) + 1] * 3, enabled=value > 0)

    def config_max_cycle(self, value: int) -> None:
        """The longest cycle that the peer sees; such a peer counts equal calls in a row."""
        if not 1 <= value <= MAX_CYCLE:
            raise UnknownWord(f"max_cycle {value}: cycles of two to six calls are seen")
        self.max_cycle, self.in_a_row = value, True

    def config_volatile_args(self, value: list[str] | dict[str, list[str]]) -> None:
        """Arguments by which two calls do not differ, of all tools of the case or by tool."""
        tools = [str(event["tool"]) for event in self.case.given if "tool" in event]
        by_tool = value if isinstance(value, dict) else dict.fromkeys(tools, _names("volatile_args", value))
        named = {tool: frozenset(_names("volatile_args", names)) for tool, names in by_tool.items()}
        self.tool_fields["volatile_args"] = named
        self.volatile_args = tuple(sorted(frozenset().union(*named.values())))

    WINDOWS = {
        "window_events": lambda self, value: self.config_window(value // 2),  # a call and its result are two events
        "window window_calls history": config_window,
        # Reads or characters that it looks back: ours count without a window.
        "read_window chunk": lambda _self, value: _whole("window", value),
    }
    """Those that say how far a peer looks back, and not when it tells."""

    CONFIG = {
        **WINDOWS,
        "repetitive_call_threshold": _from(_EXACT, of_plugin=True),
        "introspection_loop_threshold": _from("introspection_loop", of_plugin=True),
        # Reads that bring news are work, however many there are.
        "max_reads_before_action": _from("reread", of_plugin=True),
        "policies": lambda self, value: self.prerequisites.extend(value),
        "action_observation": _from(_EXACT, rise=(0, 2), stuck=True),
        "action_error": _from("error_retry_loop", stuck=True),
        "monologue": _from("monologue", rise=(0, 2), stuck=True),
        # So many calls to and fro are half as many laps: stuck at once.
        "alternating_pattern": lambda self, value: _from(_CYCLE, rise=(0, 2), stuck=True)(self, value // 2),
        "threshold": _from(_EXACT, _CYCLE, _POLL),
        "max_repeats global_duplicate repeats": _from(_EXACT),
        "read_threshold shell_inspection": _from("reread"),
        "cold_start_exempt": lambda _self, value: bool(value),  # reads with news are exploration at any time
        # The same tool in a row with other arguments is work until the results say otherwise: evidence, no detector.
        "same_name_threshold action_stagnation_threshold": puts("same_name", lambda value: _whole("threshold", value)),
        # Tools that read what changes by itself; another answer is progress here, whatever the tool.
        "stateful": lambda self, value: self.tool_fields.update(
            classes=dict.fromkeys(_names("stateful", value), ToolClass.READ)
        ),
        "thresholds": lambda self, value: self.ladder((_EXACT,), *value),
        "soft": _step("minor"),
        "hard": _step("severe"),
        "warn": _earlier("minor"),
        "critical": _earlier("severe"),
        "global": lambda _self, value: _whole("global", value),  # a last limit: beyond severe there is nothing here
        # So many calls of a tool that does not exist are a loop, whatever the arguments.
        "unknown_tool": lambda self, value: self.ladder(("unknown_tool",), *[value + self.counts_before] * 3),
        "exact_failure": _pair("error_retry_loop"),  # the same call failing the same way
        "same_tool_failure": _pair("same_error_loop"),  # one tool failing with other arguments
        "no_progress": _pair(_EXACT, _CYCLE, _POLL),  # the same call with the same result
        "hard_stop": puts("hard_stop"),
        "repeat": _from("text_loop"),
    }
