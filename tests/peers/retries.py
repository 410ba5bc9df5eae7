"""Trying again: what becomes of a call whose attempts end as the case says; through a real guard.

Outcomes that follow each other, and runs of one tool (`tool_call`), are the attempts of one call; the last of them
repeats for as long as the guard tries. A peer's tool may be called twice unless the case says otherwise. Delays are
drawn at their upper bounds; where a case asks for the least that may come out, it is played with the shortest, too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from trustfold.guard.attempts import delay_ms
from trustfold.guard.failure import CallFailure, of_exception
from trustfold.guard.result import ToolResult
from trustfold.guard.settings import RetryPolicy

from .area import Checked, only, puts, reads
from .breakers import LETTERS, Breakers
from .case import Case, UnknownWord, known, refuse_fields
from .endings import OUTCOME_FIELDS, failure_of, outcome_of

_ATTEMPTS = frozenset({"outcome", "outcome_sequence", "tool_call"})
_CALL_FIELDS = frozenset("tool args session idempotent key deadline_s deadline_ms max_attempts".split())


def _part(event: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name in fields}


class Retries(Breakers):
    """Cases of `retry` and `backoff`."""

    def __init__(self, case: Case, *, jitter: float = 1.0) -> None:
        """A guard over a world; a delay is `jitter` times its bound."""
        super().__init__(case)
        self.guard = self.world.guard(jitter=jitter, retry=self.policies["retry"])

    def prepare(self) -> None:
        super().prepare()
        self.policies["retry"] = RetryPolicy()
        self.idempotent = True
        self.waiting: list[dict[str, Any]] = []
        self.call: dict[str, Any] = {}
        self.result: ToolResult | None = None
        self.executions = 0

    KNOBS = {
        "retry": {
            "max_attempts": "max_attempts",
            "base_ms": "base_ms",
            "max_delay_ms": "max_delay_ms",
            "max_elapsed_ms": "deadline_s deadline_ms",
        }
    }
    CONFIG = {
        # Full jitter is what there is; a peer without any waits as long as ours does at most.
        "jitter": only("jitter", (True, False, "full", "none"), "delays have full jitter"),
        "idempotent": puts("idempotent"),
    }

    def before(self, event: dict[str, Any]) -> None:
        """Outcomes that follow each other belong to one call."""
        kind = event.get("ev")
        call = _part(event, _CALL_FIELDS) if kind == "tool_call" else {}
        if kind not in _ATTEMPTS or call != self.call:
            self.conclude()
        self.call = call

    def conclude(self) -> None:
        """The last outcomes are a call, too."""
        script, self.waiting = self.waiting, []
        if script:
            self._call_tool(script, self.call)

    @reads(OUTCOME_FIELDS, _CALL_FIELDS, "outcomes")
    def op_call(self, event: dict[str, Any]) -> None:
        """A call whose attempts end one after the other as it says."""
        script = event.get("outcomes", [_part(event, OUTCOME_FIELDS)])
        if "outcomes" in event:
            refuse_fields(
                event, {"ev", "name", "times", "outcomes", *_CALL_FIELDS}, "a call whose attempts are told one by one"
            )
        self._call_tool([outcome_of(one) for one in script], event)

    @reads(OUTCOME_FIELDS)
    def op_classify(self, event: dict[str, Any]) -> CallFailure:
        return of_exception(failure_of(_part(event, OUTCOME_FIELDS)), now_ms=self.world.now_ms)

    def _end_attempt(self, event: dict[str, Any]) -> None:
        self.waiting.append(outcome_of(_part(event, OUTCOME_FIELDS)))

    OPS = {
        "invoke": op_call,
        # The circuit of the tool is in this state before the call; half-open, its probe is free.
        "breaker": lambda self, state, scope=None: self.bring(state, scope),
        # Largest delay before a retry, counted from 0.
        "delay_upper_bound": lambda self, attempt: delay_ms(self.policies["retry"], attempt, lambda _low, high: high),
    }
    EVENTS = {
        # How an attempt ends; the runs of one call follow each other.
        "outcome": reads(OUTCOME_FIELDS)(lambda self, event: self._end_attempt(event)),
        "tool_call": reads(OUTCOME_FIELDS, _CALL_FIELDS)(lambda self, event: self._end_attempt(event)),
        "outcome_sequence": lambda self, pattern: self.waiting.extend(
            outcome_of({"ok": known(letter, LETTERS, "letter")}) for letter in pattern
        ),
    }

    def _call_tool(self, script: list[dict[str, Any]], event: dict[str, Any]) -> None:
        made = 0

        async def attempt(**_: Any) -> Any:
            nonlocal made
            told = script[min(made, len(script) - 1)]
            made += 1
            self.executions += 1
            self.world.pass_time(told.get("duration_s", 0))
            if not told["ok"]:
                raise failure_of(told)
            return told.get("result", "answer")

        tool = str(event.get("tool", self._scope(None).partition(":")[2]))
        self.guard.register(tool, idempotent=event.get("idempotent", self.idempotent))
        options = {
            "session_id": str(event.get("session", self.world.session)),
            "idempotency_key": event.get("key"),
            "max_attempts": event.get("max_attempts"),
            "deadline_ms": 1000 * event["deadline_s"] if "deadline_s" in event else event.get("deadline_ms"),
        }
        self.result = asyncio.run(self.guard.call(tool, attempt, dict(event.get("args") or {}), **options))

    def _last(self) -> ToolResult:
        if self.result is None:
            raise UnknownWord("a call that nobody has made")
        return self.result

    def _delays(self) -> list[float]:
        return [one.delay_ms for one in self._last().retried_by]

    def _shortest(self) -> list[float]:
        """Delays of the same, as short as they may come out."""
        other = type(self)(self.case, jitter=0.0)
        other.play()
        return other._delays()

    def _may_not_be_below(self, wanted: float) -> Checked:
        """Whether the last delay is at least so long, however the dice fall."""
        least = next(reversed(self._shortest()), None)
        return least is not None and least >= wanted, f"what may be {least!r} ms"

    def _retriable(self) -> bool | None:
        """Whether the failure was worth another attempt."""
        failed = self.answers["classify"][-1] if self.answers["classify"] else self._last().error
        return None if failed is None else failed.retriable

    CHECKS = {
        "delay_ms_min": _may_not_be_below,
        "delay_s_min": lambda self, wanted: self._may_not_be_below(1000 * wanted),
    }
    VIEWS = {
        "attempts": lambda self: self._last().attempts,  # those of the last call
        "executions": lambda self: self.executions,
        "status": lambda self: str(self._last().status),  # how the last call ended
        "ok": lambda self: self._last().ok,  # whether it worked
        "result": lambda self: self._last().output,  # what the tool returned
        "delays_max_ms": _delays,
        "delay_bounds_ms": lambda self: [
            list(pair) for pair in zip(self._shortest(), self._delays(), strict=True)
        ],  # lowest and highest that may come out
        "upper_ms": lambda self: self.answers["delay_upper_bound"],
        "retriable": _retriable,
        "terminal": lambda self: None if (worth := self._retriable()) is None else not worth,
        "error_code": lambda self: getattr(self._last().error, "code", None),
    }
