"""Steps of an agent (the calls of one message), the window of the latest finished calls, and cycle counters."""

from __future__ import annotations

import re
from array import array
from collections import deque
from itertools import accumulate, pairwise
from typing import Self

import msgspec

from ..snapshot import PackedValue
from .novelty import SeenLines

MAX_CYCLE = 6  # Longest cycle that is detected, in steps

# Number of finished calls that are remembered, where the window of steps is shorter; more only of parallel calls
MAX_WINDOW_CALLS = 40

_MASK = (1 << 64) - 1  # Mask that keeps numbers to 64 bits; faster than a remainder

# Multipliers of the hash: odd, so that multiplication is reversible, with evenly spread bits
_MULTIPLIER_1, _MULTIPLIER_2 = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F

ACTED, MAY_HAVE_CHANGED, FAILED, WAITED, NEWS, PAUSED = 1, 2, 4, 8, 16, 32  # Bits of `FinishedStep.marks`

# Time without a call after which somebody may have waited for the next look; a model may have thought as long
PAUSE_MS = 20_000

WAIT_MS = 60_000  # Time without a call after which somebody has surely waited for the next look


class FinishedStep(msgspec.Struct, array_like=True):
    """A finished call in the window of steps: fingerprints of call and result (0 unknown), and its start (ms)."""

    step: int
    call: int
    result: int
    tool_name: str
    event_id: str
    at_ms: int = 0
    # what is known of it, as bits: ACTED an action, MAY_HAVE_CHANGED a success of unknown effect, FAILED, WAITED it
    # waits for something, or something woke the model before it, NEWS a success whose result held something new, PAUSED
    # no call ran for `PAUSE_MS` before it
    marks: int = 0


class _WindowColumns(msgspec.Struct, array_like=True):
    """Columns of a window: 64-bit fingerprints, tools as places in a list, and differences of steps and times."""

    calls: bytes
    results: bytes
    steps: list[int]
    times: list[int]
    marks: list[int]
    tools: list[str]
    tool: list[int]
    ids: bytes | list[str]  # ids of events; of UUIDs, which nearly all are, their bytes


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_DIGITS = 32
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_WindowColumns).decode


class StepWindow(deque[FinishedStep], PackedValue):
    """Window of finished calls, oldest first; a snapshot holds its columns, in half the bytes."""

    def pack(self) -> bytes:
        """Return its columns."""
        if not self:
            return b""
        ids = [one.event_id for one in self]
        plain = all(map(_UUID.fullmatch, ids))
        places = {name: place for place, name in enumerate(dict.fromkeys(one.tool_name for one in self))}
        columns = _WindowColumns(
            array("Q", [one.call for one in self]).tobytes(),
            array("Q", [one.result for one in self]).tobytes(),
            _differences([one.step for one in self]),
            _differences([one.at_ms for one in self]),
            [one.marks for one in self],
            list(places),
            [places[one.tool_name] for one in self],
            bytes.fromhex("".join(ids).replace("-", "")) if plain else ids,
        )
        return _encode(columns)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the window of these columns."""
        if not packed:
            return cls()
        its = _decode(packed)
        ids = its.ids
        if isinstance(ids, bytes):
            digits = ids.hex()
            ids = [_uuid(digits[at : at + _UUID_DIGITS]) for at in range(0, len(digits), _UUID_DIGITS)]
        calls, results = array("Q", its.calls), array("Q", its.results)
        names = map(its.tools.__getitem__, its.tool)
        rows = zip(accumulate(its.steps), calls, results, names, ids, accumulate(its.times), its.marks, strict=True)
        return cls(FinishedStep(*row) for row in rows)


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _differences(numbers: list[int]) -> list[int]:
    """Return the first number, and for each other one its difference from the one before."""
    return [numbers[0], *(after - before for before, after in pairwise(numbers))]


class AgentSteps(msgspec.Struct, array_like=True):
    """Steps of one agent: the calls of one message of the model, which has seen none of their results in between.

    Calls belong together by the `message_id` of their starts, else if they start before any call of the batch has
    finished.
    """

    number: int = 0  # number of the current step
    open_calls: int = 0  # calls of the current step still open
    # whether a call of the current step has finished, so that a start of another message begins a new step
    sealed: bool = True
    mix: int = 0  # sum of the fingerprints of its finished calls, independent of their order
    progress: int = 0  # step of the last progress; repetition before it does not count
    window: StepWindow = msgspec.field(default_factory=StepWindow)  # calls finished in the latest steps, oldest first
    cycle_tail: list[int] = []  # fingerprints of the latest complete steps, newest last
    # for periods 1 to MAX_CYCLE, how many of them in a row equalled the step one period earlier
    cycle_runs: list[int] = msgspec.field(default_factory=lambda: [0] * MAX_CYCLE)
    message: int = 0  # digest of the id of the message that made the current step's calls; 0 unknown
    workspace: int = 0  # digest of the latest known state of the workspace; 0 unknown
    woken: bool = False  # whether a timer, a report or another agent woke the model since the latest finished call
    seen: SeenLines = msgspec.field(default_factory=SeenLines)  # sketch of the lines that the agent has seen

    def call_started(self, message: int) -> int:
        """Add a started call, of the message with this digest, to the current or a new step; returns its number."""
        if self.sealed if not message or not self.message else message != self.message:
            self._complete()  # calls of the previous step that are still open are ignored
            self.number += 1
            self.open_calls = 0
            self.sealed = False
        self.message = message
        self.open_calls += 1
        return self.number

    def lone_call(self) -> int:
        """Begin a new step for a finished call without a start; returns the step's number."""
        self._complete()
        self.number += 1
        self.open_calls, self.sealed, self.message = 1, True, 0
        return self.number

    def call_finished(self, step: int, call: int, result: int) -> tuple[int, ...]:
        """Count a finished call in its step.

        Args:
            step: number of the call's step; a call of an earlier step is ignored, as that step is complete without it.
            call: fingerprint of the call.
            result: fingerprint of its result; 0 does not change the step's.

        Returns:
            If no call of the step is open and it continues a cycle of several steps: for each period how many steps in
            a row equal the step one period earlier, this one included; else nothing.
        """
        if step != self.number:
            return ()
        self.sealed = True
        self.open_calls -= 1
        if result:  # the fingerprint of a pair is never 0; sums of several keep which call gave which result
            mixed = (call ^ result * _MULTIPLIER_1) & _MASK
            mixed = (mixed ^ mixed >> 29) * _MULTIPLIER_2 & _MASK or 1
            self.mix = self.mix + mixed & _MASK
        if self.open_calls > 0 or self.mix not in self.cycle_tail:
            return ()
        runs = self._runs(self.mix)
        return tuple(runs) if max(runs) > runs[0] else ()

    def _runs(self, fingerprint: int) -> list[int]:
        """Cycle counters after a step with this fingerprint."""
        tail, runs = self.cycle_tail, self.cycle_runs
        return [
            runs[period - 1] + 1 if len(tail) >= period and tail[-period] == fingerprint else 0
            for period in range(1, MAX_CYCLE + 1)
        ]

    def _complete(self) -> None:
        """Add the current step to the cycle counters, if a call of it has a fingerprint."""
        fingerprint, self.mix = self.mix, 0
        if not fingerprint:
            return
        tail = self.cycle_tail
        if fingerprint in tail:
            self.cycle_runs = self._runs(fingerprint)
        elif any(self.cycle_runs):  # nothing repeats: the usual case
            self.cycle_runs = [0] * MAX_CYCLE
        tail.append(fingerprint)
        del tail[:-MAX_CYCLE]

    def earlier(self, call: int, window_steps: int) -> list[FinishedStep]:
        """Return the occurrences of a call in the latest steps, oldest first, and drop what lies before them."""
        window = self.window
        oldest, most = self.number - window_steps, max(window_steps, MAX_WINDOW_CALLS)
        while window and (window[0].step <= oldest or len(window) >= most):
            window.popleft()
        return [one for one in window if one.call == call and one.step > oldest]

    def waited_since(self, step: int, marks: int = WAITED) -> bool:
        """Whether the agent waited between a step and now; with PAUSED in `marks`, whether it may have waited."""
        return any(one.step > step and one.marks & marks for one in self.window)

    def compacted(self) -> None:
        """Forget results that the model has seen, and cycles of them; failures count on."""
        self.window = StepWindow(one for one in self.window if one.marks & FAILED)
        self.cycle_tail, self.cycle_runs = [], [0] * MAX_CYCLE
        self.seen.clear()

    def forget(self) -> None:
        """Clear window and cycle, so that nothing before this step counts; the next step clears the cycle counters."""
        self.progress = self.number
        self.window = StepWindow()
        self.cycle_tail = []
