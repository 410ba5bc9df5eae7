"""Announcing work and not doing it, across turns (design 3, announce_no_action).

The signal is structural: messages that announce, with no call between them other than looking at the tools. Reads,
plans and refused edits follow an announcement up; whether they lead anywhere is for the other detectors. Phrases only tell an
announcement from other talk; they are lists by language, and the operator may add to them. A question or an offer
("let me know") hands the word to the user and is no announcement.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...schemas.rules import BehaviourRules
from ...schemas.vocabulary import Pattern
from ..emit import MAX_CAUSES
from .patterns import Sighting
from .state import SessionState

MAX_TEXT_CHARS = 1000
"""Announcements stand at the start or the end of a message; the middle of a longer one is skipped."""

PHRASES: dict[str, tuple[str, ...]] = {
    "en": (
        r"i(?:'|’)ll(?! (?:need|be (?:happy|glad)|wait|leave|let you))",
        r"i will(?! (?:need|be (?:happy|glad)|wait|leave|let you))",
        r"i(?:'|’)m (?:now )?(?:going to|about to)",
        r"i am (?:now )?(?:going to|about to)",
        r"let me(?! know)",
        r"let(?:'|’)s (?:now |start|begin|go ahead|proceed|do|run|apply|fix|create|write)",
        r"(?:now )?proceeding(?! (?:would|could|might|requires))",
        r"(?:now |i(?:'|’)m |i am )(?:executing|running|starting|applying|creating|writing|implementing|restoring)",
        r"(?:executing|running|starting|applying|restoring) (?:now|it now|this now|the|immediately)",
        r"(?:going ahead|here i go|on it|doing (?:it|this|that) now|right away)",
    ),
    "de": (r"ich werde(?! warten)", r"lass(?:en sie)? mich(?! wissen)", r"ich (?:fange|beginne|starte) (?:jetzt|nun)", r"jetzt führe ich"),
    "es": (r"voy a", r"procedo a", r"procediendo", r"ahora (?:voy|procedo|ejecuto)", r"déjame(?! saber)"),
    "fr": (r"je vais", r"je procède", r"laissez-moi(?! savoir)", r"je (?:lance|commence) (?:maintenant|tout de suite)"),
    "pt": (r"vou (?:agora )?\w+r\b", r"deixe-me(?! saber)", r"prosseguindo"),
    "it": (r"sto per", r"procedo (?:con|a|ora)", r"ora (?:eseguo|procedo)"),
    "zh": (r"我(?:现在)?(?:将|会|要|来)(?!等)", r"让我(?!知道)", r"(?:现在|马上|立即)(?:开始|执行|进行)"),
    "ja": (r"(?:実行|開始|作成|修正|確認)します", r"これから"),
    "ru": (r"я (?:сейчас )?(?:буду|сделаю|запущу|начну)", r"приступаю", r"сейчас (?:выполню|запущу|сделаю)"),
}  # fmt: skip
"""Phrases that announce work, by language, as regular expressions over lower-case text."""

_OFFER = re.compile(
    r"let me know|would you like|shall i|should i|do you want|if you(?:'|’)d like|please (?:provide|confirm|tell|share|let)"
    r"|could you|can you|möchten sie|soll ich|¿|souhaitez|voulez-vous"
)
_SENTENCE_END = re.compile(r"(?<=[.!?。！？\n])\s*")


@lru_cache(maxsize=16)
def _compiled(own: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(phrase for phrases in PHRASES.values() for phrase in phrases)
    mine = "".join(f"|{re.escape(phrase.lower())}" for phrase in own)
    return re.compile(rf"(?<![\w])(?:{words}{mine})")


@lru_cache(maxsize=1024)
def announces(text: str, own: tuple[str, ...] = ()) -> bool:
    """Whether a message announces work: some sentence does, and the message does not end by asking the user."""
    if len(text) > MAX_TEXT_CHARS:
        text = text[: MAX_TEXT_CHARS // 2] + "\n" + text[-MAX_TEXT_CHARS // 2 :]
    lower = text.lower().strip()
    if not lower or lower.endswith(("?", "？")):
        return False
    pattern = _compiled(own)
    if not pattern.search(lower):
        return False
    return any(
        pattern.search(sentence) and not sentence.rstrip().endswith(("?", "？")) and not _OFFER.search(sentence)
        for sentence in _SENTENCE_END.split(lower)
    )


def announced(state: SessionState, event_id: str, rules: BehaviourRules) -> Sighting | None:
    """The model announced work in one more message, with no call that followed up the last."""
    state.announced += 1
    state.announced_this_turn = True
    state.announce_ids = [*state.announce_ids[1 - MAX_CAUSES :], event_id]
    return _sighting(state, rules)


def silent_turn(state: SessionState, event_id: str, rules: BehaviourRules) -> Sighting | None:
    """A turn ended without an action after announcements that were already a clear stall: it counts as one more."""
    silent = not state.announced_this_turn and state.announced >= rules.announce_no_action.moderate
    state.announced_this_turn = False
    if not silent:
        return None
    state.announced += 1
    state.announce_ids = [*state.announce_ids[1 - MAX_CAUSES :], event_id]
    return _sighting(state, rules)


def _sighting(state: SessionState, rules: BehaviourRules) -> Sighting | None:
    severity = rules.announce_no_action.step(state.announced)
    if not severity:
        return None
    tools = [done.tool_name for done in state.window[-3:]]
    return Sighting(
        Pattern.ANNOUNCE_NO_ACTION, severity, 0, state.announced, tools, state.announce_ids,
        "call the tool that does what was announced",
    )  # fmt: skip


def fulfilled(state: SessionState) -> None:
    """The model did something, or the user spoke: what was announced no longer counts."""
    state.announced = 0
    state.announced_this_turn = False
    state.announce_ids = []
