"""Pairing: which finish belongs to which start, and what is neither (design 2, Time and order).

Call ids are not unique in a session, finishes may come alone, twice or never, and starts of a parallel batch
interleave. A finish belongs to the latest open start of its id; a start that is never finished is closed at its
deadline by an appended event of our own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET

from ...schemas.envelope import output_id
from ...schemas.events import ToolCallFinished, ToolCallStarted, epoch_ms, json_of
from ...schemas.rules import Rules
from ...schemas.rules_calls import CallRules
from ...schemas.vocabulary import Status, ToolClass
from ..calls import fingerprints, keys, security, tool_class
from ..calls.command_line import CommandLine
from ..emit import Emitter
from .repetition import close_step
from .state import MAX_CLOSED_CALLS, MAX_OPEN_CALLS, OpenCall, SessionState

TIMEOUT_TYPE = "tool_call.finished"
MAX_LONE_CALLS = 16
MAX_SCENARIO = 200
"""Characters kept of a call's scenario."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Args = dict[str, Any]
"""Arguments of a call; those that are no object stand under `args`."""


def args_of(event: ToolCallStarted) -> Args:
    """Arguments of a call; empty where there are none or they are private."""
    args = json_of(event.args) or {}
    return args if isinstance(args, dict) else {"args": args}


def describe(event: ToolCallStarted, args: Args, at: int, rules: Rules) -> OpenCall:
    """All that follows from a call's start: key, class, fingerprint, danger, deadline."""
    name = event.tool_name
    families = rules.tools.families
    runs = keys.runs(name, args, families)
    line = keys.read_command(name, args) if runs == "shell" else None
    key = keys.call_key(name, args, event.service or "", line, families)
    if args or event.args is not UNSET:
        canonical = fingerprints.canonical(args)
    else:
        # Without arguments or a digest nothing says that two calls are the same call.
        canonical = (event.args_digest or event.id).encode()
    if event.failure_key:
        key = keys.given_key(event.failure_key, key)
    elif rules.tools.key_by == "args" and args:
        key = key._replace(fine=keys.make_key(name, {"args_hash": f"{fingerprints.digest(canonical):016x}"[:8]}))
    found, declared = _class_of(event, args, line, rules)
    dangerous, risky, suspect = _security(name, args, line, rules.calls) if args else _HARMLESS
    return OpenCall(
        call_id=event.call_id,
        event_id=event.id,
        tool_name=name,
        started_ms=at,
        deadline_ms=at + int(event.deadline_ms or rules.calls.deadline_ms),
        step=0,
        fingerprint=fingerprints.call_fingerprint(name, canonical),
        fine_key=key.fine,
        service=key.service,
        kind=key.kind,
        tool_class=found,
        class_declared=declared,
        dangerous=dangerous,
        plugin_name=event.plugin_name or "",
        tier=(event.model_tier or "") if event.recursion_depth else "",
        scenario=(event.scenario or "")[:MAX_SCENARIO],
        suspect=suspect,
        risky=risky,
        runs=runs,
        command=line.word if line is not None else "",
    )


def start_of(event: ToolCallFinished) -> ToolCallStarted:
    """The start that a lone finish stands for, too; it says nothing of arguments."""
    return ToolCallStarted(
        schema_version=event.schema_version,
        id=event.id,
        time=event.time,
        session_id=event.session_id,
        call_id=event.call_id,
        tool_name=event.tool_name,
        plugin_name=event.plugin_name,
        service=event.service,
    )


def _class_of(event: ToolCallStarted, args: Args, line: CommandLine | None, rules: Rules) -> tuple[ToolClass, bool]:
    """Class of a call, and whether configuration or annotations declare it."""
    configured = rules.tools.classes.get(event.tool_name)
    if configured is not None:
        return configured, True
    if event.annotations and (declared := tool_class.class_by_annotations(event.annotations)) is not None:
        return declared, True
    if event.tool_class is not None:
        return event.tool_class, False
    if line is not None:
        return line.tool_class, False
    named = tool_class.class_by_name(event.tool_name)
    if named is ToolClass.UNKNOWN and args:
        named = tool_class.class_by_args(args)
    return named, False


_HARMLESS = (False, False, False)


def _security(tool_name: str, args: Args, line: CommandLine | None, rules: CallRules) -> tuple[bool, bool, bool]:
    """Whether a call is dangerous, risky, or dangerous if its failure says so."""
    if line is not None:
        dangerous, risky, suspect = line.danger != "", line.risk != "", line.suspect
    else:
        path = args.get("path") or args.get("file_path")
        acts = isinstance(path, str) and tool_class.class_by_name(tool_name) is ToolClass.ACTION
        dangerous, risky, suspect = acts and security.writes_credentials(str(path)), False, False
    if rules.security_patterns or rules.risky_patterns or rules.security_allow:
        text = keys.shell_command(args) if line is not None else fingerprints.canonical(args).decode()
        if security.matches_any(text, rules.security_allow):
            return _HARMLESS
        dangerous = dangerous or security.matches_any(text, rules.security_patterns)
        risky = risky or security.matches_any(text, rules.risky_patterns)
    return dangerous, risky and not dangerous, suspect


def open_call(state: SessionState, event: ToolCallStarted, args: Args, at: int, rules: Rules) -> OpenCall | None:
    """Remember a started call; None when it is a repeated start, or a late one whose finish came first."""
    for lone in state.lone_calls:
        if lone[0] == event.call_id and epoch_ms(event.time) <= lone[1]:
            state.lone_calls.remove(lone)  # its finish came first and has been folded as both
            return None
    call = describe(event, args, at, rules)
    for known in state.open_calls:
        if known.call_id == call.call_id and known.fingerprint == call.fingerprint:
            return None
    if state.step_sealed:
        close_step(state)  # what is still open of the step before says nothing any more
        state.step += 1
        state.step_open = 0
        state.step_sealed = False
    call.step = state.step
    state.step_open += 1
    state.open_calls.append(call)
    if len(state.open_calls) > MAX_OPEN_CALLS:
        forgotten = state.open_calls.pop(0)
        state.step_open -= forgotten.step == state.step
        if forgotten.deadline_ms == state.next_deadline:
            state.next_deadline = min(other.deadline_ms for other in state.open_calls)
    if not state.next_deadline or call.deadline_ms < state.next_deadline:
        state.next_deadline = call.deadline_ms
    return call


def close_call(state: SessionState, event: ToolCallFinished, at: int, rules: Rules) -> OpenCall | None:
    """The open call that a finish belongs to, now closed; None when the finish is a duplicate.

    A finish without a start is folded as both.
    """
    calls = state.open_calls
    ours = is_our_timeout(event)
    for position in range(len(calls) - 1, -1, -1):
        call = calls[position]
        if call.call_id != event.call_id or (ours and timeout_id(call.event_id) != event.id):
            continue
        del calls[position]
        if call.deadline_ms == state.next_deadline:
            state.next_deadline = min(other.deadline_ms for other in calls) if calls else 0
        _remember_closed(state, call.call_id)
        return call
    if ours or fingerprints.digest(event.call_id.encode()) in state.closed_calls:
        return None
    call = describe(start_of(event), {}, at, rules)
    if event.duration_ms:
        call.started_ms = at - int(event.duration_ms)
    close_step(state)
    state.step += 1
    state.step_open, state.step_sealed = 1, True
    call.step = state.step
    _remember_closed(state, call.call_id)
    state.lone_calls.append((call.call_id, epoch_ms(event.time)))
    del state.lone_calls[:-MAX_LONE_CALLS]
    return call


def _remember_closed(state: SessionState, call_id: str) -> None:
    state.closed_calls.append(fingerprints.digest(call_id.encode()))
    del state.closed_calls[:-MAX_CLOSED_CALLS]


def timeout_id(started_id: str) -> str:
    """Id of the finish that we append when a call's deadline passes; derived from its start."""
    return output_id(started_id, TIMEOUT_TYPE, 0)


def is_our_timeout(event: ToolCallFinished) -> bool:
    """Whether we appended this finish: it names its start, and its id follows from that.

    Read back, it closes exactly that call, or nothing if the call is closed already; however much later it comes.
    """
    started = event.correlation_id
    return event.status is Status.TIMEOUT and started is not None and event.id == timeout_id(started)


def timeout_of(state: SessionState, session_id: str, call: OpenCall) -> ToolCallFinished:
    """The finish that closes a call at its deadline."""
    return ToolCallFinished(
        schema_version="1.0",
        id=timeout_id(call.event_id),
        time=_EPOCH + timedelta(milliseconds=call.deadline_ms),
        session_id=session_id,
        correlation_id=call.event_id,
        workspace_id=state.workspace_id or None,
        user_id=state.user_id or None,
        model=state.model or None,
        turn_index=state.turn_index,
        call_id=call.call_id,
        tool_name=call.tool_name,
        plugin_name=call.plugin_name or None,
        status=Status.TIMEOUT,
        duration_ms=float(call.deadline_ms - call.started_ms),
    )


def append_timeouts(state: SessionState, session_id: str, now: int, emit: Emitter) -> list[ToolCallFinished]:
    """Emit onto the log, oldest deadline first, the finish of every call whose deadline has passed."""
    late = sorted((c for c in state.open_calls if c.deadline_ms <= now), key=lambda c: (c.deadline_ms, c.event_id))
    appended = []
    for call in late:
        event = timeout_of(state, session_id, call)
        emit.begin(event.id, call.deadline_ms)
        emit.record("events", session_id, event, event.id, own_partition=True)
        appended.append(event)
    return appended
