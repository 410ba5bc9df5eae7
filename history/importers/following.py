"""Session logs that are still written: whole lines in as they come, events out.

A call becomes events when it has ended: its start is held until then, for its user may think about it for an hour, or
end the agent without an answer, and neither is a timeout of the tool. All else is passed on at once. The same bytes
give the same events in the same order, however they are cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import orjson

from .base import Defaults, Run, attempted
from .claude_code import ClaudeCodeLog
from .codex import CodexLog
from .formats import recognised
from .gemini import GeminiLog
from .reading import Numbered, parse

LOOKED_AT = 400
"""Lines kept to recognise whose log it is; a file that is none by then is passed over."""


MAX_LINE_BYTES = 64 * 1024 * 1024
"""A line that is longer is passed over, piece by piece."""


class Log(Protocol):
    """Reads the lines of one log, each as an object."""

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""


LOGS: dict[str, Callable[[Defaults], Log]] = {
    "claude-code": ClaudeCodeLog,
    "codex": CodexLog,
    "gemini": GeminiLog,
}
"""Formats that can be followed: a line of them is written once it is final, and says what went before it."""


class Marks(set[str]):
    """Marks of one log among those of all logs of a run: what another one has said already counts once."""

    def __init__(self, everywhere: set[str]) -> None:
        """Begin without marks of its own."""
        super().__init__()
        self._everywhere = everywhere

    def __contains__(self, mark: object) -> bool:
        """Whether any log has made the mark."""
        return mark in self._everywhere

    def add(self, mark: str) -> None:
        """Make a mark."""
        super().add(mark)
        self._everywhere.add(mark)

    def forget(self) -> None:
        """Take back every mark of this log, so that it can be read anew."""
        self._everywhere.difference_update(self)
        self.clear()


class Growing:
    """One log as it grows.

    Attributes:
        taken: bytes of the whole lines taken so far.
    """

    def __init__(self, defaults: Defaults) -> None:
        """Begin before the first byte."""
        self.taken = 0
        self._defaults = defaults
        self._rest = b""
        self._log: Log | None = None
        self._unknown: list[Numbered] | None = []
        self._held: dict[tuple[str, str], list[bytes]] = {}
        self._lines = 0

    @property
    def is_none(self) -> bool:
        """Whether it has turned out to be no log of a known agent."""
        return self._log is None and self._unknown is None

    def take(self, data: bytes) -> list[bytes]:
        """Take further bytes; returns the events that follow from lines that are whole by now."""
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
            self._defaults.skip(f"no JSON ({fault})")
            return []
        if not isinstance(record, dict):
            return []
        if self._unknown is None:
            return self._read(Numbered(self._lines, record))
        self._unknown.append(Numbered(self._lines, record))
        made = LOGS.get(recognised(self._unknown[-1:]))
        if made is not None:
            self._log, waiting, self._unknown = made(self._defaults), self._unknown, None
            return [event for one in waiting for event in self._read(one)]
        if len(self._unknown) >= LOOKED_AT:
            self._unknown = None
        return []

    def _read(self, one: Numbered) -> list[bytes]:
        assert self._log is not None  # noqa: S101 - made before
        self._defaults.run.line = one.line
        return [
            passed
            for event in attempted(one.value, self._log.line, self._defaults)
            for passed in self._held_back(event)
        ]

    def _held_back(self, event: bytes) -> list[bytes]:
        """What is passed on for an event: nothing for a start; for an end its start, too."""
        if b'"type":"tool_call.' not in event:
            return [event]
        known = orjson.loads(event)
        place = known["session_id"], known["call_id"]
        if known["type"] == "tool_call.started":
            self._held.setdefault(place, []).append(event)
            return []
        starts = self._held.pop(place, [])
        return [*starts, event]


def growing(defaults: Defaults, everywhere: set[str]) -> tuple[Growing, Marks]:
    """A log to be followed beside others, and its marks."""
    marks = Marks(everywhere)
    run = Run(defaults.run.skipped, defaults.run.redact, defaults.run.secrets_in, marks)
    return Growing(Defaults(defaults.session, defaults.workspace, defaults.source, defaults.file, run)), marks
