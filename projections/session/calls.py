"""Pairing of starts and finishes of calls, and closing of calls without a finish (docs/events.md).

Call ids are not unique in a session, finishes may come alone, twice or never, and starts of a parallel batch
interleave. A finish belongs to the latest open start of its id. A call without a finish is closed by an appended event
(appended.py): as timed out at the deadline that its publisher stated; without one as lost, after a day or at the end of
its session. The time in which a call waits for a person does not count towards its deadline.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from ...rules.rules import Rules
from ...schemas.events import ErrorInfo, PermissionResolved, ToolCallFinished, ToolCallStarted, epoch_ms, json_of
from ...schemas.vocabulary import Status, ToolClass
from ..calls import attempt, fingerprints, keys, programs, tool_class
from ..calls.command_line import CommandLine
from ..calls.danger import NO_DANGER, Danger
from ..calls.shell import simple_commands
from .appended import finish_id, is_appended
from .novelty import NO_REQUEST, CallRequest
from .records import MAX_ASKED, MAX_CLOSED_CALLS, MAX_OPEN_CALLS, Context, OpenCall, SessionRecord

MAX_LONE_CALLS = 16
MAX_SCENARIO = 200
"""Maximum number of characters kept of a call's scenario."""

Args = dict[str, Any]
"""Arguments of a call; a value that is not an object is stored under `args`."""


def args_of(event: ToolCallStarted) -> Args:
    """Arguments of a call; empty if there are none or they are private."""
    args = json_of(event.args) or {}
    return args if isinstance(args, dict) else {"args": args}


def distinguishing_args(tool_name: str, args: Args, rules: Rules) -> Args:
    """Arguments that distinguish calls of a tool: all except those that the rules declare volatile."""
    volatile = rules.tools.volatile_args.get(tool_name)
    return {name: value for name, value in args.items() if name not in volatile} if volatile else args


def describe(event: ToolCallStarted, args: Args, at: int, rules: Rules) -> OpenCall:
    """Open call derived from its start: key, class, fingerprint, danger, deadline; `at` in milliseconds."""
    name = event.tool_name
    families = rules.tools.families
    runs = keys.runs(name, args, families)
    command = keys.read_command(name, args) if runs == "shell" else None
    line = None if command is None else command.line
    danger = attempt.danger_in(name, args, runs, line, rules.calls) if args else NO_DANGER
    canonical = _canonical(event, args, rules)
    key = keys.call_key(name, args, event.service or "", command, families)
    if danger.kind is not None or event.failure_key or rules.tools.key_by == "args":
        key = _other_key(event, key, danger, canonical if args else b"")
    found, declared = _class_of(event, args, line, rules)
    if command is not None:
        request = CallRequest.of_command(command.shown)
    else:
        request = CallRequest(canonical) if args else NO_REQUEST
    call = OpenCall(
        event.call_id,
        event.id,
        name,
        at,
        at + int(event.deadline_ms or rules.calls.overdue_after_ms),
        step=0,
        fingerprint=fingerprints.call_fingerprint(name, canonical),
        fine_key=key.fine,
        service=key.service,
        kind=key.kind,
        tool_class=found,
        class_declared=declared,
        request=request,
    )
    # Rare fields are set separately, because each keyword argument of a struct costs time.
    call.deadline_stated = bool(event.deadline_ms)
    if event.plugin_name:
        call.plugin_name = event.plugin_name
    if event.recursion_depth and event.model_tier:
        call.tier = event.model_tier
    if event.scenario:
        call.scenario = event.scenario[:MAX_SCENARIO]
    if event.agent_id:
        call.agent_id = event.agent_id
    if danger.kind is not None:
        call.dangerous, call.risky = danger.blocks, not danger.blocks
    if runs:
        call.runs = runs
    if line is not None:
        _describe_command(call, args, line, rules)
    if found is ToolClass.POLL:
        call.waits = True
        call.only_waits = call.only_waits or (line is None and tool_class.only_waits(name))
    return call


def _other_key(event: ToolCallStarted, key: keys.CallKey, danger: Danger, canonical: bytes) -> keys.CallKey:
    """Key of a call that is not that of its family: by what it would do, as its publisher gives it, or by arguments."""
    if event.failure_key:
        return keys.given_key(event.tool_name, event.failure_key, attempt.keyed(key, danger))
    if danger.kind is not None or not canonical:
        return attempt.keyed(key, danger)
    digest = f"{fingerprints.digest(canonical):016x}"[:8]
    return key._replace(fine=keys.make_key(event.tool_name, {"args_hash": digest}))


def _canonical(event: ToolCallStarted, args: Args, rules: Rules) -> bytes:
    """Canonical arguments of a call, by which two calls are recognised as the same, or their digest.

    Without arguments or a digest they cannot be, and it is the event's id.
    """
    if not args and event.args is UNSET:
        return (event.args_digest or event.id).encode()
    return fingerprints.canonical(distinguishing_args(event.tool_name, args, rules))


def _describe_command(call: OpenCall, args: Args, line: CommandLine, rules: Rules) -> None:
    """Fill in what a command line says of its call."""
    call.command = line.word or call.fine_key.partition("|command=")[2]
    call.programs, call.suspect = line.programs, line.suspect
    call.waits, call.only_waits, call.edits = line.waits, line.only_waits, line.edits
    own = rules.tools.programs
    call.asked = programs.asked_by(simple_commands(keys.shell_command(args)), own) if own else line.asked


def start_of(event: ToolCallFinished) -> ToolCallStarted:
    """Start made from a finish that came without one; it has no arguments."""
    return ToolCallStarted(
        schema_version=event.schema_version,
        id=event.id,
        time=event.time,
        session_id=event.session_id,
        call_id=event.call_id,
        tool_name=event.tool_name,
        plugin_name=event.plugin_name,
        service=event.service,
        agent_id=event.agent_id,
    )


def denial_of(event: PermissionResolved) -> ToolCallFinished:
    """Finish made from a denied permission, as the call is not made."""
    return ToolCallFinished(
        schema_version=event.schema_version,
        id=event.id,
        time=event.time,
        session_id=event.session_id,
        turn_index=event.turn_index,
        workspace_id=event.workspace_id,
        user_id=event.user_id,
        agent_id=event.agent_id,
        model=event.model,
        call_id=event.call_id,
        tool_name=event.tool_name,
        status=Status.ERROR,
        error=_DENIED,
    )


_DENIED = ErrorInfo(type="DeniedByUser")


def _class_of(event: ToolCallStarted, args: Args, line: CommandLine | None, rules: Rules) -> tuple[ToolClass, bool]:
    """Class of a call, and whether it is declared by configuration or annotations."""
    configured = rules.tools.classes.get(event.tool_name)
    if configured is not None:
        return configured, True
    if event.annotations and (declared := tool_class.class_by_annotations(event.annotations)) is not None:
        return declared, True
    if event.tool_class is not None:
        return event.tool_class, False
    if line is not None:
        return line.tool_class, False
    return tool_class.class_of_tool(event.tool_name, args), False


def open_call(event: ToolCallStarted, args: Args, ctx: Context) -> OpenCall | None:
    """Add a started call; None if the start is repeated, or its finish came first.

    A call whose permission was requested before its start and is still unanswered starts in the waiting state.
    """
    state, at = ctx.state, ctx.emit.at
    for lone in state.lone_calls:
        if lone[0] == event.call_id and epoch_ms(event.time) <= lone[1]:
            state.lone_calls.remove(lone)  # its finish came first and has been folded as both
            return None
    call = describe(event, args, at, ctx.rules)
    call.approvals = event.approvals
    for known in state.open_calls:
        if known.call_id == call.call_id and known.fingerprint == call.fingerprint:
            return None
    if call.agent_id != state.agent:
        state.act_as(call.agent_id)
    call.step = state.steps.call_started(fingerprints.digest(event.message_id.encode()) if event.message_id else 0)
    if state.asked and _forget_asked(state, call.call_id):
        call.waiting_since = at
    state.open_calls.append(call)
    if len(state.open_calls) > MAX_OPEN_CALLS:
        forgotten = state.open_calls.pop(0)
        steps = state.steps
        steps.open_calls -= forgotten.step == steps.number and forgotten.agent_id == state.agent
        state.schedule()
    due = call.due_ms
    if not state.next_deadline or due < state.next_deadline:
        state.next_deadline = due
    return call


def wait_begins(state: SessionRecord, call_id: str, at: int) -> None:
    """Record that a person is asked about a call: an open call starts waiting, a call not yet started is noted."""
    call = _latest(state, call_id)
    if call is None:
        _forget_asked(state, call_id)
        state.asked = [*state.asked[1 - MAX_ASKED :], (call_id, at)]
        closed = fingerprints.digest(call_id.encode())
        state.closed_calls = [one for one in state.closed_calls if one != closed]
    elif not call.waiting_since:
        call.waiting_since = at
        state.schedule()


def wait_ends(state: SessionRecord, call_id: str, at: int) -> None:
    """Record a person's answer: the deadline of a waiting call moves by the time it has waited."""
    _forget_asked(state, call_id)
    call = _latest(state, call_id)
    if call is not None and call.waiting_since:
        waited = at - call.waiting_since
        call.waited_ms += waited
        call.deadline_ms += waited
        call.waiting_since = 0
        state.schedule()


def _latest(state: SessionRecord, call_id: str) -> OpenCall | None:
    return next((call for call in reversed(state.open_calls) if call.call_id == call_id), None)


def _forget_asked(state: SessionRecord, call_id: str) -> bool:
    """Remove the note that a person was asked about a call before its start; returns whether there was one."""
    asked = len(state.asked)
    if asked:
        state.asked = [one for one in state.asked if one[0] != call_id]
    return len(state.asked) < asked


def close_call(event: ToolCallFinished, ctx: Context) -> OpenCall | None:
    """Close and return the open call that a finish belongs to; None if the finish is a duplicate.

    A finish without a start is folded as both start and finish.
    """
    state = ctx.state
    calls = state.open_calls
    ours = is_appended(event)
    for position in range(len(calls) - 1, -1, -1):
        call = calls[position]
        if call.call_id != event.call_id or (ours and finish_id(call.event_id) != event.id):
            continue
        del calls[position]
        if calls:
            state.schedule()
        else:
            state.next_deadline = 0
        state.closed_calls.append(fingerprints.digest(call.call_id.encode()))
        del state.closed_calls[:-MAX_CLOSED_CALLS]
        if call.agent_id != state.agent:
            state.act_as(call.agent_id)
        return call
    closed = fingerprints.digest(event.call_id.encode())
    if ours or closed in state.closed_calls:
        return None
    _forget_asked(state, event.call_id)
    at = ctx.emit.at
    call = describe(start_of(event), {}, at, ctx.rules)
    if event.duration_ms:
        call.started_ms = at - int(event.duration_ms)
    state.act_as(call.agent_id)
    call.step = state.steps.lone_call()
    state.closed_calls.append(closed)
    del state.closed_calls[:-MAX_CLOSED_CALLS]
    state.lone_calls.append((call.call_id, epoch_ms(event.time)))
    del state.lone_calls[:-MAX_LONE_CALLS]
    return call
