"""Pairing of starts and finishes of calls, and closing of calls without a finish (docs/events.md).

Call ids are not unique in a session, finishes may come alone, twice or never, and starts of a parallel batch
interleave. A finish belongs to the latest open start of its id. A call without a finish is closed by an appended event
(appended.py): as timed out at the deadline that its publisher stated; without one as lost, after a day or at the end of
its session. The time in which a call waits for a person does not count towards its deadline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, UnsetType

from ...rules.rules import RuleSet
from ...schemas.events import ErrorInfo, PermissionResolved, ToolCallFinished, ToolCallStarted, epoch_ms, json_of
from ...schemas.outcomes import MAX_SUMMARY
from ...schemas.vocabulary import CallStatus, ToolClass
from ...security.redaction import redact_text
from ...security.secret_patterns.names import is_secret_name
from ..calls import attempt, fingerprints, keys, programs, tool_class
from ..calls.classify import Runs
from ..calls.command_line import CommandLine, without_display
from ..calls.danger import NO_DANGER, CallDanger
from ..calls.shell import simple_commands
from .appended import finish_id, is_appended
from .novelty import NO_REQUEST, TELLING_ARGS, CallRequest
from .records import (
    ID_BYTES,
    MAX_ASKED,
    MAX_CLOSED_CALLS,
    MAX_OPEN_CALLS,
    CallRecord,
    EventContext,
    SessionRecord,
    id_digest,
    place_of,
)

MAX_LONE_CALLS = 16
# Number of bytes kept of the requests of all calls in flight; of further ones `MIN_REQUEST_BYTES` each
MAX_REQUESTS_BYTES = 1_200

MIN_REQUEST_BYTES = 100
MAX_SCENARIO = 200  # Maximum number of characters kept of a call's scenario
Args = dict[str, Any]  # Arguments of a call; a value that is not an object is stored under `args`


def args_of(event: ToolCallStarted) -> Args:
    """Arguments of a call; empty if there are none or they are private."""
    return _args_in(event.args)


def _args_in(raw: Raw | UnsetType) -> Args:
    args = json_of(raw) or {}
    return args if isinstance(args, dict) else {"args": args}


class _CallDescription(NamedTuple):
    """Description of a call by its tool and arguments alone, without most rules."""

    runs: Runs  # the kind of program that it runs
    line: CommandLine | None  # its command line, if it has one
    danger: CallDanger  # what is dangerous about it, without the rules' own patterns
    canonical: bytes  # its canonical arguments; empty without arguments
    fingerprint: int  # of the tool and the arguments by which calls are compared
    key: keys.CallKey  # its key if it is not dangerous
    tool_class: ToolClass  # its class where nothing declares one
    request: CallRequest  # what it asks for
    summary: str  # the beginning of that in one line, without secrets


def _read(
    name: str, raw: bytes, service: str, families: Mapping[str, str] | None, volatile: frozenset[str] | None
) -> _CallDescription:
    """Read the arguments of a call as JSON; `volatile` ones do not distinguish calls."""
    args = _args_in(Raw(raw)) if raw else {}
    families = families or keys.NO_FAMILIES
    runs = keys.runs(name, args, families)
    command = keys.read_command(name, args) if runs == "shell" else None
    line = None if command is None else command.line
    kept = {field: value for field, value in args.items() if field not in volatile} if volatile else args
    canonical = fingerprints.canonical(kept) if raw else b""
    compared = canonical if runs != "shell" and _ASIDE.isdisjoint(args) else _compared(kept, runs)
    if command is not None:
        request = CallRequest.of_command(command.shown)
    else:
        request = CallRequest(canonical) if args else NO_REQUEST
    return _CallDescription(
        runs,
        line,
        attempt.danger_of_call(name, args, runs, line) if args else NO_DANGER,
        canonical if args else b"",
        fingerprints.call_fingerprint(name, compared) if raw else 0,
        keys.call_key(name, args, service, command, families),
        tool_class.class_of_tool(name, args) if line is None else line.tool_class,
        request,
        (_summary(args) if args else "") if command is None else one_line(command.shown, MAX_SUMMARY),
    )


# Arguments with words about a call, and how much of its output is shown, which do not change what is asked for
_ASIDE = frozenset({"explanation", "toolSummary", "toolAction"})
_SHOWING = frozenset("description justification yield_time_ms max_output_tokens max_output_length".split())


def _compared(args: Args, runs: Runs) -> bytes:
    """Canonical arguments by which calls are compared: two command lines differ only in what they run, and where."""
    left_out = _ASIDE | _SHOWING if runs == "shell" else _ASIDE
    told = {name: value for name, value in args.items() if name not in left_out}
    for name in ("command", "cmd") if runs == "shell" else ():
        if isinstance(line := told.get(name), str):
            told[name] = without_display(line)
    return fingerprints.canonical(told)


def _summary(args: Args) -> str:
    """The two arguments that tell most, or else all that are no objects, in one line without secrets."""
    told = [name for name in args if name in _PLACES and isinstance(args[name], str)]
    if told:
        told.sort(key=_PLACES.__getitem__)
        return ", ".join([_shown(args[name]) for name in told[:2]])
    named = [(name, args[name]) for name in list(args)[:MAX_NAMED] if not _is_secret_name(name)]
    text = ", ".join([f"{name}={value}" for name, value in named if not isinstance(value, (dict, list))])
    return one_line(redact_text(_cut(text, MAX_SUMMARY)), MAX_SUMMARY)


def _shown(text: str) -> str:
    """A path, or the first words of another text: more would cost the fold more time than it tells."""
    path = len(text) <= MAX_SHOWN and _PATH.fullmatch(text)
    return text if path else one_line(redact_text(_cut(text, 2 * MAX_WORDS)), MAX_WORDS)


_PATH = re.compile(r"(?:[/._-]{0,3}[A-Za-z]{1,24}\d{0,3}(?![A-Za-z\d]))*")  # Paths of words, which are no secrets

# Longest argument that is shown whole, and longest beginning of another one
MAX_SHOWN, MAX_WORDS = MAX_SUMMARY // 2, 60

_is_secret_name = lru_cache(maxsize=1024)(is_secret_name)

_PLACES = {name: place for place, name in enumerate(TELLING_ARGS)}

MAX_NAMED = 8  # Number of arguments that are named in a summary


def one_line(text: str, most: int) -> str:
    """The beginning of a text in one line, cut between words, so that no secret is cut."""
    return " ".join(_cut(text, most).split())


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = text[: most - 1]
    end = max(0, *map(head.rfind, " \n/"))
    return f"{head[:end].rstrip()}…"


# The same for short arguments, as many calls are made again, by other agents, too
_read_before = lru_cache(maxsize=4096)(_read)

MAX_REMEMBERED_BYTES = 512


def describe(event: ToolCallStarted, at: int, rules: RuleSet) -> CallRecord:
    """Open call derived from its start: key, class, fingerprint, danger, deadline; `at` in milliseconds."""
    name, tools = event.tool_name, rules.tools
    read = _read_start(event, rules)
    line, danger, key, found = read.line, read.danger, read.key, read.tool_class
    fingerprint = read.fingerprint  # calls without arguments or their digest are never the same
    fingerprint = fingerprint or fingerprints.call_fingerprint(name, (event.args_digest or event.id).encode())
    if read.canonical and attempt.has_patterns(rules.calls):
        danger = attempt.danger_by_patterns(danger, args_of(event), line, rules.calls)
    if danger.kind is not None or event.failure_key or tools.key_by == "args":
        key = _other_key(event, key, danger, read.canonical)
    declared = False
    if tools.classes or event.annotations or event.tool_class is not None:
        found, declared = _class_of(event, found, rules)
    call = CallRecord(
        event.call_id,
        event.id,
        name,
        at,
        at + int(event.deadline_ms or rules.calls.overdue_after_ms),
        0,
        fingerprint,
        key.fine,
        key.service,
        key.kind,
        found,
        declared,
    )
    call.request, call.summary = read.request, read.summary
    _add_rare(call, event, danger)
    if read.runs:
        call.runs = read.runs
    if line is not None:
        _describe_command(call, event, line, rules)
    if found is ToolClass.POLL:
        call.waits = True
        call.only_waits = call.only_waits or (line is None and tool_class.only_waits(name))
    if call.waits and not event.deadline_ms:
        call.deadline_ms = max(call.deadline_ms, at + int(rules.behaviour.slow_poll_seconds * 1000))
    return call


def _read_start(event: ToolCallStarted, rules: RuleSet) -> _CallDescription:
    """Read the tool and the arguments of a call."""
    name = event.tool_name
    raw = b"" if event.args is UNSET else bytes(event.args)
    families, volatile = rules.tools.families or None, rules.tools.volatile_args.get(name)
    is_usual = families is None and volatile is None and len(raw) <= MAX_REMEMBERED_BYTES
    return (_read_before if is_usual else _read)(name, raw, event.service or "", families, volatile)


def _add_rare(call: CallRecord, event: ToolCallStarted, danger: CallDanger) -> None:
    """Fill in what few calls have; each argument of a struct costs time."""
    if event.deadline_ms:
        call.deadline_stated = True
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


def _other_key(event: ToolCallStarted, key: keys.CallKey, danger: CallDanger, canonical: bytes) -> keys.CallKey:
    """Key of a call that is not that of its family: by what it would do, as its publisher gives it, or by arguments."""
    if event.failure_key:
        return keys.given_key(event.tool_name, event.failure_key, attempt.keyed(key, danger))
    if danger.kind is not None or not canonical:
        return attempt.keyed(key, danger)
    digest = f"{fingerprints.digest(canonical):016x}"[:8]
    return key._replace(fine=keys.make_key(event.tool_name, {"args_hash": digest}))


def _describe_command(call: CallRecord, event: ToolCallStarted, line: CommandLine, rules: RuleSet) -> None:
    """Fill in what a command line says of its call."""
    call.command = line.word or call.fine_key.partition("|command=")[2]
    call.programs, call.suspect = line.programs, line.suspect
    call.waits, call.only_waits, call.edits = line.waits, line.only_waits, line.edits
    own = rules.tools.programs
    call.asked = programs.asked_by(simple_commands(keys.shell_command(args_of(event))), own) if own else line.asked


def request_of(event: ToolCallStarted) -> CallRequest:
    """Request of a call without secrets, under the default rules; its words in a result are an echo."""
    args = args_of(event)
    if keys.runs(event.tool_name, args, keys.NO_FAMILIES) == "shell":
        return CallRequest.of_command(keys.shell_command(args))
    return CallRequest(fingerprints.canonical(args), clean=True) if args else NO_REQUEST


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
        status=CallStatus.ERROR,
        error=_DENIED,
    )


_DENIED = ErrorInfo(type="DeniedByUser")


def _class_of(event: ToolCallStarted, found: ToolClass, rules: RuleSet) -> tuple[ToolClass, bool]:
    """Class of a call, and whether it is declared by configuration or annotations; `found` is that of its words."""
    configured = rules.tools.classes.get(event.tool_name)
    if configured is not None:
        return configured, True
    if event.annotations and (declared := tool_class.class_by_annotations(event.annotations)) is not None:
        return declared, True
    return (found if event.tool_class is None else event.tool_class), False


def open_call(event: ToolCallStarted, ctx: EventContext) -> CallRecord | None:
    """Add a started call; None if the start is repeated, or its finish came first.

    A call whose permission was requested before its start and is still unanswered starts in the waiting state.
    """
    state, at = ctx.state, ctx.emit.at
    for lone in state.lone_calls:
        if lone[0] == event.call_id and epoch_ms(event.time) <= lone[1]:
            state.lone_calls.remove(lone)  # its finish came first and has been folded as both
            return None
    call = describe(event, at, ctx.rules)
    call.approvals = event.approvals
    if state.open_calls:
        room = MAX_REQUESTS_BYTES - sum(len(one.request.raw) for one in state.open_calls)
        call.request = call.request.within(max(room, MIN_REQUEST_BYTES))
        if room < MAX_SUMMARY:
            call.summary = one_line(call.summary, MIN_REQUEST_BYTES // 2)
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
        closed, digests = id_digest(call_id), state.closed_calls
        while (place := place_of(closed, digests)) >= 0:
            del digests[place : place + ID_BYTES]
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


def _latest(state: SessionRecord, call_id: str) -> CallRecord | None:
    return next((call for call in reversed(state.open_calls) if call.call_id == call_id), None)


def _forget_asked(state: SessionRecord, call_id: str) -> bool:
    """Remove the note that a person was asked about a call before its start; returns whether there was one."""
    asked = len(state.asked)
    if asked:
        state.asked = [one for one in state.asked if one[0] != call_id]
    return len(state.asked) < asked


def close_call(event: ToolCallFinished, ctx: EventContext) -> CallRecord | None:
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
        state.closed_calls += id_digest(call.call_id)
        del state.closed_calls[: -MAX_CLOSED_CALLS * ID_BYTES]
        if call.agent_id != state.agent:
            state.act_as(call.agent_id)
        return call
    closed = id_digest(event.call_id)
    if ours or place_of(closed, state.closed_calls) >= 0:
        return None
    _forget_asked(state, event.call_id)
    at = ctx.emit.at
    call = describe(start_of(event), at, ctx.rules)
    if event.duration_ms:
        call.started_ms = at - int(event.duration_ms)
    state.act_as(call.agent_id)
    call.step = state.steps.lone_call()
    state.closed_calls += closed
    del state.closed_calls[: -MAX_CLOSED_CALLS * ID_BYTES]
    state.lone_calls.append((call.call_id, epoch_ms(event.time)))
    del state.lone_calls[:-MAX_LONE_CALLS]
    return call
