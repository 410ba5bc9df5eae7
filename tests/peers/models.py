"""Models: who copes with what, when another one is suggested, and how a model behaves."""

from __future__ import annotations

from typing import Any

from trustfold.schemas.vocabulary import ModelSwitchStrategy, Pattern

from . import loop_rules
from .area import Area, reads
from .behaviour import sight
from .calls import nth_word
from .case import UnknownWord
from .loop_rules import LoopRules


class Models(Area):
    """Cases of `model`."""

    def prepare(self) -> None:
        """Nobody is asked about yet."""
        self.asked: tuple[str, str] | None = None
        self.thresholds = LoopRules(counts_before=False)
        for name, word in loop_rules.WORDS.items():
            if name in self.case.config and not hasattr(self, f"config_{name}"):
                word(self.thresholds, self.case.config[name])
        self.rules = self.thresholds.apply(self.rules)

    def _word(self, kind: str, name: str, what: str):
        if kind == "config" and name in loop_rules.WORDS and not hasattr(self, f"config_{name}"):
            return lambda _value: None
        return super()._word(kind, name, what)

    # --- config -------------------------------------------------------------------------------------------------------

    def config_min_attempts(self, value: int) -> None:
        """How much must be known of the other model: the bounds of its rate say so by themselves."""
        if not isinstance(value, int) or value < 0:
            raise UnknownWord(f"min_attempts {value!r}")

    CONFIG = {
        "strategy model_switch_strategy": lambda self, value: self.change(
            "models", strategy=ModelSwitchStrategy(value)
        ),
        "failure_threshold": lambda self, value: self.change("models", min_failures=value),
        "min_success_rate_diff": lambda self, value: self.change("models", min_difference=value),
        "preferred_models": lambda self, value: self.change("models", preferred_models=tuple(value)),
    }

    # --- operations ---------------------------------------------------------------------------------------------------

    @reads("model key")
    def op_profile(self, event: dict[str, Any]) -> None:
        """Somebody asks for the profile of a model on a key."""
        self.asked = str(event["model"]), str(event["key"])

    @reads("turns stalled nudges effective")
    def op_behaviour(self, event: dict[str, Any]) -> None:
        """A model has had so many turns, of which some were stalled; or so many nudges, of which some helped."""
        self.world.model = self.world.model or "model"
        for turn in range(int(event.get("turns", 0))):
            self.calls.take({"ev": "turn_start"})
            self.calls.take({"ev": "turn_end", "stalled": turn < event.get("stalled", 0)})
        for number in range(int(event.get("nudges", 0))):
            self.calls.take({"ev": "user_message"})
            self._other_call()
            for again in range(1 if number < event.get("effective", 0) else 2):
                sight(self.world, self.rules, Pattern.REPETITIVE_CALLS, 1, f"loop {number}", 3 + again)
            for _ in range(self.rules.nudges.effective_within_calls):
                self._other_call()

    def _other_call(self) -> None:
        """A call that is no part of any pattern."""
        word = nth_word(self.calls.made)
        self.calls.call({"tool": f"other_{word}", "args": {"about": word}, "ok": True, "result": f"something {word}"})

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_profile(self) -> dict[str, Any] | None:
        """What is known of a model on a key, as published."""
        wanted = self.expected.get("profile") or {}
        model, key = self.asked or (wanted.get("model"), wanted.get("key"))
        for told in self.world.published().values():
            if told.get("kind") == "model" and told.get("model") == model and told.get("key") == key:
                return {"failures": 0, "attempts": 0, "success_rate": None, **told}
        return None

    def see_success_rate(self) -> float | None:
        """Its success rate; null where nothing is known."""
        profile = self.see_profile()
        return profile["success_rate"] if profile else None

    def see_attempts(self) -> int:
        """Its calls."""
        profile = self.see_profile()
        return profile["attempts"] if profile else 0

    def see_suggestion(self) -> dict[str, Any] | None:
        """The switch that is suggested."""
        told = self.world.decisions("model_switch.suggested")
        if not told:
            return None
        return {"from": told[-1]["current_model"], "to": told[-1]["suggested_model"], "key": told[-1]["failure_key"]}

    def see_stall_rate(self) -> float:
        """Stalled turns by turns."""
        told = self._behaviour()
        return told.get("stall_rate") or 0.0

    VIEWS = {
        "suggestions suggestions_total": lambda self: len(self.world.decisions("model_switch.suggested")),
        "switched": lambda self: bool(self.world.decisions("model_switch.suggested", strategy="auto")),
        "stalled_turns": lambda self: self._behaviour().get("stalled_turns") or 0,  # stalled turns
        "most_common_pattern": lambda self: self._behaviour().get("most_common_pattern"),
        "nudge_effectiveness": lambda self: self._behaviour().get("nudge_effectiveness"),
        "pattern_counts": lambda self: self._behaviour().get("pattern_counts") or {},  # its patterns
    }

    def _behaviour(self) -> dict[str, Any]:
        """How the model behaves, as published; its turn is over by now."""
        self.world.event("turn.ended")
        found = [
            told
            for told in self.world.published().values()
            if told.get("kind") == "model" and (told.get("turns") is not None or told.get("pattern_counts"))
        ]
        return found[-1] if found else {}
