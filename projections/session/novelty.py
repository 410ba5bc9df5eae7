"""What an agent has seen: a bounded sketch of the lines of its results, and the request of a call in flight.

A result brings news if it holds lines that the agent has not seen; so a second pass over a file, an overlapping window
or the same answer to another question is told from work (docs/detection.md). Lines are kept as 32-bit hashes, of a long
result only a sample, so that every window of it can still be recognised.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import filterfalse
from typing import ClassVar, Self

import orjson

from ...security.redaction import redact_bytes
from ..snapshot import PackedValue

SHORT_LINES = 32  # Results of up to this many lines are remembered whole
SAMPLE_MASK = 7  # Of a longer result, lines are remembered whose hash has these bits clear: one in eight
ENOUGH_LINES = 3  # Number of sampled lines that decide whether a result brings news

MAX_REQUEST_BYTES = 600
MAX_SUMMARY_CHARS = 80


class RecentHashes(PackedValue):
    """Bounded set of 32-bit hashes that forgets those which have not been used for longest, a generation at a time.

    Class attributes:
        generation: number of hashes of a generation; between one and two generations are remembered.
    """

    __slots__ = ("old", "young")

    generation: ClassVar[int] = 256

    def __init__(self, young: Iterable[int] = (), old: Iterable[int] = ()) -> None:
        """Create a set of two generations."""
        self.young = set(young)
        self.old = set(old)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same hashes."""
        return isinstance(other, RecentHashes) and (self.young, self.old) == (other.young, other.old)

    __hash__ = None  # type: ignore[assignment]

    def new_of(self, hashes: set[int]) -> set[int]:
        """Those of some hashes that are not remembered."""
        new = hashes - self.young
        return new - self.old if new else new

    def add(self, hashes: set[int]) -> None:
        """Remember hashes, not more than a generation, as the latest used ones."""
        generation, young = self.generation, self.young
        if len(young) + len(hashes) > generation and len(young | hashes) > generation:
            self.old, self.young = young, set(hashes)
        else:
            young |= hashes

    def clear(self) -> None:
        """Forget everything."""
        self.young, self.old = set(), set()

    def pack(self) -> bytes:
        """Return both generations as numbers of 32 bits, each sorted, behind the size of the first."""
        young = sorted(self.young)
        return array("I", [len(young), *young, *sorted(self.old)]).tobytes() if young else b""

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the set of a packed form."""
        numbers = array("I", packed)
        count = numbers[0] if numbers else 0
        return cls(numbers[1 : 1 + count], numbers[1 + count :])


class SeenLines(RecentHashes):
    """Sketch of the lines that an agent has seen."""

    __slots__ = ()

    def look(self, kept: set[int]) -> tuple[int, int]:
        """Remember lines, as `sampled`; returns how many of them decide about news, and how many of those are new."""
        judged = kept
        if len(kept) > ENOUGH_LINES:
            chosen = set(filterfalse(SAMPLE_MASK.__and__, kept))
            if len(chosen) >= ENOUGH_LINES:
                judged = chosen
        new = self.new_of(judged)
        self.add(kept)
        return len(judged), len(new)


def sampled(lines: set[int]) -> set[int]:
    """Lines of a result that are remembered: of more than `SHORT_LINES` a sample, of too many the smallest."""
    if len(lines) > SHORT_LINES:
        lines = set(filterfalse(SAMPLE_MASK.__and__, lines))
        if len(lines) > SeenLines.generation:
            lines = set(sorted(lines)[: SeenLines.generation])
    return lines


class CallRequest(PackedValue):
    """Beginning of what a call in flight asks for, as JSON that may be cut off: its command line or its arguments.

    Its snapshot holds it without secrets, and so is everything that leaves the fold.
    """

    __slots__ = ("_shown", "raw")

    def __init__(self, raw: bytes = b"", *, clean: bool = False) -> None:
        """Keep at most `MAX_REQUEST_BYTES`; `clean` says that it holds no secret."""
        self.raw = raw[:MAX_REQUEST_BYTES]
        self._shown: bytes | None = self.raw if clean else None

    @classmethod
    def of_command(cls, shown: str) -> Self:
        """Return the request of a command line without secrets."""
        return cls(_COMMAND[:-1] + orjson.dumps(shown[:MAX_REQUEST_BYTES]), clean=True)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same request."""
        return isinstance(other, CallRequest) and self.shown == other.shown

    __hash__ = None  # type: ignore[assignment]

    def within(self, size: int) -> CallRequest:
        """Return the request, of a longer one its first bytes; cut without its secrets, as half of one is none."""
        return self if len(self.raw) <= size else CallRequest(self.shown[:size], clean=True)

    @property
    def shown(self) -> bytes:
        """The request without secrets."""
        if self._shown is None:
            self._shown = redact_bytes(self.raw)
        return self._shown

    def pack(self) -> bytes:
        """Return the request without secrets."""
        return self.shown

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the request of a packed form."""
        return cls(packed, clean=True)

    def command(self) -> bytes:
        """The command line as it stands in its JSON, or the program of a tool that runs code; else empty."""
        raw = self.raw
        if raw.startswith(_COMMAND):
            return raw[len(_COMMAND) : -1] if raw.endswith(b'"') else raw[len(_COMMAND) :]
        found = _CODE.search(raw)
        return found[1] if found is not None else b""

    def text(self) -> str:
        """The command line, query, path, URL or other argument that tells most; else the JSON; without secrets."""
        return _telling_texts(self.shown)[0]

    def summary(self) -> str:
        """The request in one short line, for people and models."""
        return _summary(self.shown)


@lru_cache(maxsize=1024)
def _telling_texts(request: bytes) -> Sequence[str]:
    """The arguments that tell most, the first of them most; one or more; cached, as several detectors ask for them."""
    if request.startswith(_COMMAND):
        command = request[len(_COMMAND) :]
        if b"\\" not in command and b'"' not in command[:-1]:  # the usual case: nothing else, and nothing escaped
            return [command.removesuffix(b'"').decode(errors="replace")]
        with suppress(orjson.JSONDecodeError):
            return [orjson.loads(b'"' + command)]
    shown = request.decode(errors="replace")
    try:
        args = orjson.loads(shown)
    except orjson.JSONDecodeError:
        args = {name: _unescaped(text) for name, text in _CUT_FIELD.findall(shown)}
    if not isinstance(args, dict):
        return [shown]
    telling = [value for name in TELLING_ARGS if isinstance(value := args.get(name), str) and value]
    only = next(iter(args.values())) if len(args) == 1 else None
    return telling or [only if isinstance(only, str) else "" if shown == "{}" else shown]


@lru_cache(maxsize=1024)
def _summary(request: bytes) -> str:
    """Summary of a request without secrets; cached, since it is asked for where requests repeat.

    A single word (`str_replace`, `key`) tells too little alone, if more follows.
    """
    first, *rest = _telling_texts(request)
    text = f"{first} {rest[0]}" if rest and first.isidentifier() else first
    line = " ".join(text[: 4 * MAX_SUMMARY_CHARS].split())
    return line if len(line) <= MAX_SUMMARY_CHARS else f"{line[: MAX_SUMMARY_CHARS - 1]}…"


NO_REQUEST = CallRequest(clean=True)  # Request of a call whose arguments are unknown

_COMMAND = b'{"command":"'
_CODE = re.compile(rb'"(?:code|script|source)":"((?:[^"\\]++|\\.)*+)')
_CUT_FIELD = re.compile(r'"(\w{1,40})":"((?:[^"\\]++|\\.)*+)')  # Text fields of JSON that is cut off


def _unescaped(text: str) -> str:
    """Text of JSON without its escapes; as it is where the last one is cut off."""
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return text


TELLING_ARGS = (
    "command", "cmd", "script", "query", "sql", "statement", "code", "input", "file_path", "path", "notebook_path",
    "filename", "url", "uri", "pattern", "action", "description", "prompt", "text", "message", "name",
)  # fmt: skip
