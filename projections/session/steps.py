"""Steps: the calls of an agent, a parallel batch as one, the latest finished calls, and how the steps repeat."""

from __future__ import annotations

import msgspec

MAX_CYCLE = 6
"""Longest cycle of steps that is seen."""

_MASK = (1 << 64) - 1
"""Numbers are kept to 64 bits; by a mask, which is faster than a remainder."""

_ODD, _ODDER = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Odd, so that multiplying loses nothing, with bits spread evenly."""


class Done(msgspec.Struct, array_like=True):
    """One finished call in the window of steps: what it was, what it gave (0: unknown), and when it started."""

    step: int
    call: int
    result: int
    tool_name: str
    event_id: str
    at_ms: int = 0


class Steps(msgspec.Struct, array_like=True):
    """The steps of one agent. Calls that start before any of a batch has finished share a step.

    Attributes:
        number: of the current step.
        open_calls: calls of the current step still open.
        sealed: a call of the current step has finished, so the next start begins a new step.
        mix: sum of the fingerprints of its finished calls, whatever their order.
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
    window: list[Done] = []
    cycle_tail: list[int] = []
    cycle_runs: list[int] = msgspec.field(default_factory=lambda: [0] * MAX_CYCLE)

    def call_started(self) -> int:
        """Number of the step of a call that starts."""
        if self.sealed:
            self.close()  # what is still open of the step before says nothing any more
            self.number += 1
            self.open_calls = 0
            self.sealed = False
        self.open_calls += 1
        return self.number

    def lone_call(self) -> int:
        """Number of the step of a call that has finished, and whose start was not seen: a step of its own."""
        self.close()
        self.number += 1
        self.open_calls, self.sealed = 1, True
        return self.number

    def call_finished(self, step: int, fingerprint: int) -> bool:
        """Count a finished call in its step; True when the step is complete and was added to the cycle's memory.

        A call of `fingerprint` 0 says nothing of the step, and a straggler nothing any more: its step was closed
        without it.
        """
        if step != self.number:
            return False
        self.sealed = True
        self.open_calls -= 1
        if fingerprint:
            self.mix = self.mix + fingerprint & _MASK
        return self.open_calls <= 0 and self.close()

    def close(self) -> bool:
        """Add the current step to the cycle's memory, with what is known of it; False when that is nothing."""
        fingerprint, self.mix = self.mix, 0
        if not fingerprint:
            return False
        tail, runs = self.cycle_tail, self.cycle_runs
        if fingerprint not in tail:  # nothing repeats: the usual case
            if any(runs):
                self.cycle_runs = [0] * MAX_CYCLE
        else:
            for period in range(1, MAX_CYCLE + 1):
                same = len(tail) >= period and tail[-period] == fingerprint
                runs[period - 1] = runs[period - 1] + 1 if same else 0
        tail.append(fingerprint)
        del tail[:-MAX_CYCLE]
        return True

    def remember(self, done: Done, window_steps: int) -> list[Done]:
        """Add a finished call to the window, drop what has left it, and give the same call's earlier ones in it."""
        window, call = self.window, done.call
        oldest = self.number - window_steps
        if window and window[0].step <= oldest:
            window = self.window = [one for one in window if one.step > oldest]
        same = [one for one in window if one.call == call]
        window.append(done)
        if len(window) > 4 * window_steps:
            del window[0]
        return same

    def forget(self) -> None:
        """Start afresh: nothing before this step counts."""
        self.progress = self.number
        self.window = []
        self.cycle_tail = []
        self.cycle_runs = [0] * MAX_CYCLE


def fingerprint_of(call: int, result: int) -> int:
    """One number for a call with its result, never 0; the sum of several tells which call gave which."""
    mixed = (call ^ result * _ODD) & _MASK
    return (mixed ^ mixed >> 29) * _ODDER & _MASK or 1
