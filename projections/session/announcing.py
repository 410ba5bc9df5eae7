"""Phrases, by language, that show that a message announces work or hands over to the user.

Phrases only add to the structural signal, which works in any language (detectors/announce_no_action.py). The operator
may add phrases. A question or an offer ("let me know") hands over to the user and is not an announcement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from ..calls.word_search import WordSearch

# Characters searched for announcements: the first and the last half; the middle of a longer message is skipped
MAX_TEXT_CHARS = 1000

MAX_END_CHARS = 200  # Number of last characters that are read to decide whether a message hands over to the user

_UNLESS_WAITING = r"(?! (?:need|be (?:happy|glad)|wait|leave|let you))"
_DOING_NOW = r"(?:(?:now |i'm |i am ){0}|{0} (?:now|it now|this now|the|immediately))"

# Announcing phrases by language: a literal part of the phrase → regular expression over lower-case text
PHRASES: dict[str, dict[str, str]] = {
    "en": {
        "i'll": rf"i'll{_UNLESS_WAITING}",
        "let me": r"let me(?! know)",
        "i will": rf"i will{_UNLESS_WAITING}",
        "going to": r"(?:i'm|i am) (?:now )?going to",
        "about to": r"(?:i'm|i am) (?:now )?about to",
        "let's": r"let's (?:now |start|begin|go ahead|proceed|do|run|apply|fix|create|write)",
        "proceeding": r"proceeding(?! (?:would|could|might|requires))",
        "executing": _DOING_NOW.format("executing"),
        "running": _DOING_NOW.format("running"),
        "starting": _DOING_NOW.format("starting"),
        "applying": _DOING_NOW.format("applying"),
        "restoring": _DOING_NOW.format("restoring"),
        "creating": r"(?:now |i'm |i am )creating",
        "writing": r"(?:now |i'm |i am )writing",
        "implementing": r"(?:now |i'm |i am )implementing",
        "going ahead": "going ahead",
        "here i go": "here i go",
        "on it": "on it",
        "doing ": r"doing (?:it|this|that) now",
        "right away": "right away",
    },
    "de": {
        "ich werde": r"ich werde(?! warten)",
        "lass": r"lass(?:en sie)? mich(?! wissen)",
        "ich fange": r"ich fange (?:jetzt|nun)",
        "ich beginne": r"ich beginne (?:jetzt|nun)",
        "ich starte": r"ich starte (?:jetzt|nun)",
        "jetzt führe ich": "jetzt führe ich",
    },
    "es": {
        "voy a": "voy a",
        "procedo a": "procedo a",
        "procediendo": "procediendo",
        "ahora ": r"ahora (?:voy|procedo|ejecuto)",
        "déjame": r"déjame(?! saber)",
    },
    "fr": {
        "je vais": "je vais",
        "je procède": "je procède",
        "laissez-moi": r"laissez-moi(?! savoir)",
        "je lance": r"je lance (?:maintenant|tout de suite)",
        "je commence": r"je commence (?:maintenant|tout de suite)",
    },
    "pt": {"vou ": r"vou (?:agora )?\w+r\b", "deixe-me": r"deixe-me(?! saber)", "prosseguindo": "prosseguindo"},
    "it": {"sto per": "sto per", "procedo ": r"procedo (?:con|a|ora)", "ora ": r"ora (?:eseguo|procedo)"},
    "zh": {
        "我": r"我(?:现在)?(?:将|会|要|来)(?!等)",
        "让我": r"让我(?!知道)",
        "现在": r"现在(?:开始|执行|进行)",
        "马上": r"马上(?:开始|执行|进行)",
        "立即": r"立即(?:开始|执行|进行)",
    },
    "ja": {"します": r"(?:実行|開始|作成|修正|確認)します", "これから": "これから"},
    "ru": {
        "я ": r"я (?:сейчас )?(?:буду|сделаю|запущу|начну)",
        "приступаю": "приступаю",
        "сейчас ": r"сейчас (?:выполню|запущу|сделаю)",
    },
}

# Offers to the user
_OFFERS = WordSearch(
    (
        "would you like", "do you want", "if you'd like", "could you", "can you",
        "i'll need", "i'll wait", "i'll be happy", "i'll be glad", "i'll leave",
        "i will need", "i will wait", "i will be happy", "i will be glad", "i will leave",
        "please provide", "please confirm", "please tell", "please share", "please let",
        "let me know", "shall i", "should i",
        "möchten sie", "soll ich", "sag bescheid", "sagen sie", "lassen sie es mich wissen",
        "¿", "avísame", "dime si", "souhaitez", "voulez-vous", "dites-moi", "fammi sapere",
        "me avise", "дайте знать", "сообщите", "请告诉我", "告诉我", "お知らせください",
    )
)  # fmt: skip

_SENTENCE_END = re.compile(r"[.!?。！？\n]")
_ENDS = ".!?\n"
_MORE_ENDS = "。！？"
_QUESTION = ("?", "？")
_QUESTIONS = (*_QUESTION, "؟", "\u037e", "՞", "፧", "⁇", "‽")
_GREEK = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]")  # A Greek letter; a semicolon after it is a question mark
_TRAILING = " \t\r\n*_`~'\"”“»«’)]}」』\uff09】"  # Characters ignored after the punctuation mark that ends a message
_LONGEST_START = 16  # Upper bound of the number of characters of a phrase before its literal part
_Phrase = tuple[str, re.Pattern[str]]


@lru_cache(maxsize=16)
def _phrases(own: tuple[str, ...]) -> tuple[_Phrase, ...]:
    """Literal parts and expressions of all phrases, the most common first."""
    known = [known for phrases in PHRASES.values() for known in phrases.items()]
    known += [(phrase.lower(), re.escape(phrase.lower())) for phrase in own if phrase]
    return tuple((needle, re.compile(rf"(?<!\w){pattern}")) for needle, pattern in known)


@lru_cache(maxsize=16)
def _literal_parts(own: tuple[str, ...]) -> WordSearch:
    """Search for the literal parts of all phrases: most texts contain none or one of them."""
    return WordSearch(needle for needle, _ in _phrases(own))


def announces(text: str, own: tuple[str, ...] = ()) -> bool:
    """Whether a message announces work: a sentence of it does, and it does not end with a question."""
    return next(announcing(text, own), None) is not None


def announcing(text: str, own: tuple[str, ...] = ()) -> Iterator[str]:
    """Sentences that announce work, in lower case; may contain duplicates."""
    if len(text) > MAX_TEXT_CHARS:
        text = text[: MAX_TEXT_CHARS // 2] + "\n" + text[-MAX_TEXT_CHARS // 2 :]
    lower = text.lower().strip().replace("’", "'")
    if not lower or lower.endswith(_QUESTION):
        return
    for place in _literal_parts(own).places_of(lower):
        needle, phrase = _phrases(own)[place]
        for found in phrase.finditer(lower, max(0, lower.find(needle) - _LONGEST_START)):
            sentence = _sentence_at(lower, found.start(), found.end())
            if not sentence.endswith(_QUESTION) and not _OFFERS.finds_any(sentence):
                yield sentence


def _sentence_at(text: str, start: int, end: int) -> str:
    """Sentence around a phrase, with its final punctuation mark."""
    first = 0
    for mark in _ENDS if text.isascii() else _ENDS + _MORE_ENDS:
        first = text.rfind(mark, first, start) + 1 or first
    last = _SENTENCE_END.search(text, end)
    return text[first : last.end() if last else len(text)].rstrip()


def awaits_user(text: str) -> bool:
    """Whether a message hands over to the user: it is empty, or ends with a question in any script or an offer."""
    end = text[-MAX_END_CHARS:].lower().rstrip(_TRAILING).replace("’", "'")
    if not end or end.endswith(_QUESTIONS) or (end[-1] == ";" and _GREEK.match(end[-2:])):
        return True
    return _OFFERS.finds_any(end) and _OFFERS.finds_any(_sentence_at(end, len(end) - 1, len(end) - 1))
