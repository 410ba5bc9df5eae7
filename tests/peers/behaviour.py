"""Nudges: when a pattern is told to the model, how strongly, and what came of it; together with the loops behind them.

A peer's `pattern` has already been detected. It enters where our detectors report what they have seen, at a call of
the tool, and from there on everything is the fold's own. Our cooldown counts calls: a second of a peer's is a call.
"""

from __future__ import annotations

from typing import Any

from trustfold.projections.calls.fingerprints import digest
from trustfold.projections.session import watch
from trustfold.projections.session.context import Sighting
from trustfold.rules.levels import Level
from trustfold.rules.rules import Ladder, Rules
from trustfold.schemas.vocabulary import NudgeLevel, Pattern

from .area import puts, reads
from .calls import nth_word
from .case import UnknownWord
from .loops import Loops
from .world import SEVERITIES, World

_FIELDS = frozenset("type severity tool count times policy_id prerequisite_tool key".split())


def sight(
    world: World, rules: Rules, pattern: Pattern, severity: int, repeats: str, count: int = 1, tool: str = "tool",
    required_tool: str = "",
) -> None:  # fmt: skip
    """Report a pattern to the fold as its own detectors do, with the event that was folded last."""
    state, emit = world.session_state(), world.processor("session")._emit
    emit.outputs = []
    emit.begin(f"sighting {len(world.outputs)}", world.now_ms)
    seen = Sighting(
        pattern, severity, digest(repeats.encode()), count, [tool], [emit.cause], required_tool=required_tool
    )
    watch.conclude([], watch.SessionContext(state, world.session, rules, emit, [seen]))
    for output in emit.outputs:
        world.topology._pass_on(output, world.outputs)


class Behaviour(Loops):
    """Cases of `pattern`, `prerequisite`, `loop`, `chanting` and `nudge`."""

    def prepare(self) -> None:
        """Thresholds first, then what is said about nudges."""
        super().prepare()
        self.others = 0
        self.seconds_are_calls = False
        self.ladder: Ladder | None = None
        self.emitted: list[int] = []

    # --- config -------------------------------------------------------------------------------------------------------

    def config_cooldown_s(self, value: float) -> None:
        """As many calls as seconds; at least one, as every pattern comes with a call."""
        self.seconds_are_calls = True
        self.change("nudges", cooldown_calls=max(1, round(value)))

    CONFIG = {
        "level nudge_level": lambda self, value: self.change("nudges", level=NudgeLevel(value)),
        "enabled nudge_enabled nudges_enabled": lambda self, value: self.change("nudges", enabled=value),
        "cooldown_seconds": config_cooldown_s,
        "cooldown_calls": lambda self, value: self.change("nudges", cooldown_calls=value),  # calls between two nudges
        "effective_window_calls effective_within_calls": lambda self, value: self.change(
            "nudges", effective_within_calls=value
        ),
        "templates texts": lambda self, value: self.change("nudges", texts=value),  # own texts
        "bucket": puts("ladder", lambda value: Ladder(minor=value, moderate=2 * value, severe=3 * value)),
    }

    # --- what happens -------------------------------------------------------------------------------------------------

    @reads(_FIELDS)
    def event_pattern(self, event: dict[str, Any]) -> None:
        """A pattern has been detected, at some severity."""
        severity = SEVERITIES.index(event.get("severity", "minor"))
        for _ in range(int(event.get("times", 1))):
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
        self._other_call()
        tool = str(event.get("tool", "tool"))
        repeats = str(event.get("key", event.get("policy_id", tool)))
        required = str(event.get("prerequisite_tool", ""))
        sight(self.world, self.rules, Pattern(name), severity, repeats, int(event.get("count", 1)), tool, required)

    @reads("seconds minutes hours")
    def event_advance_clock(self, event: dict[str, Any]) -> None:
        """Time passes; where the cooldown is told in seconds, so do calls."""
        self.calls.take(event)
        if self.seconds_are_calls:
            for _ in range(int(event.get("seconds", 0))):
                self._other_call()

    def _other_call(self) -> None:
        """A call that is no part of any pattern."""
        self.others += 1
        word = nth_word(self.others)
        self.calls.call({"tool": f"other_{word}", "args": {"about": word}, "ok": True, "result": f"something {word}"})

    @reads("level value")
    def op_set_level(self, event: dict[str, Any]) -> None:
        """The session sets another level."""
        self.set_level(Level.SESSION, {"nudge_level": event.get("level", event.get("value"))})

    def op_mark_last_nudge_effective(self, _event: dict[str, Any]) -> None:
        """Somebody says that the last nudge helped: the model does other things, as trustfold sees for itself."""
        if not self.world.decisions("nudge.issued"):
            raise UnknownWord("the last nudge, where there was none")
        self.others += 1
        self.calls.call({"tool": "write_file", "args": {"path": f"/{nth_word(self.others)}"}, "ok": True})
        for _ in range(self.rules.nudges.effective_within_calls):
            self._other_call()

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_text(self) -> str | None:
        """The latest text."""
        told = self.world.decisions("nudge.issued")
        return str(told[-1]["message"]) if told else None

    def see_effectiveness(self) -> float | None:
        """Share that worked; null before any was judged."""
        judged = self.world.decisions("nudge.judged")
        return sum(one["effective"] for one in judged) / len(judged) if judged else None

    VIEWS = {
        "message": see_text,
        "texts": lambda self: [one["message"] for one in self.world.decisions("nudge.issued")],  # all texts
        "severities": lambda self: [one["severity"] for one in self.world.decisions("nudge.issued")],
        "lanes": lambda self: [one["lane"] for one in self.world.decisions("nudge.issued")],  # where each nudge belongs
        "effective": lambda self: (
            sum(one["effective"] for one in self.world.decisions("nudge.judged")) if self.see_nudges() else None
        ),
        "acknowledged": lambda self: sum(one["effective"] for one in self.world.decisions("nudge.judged")),
        "ineffective": lambda self: sum(not one["effective"] for one in self.world.decisions("nudge.judged")),
        "nudge_effectiveness": see_effectiveness,
        "emitted_at": lambda self: self.emitted,  # counts at which something was told
    }
