"""Transcripts in the format of OpenAI: chat messages with tool calls, and items of the Responses API.

A file holds one transcript or many: an object with `messages` (or `input`/`output`, `traj`, `trajectory`, ...), a list
of messages, or one of these a line; logged requests with their responses; results of batches; runs of tau-bench and
SWE-agent. Requests that repeat the conversation so far, and responses that name the one before, go on with its
session. Transcripts have no times; unless they do (`created`, `created_at`, `timestamp`), events are a second apart,
and transcripts an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from .base import LogDefaults, SessionWriter
from .openai_items import Item, TranscriptReader
from .reading import parse
from .values import first_name, name_of, time_of

# Fields with a globally unique id
_OWN = ("session_id", "conversation_id", "thread_id", "trajectory_id", "traj_id", "conversation", "id")

_WITHIN = ("custom_id", "instance_id", "task_id", "run_id")  # Fields with an id unique within its file

# Prefixes of ids of a single model answer rather than a conversation
_OF_ONE_ANSWER = ("chatcmpl-", "cmpl-", "resp_", "gen-", "msg_", "batch_req_")

_TIME = ("timestamp", "created_at", "created", "start_time")
_AROUND = ("body", "request", "response", "data", "kwargs")
_LISTS = ("messages", "traj", "trajectory", "conversation", "history", "transcript", "turns", "items")
_RUNS = ("simulations", "transcripts", "conversations", "trajectories", "data", "runs")


class _FoundTranscript(NamedTuple):
    """Transcript found in a file: its items, its context, and the answer it continues."""

    items: list[Item]
    about: dict[str, Any]
    previous: str = ""


class OpenAiLog:
    """Reader of the transcripts of one file, one session each."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first transcript."""
        self._defaults = defaults
        self._number = 0
        self._names: dict[str, int] = {}
        self._open: dict[str, TranscriptReader] = {}
        self._by_answer: dict[str, TranscriptReader] = {}
        self._by_name: dict[str, TranscriptReader] = {}
        self._by_prefix: dict[bytes, TranscriptReader] = {}
        self._loose: TranscriptReader | None = None

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        found = list(_transcripts(record, {}))
        if not found:
            if not _is_item(record):
                self._defaults.skip("no message and no transcript")
                return
            if self._loose is None:
                self._loose = self._begin(self._defaults.session or self._defaults.source)
                yield from self._loose.begun({}, time_of(first_time(record)))
            yield from self._loose.more([record], self._defaults)
        for one in found:
            yield from self._transcript(one)

    def ended(self) -> Iterator[bytes]:
        """Events that end the open transcripts."""
        for transcript in self._open.values():
            yield from transcript.ended()

    def _transcript(self, found: _FoundTranscript) -> Iterator[bytes]:
        marks = list(_marks(found.items))
        answer = first_name(found.about, "id")
        transcript, known = self._before(found, marks)
        if transcript is None:
            self._number += 1
            transcript = self._begin(self._name(found.about))
            yield from transcript.begun(found.about, time_of(first_time(found.about)))
        transcript.session.model = first_name(found.about, "model", "model_name") or transcript.session.model
        if known and known == len(found.items):
            self._defaults.run.skipped.repeated += 1
        yield from transcript.more(found.items[known:], self._defaults)
        if answer.startswith(_OF_ONE_ANSWER):
            self._by_answer[answer] = transcript
        transcript.mark = marks[-1] if marks else transcript.mark
        if own := _name_of_its_own(found.about):
            self._by_name[own] = transcript
        elif first_name(found.about, *_WITHIN):
            del self._open[transcript.name]  # a whole run: no other transcript continues it
            yield from transcript.ended()
        elif marks and any(_is_answer(item) for item in found.items):
            self._by_prefix[marks[-1]] = transcript

    def _before(self, found: _FoundTranscript, marks: list[bytes]) -> tuple[TranscriptReader | None, int]:
        """Transcript that this one continues, and how many of its items were already read there."""
        if found.previous and found.previous in self._by_answer:
            return self._by_answer[found.previous], 0
        own = _name_of_its_own(found.about)
        if own in self._by_name:
            same = self._by_name[own]
            return same, next((count for count in range(len(marks), 0, -1) if marks[count - 1] == same.mark), 0)
        if not own and not first_name(found.about, *_WITHIN):
            for count in range(len(marks), 0, -1):
                if (transcript := self._by_prefix.get(marks[count - 1])) is not None:
                    return transcript, count
        return None, 0

    def _name(self, about: dict[str, Any]) -> str:
        given = self._defaults.session or _name_of_its_own(about)
        if not given:
            within = first_name(about, *_WITHIN)
            trial = name_of(about.get("trial"))
            given = f"{self._defaults.source}/{within}" if within else f"{self._defaults.source}#{self._number}"
            given += f"/{trial}" if within and trial else ""
        return given

    def _begin(self, name: str) -> TranscriptReader:
        """Start a session; a name already used in this file gets a number."""
        count = self._names[name] = self._names.get(name, 0) + 1
        name = f"{name}#{count}" if count > 1 else name
        made = self._open[name] = TranscriptReader(name, SessionWriter(name, self._defaults))
        return made


def first_time(holder: dict[str, Any]) -> Any:
    """First field that can be parsed as a time."""
    return next((holder[key] for key in _TIME if time_of(holder.get(key)) is not None), None)


def _name_of_its_own(about: dict[str, Any]) -> str:
    found = first_name(about, *_OWN)
    return "" if found.startswith(_OF_ONE_ANSWER) and "trajectory_id" not in about else found


def _transcripts(record: dict[str, Any], around: dict[str, Any]) -> Iterator[_FoundTranscript]:
    """Transcripts in a record: itself or nested ones; none for a message or an item."""
    if isinstance(record.get("role"), str) or _is_item(record):
        return
    about = around | {name: value for name, value in record.items() if not isinstance(value, (dict, list))}
    steps = record.get("trajectory")
    if isinstance(steps, list) and steps and isinstance(steps[0], dict) and "observation" in steps[0]:
        yield _FoundTranscript(list(_of_steps(record)), about)
        return
    for name in _RUNS:
        runs = record.get(name)
        if isinstance(runs, list) and any(
            isinstance(one, dict) and not _is_item(one) and any(_transcripts(one, {})) for one in runs
        ):
            for one in runs:
                yield from _transcripts(one, about) if isinstance(one, dict) else ()
            return
    items = _items(record)
    if items:
        before = record.get("previous_response_id")
        for name in ("request", "response", "body"):
            inner = record.get(name)
            inner = inner.get("body", inner) if isinstance(inner, dict) else {}
            before = before or (inner.get("previous_response_id") if isinstance(inner, dict) else None)
            if isinstance(inner, dict):
                about = {k: v for k, v in inner.items() if not isinstance(v, (dict, list))} | about
        yield _FoundTranscript(items, about, name_of(before))


def _items(record: dict[str, Any]) -> list[Item]:
    """Messages and items of a record, in order: input, then output."""
    found: list[Any] = []
    for name in _LISTS:
        given = record.get(name)
        if isinstance(given, str) and given.lstrip()[:1] == "[":
            given = _parsed(given)
        if isinstance(given, list):
            found += given
            break
    asked = record.get("input")
    if isinstance(asked, str) and ("output" in record or "instructions" in record):
        found.append({"role": "user", "content": asked})
    elif isinstance(asked, dict):
        found += _items(asked)
    elif isinstance(asked, list):
        found += asked
    for name in _AROUND:
        inner = record.get(name)
        if isinstance(inner, dict):
            found += _items(inner)
        elif name == "data" and isinstance(inner, list):
            found += inner
    for name in ("output", "preferred_output"):
        answered = record.get(name)
        found += answered if isinstance(answered, list) else _items(answered) if isinstance(answered, dict) else []
    choices = record.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        found.append(choices[0].get("message"))  # of several answers, the conversation continues with the first
    return [one for one in found if isinstance(one, dict) and (_is_item(one) or "role" in one or "tool_calls" in one)]


def _parsed(text: str) -> Any:
    try:
        return parse(text.encode(errors="replace"))
    except ValueError:
        return None


def _is_item(record: dict[str, Any]) -> bool:
    """True if a record is itself a message or an item."""
    if isinstance(record.get("role"), str):
        return True
    kind = record.get("type")
    return isinstance(kind, str) and (kind.endswith(("_call", "_call_output", "_approval_request")) or kind in _ALONE)


_ALONE = frozenset({"message", "reasoning", "mcp_list_tools", "mcp_approval_response", "human", "ai", "tool"})


def _is_answer(item: Item) -> bool:
    return item.get("role") == "assistant" or str(item.get("type")).endswith("_call")


def _of_steps(record: dict[str, Any]) -> Iterator[Item]:
    """Steps of SWE-agent as messages: thought, command, output."""
    yield {"role": "user", "content": "task"}
    for step in record["trajectory"]:
        if isinstance(step, dict) and step.get("action"):
            call = {"name": "bash", "arguments": {"command": str(step["action"]).strip()}}
            said = step.get("thought") or step.get("response")
            yield {"role": "assistant", "content": said, "tool_calls": [call]}
            seconds = step.get("execution_time")
            yield {"role": "tool", "content": step.get("observation"), "duration_seconds": seconds}


def _marks(items: list[Item]) -> Iterator[bytes]:
    """Digests of the items up to each one, by content, independent of format."""
    digest = blake2b(digest_size=12)
    for item in items:
        calls = [
            {key: one.get(key) for key in ("id", "function", "name", "arguments", "custom")}
            for one in item.get("tool_calls") or ()
            if isinstance(one, dict)
        ]
        told = [item.get(key) for key in ("role", "content", "call_id", "tool_call_id", "name", "arguments", "output")]
        digest.update(orjson.dumps([told, calls, item.get("function_call")], option=orjson.OPT_SORT_KEYS))
        yield digest.copy().digest()
