"""Shared parts of the importers: defaults for a log, and a writer of one session's events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from ..schemas.codec import rfc3339
from ..schemas.envelope import output_id
from ..schemas.fields import MAX_SPAN_MS
from .reading import Lines, NumberedObject, SkippedLines, objects_of
from .results import GOOD, INTERRUPTED, UNRECORDED, StatedEnding
from .values import bounded, bounded_arguments, name_of, shortened

R = TypeVar("R")
T = TypeVar("T")

STEP_MS = 1000  # Time in milliseconds between two events of a log without times
BETWEEN_MS = 3_600_000  # Time between two sessions without times: longer than the folds' windows for a tool's failures
SYNTHETIC_START_MS = 1_577_836_800_000  # 2020-01-01: start of the first session without times; the same at every import
_SYNTHETIC_END_MS = 4_000_000_000_000  # 2096: after this the clock restarts at the beginning


@dataclass
class ImportRun:
    """One import of one or many logs: state shared by the logs."""

    skipped: SkippedLines = field(default_factory=SkippedLines)  # skipped lines and objects
    # function that removes secrets, known ones too, from a value; by default it removes nothing
    redact: Callable[[Any, Sequence[str]], Any] = lambda value, _known: value
    # function that returns the secrets in a call's arguments, to be removed from its result
    secrets_in: Callable[[Any], list[str]] = lambda _value: []
    seen: set[str] = field(default_factory=set)  # marks of lines and calls already imported
    clock: int = SYNTHETIC_START_MS  # when the next session without times begins, in milliseconds
    line: int = 0  # line being read, from 1; 0 for formats without lines
    grows: bool = False  # the logs are still written: the end of what has been read says nothing

    def first(self, mark: str) -> bool:
        """True if a mark is seen for the first time in this import."""
        if mark in self.seen:
            return False
        self.seen.add(mark)
        return True


@dataclass(frozen=True)
class LogDefaults:
    """Values for a log that do not come from the log."""

    session: str = ""  # session id; empty: from the log, else `source`
    workspace: str = ""  # workspace id; empty: from the log, or none
    source: str = "import"  # name of the log, for sessions without an id of their own
    file: str = ""  # name of the log for people; empty: `source`
    run: ImportRun = field(default_factory=ImportRun)  # import that the log belongs to

    def skip(self, reason: str) -> None:
        """Note that something on the current line is skipped."""
        self.run.skipped.add(self.file or self.source, self.run.line, reason)


class _StartedCall(NamedTuple):
    """Started call: its number in the session, id and tool as written, its time, secrets in its arguments."""

    number: int
    call_id: str
    tool: str
    began: int | None
    secrets: Sequence[str]


class SessionWriter:
    """Writes the events of one session.

    Ids of events are derived from the session and the position in the log, so a log that has grown yields the same
    ids again. Times never decrease: a log is in the order of events.
    """

    def __init__(
        self,
        session_id: str,
        defaults: LogDefaults,
        workspace: str = "",
        *,
        at_ms: int = -1,
        ends_turns: bool = False,
    ) -> None:
        """Write events of a session.

        `at_ms` is its start time, if its first event has no time. `ends_turns`: a turn whose end the log leaves out
        ended with its last event, as the next prompt or the end of the log shows.
        """
        self.id = name_of(session_id) or "session"
        self.workspace = name_of(defaults.workspace or workspace)  # workspace id, or empty
        self.model = ""
        self.agent = ""  # agent id, or empty
        self.turn = -1  # turn of the session, -1 before the first
        self.at_ms = at_ms  # time of the last event, -1 before the first
        self._place = ""
        self._defaults = defaults
        self._run = defaults.run
        self._without_times = False
        self._made: Counter[str] = Counter()
        self._calls = 0
        self._open: dict[str, list[_StartedCall]] = {}
        self._given_up: set[str] = set()
        self._turn_open = False
        self._turn_place = ""
        self._rests = False
        self._ends_turns = ends_turns and not self._run.grows

    def at(self, place: str) -> None:
        """Set the position in the log of the next events; it must be unique within the session."""
        self._place = place
        self._made.clear()

    def event(self, kind: str, at_ms: int | None = None, *, place: str = "", **fields: Any) -> bytes:
        """Create an event; without a time, a second after the previous one. `place`: if not the current position."""
        if at_ms is None and self.at_ms < 0:
            self._without_times = True
            at_ms = self._run.clock
        self.at_ms = max(self.at_ms, at_ms if at_ms is not None else self.at_ms + STEP_MS)
        if self._without_times:
            later = self.at_ms + BETWEEN_MS
            self._run.clock = max(self._run.clock, later) if later < _SYNTHETIC_END_MS else SYNTHETIC_START_MS
        self._made[kind] += not place
        body = {
            "schema_version": "1.0",
            "id": output_id(f"{self.id}\x1f{place or self._place}\x1f{0 if place else self._made[kind]}", kind, 0),
            "type": kind,
            "time": rfc3339(self.at_ms),
            "session_id": self.id,
            "workspace_id": self.workspace or None,
            "agent_id": name_of(self.agent) or None,
            "model": name_of(self.model) or None,
            "turn_index": self.turn if self.turn >= 0 else None,
        }
        return orjson.dumps({name: value for name, value in (body | fields).items() if value is not None})

    def begun(self, at_ms: int | None = None) -> Iterator[bytes]:
        """Start the session, unless another log of this import has."""
        if self._run.first(f"session\x1f{self.id}"):
            yield self.event("session.started", at_ms, place="begin")
        elif at_ms is not None:
            self.at_ms = max(self.at_ms, at_ms)

    def said_by_user(self, at_ms: int | None = None, *, words: int | None = None) -> Iterator[bytes]:
        """Add a user message, which starts a turn; open calls are closed as abandoned."""
        yield from self.closed()
        self.turn += 1
        yield self.event("user.message", at_ms, words=words)
        yield self._turn_begun()

    def said_within_turn(self, at_ms: int | None = None, *, words: int | None = None) -> Iterator[bytes]:
        """Add a user message that the model gets while it works."""
        self._rests = False
        yield self.event("user.message", at_ms, words=words)

    def received(self, source: str, at_ms: int | None = None, *, wakes: bool = False) -> Iterator[bytes]:
        """Add an input that is not the user's; one that wakes a resting model starts a turn."""
        wakes = wakes and (self.rests or not (self._open or self._turn_open))
        if wakes:
            yield from self.closed()
            self.turn += 1
        yield self.event("input.received", at_ms, source=source)
        if wakes:
            yield self._turn_begun()

    def resumed(self, at_ms: int | None = None) -> Iterator[bytes]:
        """Start a turn if the model goes on after the end of one."""
        if self.turn >= 0 and not self._turn_open:
            self.turn += 1
            yield self._turn_begun(at_ms)

    def compacted(self, at_ms: int | None = None) -> Iterator[bytes]:
        """Add a shortening of the model's context."""
        yield self.event("context.compacted", at_ms)

    def turn_over(self, at_ms: int | None = None) -> Iterator[bytes]:
        """End the model's turn; open calls are closed as abandoned."""
        yield from self.interrupted()
        if self._turn_open:
            self._turn_open = False
            yield self.event("turn.ended", at_ms)

    def stopped(self, at_ms: int | None = None) -> Iterator[bytes]:
        """End the model's turn by a record that the client wrote after it, perhaps much later."""
        yield from self.turn_over(self.at_ms if self._rests else at_ms)

    def closed(self) -> Iterator[bytes]:
        """Close what is open at the time of the last event: the log ends, or goes on with another turn."""
        yield from self.interrupted()
        if self._turn_open and self._ends_turns:
            yield self.event("turn.ended", max(self.at_ms, 0), place=f"over {self._turn_place}")
        self._turn_open = False

    def _turn_begun(self, at_ms: int | None = None) -> bytes:
        self._turn_open, self._rests, self._turn_place = True, False, self._place
        return self.event("turn.started", self.at_ms if at_ms is None else at_ms)

    def said_by_model(self, text: str, at_ms: int | None = None, *, thought: bool = False) -> Iterator[bytes]:
        """Add a message or a thought of the model, unless it is empty."""
        if text.strip():
            self._rests = not thought
            said = shortened(str(self._run.redact(text, ())))
            yield self.event("model.text", at_ms, text=said, thought=thought or None)

    def started(
        self, call_id: Any, tool: Any, arguments: dict[str, Any], at_ms: int | None = None, **fields: Any
    ) -> bytes:
        """Start a call; a call without an id, or with one in use, gets a new id."""
        key, name = name_of(call_id), name_of(tool) or "unknown"
        self._rests = False
        self._calls += 1
        twins = self._open.setdefault(key, [])
        made = f"{key[:240]}#{self._calls}" if twins else key
        call = _StartedCall(
            self._calls, made if key else f"call-{self._calls}", name, at_ms, self._run.secrets_in(arguments)
        )
        twins.append(call)
        args = bounded_arguments(self._run.redact(arguments, call.secrets))
        return self.event("tool_call.started", at_ms, call_id=call.call_id, tool_name=name, args=args, **fields)

    def finished(
        self,
        call_id: Any,
        result: Any,
        at_ms: int | None = None,
        *,
        tool: str = "",
        ending: StatedEnding = GOOD,
        duration_ms: float | None = None,
        **fields: Any,
    ) -> Iterator[bytes]:
        """Finish a call; a call without a start in the log yields an event only if its tool is known."""
        key = name_of(call_id)
        call = self._taken(key, tool)
        if call is None:
            if key in self._given_up:
                self._defaults.skip("a result that came after its call was abandoned")
                return
            if not tool:
                self._defaults.skip("a result whose call is not in the log")
                return
            self._calls += 1
            call = _StartedCall(self._calls, key or f"call-{self._calls}", name_of(tool), None, ())
        if duration_ms is None and at_ms is not None and call.began is not None:
            duration_ms = max(at_ms - call.began, 0)
        error = ending.error
        if error is not None:
            error = {name: self._run.redact(value, call.secrets) for name, value in error.items()}
        yield self.event(
            "tool_call.finished",
            at_ms,
            call_id=call.call_id,
            tool_name=call.tool,
            status=ending.status,
            error=error,
            result=bounded(self._run.redact(result, call.secrets)),
            duration_ms=duration_ms if duration_ms is not None and 0 <= duration_ms <= MAX_SPAN_MS else None,
            **fields,
        )

    @property
    def rests(self) -> bool:
        """True if the model has said something and called nothing: its turn is over, whether the log says so or not."""
        return self._rests and not self._open

    def is_open(self, call_id: Any) -> bool:
        """True if a call of this id is open."""
        return name_of(call_id) in self._open

    def interrupted(self) -> Iterator[bytes]:
        """Close open calls as abandoned (neutral) at the time of the last event.

        If they stayed open until the log continues, perhaps the next day, they would count as timed out.
        """
        yield from self._given_up_as(INTERRUPTED)

    def unrecorded(self) -> Iterator[bytes]:
        """Close open calls of a log without results as neutral: the model goes on, so they have ended."""
        yield from self._given_up_as(UNRECORDED)

    def _given_up_as(self, ending: StatedEnding) -> Iterator[bytes]:
        waiting = [call for calls in self._open.values() for call in calls]
        self._given_up.update(self._open)
        self._open.clear()
        for call in waiting:
            yield self.event(
                "tool_call.finished",
                max(self.at_ms, 0),
                place=f"given up {call.number} {call.call_id}",
                call_id=call.call_id,
                tool_name=call.tool,
                status=ending.status,
                error=ending.error,
            )

    def _taken(self, key: str, tool: str) -> _StartedCall | None:
        """Open call that a result belongs to: the oldest with its id; without an id, that of its tool."""
        if key:
            calls = self._open.get(key)
            if not calls:
                return None
        else:
            every = [(one, calls) for calls in self._open.values() for one in calls]
            named = [pair for pair in every if pair[0].tool == name_of(tool)] if tool else every
            if not (named or every):
                return None
            call, calls = (named or every)[0]
            key = next(key for key, others in self._open.items() if others is calls)
            calls.remove(call)
            calls.insert(0, call)
        found = calls.pop(0)
        if not calls:
            del self._open[key]
        return found


_FAULTS = (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError)


def each(
    records: Iterable[NumberedObject], read: Callable[[dict[str, Any]], Iterable[R]], defaults: LogDefaults
) -> Iterator[R]:
    """Yield the results of reading each record, in order; records of an unexpected shape are noted as skipped."""
    for line, value in records:
        defaults.run.line = line
        yield from attempted(value, read, defaults)


class LogReader(Protocol):
    """Protocol of a reader of one log's objects."""

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""

    def ended(self) -> Iterator[bytes]:
        """Events of the end of the log, which close the calls left open."""


def importer(kind: Callable[[LogDefaults], LogReader]) -> Callable[[Lines, LogDefaults], Iterator[bytes]]:
    """Function that reads the events of a whole log with a reader of its objects.

    It raises ConfigError if nothing in the log is JSON.
    """

    def read(lines: Lines, defaults: LogDefaults) -> Iterator[bytes]:
        log = kind(defaults)
        yield from each(objects_of(lines, defaults.file or defaults.source, defaults.run.skipped), log.line, defaults)
        yield from log.ended()

    return read


def attempted(value: T, read: Callable[[T], Iterable[R]], defaults: LogDefaults) -> list[R]:
    """Yield the results of reading one record; if it has an unexpected shape, note it as skipped."""
    try:
        return list(read(value))
    except _FAULTS as fault:
        defaults.skip(f"of an unexpected shape ({type(fault).__name__}: {str(fault)[:80]})")
        return []
