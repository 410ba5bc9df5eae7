"""Reader of a log that holds one session: its name and folder, its sub-agents, and records that a fork repeats."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from ..schemas.words import words_in
from .base import LogDefaults, SessionWriter
from .speakers import WAKING, heard
from .values import first_name, text_of
from .workspaces import workspace_of


class SessionLog:
    """Common part of the readers of such logs.

    A session starts with its first event: a fork that holds nothing but what it repeats is none.
    """

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        self._defaults = defaults
        self._run = defaults.run
        self._sessions: dict[str, SessionWriter] = {}
        self._name = ""
        self._agent = ""
        self._folder = ""

    def ended(self) -> Iterator[bytes]:
        """Events of the end of the log, which close what is open."""
        for session in self._sessions.values():
            yield from session.closed()

    def _named(self, name: str, folder: Any = "", parent: str = "") -> None:
        """Note the session's id, its folder, and the session that it is a sub-agent of."""
        self._name = f"{parent}/{name}" if parent and name else name or self._name
        self._agent = name if parent else self._agent
        self._folder = workspace_of(text_of(folder)) or self._folder

    def _session(self, place: str, at: int | None, agent: str = "") -> Generator[bytes, None, SessionWriter]:
        """Session of an agent, by default the main one, at a position; its start, if it is new."""
        session = self._sessions.get(agent)
        if session is None:
            main = self._defaults.session or self._name or self._defaults.source
            name = f"{main}/{agent}" if agent else main
            session = SessionWriter(name, self._defaults, self._folder, at_ms=self._last(), ends_turns=True)
            session.agent = agent or self._agent
            self._sessions[agent] = session
            yield from session.begun(at)
        session.at(place or f"line {self._run.line}")
        return session

    def _last(self) -> int:
        return max((session.at_ms for session in self._sessions.values()), default=-1)

    def _is_new(self, mark: str) -> bool:
        """True if a record was not read before in this import; one without a mark is new."""
        if not mark or self._run.first(f"{type(self).__name__}\x1f{mark}"):
            return True
        self._run.skipped.repeated += 1
        return False


def parts_of(content: Any) -> list[dict[str, Any]]:
    """Parts of a message's content; a text is one part."""
    parts = content if isinstance(content, list) else [content]
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts if _is_part(part)]


def prompted(session: SessionWriter, parts: list[dict[str, Any]], at: int | None) -> Iterator[bytes]:
    """Add a message in the user's role: the user's, or what the client or another agent put there."""
    words, source = heard_in(parts)
    if words is not None:
        yield from session.said_by_user(at, words=words or None)
    elif source:
        yield from session.received(source, at, wakes=source in WAKING)


def heard_in(parts: list[dict[str, Any]]) -> tuple[int | None, str]:
    """Number of words that the user said in a message, None if it is not the user's; and the source of another's."""
    texts = [heard(text_of(part)) for part in parts if first_name(part, "type") in {"", "text"}]
    words = words_in("\n".join(text.spoken for text in texts))
    shows = any(first_name(part, "type") in _SHOWN or "inlineData" in part or "fileData" in part for part in parts)
    return words if words or shows else None, next((text.source for text in texts if text.source), "")


_SHOWN = frozenset({"image", "document", "file"})  # Parts by which a user says something without words


def _is_part(part: Any) -> bool:
    return isinstance(part, (str, dict))
