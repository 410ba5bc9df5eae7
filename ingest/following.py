"""Incremental reading of session logs that are still written: takes bytes, yields events.

The start of a call is held back until the call has ended: its user may take an hour to answer a question, or end the
agent without an answer, and neither is a timeout of the tool. Other events are yielded at once. The same bytes give
the same events in the same order, regardless of how they are split.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from .agents.claude_code import ClaudeCodeLog
from .agents.codex import CodexLog
from .agents.copilot import CopilotLog
from .agents.droid import DroidLog
from .agents.gemini import GeminiLog
from .agents.pi import PiLog
from .agents.qwen import QwenLog
from .base import ImportRun, LogDefaults, LogReader, attempted
from .reading import NumberedObject, parse, recognised

LOOKED_AT = 400  # Lines kept to detect the format; a file not recognised by then is skipped
MAX_LINE_BYTES = 64 * 1024 * 1024  # Maximum length of a line in bytes; longer lines are skipped


# Formats that can be followed: their lines are final when written, and they name sessions and times
LOGS: dict[str, Callable[[LogDefaults], LogReader]] = {
    "claude-code": ClaudeCodeLog,
    "codex": CodexLog,
    "gemini": GeminiLog,
    "qwen": QwenLog,
    "copilot": CopilotLog,
    "droid": DroidLog,
    "pi": PiLog,
}


class LogMarks(set[str]):
    """Marks of one log among those of all logs of a run, so that repeated records count once."""

    def __init__(self, everywhere: set[str]) -> None:
        """Start without marks."""
        super().__init__()
        self._everywhere = everywhere

    def __contains__(self, mark: object) -> bool:
        """True if any log has the mark."""
        return mark in self._everywhere

    def add(self, mark: str) -> None:
        """Add a mark."""
        super().add(mark)
        self._everywhere.add(mark)

    def forget(self) -> None:
        """Remove all marks of this log, so that it can be read again."""
        self._everywhere.difference_update(self)
        self.clear()


class GrowingLog:
    """Incremental reader of one log."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first byte."""
        self.taken = 0  # bytes of the whole lines taken so far
        self._defaults = defaults
        self._rest = b""
        self._log: LogReader | None = None
        self._unknown: list[NumberedObject] | None = []
        self._held: dict[tuple[str, str], list[bytes]] = {}
        self._lines = 0

    @property
    def is_none(self) -> bool:
        """True if the file was found not to be a log of a known agent."""
        return self._log is None and self._unknown is None

    def take(self, data: bytes) -> list[bytes]:
        """Add bytes; returns the events of the lines completed by them."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        made: list[bytes] = []
        for line in lines:
            self.taken += len(line) + 1
            self._lines += 1
            made += self._line(line)
        if len(self._rest) > MAX_LINE_BYTES:
            self.taken += len(self._rest)
            self._rest = b""
        return made

    def _line(self, line: bytes) -> list[bytes]:
        self._defaults.run.line = self._lines
        text = line.strip(b" \t\r\x00")
        if not text or self.is_none:
            return []
        try:
            record = parse(text)
        except ValueError as fault:
            self._defaults.skip(f"not JSON ({fault})")
            return []
        if not isinstance(record, dict):
            return []
        if self._unknown is None:
            return self._read(NumberedObject(self._lines, record))
        self._unknown.append(NumberedObject(self._lines, record))
        made = LOGS.get(recognised(self._unknown[-1:]))
        if made is not None:
            self._log, waiting, self._unknown = made(self._defaults), self._unknown, None
            return [event for one in waiting for event in self._read(one)]
        if len(self._unknown) >= LOOKED_AT:
            self._unknown = None
        return []

    def _read(self, one: NumberedObject) -> list[bytes]:
        assert self._log is not None  # noqa: S101 - made before
        self._defaults.run.line = one.line
        return [
            passed
            for event in attempted(one.value, self._log.line, self._defaults)
            for passed in self._held_back(event)
        ]

    def _held_back(self, event: bytes) -> list[bytes]:
        """Events to yield for an event: none for a start; for a finish, its start and itself."""
        if b'"type":"tool_call.' not in event:
            return [event]
        known = orjson.loads(event)
        place = known["session_id"], known["call_id"]
        if known["type"] == "tool_call.started":
            self._held.setdefault(place, []).append(event)
            return []
        starts = self._held.pop(place, [])
        return [*starts, event]


def growing(defaults: LogDefaults, everywhere: set[str]) -> tuple[GrowingLog, LogMarks]:
    """Create a reader for a log followed together with others, and its marks."""
    marks = LogMarks(everywhere)
    run = ImportRun(defaults.run.skipped, defaults.run.redact, defaults.run.secrets_in, marks, grows=True)
    return GrowingLog(LogDefaults(defaults.session, defaults.workspace, defaults.source, defaults.file, run)), marks
