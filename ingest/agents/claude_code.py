"""Session logs of Claude Code: the JSONL files below `~/.claude/projects/`, and its `stream-json` output.

A line is a message with a time; content parts are text, thoughts, calls and their results. One message of the model
may take several lines. Sub-agents, in the same file as side chains or in files of their own, are sessions of their
own, for their calls do not interleave with the main one's. A resumed session may repeat the lines of the one it goes
on with, and so may a compaction: a line counts once. Texts that the client itself inserts are inputs of their
sources: reports of background work, messages of other agents, reminders, feedback of hooks. What arrives while the
model works waits in a queue and is told once: as a line of its own, as an attachment, or, in older versions, by
leaving the queue alone. A custom command is the user's once the model answers it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from ...schemas.words import words_in
from ..base import LogDefaults, SessionWriter
from ..results import GOOD, INTERRUPTED, StatedEnding, ending_of, failed, rejection_of, remark_of
from ..speakers import WAKING, TextSpeakers, heard
from ..values import arguments_of, first_name, name_of, text_of, time_of
from ..workspaces import workspace_of

SYNTHETIC = "<synthetic>"
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_INTERRUPTED = "[Request interrupted by user"
_COMMAND = re.compile(r"\s*<command-(?:name|message|args)>")
_COMMAND_OUTPUT = re.compile(r"\s*<local-command-")
_DENIALS = {"interrupted": "interrupted"}
# Denial of a client that could not find out whether a call is allowed: nobody has refused it
_UNAVAILABLE = "automode-unavailable"

_TURN_ENDS = frozenset({"turn_duration", "stop_hook_summary"})
_COMPACTIONS = frozenset({"compact_boundary", "microcompact_boundary"})
_ORIGINS = {"task-notification": "report", "peer": "agent", "coordinator": "agent", "observer": "agent"}
# Sources of the attachments that tell the model something new
_ATTACHED = {
    "hook_success": "hook",
    "hook_additional_context": "hook",
    "hook_blocking_error": "hook",
    "async_hook_response": "hook",
    "teammate_mailbox": "agent",
    "task_status": "report",
}

_CLIENT_COMMAND = re.compile(r"/[a-z][\w:-]{0,60}(?:\s|\Z)")
_ARGUMENTS = re.compile(r"<command-args>([^<]*)")
_QUEUED = 100  # Maximum number of texts remembered of a session's queue


class _PendingText(NamedTuple):
    """A text on its way to the model."""

    mark: bytes  # digest of the text
    source: str = ""  # who speaks: `user`, another source, or empty for nobody
    words: int = 0  # number of words of the user


_NOTHING = _PendingText(b"")


class _TextInbox:
    """Texts on their way to the model of one session."""

    def __init__(self) -> None:
        self.queue: list[_PendingText] = []  # texts that wait, oldest first
        self.told: list[bytes] = []  # marks of texts that were told, and that a further line may repeat
        # time and words of a custom command that the model has not answered yet
        self.command: tuple[int | None, int] | None = None
        self.compacted = False  # a compaction was told, which its summary repeats
        self.answered = ""  # message of the model that ended its turn

    def taken(self, text: str) -> _PendingText:
        """Text that leaves the queue: the given one, else the oldest."""
        if not text:
            return self.queue.pop(0) if self.queue else _NOTHING
        note = _note_of(text)
        if note in self.queue:
            self.queue.remove(note)
        return note

    def tell(self, mark: bytes) -> bool:
        """Note that a text is told; False if it was before, in another form."""
        if mark in self.told:
            self.told.remove(mark)
            return False
        self.told = [*self.told[1 - _QUEUED :], mark]
        return True


class ClaudeCodeLog:
    """Incremental reader of the sessions of one file."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        self._defaults = defaults
        self._run = defaults.run
        self._sessions: dict[str, SessionWriter] = {}
        self._inboxes: dict[str, _TextInbox] = {}
        self._chains: dict[str, str] = {}
        self._at: int = -1

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        kind, message = record.get("type"), record.get("message")
        chain = self._chain_of(record)
        name = self._name_of(record, chain)
        at = time_of(record.get("timestamp"))
        if kind in ("user", "assistant"):
            if not isinstance(message, dict) or self._is_repeated(record):
                return
            session = self._sessions.get(name)
            if session is None:
                session = SessionWriter(
                    name, self._defaults, workspace_of(text_of(record.get("cwd"))), at_ms=self._at, ends_turns=True
                )
                self._sessions[name] = session
                self._inboxes[session.id] = _TextInbox()
                session.agent = first_name(record, "agentId")
                yield from session.begun(at)
            session.at(first_name(record, "uuid") or f"line {self._run.line}")
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            if kind == "assistant":
                yield from self._of_model(session, record, message, parts, at)
            else:
                yield from self._of_user(session, record, parts, at, is_chain=bool(chain))
            self._at = session.at_ms
        elif (session := self._sessions.get(name)) is not None and not self._is_repeated(record):
            session.at(first_name(record, "uuid") or f"line {self._run.line} {at}")
            if kind == "system":
                yield from self._of_system(session, record, at)
            elif kind == "attachment":
                yield from self._attached(session, record.get("attachment"), at)
            elif kind == "queue-operation":
                yield from self._queued(session, record, at)
            elif kind == "result":
                yield from session.stopped(session.at_ms if at is None else at)

    def ended(self) -> Iterator[bytes]:
        """Events that close the calls and turns left open at the end of the log."""
        for session in self._sessions.values():
            yield from session.closed()

    def _is_repeated(self, record: dict[str, Any]) -> bool:
        mark = first_name(record, "uuid")
        repeated = bool(mark) and not self._run.first(f"uuid\x1f{mark}")
        self._run.skipped.repeated += repeated
        return repeated

    def _name_of(self, record: dict[str, Any], chain: str) -> str:
        main = self._defaults.session or first_name(record, "sessionId", "session_id") or self._defaults.source
        return f"{main}/{chain}" if chain else main

    def _chain_of(self, record: dict[str, Any]) -> str:
        """Id of the side chain of a line; empty for the main chain.

        Older logs do not name it: it is told by the first line that its lines descend from.
        """
        parent = first_name(record, "parent_tool_use_id")
        if parent or not record.get("isSidechain"):
            return parent
        if agent := first_name(record, "agentId"):
            return agent
        own, before = first_name(record, "uuid"), first_name(record, "parentUuid")
        found = self._chains.get(before) or (f"sidechain-{own[:8]}" if own else "sidechain")
        if own:
            self._chains[own] = found
        return found

    def _of_model(
        self, session: SessionWriter, record: dict[str, Any], message: dict[str, Any], parts: list[Any], at: int | None
    ) -> Iterator[bytes]:
        inbox = self._inboxes[session.id]
        inbox.compacted = False
        model = name_of(message.get("model"))
        if model == SYNTHETIC or record.get("isApiErrorMessage") is True:
            yield from session.turn_over(at)
            return
        if inbox.command is not None:
            (typed_at, words), inbox.command = inbox.command, None
            yield from session.said_by_user(typed_at, words=words)
        message_id = name_of(message.get("id"))
        if not message_id or message_id != inbox.answered:
            yield from session.resumed(at)
        session.model = model or session.model
        spoke = False
        for part in parts:
            if not isinstance(part, dict):
                continue
            kind = str(part.get("type"))
            if kind == "text":
                spoke = spoke or bool(text_of(part).strip())
                yield from session.said_by_model(text_of(part), at)
            elif kind == "thinking":
                yield from session.said_by_model(text_of(part.get("thinking")), at, thought=True)
            elif kind in _CALLS:
                call_id = name_of(part.get("id"))
                if call_id and not self._run.first(f"call\x1f{session.id}\x1f{call_id}"):
                    continue
                more = {"service": first_name(part, "server_name"), "message_id": message_id}
                more = {field: value for field, value in more.items() if value}
                yield session.started(call_id, part.get("name"), arguments_of(part.get("input")), at, **more)
            elif kind.endswith("_tool_result"):
                yield from self._result(session, {}, part, at)
        if spoke and message.get("stop_reason") == "end_turn":
            inbox.answered = message_id
            yield from session.turn_over(at)

    def _of_user(
        self, session: SessionWriter, record: dict[str, Any], parts: list[Any], at: int | None, *, is_chain: bool
    ) -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, dict) and part.get("type") == "tool_result":
                yield from self._result(session, record, part, at)
        texts = [text_of(part) for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        texts += [part for part in parts if isinstance(part, str)]
        pictures = any(isinstance(part, dict) and part.get("type") in {"image", "document"} for part in parts)
        inbox = self._inboxes[session.id]
        if any(text.startswith(_INTERRUPTED) for text in texts):
            yield from session.turn_over(at)
        elif record.get("isCompactSummary"):
            if not inbox.compacted:
                yield from session.compacted(at)
            inbox.compacted = False
        elif any(_COMMAND.match(text) for text in texts):
            inbox.command = at, sum(_words_typed(text) for text in texts)
        elif any(_COMMAND_OUTPUT.match(text) for text in texts):
            if not record.get("isMeta"):  # the command was one of the client's own
                inbox.command = None
            yield from session.received("client", at)
        elif not record.get("isVisibleInTranscriptOnly"):
            yield from self._heard(session, record, texts, at, pictures=pictures, is_chain=is_chain)

    def _heard(
        self,
        session: SessionWriter,
        record: dict[str, Any],
        texts: list[str],
        at: int | None,
        *,
        pictures: bool,
        is_chain: bool,
    ) -> Iterator[bytes]:
        """Write the event of a message to the model; the prompt of a sub-agent comes from the agent that started it."""
        inbox = self._inboxes[session.id]
        told = [one for text in texts if (one := heard(text)).spoken or one.source]
        source = _source_of(record, told, spoken=pictures or any(one.spoken for one in told))
        if source == "user":
            inbox.command, inbox.told = None, []
            if is_chain:
                yield from session.received("agent", at, wakes=True)
            else:
                yield from session.said_by_user(at, words=sum(one.words for one in told))
        elif source and inbox.tell(_mark_of("\n".join(texts))):
            yield from session.received(source, at, wakes=source in WAKING)

    def _of_system(self, session: SessionWriter, record: dict[str, Any], at: int | None) -> Iterator[bytes]:
        kind = str(record.get("subtype"))
        if kind in _TURN_ENDS:
            yield from session.stopped(at)
        elif kind in _COMPACTIONS:
            self._inboxes[session.id].compacted = kind == "compact_boundary"
            yield from session.compacted(at)
        elif kind == "scheduled_task_fire":
            yield from session.received("timer", at, wakes=True)

    def _attached(self, session: SessionWriter, given: Any, at: int | None) -> Iterator[bytes]:
        attachment = given if isinstance(given, dict) else {}
        kind = str(attachment.get("type"))
        if kind == "queued_command":
            prompt = text_of(attachment.get("prompt"))
            origin = attachment.get("origin")
            note = _note_of(prompt, {"origin": origin} if isinstance(origin, dict) else {})
            yield from self._told_within_turn(session, note, at)
        elif kind in _ATTACHED and (kind != "hook_success" or attachment.get("content")):  # else it was silent
            yield from session.received(_ATTACHED[kind], at)

    def _queued(self, session: SessionWriter, record: dict[str, Any], at: int | None) -> Iterator[bytes]:
        """Follow the queue: what leaves it is told to the model, in a new turn (`dequeue`) or while it works."""
        inbox, text = self._inboxes[session.id], text_of(record.get("content"))
        operation = record.get("operation")
        if operation == "enqueue":
            inbox.queue = [*inbox.queue[1 - _QUEUED :], _note_of(text)]
        elif operation == "popAll":  # the user takes it back
            inbox.queue = []
        elif operation == "remove":
            yield from self._told_within_turn(session, inbox.taken(text), at)
        elif operation == "dequeue":
            note = inbox.taken(text)  # what the user wrote comes with a line of its own
            if note.source not in {"", "user", "client"} and inbox.tell(note.mark):
                if session.rests:
                    yield from session.closed()
                yield from session.received(note.source, at)

    def _told_within_turn(self, session: SessionWriter, note: _PendingText, at: int | None) -> Iterator[bytes]:
        if not note.source or not self._inboxes[session.id].tell(note.mark):
            return
        if note.source == "user":
            yield from session.said_within_turn(at, words=note.words)
        else:
            yield from session.received(note.source, at)

    def _result(
        self, session: SessionWriter, record: dict[str, Any], part: dict[str, Any], at: int | None
    ) -> Iterator[bytes]:
        content = part.get("content")
        text = text_of(content)
        about = record.get("toolUseResult", record.get("tool_use_result"))
        details = about if isinstance(about, dict) else {}
        taken = next((details[key] for key in ("durationMs", "totalDurationMs") if _is_number(details.get(key))), None)
        ending = _ending(part, text, record.get("toolDenialKind"), interrupted=details.get("interrupted") is True)
        yield from session.finished(
            part.get("tool_use_id"),
            text or content,
            at,
            ending=ending,
            duration_ms=taken,
        )


def _ending(part: dict[str, Any], text: str, denial: Any, *, interrupted: bool) -> StatedEnding:
    """A result that does not say that it failed did not: what a file holds may well begin with "Error"."""
    content = part.get("content")
    if isinstance(content, dict) and str(content.get("type", "")).endswith("_error"):
        return failed(text, name_of(content.get("error_code")) or "tool_error")
    if part.get("is_error") is not True:
        return INTERRUPTED if interrupted else GOOD
    if (rejection := rejection_of(text)) is not None:
        return rejection
    remark = remark_of(text)
    if remark is not None:
        return remark
    if denial == _UNAVAILABLE:
        return StatedEnding("rejected", failed(text).error)
    if denial:
        return failed(text, _DENIALS.get(str(denial), "user_rejected"))
    return INTERRUPTED if interrupted else ending_of(text, failure=True)


def _mark_of(text: str) -> bytes:
    return blake2b(text.encode(errors="replace"), digest_size=12).digest()


def _note_of(text: str, record: dict[str, Any] | None = None) -> _PendingText:
    """A text for the queue; commands in it are for the client."""
    one = heard(text)
    source = _source_of(record or {}, [one], spoken=bool(one.spoken))
    return _PendingText(_mark_of(text), "client" if _CLIENT_COMMAND.match(text) else source, one.words)


def _source_of(record: dict[str, Any], told: list[TextSpeakers], *, spoken: bool) -> str:
    """Source of a record of the user's role: `user`, one of `input.received`, or empty for none."""
    origin = record.get("origin")
    about = origin if isinstance(origin, dict) else {}
    kind = str(about.get("kind", "human"))
    source = next((one.source for one in told if one.source), "")
    if kind != "human":
        return "timer" if about.get("subkind") == "scheduled-trigger" else _ORIGINS.get(kind) or source or "client"
    if record.get("isMeta"):
        return source or "client"
    return "user" if spoken else source


def _words_typed(text: str) -> int:
    """Words of a command as the user typed it: its name and what follows."""
    found = _ARGUMENTS.search(text)
    return 1 + words_in(found[1]) if found else int("<command-name>" in text)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
