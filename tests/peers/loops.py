"""Behaviour of a model: patterns, loops, prerequisites, chanting, nudges; each peer's verdicts in our patterns.

A peer's `pattern` has already been detected. It enters where our detectors report what they have seen, at a call of
the tool, and from there on everything is the fold's own. Our cooldown counts calls: a second of a peer's is a call.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection
from itertools import pairwise, takewhile
from typing import Any

import msgspec
from trustfold.guard.nudges import NudgeInbox
from trustfold.projections.calls.fingerprints import call_fingerprint, canonical, digest
from trustfold.projections.session import dispatch
from trustfold.projections.session.detectors.prerequisite_violated import policy_fingerprint
from trustfold.projections.session.detectors.registry import KINDS
from trustfold.projections.session.records import ActivePattern, PatternSighting
from trustfold.rules.levels import SettingLevel
from trustfold.rules.rules import RuleSet, SeverityLadder
from trustfold.schemas.decisions import NudgeIssued
from trustfold.schemas.vocabulary import PatternType

from . import loop_rules
from .area import Checked, nothing, puts, reads
from .calls import nth_word
from .case import UnknownWord, by_word, known, refuse_fields, times
from .loop_rules import Thresholds
from .world import SEVERITIES, World

_REPETITIVE, _CYCLE, _RETRY = "repetitive_calls", "alternating_loop", "error_retry_loop"
_TEXT, _READS = "text_loop", "reread"

_DETECTORS = by_word(
    {
        "generic_repeat": _REPETITIVE,
        "known_poll_no_progress": f"{_REPETITIVE} poll",
        "global_circuit_breaker": f"{_REPETITIVE} {_CYCLE} {_RETRY} unknown_tool",
        "ping_pong": _CYCLE,
        "unknown_tool_repeat": "unknown_tool",
        "argument_churn": "stagnation failure_streak same_error_loop",
        "identical_call_streak no_progress idempotent_no_progress idempotent_consecutive": _REPETITIVE,
        "no_progress_loop": f"{_REPETITIVE} {_CYCLE} {_RETRY}",
        "identical_cycle": _CYCLE,
        "exact_failure repeated_exact_failure same_call_failure": _RETRY,
        "same_tool_failure": "same_error_loop",
        "consecutive_identical_tool_calls global_tool_call_duplicate identical_tool_calls": _REPETITIVE,
        "alternating_tool_call_pattern alternating_pattern": _CYCLE,
        "read_file_loop shell_inspection_loop read_only_loop": _READS,
        "chanting chanting_identical_sentences content_loop repetitive_thoughts": _TEXT,
        "tool_call_loop": f"{_REPETITIVE} {_CYCLE}",
        "compaction_loop compaction_loop_persisted post_compaction_loop": _REPETITIVE,
        "monologue": "monologue",
    }
)
"""What peers call their detectors → our patterns."""

_ENDINGS = ("_warning", "_warn", "_notice", "_block", "_halt", "_halted", "_critical", "_stop", "_detected")
"""What peers add to a detector's name for what they do about it."""

_ANY_LOOP = frozenset("loop stuck guardrail guardrail_turn tool_guardrail tool-loop tool_loop".split())
"""Names that say no more than that it is a loop."""

_ATTENDED = frozenset(
    "attended interactive cli tui desktop ide vscode terminal chat web repl telegram discord slack".split()
)
_UNATTENDED = frozenset(
    """unattended headless batch cron ci api api_server server webhook msgraph_webhook daemon background scheduled
    subagent single_query oneshot gateway""".split()
)
_COMPACTION_GUARD = 3
"""Calls after a compaction that a peer watches; if all are the same, with the same result, it ends the run."""

_PATTERNS = {str(pattern): pattern for pattern in PatternType}
_GUARDED_FIELDS = frozenset("ev tool args result ok error times run session".split())
_ACTIONS = ("allow", "notice", "notice", "block")
_LEVELS = (None, "warning", "warning", "critical")
_VERDICTS = ("ok", "soft", "soft", "hard")

_SPEAKS_OF = tuple(
    (re.compile(words, re.IGNORECASE), value)
    for words, value in (
        (r"surrogate", "\ud83d"),
        (r"\bNaN\b|not a number", float("nan")),
        (r"\b-?inf(?:inity)?\b", float("inf")),
        (
            r"keys? that (?:are|is) not?|(?:non|not)[- ](?:a )?str(?:ing)?s?[- ]keys?|(?:int|integer|numeric)[- ]keys?",
            {1: "one", None: "none", (2, 3): "pair"},
        ),
    )
)
"""Texts that speak of values that no JSON holds → the values."""


def sight(world: World, rules: RuleSet, pattern: PatternType, severity: int, repeats: str, **seen: Any) -> None:
    """Report a pattern to the fold as its own detectors do, with the event that was folded last."""
    state, emit = world.session_state(), world.topology.processors["session"]._emit
    emit.outputs = []
    emit.begin(f"sighting {len(world.outputs)}", world.now_ms)
    proven = len(KINDS[pattern].texts) == 3  # where it may stop a run, the peer has seen the proof
    seen = {"repetitions": 1, "tools": ["tool"], "event_ids": [emit.cause], "proven": proven, **seen}
    found = PatternSighting(pattern, severity, digest(repeats.encode()), **seen)
    dispatch.conclude([], dispatch.SessionContext(state, world.session, rules, emit, [found]))
    for output in emit.outputs:
        world.outputs += world.topology.append(output)


def _patterns_of(name: str) -> frozenset[str]:
    """Patterns behind a name, a peer's or ours. Raises UnknownWord: nobody calls one of ours that."""
    plain = name.lower()
    for word in (plain, *(plain.removesuffix(ending) for ending in _ENDINGS)):
        if word in _DETECTORS:
            return frozenset(_DETECTORS[word].split())
        if word in loop_rules.DETECTORS:
            return frozenset({word})
        if word in _ANY_LOOP:
            return loop_rules.DETECTORS
    raise UnknownWord(f"detector {name!r}")


def _goes_by(wanted: str | None, names: Collection[str]) -> Checked:
    """Whether one of the patterns goes by the peer's name; or there is none, and none is wanted."""
    return not names if wanted is None else bool(_patterns_of(wanted) & set(names)), sorted(names)


def _made_hostile(value: Any) -> Any:
    """A value with every text that speaks of a hostile value replaced by it."""
    if isinstance(value, dict):
        return {name: _made_hostile(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_made_hostile(inner) for inner in value]
    return next((hostile for words, hostile in _SPEAKS_OF if isinstance(value, str) and words.search(value)), value)


def _is_hostile(value: Any) -> bool:
    """Whether a value speaks of any."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_is_hostile, parts)) or (isinstance(value, str) and _made_hostile(value) is not value)


class Behaviour(Thresholds):
    """Cases of `pattern`, `prerequisite`, `loop`, `chanting` and `nudge`."""

    def prepare(self) -> None:
        """Nothing is seen yet. A peer's guard after a compaction is armed by the compaction.

        What a compaction arms has its size from the first setting, whatever that is called.
        """
        super().prepare()
        alarms = [word for word in self.settings if hasattr(Thresholds, f"config_{word}") and not _is_window(word)]
        compacted = any(event.get("name") == "compaction" for event in self.case.given)
        self.guards_compaction = compacted and not alarms
        if self.guards_compaction:
            self.ladder((_REPETITIVE,), *[next(iter(self.settings.values()), _COMPACTION_GUARD)] * 3)
            self.settings = {word: value for word, value in self.settings.items() if not _is_window(word)}
        self.guarded_calls = 0
        self.refused = ""
        self.by_call: list[int] = []
        self.announced: list[str | None] = []
        self.cleared_at = 0
        self.turn_from = 0
        self.episodes = 0
        self.quiet = True
        self.crashed = False
        self.seconds_are_calls = False
        self.steps: SeverityLadder | None = None
        self.emitted: list[int] = []

    KNOBS = {
        "nudges": {
            "level": "level",
            "enabled": "nudge_enabled nudges_enabled",
            "effective_within_calls": "effective_window_calls",
        }
    }
    CONFIG = {"bucket": puts("steps", lambda value: SeverityLadder(minor=value, moderate=2 * value, severe=3 * value))}

    def config_cooldown_s(self, value: float) -> None:
        """As many calls as seconds; at least one, as every pattern comes with a call."""
        self.seconds_are_calls = True
        self.given_fields["nudges"]["cooldown_calls"] = max(1, round(value))

    def read_settings(self) -> None:
        """That the rules refuse them may be what a case is about."""
        try:
            super().read_settings()
        except ValueError as error:
            self.refused = str(error)

    def play(self) -> None:
        """Watch every call; where a case asks whether anything raises, what raises is caught."""
        if self.refused:
            if "config_error" not in self.expected:
                raise UnknownWord(f"a config that our rules refuse: {self.refused}")
            return
        self.calls.after_call = self._look
        self.calls.unknown_acts = self.of_the_plugin
        self.calls.volatile_args = self.volatile_args
        self.calls.streams = self.case.area == "chanting"
        if self.guards_compaction:
            self._set_detection(on=False)
        try:
            super().play()
        except UnknownWord:
            raise
        except Exception:
            if "crash" not in self.expected:
                raise
            self.crashed = True

    def one(self, event: dict[str, Any]) -> None:
        """Calls with values that no JSON holds are made through a guard."""
        if "tool" in event and _is_hostile({name: event.get(name) for name in ("args", "result")}):
            refuse_fields(event, _GUARDED_FIELDS, "a call with hostile values")
            for _ in times(event):
                self._call_guarded(event)
        else:
            super().one(event)

    def _call_guarded(self, event: dict[str, Any]) -> None:
        args, result = _made_hostile(event.get("args") or {}), _made_hostile(event.get("result"))
        ok, session = event.get("ok", True), str(event.get("run", event.get("session", self.world.session)))

        async def tool(**_: Any) -> Any:
            if not ok:
                raise RuntimeError(event.get("error") or "it failed")
            return result

        self.world.session = session
        made = args if isinstance(args, dict) and all(isinstance(name, str) for name in args) else {"value": args}
        answer = asyncio.run(self.world.guard().call(str(event["tool"]), tool, made, session_id=session))
        if ok and (not answer.ok or answer.output is not result):
            raise RuntimeError(f"the guard has turned {result!r} into {answer.output!r} ({answer.error})")
        self._look()

    def after(self, event: dict[str, Any]) -> None:
        """Messages can be loops too; turns are told apart."""
        self._count_episodes()
        if event.get("ev") == "turn_end":
            told = self._detected("announce_no_action", since=self.turn_from)
            self.announced.append(told[-1]["severity"] if told else None)
        if event.get("ev") in {"turn_end", "turn_start"}:
            self.turn_from = len(self.world.outputs)

    def conclude(self) -> None:
        self._count_episodes()

    def _look(self) -> None:
        self.by_call.append(self._seen_now())
        self._count_episodes()
        if self.guarded_calls:
            self.guarded_calls -= 1
            if not self.guarded_calls:
                self._set_detection(on=False)

    def _seen_now(self) -> int:
        return max((active.severity for active in self._active()), default=0)

    def _active(self) -> list[ActivePattern]:
        """Patterns that go on now, without cycles that are longer than the peer looks for."""
        too_long = (self.see_period() or 0) > self.max_cycle
        return [one for one in self.world.active() if not (too_long and one.pattern == _CYCLE)]

    def _count_episodes(self) -> None:
        now = self._seen_now()
        self.episodes += bool(now) and self.quiet
        self.quiet = not now

    @reads("type severity tool count key")
    def event_pattern(self, event: dict[str, Any]) -> None:
        """A pattern has been detected, at some severity; with a call, as every pattern comes with one."""
        pattern, tool = known(event.get("type"), _PATTERNS, "pattern"), event.get("tool", "tool")
        self.calls.unlike_others()
        step, count = SEVERITIES.index(event.get("severity", "minor")), event.get("count", 1)
        sight(self.world, self.rules, pattern, step, event.get("key") or tool, repetitions=count, tools=[tool])

    @reads("count tool key")
    def event_loop_warning(self, event: dict[str, Any]) -> None:
        """A loop has reached a count; the severity follows from it."""
        before = len(self._detected())
        severity = (self.steps or self.rules.behaviour.repetitive_calls).step(event["count"])
        if severity:
            self.event_pattern({**event, "type": "repetitive_calls", "severity": SEVERITIES[severity]})
        if len(self._detected()) > before:
            self.emitted.append(event["count"])

    @reads("seconds minutes hours")
    def event_advance_clock(self, event: dict[str, Any]) -> None:
        """Time passes; where the cooldown is told in seconds, so do calls."""
        self.calls.take(event)
        for _ in range(int(event.get("seconds", 0)) if self.seconds_are_calls else 0):
            self.calls.unlike_others()

    @reads("tool args run")
    def op_evaluate(self, event: dict[str, Any]) -> None:
        """Somebody asks about a call that is about to be made: it is made, and comes out as it did last."""
        if "tool" in event:
            self.calls.again(event)

    @reads("tool args run")
    def op_admit(self, event: dict[str, Any]) -> tuple[int, frozenset[str]]:
        """A call is about to be made: the answer is about the loops that it would go on with.

        Which these are is seen in a world of its own: the same has happened there, and the call ends as it did last.
        """
        self.world.session = str(event.get("run", self.world.session))
        alarms = {(one.pattern, one.fingerprint): one.severity for one in self.world.active()}
        before = takewhile(lambda one: one is not event, self.case.given)
        trial = self.trial(given=[one for one in before if one.get("name") != "admit"])
        trial.play()
        step = trial.world.session_state().steps.number
        trial.op_evaluate(event)
        gone_on = [(one.pattern, one.fingerprint) for one in trial.world.active() if one.last_step > step]
        known = [(alarms[one], one[0]) for one in gone_on if one in alarms]
        worst = max((severity for severity, _ in known), default=0)
        return worst, frozenset(pattern for severity, pattern in known if severity == worst)

    def _set_detection(self, *, on: bool) -> None:
        self.set_level(SettingLevel.SESSION, {"pattern_detection_enabled": None if on else False})

    def op_compaction(self) -> None:
        """The model's context is cut. A peer may guard what follows: its guard is armed here, with nothing seen."""
        if self.guards_compaction:
            self._set_detection(on=True)
            self.calls.take({"ev": "user_message"})
            self.guarded_calls = self.rules.behaviour.repetitive_calls.severe

    def op_same_signature(self, tool: str, a: dict[str, Any], b: dict[str, Any]) -> bool:
        return call_fingerprint(tool, canonical(a)) == call_fingerprint(tool, canonical(b))

    def op_mark_last_nudge_effective(self) -> None:
        """Somebody says that the last nudge helped: the model does other things, as trustfold sees for itself."""
        if not self._nudges("message"):
            raise UnknownWord("the last nudge, where there was none")
        self.calls.call({"tool": "write_file", "args": {"path": f"/{nth_word(self.calls.made)}"}, "ok": True})
        for _ in range(self.rules.nudges.effective_within_calls):
            self.calls.unlike_others()

    OPS = {
        "disable_session": lambda self: self._set_detection(on=False),
        "defaults": lambda _self, platform: platform,  # those of a platform are asked for
        "planned_calls": nothing("tool args times"),  # nobody publishes calls that were only planned
        # The peer forgets its alarm and lets the run go on; what is told from here on is new.
        "clear_detection": lambda self: setattr(self, "cleared_at", len(self.world.outputs)),
    }

    def check_config_error(self, wanted: bool) -> Checked:
        return bool(self.refused) is wanted, self.refused or "the rules take it"

    def check_patterns(self, wanted: list[list[Any]]) -> Checked:
        """Patterns as reported, once per severity; a pattern that is not asked about is beside the point."""
        found = [[one["pattern"], one["severity"], one["repetitions"]] for one in self._detected()]
        expected = [
            [name if name in loop_rules.DETECTORS else min(_patterns_of(name)), *rest]
            for name, *rest in _once_per_severity(wanted)
        ]
        asked = {name for name, *_ in expected} or loop_rules.DETECTORS - {"prerequisite_violated"}
        told = [one for one in found if one[0] in asked]
        # For those who tell one open pattern whose severity rises: the same pattern as it stands at the end.
        now = [
            [one.pattern, SEVERITIES[one.severity], one.count] for one in self.world.active() if one.pattern in asked
        ]
        accepted = (told, now) if self.case.own and expected else (told,)
        return any(_by_name(one) == _by_name(expected) for one in accepted), told

    def check_loops(self, wanted: int | list[str]) -> Checked:
        """Alarms by number (loops at the same time are one), or by the peer's names."""
        if isinstance(wanted, int):
            return self.episodes == wanted, {self.episodes: self._names()}
        found = set(self._names())
        expected = [_patterns_of(name) for name in wanted]
        return all(patterns & found for patterns in expected) and found <= frozenset().union(*expected), sorted(found)

    CHECKS = {  # by the peer's names
        "detector": lambda self, wanted: _goes_by(wanted, self._now()),  # what goes on now
        "code": lambda self, wanted: _goes_by(
            wanted, self.answer("admit")[1] if self.answers["admit"] else self._now()
        ),
        "notice": lambda self, wanted: _goes_by(wanted, self._names()),  # what has been told
        "abort": lambda self, wanted: _goes_by(wanted, self._severe()),  # why the run is ended
    }

    def see_action(self) -> str:
        """Answer to the last `admit`; a peer that stops nobody only tells."""
        severity, _ = self.answer("admit")
        return _ACTIONS[severity if self.hard_stop else min(severity, 2)]

    def see_hard_stop(self) -> dict[str, bool]:
        """Whether a severe loop ends the run: it asks for a pause, which goes on where nobody is there to end it."""
        asked = {str(name) for name in self.expected["hard_stop"]}
        unknown = sorted(asked.union(self.answers["defaults"]) - _ATTENDED - _UNATTENDED)
        if unknown:
            raise UnknownWord(f"platform {unknown[0]!r}")
        inbox = NudgeInbox()
        trial = self.trial(config={}, given=[])
        steps = trial.rules.behaviour.repetitive_calls
        trial.calls.take({"ev": "tool_started", "tool": "read", "args": {"a": 1}, "times": steps.severe})
        for told in trial.world.decisions("nudge.issued"):
            inbox.deliver(msgspec.convert(told, NudgeIssued))
        paused = inbox.paused
        inbox.resume()
        return {name: paused if name in _UNATTENDED else inbox.paused for name in asked}

    def see_same_signature(self) -> bool:
        calls = {done.call for done in self.world.session_state().steps.window}
        if not calls:
            raise UnknownWord("the signature of no call")
        return len(calls) == 1

    def see_count(self) -> int | None:
        """Calls in the worst of what goes on now; of a cycle, those of all laps."""
        worst = max(self.world.active(), key=lambda active: (active.severity, active.count), default=None)
        if worst is None:
            return None
        return worst.count * (self.see_period() or 1) if worst.pattern == _CYCLE else worst.count - self.counts_before

    def see_period(self) -> int | None:
        """Calls in one lap of the cycle that is going on."""
        runs = self.world.session_state().steps.cycle_runs
        return next((period for period in range(2, len(runs) + 1) if runs[period - 1] >= period), None)

    def see_evidence(self) -> list[str]:
        """Signs that are no alarm by themselves: calls of one tool in a turn, whatever the arguments, are counted."""
        counted = max(self.world.session_state().tools.values(), default=0)
        return ["same_name_streak"] if self.same_name is not None and counted >= self.same_name else []

    def see_policy_patterns(self) -> list[list[str]]:
        names = {f"{policy_fingerprint(name):016x}": name for name in self.rules_in_force().policies}
        told = self._detected("prerequisite_violated")
        return [[names.get(one["fingerprint"], one["fingerprint"]), one["severity"]] for one in told]

    VIEWS = {
        "laps": lambda self: max((one["repetitions"] for one in self._detected(_CYCLE)[-1:]), default=None),
        # What was said at each call; once per severity.
        "verdicts": lambda self: [
            _VERDICTS[severity] if severity > known else "ok" for known, severity in pairwise((0, *self.by_call))
        ],
        "loops_after_clear": lambda self: len(self._detected(since=self.cleared_at)),
        "stuck": lambda self: self._seen_now() >= self.stuck_from,  # whether the session is in a loop now
        "halted": lambda self: bool(self._severe()),
        "nudge": lambda self: bool(self._nudges("message")) and not self.see_stuck(),
        "nudges_total": lambda self: len(self._nudges("message")),  # how often the model has been told
        "nudges": lambda self: self._nudges("nudge_type"),  # how it was told
        "text": lambda self: next(reversed(self._nudges("message")), None),
        "level": lambda self: _LEVELS[self._seen_now()],  # the peer's word for the severity of what goes on now
        "severity": lambda self: SEVERITIES[self._seen_now()],
        "strike": lambda self: max(
            Counter((one["pattern"], one["fingerprint"]) for one in self._detected()).values(), default=0
        ),
        "crash": lambda self: self.crashed,  # whether anything raised, in the guard or in a fold
        "allow": lambda self: [not severity for severity in self.by_call],
        "first_at_call": lambda self: next((at for at, seen in enumerate(self.by_call, 1) if seen), None),
        "open_announcements": lambda self: self.world.session_state().detectors.announce_no_action.turns,
        "announce_severity_by_turn": lambda self: self.announced,
        "same": lambda self: self.answer("same_signature"),  # whether the two calls are one
        "effective": lambda self: sum(self._helped()) if self._nudges("message") else None,
        "acknowledged": lambda self: sum(self._helped()),
        "ineffective": lambda self: self._helped().count(False),
        # Share that worked; null before any was judged.
        "effectiveness": lambda self: sum(judged) / len(judged) if (judged := self._helped()) else None,
        "emitted_at": lambda self: self.emitted,  # counts at which something was told
    }

    def _detected(self, pattern: str | None = None, since: int = 0) -> list[dict[str, Any]]:
        told = self.world.decisions("pattern.detected")
        told = told[sum(output.type == "pattern.detected" for output in self.world.outputs[:since]) :]
        return [one for one in told if pattern in {None, one["pattern"]}]

    def _names(self) -> list[str]:
        return list(dict.fromkeys(one["pattern"] for one in self._detected()))

    def _now(self) -> set[str]:
        return {active.pattern for active in self.world.active()}

    def _severe(self) -> set[str]:
        """Loops that end the run."""
        return {one["pattern"] for one in self._detected() if one["severity"] == "severe" and self.hard_stop}

    def _nudges(self, field: str) -> list[Any]:
        return [one[field] for one in self.world.decisions("nudge.issued")]

    def _helped(self) -> list[bool]:
        """Of each nudge that was judged, whether it worked."""
        return [one["effective"] for one in self.world.decisions("nudge.judged")]


def _is_window(word: str) -> bool:
    return word in by_word(Thresholds.WINDOWS)


def _by_name(patterns: list[list[Any]]) -> list[list[Any]]:
    """Patterns in an order of their own: those of one event stand in no order."""
    return sorted(patterns, key=lambda one: str(one[0]))


def _once_per_severity(wanted: list[list[Any]]) -> list[list[Any]]:
    """A pattern is reported once per severity step: of a peer's reports at every call, the first of each step."""
    kept: list[list[Any]] = []
    counts: dict[tuple[Any, ...], int] = {}
    for name, severity, count in wanted:
        if counts.get((name, severity), count) >= count:  # a repeat with a higher count only goes on
            kept.append([name, severity, count])
        counts[name, severity] = count
    return kept
