"""Logs that people already have, as events: so that an analyst can begin with what happened before trustfold.

Each importer reads one format and yields events in the wire format, each session's in order of time. Ids derive from
the log, so importing it again gives the same events and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .base import Defaults, Run
from .claude_code import read_claude_code
from .codex import read_codex
from .formats import recognised
from .gemini import read_gemini
from .openai import read_openai
from .ordering import InOrderOfTime
from .otel import read_otel
from .reading import Lines, Skipped, objects_of

Importer = Callable[[Lines, Defaults], Iterator[bytes]]

IMPORTERS: dict[str, Importer] = {
    "openai": read_openai,
    "otel": read_otel,
    "claude-code": read_claude_code,
    "codex": read_codex,
    "gemini": read_gemini,
}
"""By the name on the command line."""

__all__ = [
    "IMPORTERS",
    "Defaults",
    "Importer",
    "InOrderOfTime",
    "Lines",
    "Run",
    "Skipped",
    "objects_of",
    "recognised",
]
