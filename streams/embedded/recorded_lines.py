"""Lines of recorded files as records: their topic, and an arrival for those whose own time cannot be right.

A file has no record timestamps. Event times are taken as they are, but for a line far ahead of the lines around it, so
that one clock that runs years ahead expires nothing for others (docs/decisions/0023-when-a-line-of-a-file-arrived.md).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, get_args

import msgspec

from ...projections.processor import CLOCK_TOLERANCE_MS, FIRST_MS, LAST_MS
from ...projections.rule_source import TOPIC as SETTINGS
from ...schemas.commands import Command
from ...schemas.events import epoch_ms

UNKNOWN = -1
"""Arrival of a line whose own time is taken as it is."""

AHEAD_MS = 3_600_000
"""How far a line may be ahead of the lines around it: late records of a file are rarely farther apart."""

UNCONFIRMED_MS = 30 * 86_400_000
"""How far the last line of a file, or of a part of it, may be ahead of the line before it: sessions rest for days."""

LOOKED_AHEAD = 4
"""Lines read to judge one that is ahead of what came before it: a call with a wrong clock is a start and a finish."""

MAX_SESSIONS = 4096
"""Sessions whose latest time is remembered; the one unused for longest goes first."""

_COMMANDS = frozenset(kind.__struct_config__.tag for kind in get_args(Command))


class Line(NamedTuple):
    """One line as a record: topic, value, and arrival in milliseconds or `UNKNOWN`."""

    topic: str
    value: bytes
    arrived_ms: int


class _Stamp(msgspec.Struct):
    """What is read of a line: its type, its time and its session."""

    type: str = ""
    time: datetime | None = None
    session_id: str = ""


class _Read(NamedTuple):
    topic: str
    value: bytes
    time: int
    session: str


_decoder = msgspec.json.Decoder(_Stamp)


class Arrivals:
    """Reader of recorded lines, over any number of files in their order. Deterministic: lines alone decide."""

    def __init__(self) -> None:
        """Start before the first line."""
        self._before = 0
        self._sessions: OrderedDict[str, int] = OrderedDict()
        self._waiting: deque[_Read] = deque()

    def of(self, values: Iterable[bytes]) -> Iterator[Line]:
        """Records of lines, in their order; a line that is ahead of all before it waits for a few lines more."""
        waiting = self._waiting
        for value in values:
            waiting.append(_read(value))
            while waiting and self._can_be_judged():
                yield self._next()

    def rest(self) -> Iterator[Line]:
        """The lines that still wait, once there are no more."""
        while self._waiting:
            yield self._next()

    def _can_be_judged(self) -> bool:
        """Whether enough lines are read to judge the first that waits; the very first line waits for one only."""
        more = len(self._waiting) - 1
        return more >= LOOKED_AHEAD or self._is_in_step(self._waiting[0]) or (not self._before and more > 0)

    def _is_in_step(self, line: _Read) -> bool:
        """Whether a line is plausible by what came before it: in the file, or in its own session."""
        latest = max(self._before, self._sessions.get(line.session, 0))
        return not line.time or (latest > 0 and line.time <= latest + AHEAD_MS)

    def _next(self) -> Line:
        line = self._waiting.popleft()
        if not line.time:
            return Line(line.topic, line.value, UNKNOWN)
        if not self._is_in_step(line):
            reference, ahead = self._reference(line)
            if line.time > reference + ahead:
                self._before = self._before or reference
                return Line(line.topic, line.value, self._before - CLOCK_TOLERANCE_MS)
        self._before = line.time
        if line.session:
            self._sessions[line.session] = line.time
            self._sessions.move_to_end(line.session)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return Line(line.topic, line.value, UNKNOWN)

    def _reference(self, line: _Read) -> tuple[int, int]:
        """Time by which a line that is ahead of all before it is judged, and how far it may be ahead of that time.

        Decisive are the lines that follow in its session, else all that follow; lines of an older part are left out.
        """
        following = [one for one in self._waiting if one.time and one.time >= self._before - AHEAD_MS]
        own = [one for one in following if line.session and one.session == line.session]
        if following:
            return min(one.time for one in own or following), AHEAD_MS
        return (self._before, UNCONFIRMED_MS) if self._before else (line.time, 0)


def _read(value: bytes) -> _Read:
    try:
        stamp = _decoder.decode(value)
    except msgspec.DecodeError:
        return _Read("events", value, 0, "")
    topic = "commands" if stamp.type in _COMMANDS else SETTINGS if stamp.type == "settings.changed" else "events"
    time = epoch_ms(stamp.time) if stamp.time is not None and stamp.time.tzinfo is not None else 0
    return _Read(topic, value, time if FIRST_MS <= time < LAST_MS else 0, stamp.session_id)
