"""What is remembered of models per tool. Bounded; fields are only ever appended."""

from __future__ import annotations

import msgspec

MAX_KEYS = 32
"""Failure keys of one tool with profiles of their own; the calls of further ones count for the tool as a whole."""

MAX_MODELS = 16
"""Models remembered per key; a further one takes the place of the one unused for longest."""

MAX_SUGGESTIONS = 128
"""Suggestions remembered per tool, so that a session hears of a key once."""

MAX_EVIDENCE = 5
"""Events remembered per profile that count against the model."""

FIRST_TOLD = 8
"""Calls after which a profile without failures is published first; then whenever the calls have doubled."""

FAILURES_TOLD = 8
"""Of its failures each of the first is published; later ones when they are an eighth more than published last."""


class ModelProfile(msgspec.Struct, array_like=True):
    """One model on one failure key.

    Attributes:
        attempts: calls that succeeded or failed.
        failures: of these, the failed ones, whoever is to blame.
        own: of the failed ones, those of the model's own making.
        patterns: times it went round in circles.
        last_at: time (ms) of its last call.
        last_failed: time (ms) of its last failure; 0 never.
        tell_at: attempts at which a follower is told next, if nothing fails before.
        evidence: ids of the latest events that count against the model, newest last.
        bad_at: failures and patterns at which a follower is told next.
    """

    attempts: int = 0
    failures: int = 0
    own: int = 0
    patterns: int = 0
    last_at: int = 0
    last_failed: int = 0
    tell_at: int = FIRST_TOLD
    evidence: list[str] = []
    bad_at: int = 0
