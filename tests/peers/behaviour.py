"""Nudges: when a pattern is told to the model, how strongly, and what came of it; together with the loops behind them.

A peer's `pattern` has already been detected. It enters where our detectors report what they have seen, at a call of
the tool, and from there on everything is the fold's own. Our cooldown counts calls: a second of a peer's is a call.
"""

from __future__ import annotations

from typing import Any

from trustfold.projections.calls.fingerprints import digest
from trustfold.projections.session import dispatch
from trustfold.projections.session.records import Sighting
from trustfold.rules.levels import Level
from trustfold.rules.rules import Ladder, Rules
from trustfold.schemas.vocabulary import NudgeLevel, Pattern

from .area import changes, puts, reads
from .calls import nth_word
from .case import UnknownWord, times
from .loops import Loops
from .world import SEVERITIES, World

_FIELDS = frozenset("type severity tool count times policy_id prerequisite_tool key".split())


def sight(world: World, rules: Rules, pattern: Pattern, severity: int, repeats: str, **seen: Any) -> None:
    """Report a pattern to the fold as its own detectors do, with the event that was folded last."""
    state, emit = world.session_state(), world.topology.processors["session"]._emit
    emit.outputs = []
    emit.begin(f"sighting {len(world.outputs)}", world.now_ms)
    seen = {"repetitions": 1, "tools": ["tool"], "event_ids": [emit.cause], **seen}
    found = Sighting(pattern, severity, digest(repeats.encode()), **seen)
    dispatch.conclude([], dispatch.SessionContext(state, world.session, rules, emit, [found]))
    for output in emit.outputs:
        world.topology._pass_on(output, world.outputs)


class Behaviour(Loops):
    """Cases of `pattern`, `prerequisite`, `loop`, `chanting` and `nudge`."""

    def prepare(self) -> None:
        """Thresholds first, then what is said about nudges."""
        super().prepare()
        self.seconds_are_calls = False
        self.ladder: Ladder | None = None
        self.emitted: list[int] = []

    # --- config -------------------------------------------------------------------------------------------------------

    def config_cooldown_s(self, value: float) -> None:
        """As many calls as seconds; at least one, as every pattern comes with a call."""
        self.seconds_are_calls = True
        self.change("nudges", cooldown_calls=max(1, round(value)))

    CONFIG = {
        "level nudge_level": changes("nudges", "level", NudgeLevel),
        "enabled nudge_enabled nudges_enabled": changes("nudges", "enabled"),
        "cooldown_seconds": config_cooldown_s,
        "cooldown_calls": changes("nudges", "cooldown_calls"),  # calls between two nudges
        "effective_window_calls effective_within_calls": changes("nudges", "effective_within_calls"),
        "templates texts": changes("nudges", "texts"),  # own texts
        "bucket": puts("ladder", lambda value: Ladder(minor=value, moderate=2 * value, severe=3 * value)),
    }

    # --- what happens -------------------------------------------------------------------------------------------------

    @reads(_FIELDS)
    def event_pattern(self, event: dict[str, Any]) -> None:
        """A pattern has been detected, at some severity."""
        severity = SEVERITIES.index(event.get("severity", "minor"))
        for _ in times(event):
            self._see(str(event["type"]), severity, event)

    @reads("key tool count")
    def event_loop_warning(self, event: dict[str, Any]) -> None:
        """A loop has reached a count; the severity follows from it."""
        ladder = self.ladder or self.rules.behaviour.repetitive_calls
        before = len(self.world.decisions("pattern.detected"))
        severity = ladder.step(int(event["count"]))
        if severity:
            self._see("repetitive_calls", severity, event)
        if len(self.world.decisions("pattern.detected")) > before:
            self.emitted.append(int(event["count"]))

    def _see(self, name: str, severity: int, event: dict[str, Any]) -> None:
        if name not in set(Pattern):
            raise UnknownWord(f"pattern {name!r}")
        self.calls.unlike_others()
        tool = str(event.get("tool", "tool"))
        repeats = str(event.get("key", event.get("policy_id", tool)))
        more = {"repetitions": int(event.get("count", 1)), "tools": [tool]}
        more["required_tool"] = str(event.get("prerequisite_tool", ""))
        sight(self.world, self.rules, Pattern(name), severity, repeats, **more)

    @reads("seconds minutes hours")
    def event_advance_clock(self, event: dict[str, Any]) -> None:
        """Time passes; where the cooldown is told in seconds, so do calls."""
        self.calls.take(event)
        if self.seconds_are_calls:
            for _ in range(int(event.get("seconds", 0))):
                self.calls.unlike_others()

    @reads("level value")
    def op_set_level(self, event: dict[str, Any]) -> None:
        """The session sets another level."""
        self.set_level(Level.SESSION, {"nudge_level": event.get("level", event.get("value"))})

    def op_mark_last_nudge_effective(self, _event: dict[str, Any]) -> None:
        """Somebody says that the last nudge helped: the model does other things, as trustfold sees for itself."""
        if not self.world.decisions("nudge.issued"):
            raise UnknownWord("the last nudge, where there was none")
        self.calls.call({"tool": "write_file", "args": {"path": f"/{nth_word(self.calls.made)}"}, "ok": True})
        for _ in range(self.rules.nudges.effective_within_calls):
            self.calls.unlike_others()

    # --- what has come of it ------------------------------------------------------------------------------------------

    def _nudges(self, field: str) -> list[Any]:
        return [one[field] for one in self.world.decisions("nudge.issued")]

    def _helped(self) -> list[bool]:
        """Of each nudge that was judged, whether it worked."""
        return [one["effective"] for one in self.world.decisions("nudge.judged")]

    VIEWS = {
        "text message": lambda self: next(reversed(self._nudges("message")), None),
        "texts": lambda self: self._nudges("message"),
        "severities": lambda self: self._nudges("severity"),
        "lanes": lambda self: self._nudges("lane"),
        "effective": lambda self: sum(self._helped()) if self.see_nudges() else None,
        "acknowledged": lambda self: sum(self._helped()),
        "ineffective": lambda self: self._helped().count(False),
        # Share that worked; null before any was judged.
        "effectiveness nudge_effectiveness": lambda self: (
            sum(judged) / len(judged) if (judged := self._helped()) else None
        ),
        "emitted_at": lambda self: self.emitted,  # counts at which something was told
    }
