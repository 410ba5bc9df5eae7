"""Steps of an agent (a call or a parallel batch), the window of the latest finished calls, and cycle counters."""

from __future__ import annotations

import msgspec

MAX_CYCLE = 6
"""Longest cycle that is detected, in steps."""

_MASK = (1 << 64) - 1
"""Mask that keeps numbers to 64 bits; faster than a remainder."""

_MULTIPLIER_1, _MULTIPLIER_2 = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Multipliers of the hash: odd, so that multiplication is reversible, with evenly spread bits."""


class FinishedStep(msgspec.Struct, array_like=True):
    """A finished call in the window of steps: fingerprints of call and result (0 unknown), and its start (ms)."""

    step: int
    call: int
    result: int
    tool_name: str
    event_id: str
    at_ms: int = 0


class Steps(msgspec.Struct, array_like=True):
    """Steps of one agent. Calls that start before any call of the batch has finished share a step.

    Attributes:
        number: number of the current step.
        open_calls: calls of the current step still open.
        sealed: whether a call of the current step has finished, so that the next start begins a new step.
        mix: sum of the fingerprints of its finished calls, independent of their order.
        progress: step of the last progress; repetition before it does not count.
        window: calls finished in the latest steps, oldest first.
        cycle_tail: fingerprints of the latest steps, newest last.
        cycle_runs: for periods 1 to MAX_CYCLE, how many steps in a row equalled the step one period earlier.
    """

    number: int = 0
    open_calls: int = 0
    sealed: bool = True
    mix: int = 0
    progress: int = 0
    window: list[FinishedStep] = []
    cycle_tail: list[int] = []
    cycle_runs: list[int] = msgspec.field(default_factory=lambda: [0] * MAX_CYCLE)

    def call_started(self) -> int:
        """Add a started call to the current or a new step; returns the step's number."""
        if self.sealed:
            self.close()  # calls of the previous step that are still open are ignored
            self.number += 1
            self.open_calls = 0
            self.sealed = False
        self.open_calls += 1
        return self.number

    def lone_call(self) -> int:
        """Begin a new step for a finished call without a start; returns the step's number."""
        self.close()
        self.number += 1
        self.open_calls, self.sealed = 1, True
        return self.number

    def call_finished(self, step: int, call: int, result: int) -> bool:
        """Count a finished call in its step; True if the step is complete and continues a cycle of several steps.

        `call` and `result` are fingerprints; a call with `result` 0 does not change the step's. A call of an earlier
        step is ignored, because that step was closed without it.
        """
        if step != self.number:
            return False
        self.sealed = True
        self.open_calls -= 1
        if result:  # the fingerprint of a pair is never 0; sums of several keep which call gave which result
            mixed = (call ^ result * _MULTIPLIER_1) & _MASK
            mixed = (mixed ^ mixed >> 29) * _MULTIPLIER_2 & _MASK or 1
            self.mix = self.mix + mixed & _MASK
        return self.open_calls <= 0 and self.close()

    def close(self) -> bool:
        """Add the current step to the cycle counters, if a call of it has a fingerprint.

        Returns:
            Whether the step continues a cycle of several steps; a single step that repeats is none.
        """
        fingerprint, self.mix = self.mix, 0
        if not fingerprint:
            return False
        tail, runs = self.cycle_tail, self.cycle_runs
        cycles = False
        if fingerprint not in tail:  # nothing repeats: the usual case
            if any(runs):
                self.cycle_runs = [0] * MAX_CYCLE
        else:
            for period in range(1, MAX_CYCLE + 1):
                same = len(tail) >= period and tail[-period] == fingerprint
                runs[period - 1] = runs[period - 1] + 1 if same else 0
            cycles = max(runs) > runs[0]
        tail.append(fingerprint)
        del tail[:-MAX_CYCLE]
        return cycles

    def remember(self, done: FinishedStep, window_steps: int) -> tuple[list[FinishedStep], bool]:
        """Add a finished call to the window, and drop calls outside it.

        Returns:
            Its earlier occurrences, oldest first, and whether its result is new to the window, or unknown.
        """
        window, call = self.window, done.call
        oldest = self.number - window_steps
        if window and window[0].step <= oldest:
            window = self.window = [one for one in window if one.step > oldest]
        same = [one for one in window if one.call == call]
        window.append(done)
        if len(window) > 4 * window_steps:
            del window[0]
        return same, not same or not done.result or all(one.result != done.result for one in same)

    def forget(self) -> None:
        """Clear window and cycle, so that nothing before this step counts; the next step clears the cycle counters."""
        self.progress = self.number
        self.window = []
        self.cycle_tail = []
