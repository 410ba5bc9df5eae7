"""Importers: convert existing logs into events, so that the time before trustfold can be analysed.

Each importer reads one format and yields events in the wire format, in time order within a session. Ids derive from
the log, so importing it again gives the same events and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .agents.claude_code import ClaudeCodeLog
from .agents.codex import CodexLog
from .agents.copilot import CopilotLog
from .agents.cursor import CursorLog
from .agents.droid import DroidLog
from .agents.gemini import GeminiLog
from .agents.kiro import KiroLog
from .agents.opencode import OpenCodeLog
from .agents.pi import PiLog
from .agents.qwen import QwenLog
from .base import ImportRun, LogDefaults, importer
from .openai import OpenAiLog
from .otel import read_otel
from .reading import InOrderOfTime, Lines, SkippedLines, objects_of, recognised

Importer = Callable[[Lines, LogDefaults], Iterator[bytes]]

# Importers by their name on the command line
IMPORTERS: dict[str, Importer] = {
    "openai": importer(OpenAiLog),
    "otel": read_otel,
    "claude-code": importer(ClaudeCodeLog),
    "codex": importer(CodexLog),
    "gemini": importer(GeminiLog),
    "qwen": importer(QwenLog),
    "copilot": importer(CopilotLog),
    "cursor": importer(CursorLog),
    "droid": importer(DroidLog),
    "kiro": importer(KiroLog),
    "opencode": importer(OpenCodeLog),
    "pi": importer(PiLog),
}

__all__ = [
    "IMPORTERS",
    "ImportRun",
    "Importer",
    "InOrderOfTime",
    "Lines",
    "LogDefaults",
    "SkippedLines",
    "objects_of",
    "recognised",
]
