"""Lines of a result as the detectors read them, without what echoes the request; or what a sketch keeps of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from struct import unpack_from
from zlib import crc32

from ...schemas.result_sketch import LINE_BYTES, ResultSketch
from .novelty import SHORT_LINES, CallRequest, sampled

MAX_ECHO_BYTES = 4000  # In a longer result, and in one of more than `SHORT_LINES`, no line is compared with the request
MIN_QUOTE_BYTES = 8  # Shortest part of a request by which the first line of a result is recognised as its heading

MAX_NOTHING_BYTES = 200
_NOTHING = re.compile(
    rb'[\W_]{0,200}\Z|[\s"\[{]{0,8}(?:no |none\b|nothing|null\b|0 (?:results|matches|rows)|not found|empty)',
    re.IGNORECASE,
)
_ACKNOWLEDGEMENT_BYTES = 40
MAX_TELLING_LINES, MAX_TELLING_BYTES = 8, 600  # Beginning of a result by which it is recognised as an error

# Results of successful calls that report an error: a traceback, an error page of a server, a message
_ERROR = re.compile(
    rb"Traceback \(most recent call last\)|<title>\s{0,9}[45]\d\d\b"
    rb"|\b(?:bad gateway|service unavailable|gateway time-?out|internal server error|access denied)\b"
    rb"|\A\W{0,9}(?:error|fatal|exception)\b",
    re.IGNORECASE,
)

MAX_HIDDEN_BYTES = 300  # A longer result of a successful command is not searched for a program that was not found

_NOT_FOUND = b"not found"
_MASK = (1 << 32) - 1
_WITHOUT_LINES = frozenset({"empty", "echo"})


class ShownLines:
    """Lines of a result that are not empty and do not echo the request; false without any."""

    __slots__ = ("_checksums", "_lines", "only_echo")

    def __init__(self, lines: Sequence[bytes] = (), *, only_echo: bool = False) -> None:
        """Take lines as they are."""
        self._lines = lines
        self._checksums: list[int] | None = None
        self.only_echo = only_echo  # whether there is text, but no such line

    @classmethod
    def of(cls, lines: Sequence[bytes], size: int, request: CallRequest) -> ShownLines:
        """Return those of the lines of a result of this size (bytes)."""
        telling = _telling(lines, size, request)
        return cls(telling, only_echo=not telling and any(lines))

    def __bool__(self) -> bool:
        """Whether there are lines."""
        return bool(self._lines)

    def hashes(self) -> set[int]:
        """Hashes of the lines, of many lines a sample."""
        return sampled(set(self._each()))

    def answer(self) -> int:
        """Hash of all lines, in any order; 0 without any."""
        return sum(self._each()) & _MASK

    def _each(self) -> list[int]:
        """Checksums of the lines."""
        if self._checksums is None:
            self._checksums = list(map(crc32, self._lines))
        return self._checksums

    def is_nothing(self) -> bool:
        """Whether they say that there is nothing."""
        text = b"\n".join(self._lines)
        return len(text) < MAX_NOTHING_BYTES and _NOTHING.match(text) is not None

    def is_acknowledgement(self) -> bool:
        """Whether they are one word that says nothing but that the call worked."""
        if len(self._lines) != 1 or len(self._lines[0]) > _ACKNOWLEDGEMENT_BYTES:
            return False
        return not self.is_nothing() and len(self._lines[0].split()) == 1

    def tells_error(self) -> bool:
        """Whether they begin as an error does: with a traceback, an error page of a server, a message."""
        return _ERROR.search(b"\n".join(self._lines[:MAX_TELLING_LINES])[:MAX_TELLING_BYTES]) is not None

    def not_found(self) -> str:
        """Their text if it says that something was not found; else empty."""
        text = b"\n".join(self._lines)
        return text.decode(errors="replace") if _NOT_FOUND in text else ""


class SketchedLines:
    """The same, from the sketch of a result."""

    __slots__ = ("_sketch", "only_echo")

    def __init__(self, sketch: ResultSketch) -> None:
        """Take a sketch."""
        self._sketch = sketch
        self.only_echo = sketch.says == "echo"

    def __bool__(self) -> bool:
        """Whether there are lines; of many it may be that none is in the sample."""
        return self._sketch.says not in _WITHOUT_LINES

    def hashes(self) -> set[int]:
        """Hashes of the lines, of many lines a sample."""
        packed = self._sketch.lines
        return set(unpack_from(f"<{len(packed) // LINE_BYTES}I", packed))

    def answer(self) -> int:
        """Hash of all lines, in any order; 0 without any."""
        return self._sketch.answer

    def is_nothing(self) -> bool:
        """Whether they say that there is nothing."""
        return self._sketch.says == "nothing" or self._sketch.says in _WITHOUT_LINES

    def is_acknowledgement(self) -> bool:
        """Whether they are one word that says nothing but that the call worked."""
        return self._sketch.says == "word"

    def tells_error(self) -> bool:
        """Whether they begin as an error does: with a traceback, an error page of a server, a message."""
        return self._sketch.says == "error"

    def not_found(self) -> str:
        """Their text if it says that something was not found; else empty."""
        return self._sketch.text


Shown = ShownLines | SketchedLines

NO_LINES = ShownLines()


def _telling(lines: Sequence[bytes], size: int, request: CallRequest) -> Sequence[bytes]:
    """Lines of a result that are not empty and, in a short result (bytes), do not echo the request."""
    raw = request.raw
    if not raw or size > MAX_ECHO_BYTES or len(lines) > SHORT_LINES:
        return lines if all(lines) else list(filter(None, lines))
    if b": " in lines[0] and _is_heading(lines[0], request):
        lines = lines[1:]
    return [line for line in lines if line and (len(line) <= 3 or line not in raw or line not in request.shown)]


def _is_heading(line: bytes, request: CallRequest) -> bool:
    """Whether a line is a heading that quotes the request, as `Results for query: "…"` or `Command: …`."""
    quoted = line.partition(b": ")[2].strip(b"\\\"'`. ")
    return len(quoted) >= MIN_QUOTE_BYTES and quoted in request.raw and quoted in request.shown
