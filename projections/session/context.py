"""What the fold of one event works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...rules.rules import Rules
from ...schemas.vocabulary import Pattern
from ..emitter import Emitter
from .records import SessionRecord


class Sighting(NamedTuple):
    """A detector saw its pattern at some severity (1 minor to 3 severe), now.

    Attributes:
        fingerprint: what repeats; 0 for patterns without one. With the pattern it names the streak.
        repetitions: how often so far.
        tools: tools of the repetition, oldest first.
        event_ids: evidence, newest last.
        expected_action: what the model should do instead, if the pattern knows.
        required_tool: the tool that it should call, if the pattern knows.
        since_ms: when the first of the repetitions began, milliseconds; 0: with the event that shows it.
        variant: names the nudge texts among the detector's `variants`; empty: its own `texts`.
        agent_id: of which agent; None: of the one that acts.
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
    """What the fold of one event works on; `emit` knows its id (`cause`) and its time (`at`, milliseconds).

    Attributes:
        sightings: what the detectors have seen and nobody has been told yet; detectors append to it.
    """

    state: SessionRecord
    session_id: str
    rules: Rules
    emit: Emitter
    sightings: list[Sighting] = []
