"""Models: who copes with what, when another one is suggested, and how a model behaves."""

from __future__ import annotations

from typing import Any

from trustfold.schemas.vocabulary import PatternType

from .case import UnknownWord
from .loop_rules import Thresholds
from .loops import sight


class Models(Thresholds):
    """Cases of `model`."""

    def config_min_attempts(self, value: int) -> None:
        """How much must be known of the other model: the bounds of its rate say so by themselves."""
        if not isinstance(value, int) or value < 0:
            raise UnknownWord(f"min_attempts {value!r}")

    KNOBS = {
        "models": {
            "strategy": "strategy",
            "min_failures": "failure_threshold",
            "min_difference": "min_success_rate_diff",
            "preferred_models": "preferred_models",
        }
    }

    OPS = {"profile": lambda _self, model, key: (model, key)}  # somebody asks what is known of a model on a key

    def op_behaviour(self, turns: int = 0, stalled: int = 0, nudges: int = 0, effective: int = 0) -> None:
        """A model has had so many turns, of which some were stalled; or so many nudges, of which some helped."""
        self.world.model = self.world.model or "model"
        for turn in range(turns):
            self.calls.take({"ev": "turn_start"})
            self.calls.take({"ev": "turn_end", "stalled": turn < stalled})
        for number in range(nudges):
            self.calls.take({"ev": "user_message"})
            self.calls.unlike_others()
            for again in range(1 if number < effective else 2):
                sight(self.world, self.rules, PatternType.REPETITIVE_CALLS, 1, f"loop {number}", repetitions=3 + again)
            for _ in range(self.rules.nudges.effective_within_calls):
                self.calls.unlike_others()

    def see_profile(self) -> dict[str, Any] | None:
        """What is known of a model on a key, as published."""
        wanted = self.expected.get("profile") or {}
        asked = next(reversed(self.answers["profile"]), (wanted.get("model"), wanted.get("key")))
        found = [one for one in self.world.told("model") if (one.get("model"), one.get("key")) == asked]
        return {"failures": 0, "attempts": 0, "success_rate": None, **found[0]} if found else None

    def see_suggestion(self) -> dict[str, Any] | None:
        told = self.world.decisions("model_switch.suggested")[-1:]
        return {"from": told[0]["current_model"], "to": told[0]["suggested_model"]} if told else None

    VIEWS = {
        "success_rate": lambda self: (self.see_profile() or {"success_rate": None})["success_rate"],
        "stall_rate": lambda self: self._behaviour().get("stall_rate") or 0.0,
        "stalled_turns": lambda self: self._behaviour().get("stalled_turns") or 0,
        "switched": lambda self: bool(self.world.decisions("model_switch.suggested", strategy="auto")),
        "nudge_effectiveness": lambda self: self._behaviour().get("nudge_effectiveness"),
    }

    def _behaviour(self) -> dict[str, Any]:
        """How the model behaves, as published; its turn is over by now."""
        self.world.event("turn.ended")
        models = self.world.told("model")
        found = [one for one in models if one.get("turns") is not None or one.get("pattern_counts")]
        return found[-1] if found else {}
