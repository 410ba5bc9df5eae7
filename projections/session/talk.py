"""What a message of the model says to the detectors: announcement, tools named, monologue, chanting.

See docs/detection.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ...rules.rules import BehaviourRules
from ...schemas.events import ModelText
from ...schemas.vocabulary import Pattern
from ..emit import MAX_CAUSES
from . import announcements, avoidance
from .patterns import Sighting
from .state import SessionState
from .text_loop import text_loop


def heard(state: SessionState, event: ModelText, at: int, rules: BehaviourRules) -> list[Sighting]:
    """Everything that one more message shows. A thought can chant, but it is no message to anybody."""
    seen: list[Sighting | None] = []
    if not event.thought:
        sentences: Iterator[str] = announcements.announcing(event.text or "", rules.announce_phrases)
        says = event.announces
        if says is None:
            first = next(sentences, None)
            says = first is not None
            sentences = chain((first,), sentences) if first is not None else sentences
        seen.append(announcements.heard(state, event, at, rules, says=says))
        if says or (event.mentions and event.text is None and event.announces is None):
            seen += avoidance.named(state, event, at, sentences, rules)
        seen.append(monologue(state, event.id, at, rules))
    seen.append(text_loop(state, event, at, rules))
    return [sighting for sighting in seen if sighting is not None]


def monologue(state: SessionState, event_id: str, at: int, rules: BehaviourRules) -> Sighting | None:
    """Messages without a call or a user message between them."""
    if not state.spoken:
        state.spoken_since = at
    state.spoken += 1
    state.spoken_ids = [*state.spoken_ids[1 - MAX_CAUSES :], event_id]
    severity = rules.monologue.step(state.spoken)
    if not severity:
        return None
    return Sighting(
        Pattern.MONOLOGUE, severity, 0, state.spoken, (), state.spoken_ids, "call a tool, or hand over to the user",
        since_ms=state.spoken_since,
    )  # fmt: skip


def interrupted(state: SessionState) -> None:
    """A call, or the user, ends a monologue."""
    state.spoken = 0
    state.spoken_ids = []
