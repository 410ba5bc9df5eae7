"""Reads lines of recorded files as records: their topic, and an arrival time for those with an implausible own time.

Files have no record timestamps. Event times are used as they are, except for lines far ahead of their neighbours, so
that one clock that is years ahead expires nothing for others (docs/subsystems/engine.md).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, get_args

import msgspec

from ...projections.processor import CLOCK_TOLERANCE_MS, FIRST_MS, LAST_MS
from ...projections.rule_source import TOPIC as SETTINGS
from ...schemas.codec import UNREADABLE
from ...schemas.commands import Command
from ...schemas.events import epoch_ms

UNKNOWN = -1  # Arrival of a line whose own time is used

# Milliseconds a line may be ahead of its neighbours: late records of a file are rarely farther apart
AHEAD_MS = 3_600_000

# Milliseconds the last line of a file or section may be ahead of the previous line: sessions may pause for days
UNCONFIRMED_MS = 30 * 86_400_000

LOOKED_AHEAD = 4  # Number of lines read ahead to judge one: a call with a wrong clock has two, a start and a finish
MAX_SESSIONS = 4096  # Number of sessions whose latest time is kept; the least recently used is dropped first

_COMMANDS = frozenset(kind.__struct_config__.tag for kind in get_args(Command))


class RecordedLine(NamedTuple):
    """One line as a record: topic, value, and arrival in milliseconds or `UNKNOWN`."""

    topic: str
    value: bytes
    arrived_ms: int


class _LineStamp(msgspec.Struct):
    """Fields that are read of a line: type, time and session."""

    type: str = ""
    time: datetime | None = None
    session_id: str = ""


class _ReadLine(NamedTuple):
    topic: str
    value: bytes
    time: int
    session: str


_decoder = msgspec.json.Decoder(_LineStamp)


class ArrivalOrder:
    """Reader of recorded lines of any number of files in order. Deterministic: depends on the lines alone."""

    def __init__(self) -> None:
        """Create a reader before the first line."""
        self._before = 0
        self._sessions: OrderedDict[str, int] = OrderedDict()
        self._waiting: deque[_ReadLine] = deque()

    def of(self, values: Iterable[bytes]) -> Iterator[RecordedLine]:
        """Yield records of lines in order; a line ahead of all previous ones is delayed by a few lines."""
        waiting = self._waiting
        for value in values:
            waiting.append(_read(value))
            while waiting and self._can_be_judged():
                yield self._next()

    def rest(self) -> Iterator[RecordedLine]:
        """Yield the delayed lines at the end of the input."""
        while self._waiting:
            yield self._next()

    def _can_be_judged(self) -> bool:
        """Whether enough lines are read to judge the first delayed line; the very first line needs only one."""
        more = len(self._waiting) - 1
        return more >= LOOKED_AHEAD or self._is_in_step(self._waiting[0]) or (not self._before and more > 0)

    def _is_in_step(self, line: _ReadLine) -> bool:
        """Whether a line is plausible by the previous lines of the file or of its session."""
        latest = max(self._before, self._sessions.get(line.session, 0))
        return not line.time or (latest > 0 and line.time <= latest + AHEAD_MS)

    def _next(self) -> RecordedLine:
        line = self._waiting.popleft()
        if not line.time:
            return RecordedLine(line.topic, line.value, UNKNOWN)
        if not self._is_in_step(line):
            reference, ahead = self._reference(line)
            if line.time > reference + ahead:
                self._before = self._before or reference
                return RecordedLine(line.topic, line.value, self._before - CLOCK_TOLERANCE_MS)
        self._before = line.time
        if line.session:
            self._sessions[line.session] = line.time
            self._sessions.move_to_end(line.session)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return RecordedLine(line.topic, line.value, UNKNOWN)

    def _reference(self, line: _ReadLine) -> tuple[int, int]:
        """Return the time that a line ahead of all previous ones is compared with, and how far it may be ahead of it.

        Uses the following lines of its session, else all following lines; lines of an older section are ignored.
        """
        following = [one for one in self._waiting if one.time and one.time >= self._before - AHEAD_MS]
        own = [one for one in following if line.session and one.session == line.session]
        if following:
            return min(one.time for one in own or following), AHEAD_MS
        return (self._before, UNCONFIRMED_MS) if self._before else (line.time, 0)


def _read(value: bytes) -> _ReadLine:
    try:
        stamp = _decoder.decode(value)
    except UNREADABLE:
        return _ReadLine("events", value, 0, "")
    topic = "commands" if stamp.type in _COMMANDS else SETTINGS if stamp.type == "settings.changed" else "events"
    time = epoch_ms(stamp.time) if stamp.time is not None and stamp.time.tzinfo is not None else 0
    return _ReadLine(topic, value, time if FIRST_MS <= time < LAST_MS else 0, stamp.session_id)
