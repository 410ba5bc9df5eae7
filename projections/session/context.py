"""Context of the fold of one event: state, rules, outputs and sightings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...rules.rules import Rules
from ...schemas.vocabulary import Pattern
from ..emitter import Emitter
from .records import SessionRecord


class Sighting(NamedTuple):
    """A detector's report of its pattern in the current event, with a severity from 1 minor to 3 severe.

    Attributes:
        fingerprint: identifies what repeats; 0 for patterns without one. Pattern and fingerprint identify the streak.
        repetitions: number of repetitions so far.
        tools: tools of the repetition, oldest first.
        event_ids: evidence, newest last.
        expected_action: action that the model should take instead; empty if unknown.
        required_tool: tool that the model should call; empty if unknown.
        since_ms: start of the first repetition, milliseconds; 0: time of the current event.
        variant: key of the nudge texts in the detector's `variants`; empty: its own `texts`.
        agent_id: agent that shows the pattern; None: the current agent.
    """

    pattern: Pattern
    severity: int
    fingerprint: int
    repetitions: int
    tools: Sequence[str]
    event_ids: Sequence[str]
    expected_action: str = ""
    required_tool: str = ""
    since_ms: int = 0
    variant: str = ""
    agent_id: str | None = None


class Context(msgspec.Struct, gc=False):
    """Context of the fold of one event; `emit` holds its id (`cause`) and its time (`at`, milliseconds).

    Attributes:
        sightings: sightings that detectors have appended and that have not been emitted yet.
    """

    state: SessionRecord
    session_id: str
    rules: Rules
    emit: Emitter
    sightings: list[Sighting] = []
