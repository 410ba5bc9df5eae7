"""Detector of calls that fail because the same thing around them is missing."""

from __future__ import annotations

import msgspec

from ....schemas.vocabulary import PatternType
from ...calls.environment import MissingKind, MissingPart, is_loopback, missing_in, restored_by
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, CallRecord, EventContext, PatternSighting
from ..shown_lines import MAX_HIDDEN_BYTES
from .detector import FinishedCall, PatternDetector

MAX_THINGS = 16
_WORDS = {
    "program": "the program {}",
    "module": "the module {}",
    "credential": "a valid credential for {}",
    "host": "a connection to {}",
    "network": "a network for {}",
}


class MissingThing(msgspec.Struct, array_like=True):
    """Something that calls need and do not find."""

    kind: MissingKind
    name: str
    tools: list[str]  # command words or tools of the latest calls that needed it
    calls: list[int]  # fingerprints of the latest of these calls
    event_ids: list[str]
    step: int
    count: int = 1
    since_ms: int = 0  # start of the first of these calls, milliseconds
    answered: bool = False  # whether the user has spoken since; the user knows of it, and one more failure is needed

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the thing."""
        return digest(f"{self.kind}\x00{self.name}".encode())


class MissingEnvironment(PatternDetector, array_like=True):
    """Detector of calls that fail because the same program, module, credential, host or network is missing.

    Holds across tools, arguments and turns; a user message does not end it. Told to the person as well, who can often
    supply what the model cannot.

    Ends with a success of the same program, host, installer or call. Edits between do not end it. A host on this
    machine is forgotten when anything of unknown effect succeeds, because the model may have started it. Calls that
    wait, or that come after a wait, do not count, and what a reading line shows is the text of a file.

    Known false alarms: a word of prose that was run as a command in lower case.
    """

    pattern = PatternType.MISSING_ENVIRONMENT
    ends_with = "a success of the same program, host or installer"
    texts = (
        "{count} calls have failed because {required_tool} is missing, the last one {request}. Find out whether you can "
        "supply it (install, start, log in), or go on without it and tell the user what is missing.",
        "{count} calls have failed because {required_tool} is missing, the last one {request}. Until it is there, calls "
        "that need it will fail: tell the user what is missing and what you can do without it.",
    )
    notice = "{count} calls of the agent have failed because {required_tool} is missing, the last one {request}."
    of_session = True
    outlives_user = True
    reported = 9

    things: list[MissingThing] = []  # what is missing, oldest first

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the thing is no longer missing."""
        del ctx
        return all(one.fingerprint != active.fingerprint for one in self.things)

    def on_user(self, ctx: EventContext) -> None:
        """Note that the user has spoken, who may have heard of what is missing."""
        del ctx
        for one in self.things:
            one.answered = True

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a failure that names something missing; a success may show that it is there."""
        verdict, call = done.verdict, done.call
        if verdict.failed:
            message = verdict.message
        elif verdict.size < MAX_HIDDEN_BYTES and call.runs == "shell" and (hidden := verdict.shown.not_found()):
            message = hidden  # a pipe hides the exit code
        else:
            if self.things:
                self._restore(call, done)
            return
        if call.waits or (done.same and ctx.state.steps.waited_since(done.same[-1].step)):
            return
        missing = missing_in(
            message,
            tool_name=call.tool_name,
            command_word=call.command,
            request=_request(call),
            service=call.service,
            severity=verdict.severity,
            http_status=verdict.http_status,
        )
        if missing is not None and (verdict.failed or missing.name in call.programs or call.may_change):
            self._count(missing, done, ctx)
        elif not verdict.failed and self.things:
            self._restore(call, done)

    def _count(self, missing: MissingPart, done: FinishedCall, ctx: EventContext) -> None:
        call, things, event_id = done.call, self.things, done.event.id
        known = next((one for one in things if (one.kind, one.name) == missing), None)
        if known is None:
            known = MissingThing(missing.kind, missing.name, [], [], [], call.step, since_ms=call.started_ms)
            things.append(known)
            del things[:-MAX_THINGS]
        elif known.step != call.step:
            known.step = call.step
            known.count += 1
        known.tools = [*known.tools[1 - MAX_CAUSES :], call.command or call.tool_name]
        known.calls = [*known.calls[1 - MAX_CAUSES :], call.fingerprint]
        known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
        severity = ctx.rules.behaviour.missing_environment.step(known.count - known.answered)
        if severity:
            what = _WORDS[known.kind].format(known.name)
            seen = PatternSighting(
                self.pattern, severity, known.fingerprint, known.count, known.tools, known.event_ids,
                f"tell the user that {what} is missing", required_tool=what, since_ms=known.since_ms, for_user=True,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def _restore(self, call: CallRecord, done: FinishedCall) -> None:
        """Forget what a success shows to be there."""
        tool = call.command or call.tool_name
        by_request = any(one.kind != "program" for one in self.things)
        request = _request(call) if by_request else ""
        changes = call.may_change and not done.equal
        self.things = [
            one
            for one in self.things
            if not (
                call.fingerprint in one.calls
                or (one.kind in {"credential", "network"} and tool in one.tools)
                or (one.kind == "host" and changes and is_loopback(one.name))
                or restored_by(MissingPart(one.kind, one.name), programs=call.programs, request=request, tool=tool)
            )
        ]


def _request(call: CallRecord) -> str:
    """The command line of a shell; of other tools the arguments."""
    return call.request.text() if call.runs == "shell" else call.request.shown.decode(errors="replace")
