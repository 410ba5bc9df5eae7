"""What all importers share: reading lines, times and texts of strangers, and writing events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import orjson

from ...schemas.codec import rfc3339
from ...schemas.envelope import output_id
from ...schemas.errors import ConfigError

Lines = Iterable[bytes]
T = TypeVar("T")
R = TypeVar("R")

STEP_MS = 1000
"""Time between two events of a log that has no times."""

SYNTHETIC_START_MS = 1_577_836_800_000
"""2020-01-01: when such a log begins, unless told otherwise; the same at every import."""

MAX_NAME = 256
MAX_TEXT = 20_000
"""Characters of a text or a result that are kept; an event may have a megabyte in all."""

_FAILED = re.compile(
    r"\s*(?:<tool_use_error>|Error\b|ERROR\b|error:|Traceback \(most recent call last\)|[A-Z]\w*(?:Error|Exception):)"
)
_EXIT = re.compile(r"(?:Process exited with code|Exit code:?|exit(?:ed with)? (?:code|status):?) (-?\d+)")


class Defaults(NamedTuple):
    """What to say of a log that does not say it.

    Attributes:
        session: session id; empty: from the log, else from the name of the file.
        workspace: workspace id; empty: from the log, or none.
        source: name of the file.
    """

    session: str = ""
    workspace: str = ""
    source: str = "import"


class Session:
    """Writes the events of one session, with ids that follow from the session and their place in it."""

    def __init__(self, session_id: str, workspace: str = "", *, at_ms: int = SYNTHETIC_START_MS) -> None:
        """Write for a session; `at_ms` is the time before its first event."""
        self.id = name_of(session_id) or "session"
        self.workspace = name_of(workspace)
        self.model = ""
        self.agent = ""
        self.turn = -1
        self.at_ms = at_ms
        self._made = 0
        self._tools: dict[str, tuple[str, int]] = {}

    def event(self, kind: str, at_ms: int | None = None, **fields: Any) -> bytes:
        """One event; without a time, a second after the one before."""
        self.at_ms = at_ms if at_ms is not None else self.at_ms + STEP_MS
        self._made += 1
        body = {
            "schema_version": "1.0",
            "id": output_id(f"{self.id}\x1f{self._made}", kind, 0),
            "type": kind,
            "time": rfc3339(self.at_ms),
            "session_id": self.id,
            "workspace_id": self.workspace or None,
            "agent_id": name_of(self.agent) or None,
            "model": name_of(self.model) or None,
            "turn_index": self.turn if self.turn >= 0 else None,
        }
        return orjson.dumps({name: value for name, value in (body | fields).items() if value is not None})

    def said_by_user(self, at_ms: int | None = None) -> Iterator[bytes]:
        """A message of the user, which begins a turn."""
        self.turn += 1
        yield self.event("user.message", at_ms)
        yield self.event("turn.started", self.at_ms)

    def said_by_model(self, text: str, at_ms: int | None = None) -> Iterator[bytes]:
        """A message of the model, if it says anything."""
        if text.strip():
            yield self.event("model.text", at_ms, text=text[:MAX_TEXT])

    def started(self, call_id: str, tool: str, arguments: Any, at_ms: int | None = None, **fields: Any) -> bytes:
        """A call begins."""
        call, name = name_of(call_id) or f"call-{self._made}", name_of(tool) or "unknown"
        made = self.event(
            "tool_call.started", at_ms, call_id=call, tool_name=name, args=arguments_of(arguments), **fields
        )
        self._tools[call] = (name, self.at_ms)
        return made

    def finished(
        self,
        call_id: str,
        result: Any,
        at_ms: int | None = None,
        *,
        tool: str = "",
        failed: bool | None = None,
        error: dict[str, Any] | None = None,
        **fields: Any,
    ) -> bytes:
        """A call ends; without a word on how, its result says whether it failed."""
        call = name_of(call_id) or f"call-{self._made}"
        name, began = self._tools.pop(call, (name_of(tool) or "unknown", -1))
        result = _shortened(result)
        if error is None and failed is not False:
            error = error_of(result, failed=bool(failed))
        at = at_ms if at_ms is not None else self.at_ms + STEP_MS
        if began >= 0 and at_ms is not None:
            fields.setdefault("duration_ms", max(at - began, 0))
        status = "error" if error is not None else "success"
        return self.event(
            "tool_call.finished", at, call_id=call, tool_name=name, status=status, error=error, result=result, **fields
        )


def each(items: Iterable[T], read: Callable[[T], Iterable[R]]) -> Iterator[R]:
    """What is read from each item, in order; an item of an unexpected shape gives nothing and stops nothing."""
    for item in items:
        try:
            found = list(read(item))
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError):
            continue
        yield from found


def name_of(text: Any) -> str:
    """An id or a name as the contract takes it: no control characters that join keys, at most 256 characters."""
    return str(text or "").replace("\x00", "").replace("\x1f", " ")[:MAX_NAME]


def arguments_of(given: Any) -> Any:
    """Arguments as an object; models send them as text, which may be no JSON."""
    if isinstance(given, str):
        try:
            parsed = orjson.loads(given)
        except orjson.JSONDecodeError:
            return {"input": given[:MAX_TEXT]} if given else {}
        return parsed if isinstance(parsed, dict) else {"input": parsed}
    return given if isinstance(given, dict) else {} if given is None else {"input": given}


def error_of(result: Any, *, failed: bool) -> dict[str, Any] | None:
    """The error that a textual result reports; None for a good one, and for objects, which folds read themselves."""
    text = result if isinstance(result, str) else ""
    code = _EXIT.search(text[:2000])
    if code is not None and int(code[1]) != 0:
        return {"type": f"exit_code_{code[1]}", "message": text[: MAX_TEXT // 10]}
    if failed or _FAILED.match(text):
        return {"type": "tool_error", "message": (text or orjson.dumps(result).decode())[: MAX_TEXT // 10]}
    return None


def time_of(given: Any) -> int | None:
    """A time in milliseconds since the epoch: RFC 3339, seconds or milliseconds; None when it is neither."""
    if isinstance(given, bool) or given is None:
        return None
    if isinstance(given, (int, float)):
        return int(given if given > 1e11 else given * 1000)
    try:
        time = datetime.fromisoformat(str(given))
    except ValueError:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def text_of(content: Any) -> str:
    """The text in a message's content: a string, or parts of which some are text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (
            part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))
        )
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def objects_of(lines: Lines, source: str) -> Iterator[dict[str, Any]]:
    """Objects of a file that holds one JSON document, or one a line; lists are taken apart.

    Raises:
        ConfigError: it holds neither.
    """
    whole = list(lines)
    found: list[Any] = []
    try:
        found = [orjson.loads(line) for line in whole if line.strip()]
    except orjson.JSONDecodeError:
        try:
            found = [orjson.loads(b"".join(whole))]
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{source}: neither one JSON document nor one a line ({error})") from error
    for one in found:
        for item in one if isinstance(one, list) else [one]:
            if isinstance(item, dict):
                yield item


def records_of(lines: Lines, source: str) -> Iterator[dict[str, Any]]:
    """Objects of a log with one a line; a line cut short, as logs of killed programs end, is left out."""
    good = bad = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            bad += 1
            continue
        if isinstance(record, dict):
            good += 1
            yield record
    if bad and not good:
        raise ConfigError(f"{source}: no line of it is JSON")


def _shortened(result: Any) -> Any:
    if isinstance(result, str):
        return result[:MAX_TEXT]
    return result if len(orjson.dumps(result)) <= 10 * MAX_TEXT else orjson.dumps(result).decode()[:MAX_TEXT]
