"""Trying again: what becomes of a call whose attempts end as the case says; through a real guard.

Outcomes that follow each other, and runs of one tool (`tool_call`), are the attempts of one call; the last of them
repeats for as long as the guard tries. A peer's tool may be called twice unless the case says otherwise. Delays are
drawn at their upper bounds; where a case asks for the least that may come out, it is played with the shortest, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from trustfold.guard.attempts import delay_ms
from trustfold.guard.failure import CallFailure, of_exception
from trustfold.guard.result import ToolResult
from trustfold.guard.settings import RetryPolicy
from trustfold.schemas.tool_envelopes import CallHints, ResultStatus

from .area import reads, refuse_fields, same
from .breakers import Breakers
from .case import Case, UnknownWord
from .guarded import OUTCOME_FIELDS, check_taken, failure_of, guard_over, outcome_of

_ATTEMPTS = frozenset({"outcome", "outcome_sequence", "tool_call"})
_LETTERS = {"S": {"ok": True}, "F": {"ok": False, "retriable": True}}
_CALL_FIELDS = frozenset(
    """tool args session outcomes script results responses attempts idempotent read_only retry_safe safety_critical key
    deadline_s deadline_ms max_attempts max_elapsed_ms max_elapsed_s""".split()
)
_SCRIPTS = ("outcomes", "script", "results", "responses", "attempts")


def _sets(field: str, factor: float = 1, *, more: int = 0) -> Callable[[Retries, Any], None]:
    def read(self: Retries, value: Any) -> None:
        self.policy_fields[field] = value * factor + more

    return read


def _shows(field: str, factor: float = 1) -> Callable[[Retries], float]:
    return lambda self: getattr(self.retry, field) / factor


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
        self.policy_fields: dict[str, Any] = {}
        self.retry = RetryPolicy()
        self.nature: dict[str, Any] = {"idempotent": True}
        self.waiting: list[dict[str, Any]] = []
        self.call: dict[str, Any] = {}
        self.results: list[ToolResult] = []
        self.executions = 0
        self.failure: CallFailure | None = None
        self.delay: float | None = None
        self.upper_ms: list[float] = []

    def conclude_config(self) -> None:
        """One policy for every call."""
        super().conclude_config()
        self.retry = RetryPolicy(**self.policy_fields)

    # --- config -------------------------------------------------------------------------------------------------------

    config_max_attempts = config_attempts = _sets("max_attempts")
    config_max_retries = config_retries = _sets("max_attempts", more=1)
    config_base_ms = config_base_delay_ms = config_initial_delay_ms = config_initial_ms = _sets("base_ms")
    config_base_s = config_base_delay_s = config_initial_delay_s = config_base_delay = _sets("base_ms", 1000)
    config_max_delay_ms = config_max_retry_delay_ms = config_cap_ms = config_max_backoff_ms = _sets("max_delay_ms")
    config_max_delay_s = config_max_retry_delay_s = config_cap_s = config_max_delay = _sets("max_delay_ms", 1000)
    config_max_elapsed_ms = config_retry_deadline_ms = config_budget_ms = _sets("max_elapsed_ms")
    config_max_elapsed_s = config_retry_deadline_s = config_budget_s = _sets("max_elapsed_ms", 1000)

    config_deadline_ms = config_max_elapsed_ms
    config_deadline_s = config_max_elapsed_s

    def config_jitter(self, value: Any) -> None:
        """Full jitter is what there is; a peer without any waits as long as ours does at most."""
        if value not in {True, False, "full", "none"}:
            raise UnknownWord(f"jitter {value!r}: delays have full jitter")

    def config_backoff(self, value: Any) -> None:
        """Delays double."""
        if value not in {"exponential", "expo", 2}:
            raise UnknownWord(f"backoff {value!r}: delays double")

    config_backoff_factor = config_multiplier = config_factor = config_backoff

    def config_idempotent(self, value: bool) -> None:
        """Whether the tools of the case may be called twice."""
        self.nature = {"idempotent": value}

    config_retry_safe = config_idempotent

    def config_read_only(self, value: bool) -> None:
        """Whether they only read."""
        self.nature = {"read_only": value}

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

    @reads(OUTCOME_FIELDS, "times")
    def event_outcome(self, event: dict[str, Any]) -> None:
        """How attempts end."""
        self.waiting += [outcome_of(_part(event))] * int(event.get("times", 1))

    @reads("pattern")
    def event_outcome_sequence(self, event: dict[str, Any]) -> None:
        """The same, by letters."""
        unknown = sorted(set(event["pattern"]) - set(_LETTERS))
        if unknown:
            raise UnknownWord(f"{unknown[0]!r} in a sequence of outcomes")
        self.waiting += [_LETTERS[letter] for letter in event["pattern"]]

    @reads(OUTCOME_FIELDS, _CALL_FIELDS - set(_SCRIPTS), "times")
    def event_tool_call(self, event: dict[str, Any]) -> None:
        """Runs of a tool; those of one call follow each other."""
        self.waiting += [outcome_of(_part(event))] * int(event.get("times", 1))

    @reads(OUTCOME_FIELDS, _CALL_FIELDS, "times")
    def op_call(self, event: dict[str, Any]) -> None:
        """A call whose attempts end one after the other as it says."""
        script = next((event[name] for name in _SCRIPTS if name in event), None)
        if script is None:
            script = [_part(event)]
        elif _part(event):
            refuse_fields(event, {"ev", "name", "times", *_CALL_FIELDS}, "a call whose attempts are told one by one")
        if isinstance(script, str):
            script = list(script)
        for _ in range(int(event.get("times", 1))):
            self._call_tool([outcome_of(one) for one in script], event)

    op_execute = op_run = op_request = op_invoke = op_call

    @reads("scope state")
    def op_breaker(self, event: dict[str, Any]) -> None:
        """The circuit of the tool is in this state before the call; half-open, its probe is free."""
        self._bring(event)

    @reads(OUTCOME_FIELDS)
    def op_classify(self, event: dict[str, Any]) -> None:
        """Whether a failure is worth another attempt."""
        told = _part(event)
        self.failure = of_exception(failure_of(told), now_ms=self.world.now_ms)

    op_is_retriable = op_is_retryable = op_classify

    @reads("retry attempt")
    def op_delay(self, event: dict[str, Any]) -> None:
        """How long a retry waits: `retry` counts from 0, `attempt` is the one that failed, from 1."""
        retry = int(event["retry"]) if "retry" in event else int(event.get("attempt", 1)) - 1
        self.delay = delay_ms(self.retry, retry, lambda low, high: low + self.jitter * (high - low))

    op_backoff = op_next_delay = op_compute_delay = op_delay

    @reads("attempt")
    def op_delay_upper_bound(self, event: dict[str, Any]) -> None:
        """The largest delay before a retry, counted from 0."""
        self.upper_ms.append(delay_ms(self.retry, int(event["attempt"]), lambda _low, high: high))

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
        deadline = event.get("deadline_ms", 1000 * event["deadline_s"] if "deadline_s" in event else None)
        elapsed = event.get("max_elapsed_ms", 1000 * event["max_elapsed_s"] if "max_elapsed_s" in event else None)
        options = {
            "idempotency_key": event.get("key"),
            "max_attempts": event.get("max_attempts"),
            "max_elapsed_ms": elapsed,
            "deadline_ms": deadline,
            "hints": hints,
        }
        session = str(event.get("session", self.world.session))
        args = dict(event.get("args") or {})
        self.results.append(asyncio.run(self.guard.call(tool, attempt, args, session_id=session, **options)))

    # --- what has come of it ------------------------------------------------------------------------------------------

    def _last(self) -> ToolResult:
        if not self.results:
            raise UnknownWord("a call that nobody has made")
        return self.results[-1]

    def _shortest(self) -> Retries:
        """The same, with the shortest delays."""
        other = type(self)(self.case, jitter=0.0)
        other.play()
        return other

    def see_attempts(self) -> int:
        """Attempts of the last call."""
        return self._last().attempts

    def see_retries(self) -> int:
        """Those that followed a failed one."""
        return max(0, self._last().attempts - 1)

    def see_executions(self) -> int:
        """How often tools were called in all."""
        return self.executions

    see_calls = see_total_calls = see_total_attempts = see_executions

    def see_status(self) -> str:
        """How the last call ended."""
        return str(self._last().status)

    see_final = see_outcome = see_status

    def see_ok(self) -> bool:
        """Whether it worked."""
        return self._last().ok

    see_success = see_succeeded = see_ok

    def see_exhausted(self) -> bool:
        """Whether attempts or time were used up."""
        return str(self._last().status) == "retry_exhausted"

    see_retry_exhausted = see_gave_up = see_exhausted

    def see_delays_ms(self) -> list[float]:
        """Waits before the retries of the last call; at their bounds."""
        return [one.delay_ms for one in self._last().retried_by]

    see_delays_max_ms = see_max_delays_ms = see_upper_bounds_ms = see_delays_ms

    def see_upper_ms(self) -> list[float]:
        """Results of all `delay_upper_bound`, in order."""
        return self.upper_ms

    def see_delays_s(self) -> list[float]:
        """The same in seconds."""
        return [one / 1000 for one in self.see_delays_ms()]

    see_delays = see_delays_max_s = see_max_delays_s = see_delays_s

    def see_delays_min_ms(self) -> list[float]:
        """The shortest that they may be."""
        return self._shortest().see_delays_ms()

    see_min_delays_ms = see_lower_bounds_ms = see_delays_min_ms

    def see_delay_bounds_ms(self) -> list[list[float]]:
        """Both."""
        return [list(pair) for pair in zip(self.see_delays_min_ms(), self.see_delays_ms(), strict=True)]

    see_jitter_bounds_ms = see_delay_bounds_ms

    def see_delay_ms(self) -> float | None:
        """The wait asked for, else the last one."""
        delays = self.see_delays_ms() if self.delay is None else [self.delay]
        return delays[-1] if delays else None

    see_max_delay_seen_ms = see_delay_ms

    def see_delay_s(self) -> float | None:
        """The same in seconds."""
        delay = self.see_delay_ms()
        return None if delay is None else delay / 1000

    see_delay = see_delay_s

    def see_total_delay_ms(self) -> float:
        """All waits of the last call."""
        return sum(self.see_delays_ms())

    def check_delay_ms_min(self, wanted: float) -> str:
        """At least so long, however the dice fall."""
        least = self._shortest().see_delay_ms()
        return "" if least is not None and least >= wanted else f"the delay may be {least!r} ms, below {wanted!r}"

    check_delay_ms_at_least = check_delay_ms_min

    def check_delay_s_min(self, wanted: float) -> str:
        """The same in seconds."""
        return self.check_delay_ms_min(wanted * 1000)

    check_delay_s_at_least = check_delay_s_min

    def check_total_delay_ms_min(self, wanted: float) -> str:
        """All of them together."""
        least = self._shortest().see_total_delay_ms()
        return "" if least >= wanted else f"the delays may be {least!r} ms, below {wanted!r}"

    check_total_delay_ms_at_least = check_total_delay_ms_min

    def see_retriable(self) -> bool | None:
        """Whether the failure was worth another attempt."""
        if self.failure is not None:
            return self.failure.retriable
        error = self._last().error
        return None if error is None else error.retriable

    see_retryable = see_retry = see_should_retry = see_retriable

    def see_terminal(self) -> bool | None:
        """Whether the same call would fail again."""
        retriable = self.see_retriable()
        return None if retriable is None else not retriable

    def see_error_code(self) -> str | None:
        """Why it failed."""
        error = self._last().error
        return None if error is None else error.code

    see_error = see_code = see_error_code

    def see_reasons(self) -> list[str]:
        """Why each retry came to be."""
        return [one.reason_code for one in self._last().retried_by]

    see_reason_codes = see_reasons

    def see_output(self) -> Any:
        """What the tool returned."""
        return self._last().output

    def see_result(self) -> Any:
        """How the last call ended, where that is asked for; else what the tool returned."""
        asked = self.expected.get("result")
        return self.see_status() if asked in set(ResultStatus) else self.see_output()

    def see_jitter(self) -> str:
        """From 0 to the bound, whatever the policy."""
        return "full"

    def _fault(self, name: str, wanted: Any) -> str:
        """Lists of delays: pairs are lowest and highest, single ones the highest that may come out."""
        if "delay" not in name or not isinstance(wanted, list) or hasattr(self, f"see_{name}"):
            return super()._fault(name, wanted)
        factor = 1000 if name.endswith("_s") else 1
        pairs = bool(wanted) and all(isinstance(one, list) for one in wanted)
        if not pairs and not any(word in name for word in ("max", "upper", "at_most", "bound", "cap")):
            return super()._fault(name, wanted)
        found: list[Any] = self.see_delay_bounds_ms() if pairs else self.see_delays_ms()
        asked = [[factor * end for end in one] if pairs else factor * one for one in wanted]
        return "" if same(asked, found) else f"{name}: delays are {found!r} ms, not {asked!r}"

    see_max_attempts = _shows("max_attempts")
    see_base_ms = see_base_delay_ms = see_initial_delay_ms = _shows("base_ms")
    see_base_s = see_base_delay_s = _shows("base_ms", 1000)
    see_max_delay_ms = see_max_retry_delay_ms = see_cap_ms = _shows("max_delay_ms")
    see_max_delay_s = _shows("max_delay_ms", 1000)
    see_max_elapsed_ms = see_deadline_ms = see_retry_deadline_ms = _shows("max_elapsed_ms")
    see_max_elapsed_s = see_deadline_s = _shows("max_elapsed_ms", 1000)
