"""Sketches in place of results: a history keeps no results, but what the folds read of them.

A recorded event is decided as the original was (`whatif`), also under other rules. What the folds read of a result is
its fingerprint, its failure, and hashes of its lines, by which they know what the agent has seen. The hashes are keyed
with a secret of the recorder, which is not in the recorded files: a reader can tell that two lines of a history are
equal, but cannot try what a line may have been. See docs/decisions/0100.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import pack
from typing import Literal

from msgspec import UNSET, Raw, structs

from ..projections.calls.classify import MAX_MESSAGE_CHARS, failure_in_result
from ..projections.session.novelty import SAMPLE_MASK, CallRequest
from ..projections.session.shown_lines import MAX_ECHO_BYTES, MAX_HIDDEN_BYTES, ShownLines
from ..projections.session.verdicts import (
    NEUTRAL_STATUS,
    NO_ERROR,
    failure_lines,
    failure_of,
    raw_result,
    read_result,
    text_of,
)
from ..schemas.events import ToolCallFinished, json_of
from ..schemas.result_sketch import LINE_BYTES, ReportedFailure, ResultSketch
from ..schemas.vocabulary import CallStatus

_NOTHING = ResultSketch()


def _says(shown: ShownLines) -> Literal["nothing", "word", "error"] | None:
    if shown.is_nothing():
        return "nothing"
    return "word" if shown.is_acknowledgement() else "error" if shown.tells_error() else None


class ResultSketcher:
    """Replaces results by sketches whose hashes are keyed with a secret."""

    def __init__(self, key: bytes) -> None:
        """Hash with a key of at most 64 bytes."""
        self._prepared = blake2b(key=key, digest_size=LINE_BYTES)

    def without_result(self, event: ToolCallFinished, request: CallRequest) -> ToolCallFinished:
        """Event of a call with this request without its result, with a sketch of what was in it and in its error."""
        raw = raw_result(event)
        if event.result is not UNSET:
            event = structs.replace(event, result=UNSET, result_sketch=None)
        if event.result_sketch is not None:
            return event
        parsed = json_of(Raw(raw)) if raw[:1] in {b"{", b"["} else None
        error = event.error if event.error != NO_ERROR else None
        told = failure_of(error) if error is not None else failure_in_result(parsed)
        size = len(raw)
        sketch = ResultSketch(size=size)
        lines: Sequence[bytes] = ()
        if raw:
            fingerprint, lines = read_result(raw, parsed)
            sketch = ResultSketch(f"{fingerprint:016x}", size)
        failed = event.status is not CallStatus.SUCCESS or told is not None
        if failed:
            text = (text_of(raw, parsed) if told is None else told.message)[:MAX_MESSAGE_CHARS]
            lines, size = failure_lines(text), len(text)
            if told is None:
                sketch = structs.replace(sketch, text=text)
            elif error is None:
                sketch = structs.replace(sketch, failure=ReportedFailure(*told))
        if lines and not event.from_cache and event.status not in NEUTRAL_STATUS:
            shown = ShownLines.of(lines, size, request)
            sketch = self._with_lines(sketch, shown)
            if shown and not failed:
                sketch = self._with_answer(sketch, shown)
        return event if sketch == _NOTHING else structs.replace(event, result_sketch=sketch)

    def _with_lines(self, sketch: ResultSketch, shown: ShownLines) -> ResultSketch:
        if not shown:
            return structs.replace(sketch, says="echo" if shown.only_echo else "empty")
        hashes = sorted(map(self._line, shown.hashes()))
        return structs.replace(sketch, lines=pack(f"<{len(hashes)}I", *hashes))

    def _with_answer(self, sketch: ResultSketch, shown: ShownLines) -> ResultSketch:
        return structs.replace(
            sketch,
            text=shown.not_found() if sketch.size < MAX_HIDDEN_BYTES else "",
            answer=self._keyed(shown.answer()) if sketch.size <= MAX_ECHO_BYTES else 0,
            says=_says(shown),
        )

    def _line(self, line: int) -> int:
        """Keyed hash of a line, which is in the sample of a long result if the line is."""
        keyed = self._keyed(line)
        return keyed | 1 if line & SAMPLE_MASK else keyed & ~SAMPLE_MASK

    def _keyed(self, number: int) -> int:
        hashed = self._prepared.copy()
        hashed.update(number.to_bytes(LINE_BYTES, "little"))
        return int.from_bytes(hashed.digest(), "little")
