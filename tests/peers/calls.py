"""Translation of what an agent does: calls, messages, turns, time. The same for every area.

A call in one piece (`tool_call`) becomes a start and a finish. A bare `tool_started` is a call whose result the peer
never looked at: it is finished with a result that is the same whenever the call is the same, and of all looks at the
tools. A `tool_finished` belongs to the earliest bare start of its tool, or stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from trustfold.projections.calls import command_line
from trustfold.projections.calls.keys import is_shell, shell_command
from trustfold.projections.calls.tool_class import class_by_args, class_by_name
from trustfold.schemas.vocabulary import ToolClass

from .case import UnknownWord, known, refuse_fields, times
from .endings import contract_of
from .world import World

CALL_FIELDS = frozenset(
    """ev tool args ok error error_type error_class severity http_status result times vary call_id session plugin
    service model duration_s thought run""".split()
)
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600}

CALLS_APART = timedelta(milliseconds=1)
"""Calls follow each other in time; only those that one burst begins together do not."""


def nth_word(number: int) -> str:
    """A word that is another one for each number, and no number: `b`, `c`, … `ba`."""
    number, rest = divmod(number, 26)
    return (nth_word(number) if number else "") + chr(ord("a") + rest)


def _varied(event: dict[str, Any], number: int, volatile_args: tuple[str, ...]) -> dict[str, Any]:
    """The `number`-th repetition of an event: the parts named by `vary` differ, without growing steadily.

    `volatile` are the volatile arguments where the case names some, else the volatile parts of the result.
    """
    word, parts = nth_word(number), event.get("vary") or []
    args, result = dict(event.get("args") or {}), event.get("result")
    made = dict(event)
    for part in [parts] if isinstance(parts, str) else parts:
        match part:
            case "args":
                made["args"] = _other_args(args, number)
            case "result" if isinstance(result, dict):
                made["result"] = {**result, "part": word}
            case "result" | "text":
                made[part] = f"{event.get(part, 'result' if part == 'result' else '')} {word}"
            case "error":
                made["error"] = f"{event.get('error') or 'error'} ({word})"
            case "volatile" if volatile_args:
                made["args"] = args | {name: _other_value(args.get(name, 0), number) for name in volatile_args}
            case "volatile":
                made["result"] = _volatile(result, number)
            case "thought":
                pass  # what the model thinks before a call is no part of the call
            case _:
                raise UnknownWord(f"vary {part!r}")
    return made


def _other_args(args: dict[str, Any], number: int) -> dict[str, Any]:
    if not number:
        return args
    for name, value in args.items():
        if isinstance(value, str) and (name.endswith(("path", "file", "filename")) or value.startswith("/")):
            return {**args, name: f"{value}-{nth_word(number)}"}
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return {**args, name: _other_value(value, number)}
    return {**args, "variant": nth_word(number)}


def _other_value(value: Any, number: int) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return (value + 1 + number * 7919) % 9973 + 10_000
    return f"{value} {nth_word(number)}"


def _volatile(result: Any, number: int) -> Any:
    """The same result, run again: another time, process, directory and id."""
    noise = {
        "duration_ms": 100 + 37 * number,
        "pid": 4000 + 11 * number,
        "cwd": f"/tmp/run-{nth_word(number)}",
        "session_id": str(UUID(int=number + 1)),
        "timestamp": f"2026-01-05T10:{number % 60:02d}:00Z",
    }
    if isinstance(result, dict):
        return {**result, **noise}
    told = "[pid {pid}] finished at {timestamp} in {duration_ms} ms, {cwd}".format(**noise)
    return f"{'' if result is None else result} {told}"


class Calls:
    """Writes an agent's doings into a world.

    Attributes:
        made: calls made so far.
        after_call: called after each call, for those who watch.
        volatile_args: arguments that differ where a case says that the volatile parts of a call do.
        streams: messages may be fragments; those that follow each other are one.
        unknown_acts: to the peer every tool acts that it does not know to read; its platform declares them so.
    """

    def __init__(self, world: World, given: list[dict[str, Any]]) -> None:
        """Translate for a world; the whole of `given` tells which starts have finishes of their own."""
        self.world = world
        self.made = 0
        self.after_call: Callable[[], None] = lambda: None
        self.unknown_acts = False
        self.volatile_args: tuple[str, ...] = ()
        self.streams = False
        self._texts: list[str] = []
        self._open: list[tuple[str, dict[str, Any]]] = []
        self._paired = _starts_with_finishes(given)
        self._is_paired = False  # whether the bare start at hand has a finish of its own
        self._streamed: list[tuple[str, tuple[bytes, ...]]] = []
        self._replayed: list[tuple[str, tuple[bytes, ...]]] = []
        self._others = 0
        self._last_result: dict[str, dict[str, Any]] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Translate one event of `given`, with its repetitions."""
        kind = event["ev"]
        fields, translate = known(kind, _STIMULI, "event")
        refuse_fields(event, {"ev", *fields}, f"event {kind!r}")
        if not self._is_fragment(event):
            self.say_streamed()
        for number in times(event):
            if kind not in {"tool_started", "stream_retry"}:
                self._streamed, self._replayed = [], []
            self._is_paired = id(event) in self._paired
            translate(self, _varied(event, number, self.volatile_args))

    def _is_fragment(self, event: dict[str, Any]) -> bool:
        return bool(event["ev"] == "model_text" and event.get("chunk", self.streams))

    def say_streamed(self) -> None:
        """A streamed message is complete: its fragments are one message."""
        text, self._texts = "".join(self._texts), []
        if text:
            self.world.event("model.text", text=text)

    def _say(self, event: dict[str, Any]) -> None:
        if self._is_fragment(event):
            self._texts.append(str(event.get("text", "")))
        else:
            self.world.event("model.text", text=str(event.get("text", "")))

    def _retry(self, _event: dict[str, Any]) -> None:
        self._replayed, self._streamed = self._streamed, []

    def _activate(self, event: dict[str, Any]) -> None:
        self.world.model = str(event["model"])
        if "available" in event:
            self.world.event("models.available", models=list(event["available"]))

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, event: dict[str, Any], *, call_id: str | None = None) -> None:
        """A whole call."""
        self._end(self._start(event, call_id=call_id)[0], event)

    def decline(self, event: dict[str, Any]) -> None:
        """A user refuses a call, which may have been announced with its arguments."""
        call_id = f"p{self.made + 1}"
        if "args" in event:
            self._start(event, call_id=call_id)
        else:
            self.made += 1
        self.world.event("permission.resolved", call_id=call_id, tool_name=event["tool"], granted=False)

    def unlike_others(self) -> None:
        """A call that is no part of any pattern."""
        self._others += 1
        word = nth_word(self._others)
        self.call({"tool": f"other_{word}", "args": {"about": word}, "ok": True, "result": f"something {word}"})

    def again(self, event: dict[str, Any]) -> None:
        """The call of a tool with these arguments, coming out as it did last; a new one as the tool's last call did."""
        last = self._last_result.get(_signature(event)) or self._last_result.get(str(event["tool"]), {})
        self.call({"ok": True, **last, **event})

    def _start(self, event: dict[str, Any], *, call_id: str | None = None) -> tuple[str, bytes]:
        world = self.world
        world.now += CALLS_APART
        self.made += 1
        call_id = call_id or str(event.get("call_id") or f"c{self.made}")
        world.session = str(event.get("run", event.get("session", world.session)))
        world.model = event.get("model", world.model)
        acts = self.unknown_acts and _class_of(event) is ToolClass.UNKNOWN
        record = world.event(
            "tool_call.started",
            call_id=call_id,
            tool_name=str(event["tool"]),
            args=event.get("args") or {},
            plugin_name=event.get("plugin"),
            annotations={"readOnlyHint": False} if acts else None,
            service=event.get("service"),
            recursion_depth=event.get("recursion_depth"),
        )
        return call_id, record

    def _end(self, call_id: str, event: dict[str, Any]) -> bytes:
        looks = class_by_name(str(event["tool"])) is ToolClass.INTROSPECTION
        answer = "the tools that there are" if looks else f"answer to {_signature(event)}"
        status, error, result = contract_of(event, answer)
        if status != "cancelled":
            self._last_result[_signature(event)] = self._last_result[str(event["tool"])] = event
        record = self.world.event(
            "tool_call.finished",
            call_id=call_id,
            tool_name=str(event["tool"]),
            status=status,
            error=error,
            result=result,
            duration_ms=round(1000 * event.get("duration_s", 0)) or None,
            **{name: event.get(name) for name in ("cost_usd", "expected_failure", "service")},
        )
        self.after_call()
        return record

    def _bare_start(self, event: dict[str, Any]) -> None:
        signature = _signature(event)
        if self._replayed and self._replayed[0][0] == signature:
            _, records = self._replayed.pop(0)
            for record in records:  # the transport delivers again what it has delivered before
                self.world.repeat(record)
            self._streamed.append((signature, records))
            return
        call_id, started = self._start(event)
        if self._is_paired:
            self._open.append((call_id, event))
        else:
            self._streamed.append((signature, (started, self._end(call_id, {**event, "ok": True}))))

    def _finish(self, event: dict[str, Any]) -> None:
        for place, (call_id, start) in enumerate(self._open):
            if _belong(start, event):
                del self._open[place]
                self._end(call_id, {**start, **event})
                return
        self.call(event)


def _class_of(event: dict[str, Any]) -> ToolClass:
    """What the tool does, as far as its name or command tells."""
    tool, args = str(event["tool"]), event.get("args") or {}
    if is_shell(tool):
        return command_line.read(shell_command(args)).tool_class
    named = class_by_name(tool)
    return class_by_args(args) if named is ToolClass.UNKNOWN else named


def _signature(event: dict[str, Any]) -> str:
    args = event.get("args") or {}
    return f"{event['tool']} {sorted(args.items(), key=lambda item: str(item[0]))}"


def _belong(start: dict[str, Any], finish: dict[str, Any]) -> bool:
    if "call_id" in finish or "call_id" in start:
        return start.get("call_id") == finish.get("call_id")
    return start["tool"] == finish["tool"] and finish.get("args", start.get("args")) == start.get("args")


def _starts_with_finishes(given: list[dict[str, Any]]) -> set[int]:
    """Identities of the bare starts that have a finish of their own further down."""
    paired: set[int] = set()
    waiting: list[dict[str, Any]] = []
    for event in given:
        if event.get("ev") == "tool_started" and event.get("times", 1) == 1:
            waiting.append(event)
        elif event.get("ev") == "tool_finished":
            found = next((start for start in waiting if _belong(start, event)), None)
            if found is not None:
                waiting.remove(found)
                paired.add(id(found))
    return paired


_STIMULI: dict[str, tuple[Iterable[str], Callable[[Calls, dict[str, Any]], object]]] = {
    "user_message": (["text"], lambda to, _event: to.world.event("user.message")),
    "model_text": (["text", "times", "chunk", "vary"], Calls._say),
    "thought": (
        ["text", "times"],
        lambda to, event: to.world.event("model.text", thought=True, text=event.get("text")),
    ),
    "turn_start": (["turn"], lambda to, event: to.world.event("turn.started", turn_index=event.get("turn"))),
    "turn_end": (
        ["turn", "stalled"],
        lambda to, event: to.world.event("turn.ended", turn_index=event.get("turn"), stalled=event.get("stalled")),
    ),
    "advance_clock": (
        _SECONDS,
        lambda to, event: to.world.pass_time(sum(size * event.get(unit, 0) for unit, size in _SECONDS.items())),
    ),
    # Our own nudges are outputs: no platform publishes one as an event of its agent.
    "nudge_injected": (["text", "role", "type", "times"], lambda _to, _event: None),
    "stream_retry": ([], Calls._retry),
    "model_active": (["model", "available"], Calls._activate),
    "tool_call": (CALL_FIELDS, Calls.call),
    "tool_started": (CALL_FIELDS, Calls._bare_start),
    "tool_finished": (CALL_FIELDS, Calls._finish),
}
"""Kinds of events: their fields, and what they are here."""
