"""Parser of a log's bytes into JSON objects with their line numbers; unreadable lines are noted and skipped.

Theory of operation. A log has one object a line, or is one document (an object, a list), or several documents one
after the other as programs print them. A first line that is an object by itself decides for the first. Logs are
written by programs that get killed, on disks that fill up, through shells that recode: a byte order mark, carriage
returns, zero bytes, a truncated line, a lone surrogate, NaN and invalid UTF-8 lose at most the line they are
on.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from array import array
from collections.abc import Iterable, Iterator
from datetime import datetime
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import orjson

from ..errors import ConfigError
from ..schemas.event_base import epoch_ms
from ..schemas.otlp_spans import is_span

Lines = Iterable[bytes]

_BLANK = b" \t\r\n\x00"
_REST = " \t\r\n\x00"
_LARGEST = 2**63
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NO_DOCUMENT = "not JSON, or a truncated document"


class NumberedObject(NamedTuple):
    """Object of a log with its line number."""

    line: int  # line that it starts on, from 1
    value: dict[str, Any]  # the object


class SkippedLines:
    """Skipped lines and objects, with reasons."""

    SHOWN = 20

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0  # number of skipped lines or objects
        self.first: list[str] = []  # the first of them, each as `FILE:LINE: reason`
        self.repeated = 0  # number of lines left out because they repeat an earlier line or log

    def add(self, file: str, line: int, reason: str) -> None:
        """Note a skipped line or object."""
        self.count += 1
        if len(self.first) < self.SHOWN:
            self.first.append(f"{file}:{line}: {reason}" if line else f"{file}: {reason}")


def objects_of(lines: Lines, file: str, skipped: SkippedLines) -> Iterator[NumberedObject]:
    """Objects of a log; lists are flattened."""
    good = found = 0
    rest = iter(_plain(lines))
    for number, line in enumerate(rest, 1):
        text = line.strip(_BLANK)
        if not text:
            continue
        found += 1
        try:
            value = parse(text)
        except ValueError as fault:
            if good:
                skipped.add(file, number, f"not JSON ({fault})")
                continue
            for document in _documents(number, b"".join((line, *rest)), file, skipped):
                good += 1
                yield from _objects(document[0], document[1], file, skipped)
            break
        good += 1
        yield from _objects(number, value, file, skipped)
    if found and not good:
        raise ConfigError(f"{file}: neither a JSON document nor a line of it is JSON")


def _objects(line: int, value: Any, file: str, skipped: SkippedLines) -> Iterator[NumberedObject]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield NumberedObject(line, one)
        elif isinstance(one, list):
            yield from _objects(line, one, file, skipped)
        else:
            skipped.add(file, line, f"{json.dumps(one)[:40]} where an object is expected")


def parse(text: bytes) -> Any:
    """Parse one JSON value leniently: accepts NaN, lone surrogates and invalid UTF-8."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        try:
            return _mended(json.loads(text.decode(errors="replace"), parse_int=_whole))
        except (ValueError, RecursionError):
            raise ValueError(str(fault)) from None


def _documents(first: int, data: bytes, file: str, skipped: SkippedLines) -> Iterator[tuple[int, Any]]:
    """Consecutive documents with their lines; each starts in the first column."""
    try:
        yield first, orjson.loads(data.strip(_BLANK))
    except orjson.JSONDecodeError:
        text = data.decode(errors="replace")
        yield from _scanned(first, text, file, skipped)


def _scanned(line: int, text: str, file: str, skipped: SkippedLines) -> Iterator[tuple[int, Any]]:
    decoder = json.JSONDecoder(parse_int=_whole)
    at = counted = 0
    while at < len(text):
        if text[at] in _REST or text[at] == ",":
            at += 1
            continue
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, at = decoder.raw_decode(text, at) if text[at] in "{[" else decoder.raw_decode("")
        except (ValueError, RecursionError):
            if text[at] == "[" and text.find("{", at) > at and not text[at + 1 : text.find("{", at)].strip():
                at = text.find("{", at)  # a truncated list: read its elements
                continue
            skipped.add(file, line, _NO_DOCUMENT)
            at = min((one + 1 for opening in "{[" if (one := text.find(f"\n{opening}", at)) >= 0), default=len(text))
            continue
        yield line, _mended(value)


def _plain(lines: Lines) -> Iterator[bytes]:
    """Lines without byte order mark; UTF-16, written by some shells, is converted."""
    rest = iter(lines)
    for first in rest:
        if first.startswith(_UTF16):
            text = b"".join((first, *rest)).decode("utf-16", errors="replace")
            yield from (line.encode(errors="replace") for line in text.splitlines(keepends=True))
            return
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from rest


def _whole(text: str) -> int | float:
    number = int(text) if len(text) < 30 else math.inf
    return number if -_LARGEST <= number < _LARGEST else float(text)


def _mended(value: Any) -> Any:
    """A value without lone surrogates, which UTF-8 cannot encode, and without NaN and infinities."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_mended(name): _mended(inner) for name, inner in value.items()}
    return [_mended(inner) for inner in value] if isinstance(value, list) else value


_CODEX = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_CLAUDE = frozenset({"user", "assistant", "system", "summary", "progress", "attachment", "result"})
_CLAUDE_FIELDS = frozenset({"sessionId", "session_id", "parentUuid", "leafUuid", "isSidechain"})
_OTEL = frozenset({"resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "batches"})
_OPENAI = frozenset(
    """role messages traj trajectory choices output input conversation simulations custom_id tool_calls transcripts
    history request response data items""".split()
)


def recognised(records: Iterable[NumberedObject]) -> str:
    """Name of the detected format; empty if unknown."""
    for _, record in records:
        found = _one(record)
        if found:
            return found
    return ""


def _one(record: dict[str, Any]) -> str:
    kind = record.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind in _CODEX and isinstance(record.get("payload"), dict):
        return "codex"
    if "record_type" in record or {"id", "timestamp", "instructions"} <= record.keys():
        return "codex"
    if isinstance(record.get("session"), dict) and isinstance(record.get("items"), list):
        return "codex"
    if {"sessionId", "projectHash"} <= record.keys():
        return "gemini"
    if {"provenance", "sessionId", "uuid"} <= record.keys():
        return "qwen"
    if found := _by_heading(record, kind):
        return found
    trace = record.get("trace")
    if record.keys() & _OTEL or is_span(record) or (isinstance(trace, dict) and trace.keys() & _OTEL):
        return "otel"
    if kind in _CLAUDE and (record.keys() & _CLAUDE_FIELDS or isinstance(record.get("message"), dict)):
        return "claude-code"
    if record.keys() & _OPENAI or kind.endswith(("_call", "_call_output")):
        return "openai"
    return ""


_KIRO = frozenset({"Prompt", "AssistantMessage", "ToolResults"})


def _by_heading(record: dict[str, Any], kind: str) -> str:
    """Format of one of the smaller agents; those whose first line names the session have an id in it."""
    data, message, about = record.get("data"), record.get("message"), record.get("info")
    if kind == "session.start" and isinstance(data, dict) and "sessionId" in data:
        return "copilot"
    if kind == "session_start" and {"id", "cwd"} <= record.keys():
        return "droid"
    if kind == "session" and {"id", "cwd", "timestamp"} <= record.keys():
        return "pi"
    if (
        isinstance(about, dict)
        and isinstance(record.get("messages"), list)
        and about.keys() & {"directory", "projectID"}
    ):
        return "opencode"
    if isinstance(record.get("sessionID"), str) and "timestamp" in record and record.keys() & {"part", "error"}:
        return "opencode"
    if "conversation_id" in record and isinstance(record.get("history"), list):
        return "kiro"
    if isinstance(data, dict) and str(record.get("kind")) in _KIRO:
        return "kiro"
    if "role" in record and isinstance(message, dict) and "content" in message and not kind:
        return "cursor"
    return ""


_TIME = re.compile(rb'"time":"([^"]+)"')


class InOrderOfTime:
    """Stable sort of events by time, in a temporary file."""

    def __init__(self) -> None:
        """Create an empty temporary file."""
        self._file = TemporaryFile()  # noqa: SIM115 - closed by `close`; it lives as long as this does
        self._times = array("q")
        self._sizes = array("q")

    def add(self, event: bytes) -> None:
        """Add an event."""
        found = _TIME.search(event)
        self._times.append(epoch_ms(datetime.fromisoformat(found[1].decode())) if found else 0)
        self._sizes.append(len(event))
        self._file.write(event)

    def __len__(self) -> int:
        """Number of events."""
        return len(self._times)

    def __iter__(self) -> Iterator[bytes]:
        """Yield all events in time order."""
        starts = array("q", [0])
        for size in self._sizes:
            starts.append(starts[-1] + size)
        for number in sorted(range(len(self._times)), key=self._times.__getitem__):
            self._file.seek(starts[number])
            yield self._file.read(self._sizes[number])

    def close(self) -> None:
        """Delete the temporary file."""
        self._file.close()
