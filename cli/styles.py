"""Styles of a terminal, by what kind of news a text is."""

from __future__ import annotations

from ..schemas.decision_text import Tone

GOOD, BAD, WARN, QUIET = "green", "bold red", "yellow", "dim"

STYLES: dict[Tone, str] = {Tone.GOOD: GOOD, Tone.BAD: BAD, Tone.WARN: WARN, Tone.QUIET: QUIET}
