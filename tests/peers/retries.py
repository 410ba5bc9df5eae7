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
from trustfold.schemas.tool_envelopes import CallHints, ResultStatus

from .area import only, puts, reads, same
from .breakers import Breakers
from .case import Case, known, refuse_fields, there
from .guarded import OUTCOME_FIELDS, check_taken, failure_of, guard_over, outcome_of

_ATTEMPTS = frozenset({"outcome", "outcome_sequence", "tool_call"})
_LETTERS = {"S": {"ok": True}, "F": {"ok": False, "retriable": True}}
_CALL_FIELDS = frozenset(
    """tool args session outcomes script results responses attempts idempotent read_only retry_safe safety_critical key
    deadline_s deadline_ms max_attempts max_elapsed_ms max_elapsed_s""".split()
)
_SCRIPTS = ("outcomes", "script", "results", "responses", "attempts")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _part(event: dict[str, Any]) -> dict[str, Any]:
    """What an event says of the end of an attempt."""
    return {name: value for name, value in event.items() if name in OUTCOME_FIELDS}


class Retries(Breakers):
    """Cases of `retry` and `backoff`."""

    def __init__(self, case: Case, *, jitter: float = 1.0) -> None:
        """A guard over a world; a delay is `jitter` times its bound."""
        self.jitter = jitter
        super().__init__(case)
        self.guard = guard_over(self.world, jitter=jitter, retry=self.retry)

    def prepare(self) -> None:
        """The shipped policy; nothing has been called."""
        super().prepare()
        self.retry = RetryPolicy()
        self.nature: dict[str, Any] = {"idempotent": True}
        self.waiting: list[dict[str, Any]] = []
        self.call: dict[str, Any] = {}
        self.results: list[ToolResult] = []
        self.executions = 0
        self.failure: CallFailure | None = None
        self.delay: float | None = None
        self.upper_ms: list[float] = []

    # --- config -------------------------------------------------------------------------------------------------------

    KNOBS = {
        "retry": {
            "max_attempts": "max_attempts attempts",
            "base_ms": """base_ms base_delay_ms initial_delay_ms initial_ms base_s base_delay_s initial_delay_s
                base_delay""",
            "max_delay_ms": """max_delay_ms max_retry_delay_ms cap_ms max_backoff_ms max_delay_s max_retry_delay_s
                cap_s max_delay""",
            "max_elapsed_ms": """max_elapsed_ms retry_deadline_ms budget_ms deadline_ms max_elapsed_s
                retry_deadline_s budget_s deadline_s""",
        }
    }
    CONFIG = {
        "max_retries retries": lambda self, value: self.config_max_attempts(value + 1),
        # Full jitter is what there is; a peer without any waits as long as ours does at most.
        "jitter": only("jitter", (True, False, "full", "none"), "delays have full jitter"),
        "backoff backoff_factor multiplier factor": only("backoff", ("exponential", "expo", 2), "delays double"),
        "idempotent retry_safe": puts("nature", lambda value: {"idempotent": value}),
        "read_only": puts("nature", lambda value: {"read_only": value}),  # whether they only read
    }

    # --- what happens -------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """The last outcomes are a call, too."""
        super().play()
        self._call_waiting()
        check_taken(self.guard)

    def before(self, event: dict[str, Any]) -> None:
        """Outcomes that follow each other belong to one call."""
        kind = event.get("ev")
        call = {name: value for name, value in event.items() if name in _CALL_FIELDS} if kind == "tool_call" else {}
        if kind not in _ATTEMPTS or call != self.call:
            self._call_waiting()
        self.call = call

    @reads(OUTCOME_FIELDS, _CALL_FIELDS)
    def op_call(self, event: dict[str, Any]) -> None:
        """A call whose attempts end one after the other as it says."""
        script = next((event[name] for name in _SCRIPTS if name in event), None)
        if script is None:
            script = [_part(event)]
        elif _part(event):
            refuse_fields(event, {"ev", "name", "times", *_CALL_FIELDS}, "a call whose attempts are told one by one")
        self._call_tool([outcome_of(one) for one in script], event)

    def _delay(self, retry: int, jitter: float) -> float:
        """Milliseconds before a retry, counted from 0."""
        return delay_ms(self.retry, retry, lambda low, high: low + jitter * (high - low))

    @reads(OUTCOME_FIELDS)
    def op_classify(self, event: dict[str, Any]) -> None:
        """Somebody asks about a failure."""
        self.failure = of_exception(failure_of(_part(event)), now_ms=self.world.now_ms)

    def op_delay(self, retry: int | None = None, attempt: int = 1) -> None:
        """The wait before a retry: `retry` counts from 0, `attempt` is the one that failed, from 1."""
        self.delay = self._delay(attempt - 1 if retry is None else retry, self.jitter)

    OPS = {
        "execute run request invoke": op_call,
        # The circuit of the tool is in this state before the call; half-open, its probe is free.
        "breaker": lambda self, state, scope=None: self.bring(state, scope),
        "is_retriable is_retryable": op_classify,
        "backoff next_delay compute_delay": op_delay,
        # Of a bound, `attempt` is a retry, from 0.
        "delay_upper_bound": lambda self, attempt: self.upper_ms.append(self._delay(attempt, 1.0)),
    }

    EVENTS = {
        # How an attempt ends; the runs of one call follow each other.
        "outcome": reads(OUTCOME_FIELDS)(lambda self, event: self._end_attempt(event)),
        "tool_call": reads(OUTCOME_FIELDS, _CALL_FIELDS - set(_SCRIPTS))(lambda self, event: self._end_attempt(event)),
        "outcome_sequence": lambda self, pattern: self.waiting.extend(
            known(letter, _LETTERS, "letter") for letter in pattern
        ),
    }

    def _end_attempt(self, event: dict[str, Any]) -> None:
        self.waiting.append(outcome_of(_part(event)))

    def _call_waiting(self) -> None:
        script, self.waiting = self.waiting, []
        if script:
            self._call_tool(script, self.call)
        self.call = {}

    def _call_tool(self, script: list[dict[str, Any]], event: dict[str, Any]) -> None:
        made = 0

        async def attempt(**_: Any) -> Any:
            nonlocal made
            told = script[min(made, len(script) - 1)]
            made += 1
            self.executions += 1
            self.world.pass_time(told.get("duration_s", told.get("duration_ms", 0) / 1000))
            if not told["ok"]:
                raise failure_of(told)
            return told.get("result", told.get("output", "answer"))

        scope = self._scope(None)
        tool = str(event.get("tool", scope.partition(":")[2]))
        natures = ("idempotent", "read_only")
        nature = {name: event[name] for name in natures if name in event} or dict(self.nature)
        self.guard.register(tool, **nature)
        safe, critical = event.get("retry_safe"), event.get("safety_critical")
        hints = None if safe is critical is None else CallHints(expected_retry_safe=safe, safety_critical=critical)
        spans = {name: event.get(f"{name}_ms", _ms(event.get(f"{name}_s"))) for name in ("deadline", "max_elapsed")}
        options = {
            "idempotency_key": event.get("key"),
            "max_attempts": event.get("max_attempts"),
            "max_elapsed_ms": spans["max_elapsed"],
            "deadline_ms": spans["deadline"],
            "hints": hints,
        }
        session = str(event.get("session", self.world.session))
        args = dict(event.get("args") or {})
        self.results.append(asyncio.run(self.guard.call(tool, attempt, args, session_id=session, **options)))

    # --- what has come of it ------------------------------------------------------------------------------------------

    def _last(self) -> ToolResult:
        return there(self.results[-1] if self.results else None, "a call that nobody has made")

    def _shortest(self) -> Retries:
        """The same, with the shortest delays."""
        other = type(self)(self.case, jitter=0.0)
        other.play()
        return other

    def see_delay_ms(self) -> float | None:
        """The wait asked for, else the last one."""
        delays = self.see_delays_ms() if self.delay is None else [self.delay]
        return delays[-1] if delays else None

    def _below(self, least: float | None, wanted: float) -> str:
        return "" if least is not None and least >= wanted else f"the delay may be {least!r} ms, below {wanted!r}"

    CHECKS = {  # at least so long, however the dice fall
        "delay_ms_min delay_ms_at_least": lambda self, wanted: self._below(self._shortest().see_delay_ms(), wanted),
        "delay_s_min delay_s_at_least": lambda self, wanted: self._below(
            self._shortest().see_delay_ms(), wanted * 1000
        ),
        "total_delay_ms_min total_delay_ms_at_least": lambda self, wanted: self._below(
            self._shortest().see_total_delay_ms(), wanted
        ),
    }

    def _retriable(self) -> bool | None:
        """Whether the failure was worth another attempt."""
        failed = self.failure or self._last().error
        return None if failed is None else failed.retriable

    def _error_code(self) -> str | None:
        return getattr(self._last().error, "code", None)

    def see_result(self) -> Any:
        """How the last call ended, where that is asked for; else what the tool returned."""
        asked = self.expected.get("result")
        return self.see_status() if asked in set(ResultStatus) else self.see_output()

    def fault(self, name: str, wanted: Any) -> str:
        """Lists of delays: pairs are lowest and highest, single ones the highest that may come out."""
        if "delay" not in name or not isinstance(wanted, list) or hasattr(self, f"see_{name}"):
            return super().fault(name, wanted)
        factor = 1000 if name.endswith("_s") else 1
        pairs = bool(wanted) and all(isinstance(one, list) for one in wanted)
        if not pairs and not any(word in name for word in ("max", "upper", "at_most", "bound", "cap")):
            return super().fault(name, wanted)
        found: list[Any] = self.see_delay_bounds_ms() if pairs else self.see_delays_ms()
        asked = [[factor * end for end in one] if pairs else factor * one for one in wanted]
        return "" if same(asked, found) else f"{name}: delays are {found!r} ms, not {asked!r}"

    VIEWS = {
        "attempts": lambda self: self._last().attempts,  # attempts of the last call
        "retries": lambda self: max(0, self._last().attempts - 1),  # those that followed a failed one
        "executions calls total_calls total_attempts": lambda self: self.executions,
        "status final outcome": lambda self: str(self._last().status),  # how the last call ended
        "ok success succeeded": lambda self: self._last().ok,  # whether it worked
        "exhausted retry_exhausted gave_up": lambda self: str(self._last().status) == "retry_exhausted",
        "delays_ms delays_max_ms max_delays_ms upper_bounds_ms": lambda self: [
            one.delay_ms for one in self._last().retried_by
        ],
        "upper_ms": lambda self: self.upper_ms,  # results of all `delay_upper_bound`, in order
        "delays_s delays delays_max_s max_delays_s": lambda self: [one / 1000 for one in self.see_delays_ms()],
        "delays_min_ms min_delays_ms lower_bounds_ms": lambda self: self._shortest().see_delays_ms(),
        "delay_bounds_ms jitter_bounds_ms": lambda self: [
            list(pair) for pair in zip(self.see_delays_min_ms(), self.see_delays_ms(), strict=True)
        ],
        "max_delay_seen_ms": see_delay_ms,
        "delay_s delay": lambda self: None if (delay := self.see_delay_ms()) is None else delay / 1000,
        "total_delay_ms": lambda self: sum(self.see_delays_ms()),
        "retriable retryable retry should_retry": _retriable,
        "terminal": lambda self: None if (worth := self._retriable()) is None else not worth,
        "error_code error code": _error_code,
        "reasons reason_codes": lambda self: [one.reason_code for one in self._last().retried_by],
        "output": lambda self: self._last().output,  # what the tool returned
        "jitter": lambda self: "full",  # from 0 to the bound, whatever the policy
    }
