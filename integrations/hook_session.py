"""State of a coding agent's conversation between its hooks: events for the folds, and answers to hooks.

A call that the agent may make is an event at once, so that calls side by side are known as such; one that is refused
here is a whole call. Calls still open at the next user message or the end of the turn count as cancelled: nobody told
how they ended, perhaps a person denied them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from ..guard.clock import new_id
from ..guard.nudges import NudgeInbox
from ..guard.result import NO_DETOUR
from ..guard.workspace import DigestEvidence
from ..ingest.hooks.dialect import (
    CallBegan,
    CallEnded,
    CallsClosed,
    ContextShortened,
    Happening,
    HookAnswer,
    HookDialect,
    HookEvent,
    InputReported,
    ModelSpoke,
    PromptSent,
    SessionOver,
    TurnOver,
)
from ..ingest.results import INTERRUPTED, failed
from ..ingest.speakers import WAKING
from ..ingest.values import bounded, bounded_arguments, name_of, shortened
from ..projections.calls.fingerprints import canonical
from ..projections.calls.tool_class import asks_person
from ..schemas.codec import rfc3339
from ..schemas.decisions import NudgeIssued, NudgeWithdrawn, PatternDetected

MAX_OPEN = 200
"""Number of open calls per session; beyond it the oldest are forgotten, and end as whole calls."""

MAX_IGNORED = 500
"""Number of calls remembered whose end is ignored: refused here, or ended already."""

MAX_REFUSED = 3
"""Number of calls refused in a pause after which a run that a person sees is ended; others end with words alone."""

MAX_PIECES = 50
"""Number of incomplete messages kept."""

MAX_SPOKEN = 100_000
"""Characters kept of an incomplete message."""

SETTINGS = {"rules": {"behaviour": {name: {"enabled": False} for name in ("stalled_turn", "stalled_call")}}}
"""Of every session: between two hooks a call may run, or a person be asked about it, and nobody is told which."""


class HookVerdict(NamedTuple):
    """Verdict on a call that the model requests.

    Attributes:
        refusal: why it is refused, a text for the model; empty: it is not.
        question: reason why a person must approve it; empty: no approval is needed.
        way_out: how the call can be approved if nobody can be asked; appended to the question.
        may_try: it may pass if nobody can be asked, as only successful calls restore trust.
        approvals: ids of the operator's approvals that let the call pass, and that it consumes.
    """

    refusal: str = ""
    question: str = ""
    way_out: str = ""
    may_try: bool = False
    approvals: tuple[str, ...] = ()


Check = Callable[[CallBegan], HookVerdict]


@dataclass(slots=True)
class _OpenHookCall:
    """Open call.

    Attributes:
        published: its start is.
        asked: a person was asked, so that its time is not the tool's alone.
        question: what was answered before it; without a person, an agent gives that to the model as its result.
    """

    call: CallBegan
    call_id: str
    began_ms: int
    message_id: str | None
    published: bool = False
    asked: bool = False
    question: str = ""


class HookSession:
    """Conversation; each subagent has its own. Time is given; does no I/O and does not wait.

    Attributes:
        session_id: id in the events.
        workspace: workspace of its tools; empty if unknown yet.
        inbox: inbox of its nudges.
    """

    def __init__(
        self,
        dialect: HookDialect,
        hook: HookEvent,
        *,
        workspace: str = "",
        user: str = "",
        changes: Counter[str] | None = None,
    ) -> None:
        """Begin with the first hook of the conversation; `changes`: as of `DigestEvidence`."""
        self.session_id = session_id_of(hook)
        self._carried: list[str] = []
        self.inbox = NudgeInbox(carried=self._carried.append)
        self._dialect = dialect
        self.workspace = workspace
        self._user = user
        self._subagent = hook.subagent
        self._model = ""
        self._begun = False
        self._prompt_id = ""
        self._turn = -1
        self._turn_open = False
        self._at = 0
        self._calls = 0
        self._step = 0
        self._refused = 0
        self._open: OrderedDict[str, deque[_OpenHookCall]] = OrderedDict()
        self._ignored: OrderedDict[str, None] = OrderedDict()
        self._pieces: OrderedDict[str, str] = OrderedDict()
        self._last_words = ""
        self._evidence = DigestEvidence(changes)
        self._events: list[bytes] = []

    def handle(self, hook: HookEvent, now_ms: int) -> list[bytes]:
        """Process a hook; return the resulting events, in order.

        Args:
            hook: parsed hook.
            now_ms: when it arrived, milliseconds since the epoch.
        """
        self._at = max(self._at, now_ms)
        self._model = hook.model or self._model
        for happening in hook.happened:
            self._handle(happening)
        for open_call in [one for twins in self._open.values() for one in twins if hook.asks]:
            open_call.asked = True
        return self.taken()

    def taken(self) -> list[bytes]:
        """Return the events made since the last time: after `answer`, the calls that it let pass or refused."""
        made, self._events = self._events, []
        return made

    def answer(self, hook: HookEvent, check: Check, *, shadow: bool = False) -> HookAnswer:
        """Return the answer to a hook, after its events have been folded.

        Args:
            hook: hook as processed.
            check: returns the verdict on a call.
            shadow: the answer will not be sent, so a refused call is made nevertheless.
        """
        self._carried.clear()
        answer = self._answer(hook, check, shadow=shadow)
        for nudge_id in self._carried if not shadow else ():
            self._event("nudge.delivered", nudge_id=nudge_id)
        return answer

    def _answer(self, hook: HookEvent, check: Check, *, shadow: bool) -> HookAnswer:
        for happening in hook.happened:
            if isinstance(happening, CallBegan):
                found, approvals = self._judge(happening, check)
                self._decided(happening, found if not shadow else HookAnswer(), approvals)
                if found != HookAnswer():
                    return found
        ended = hook.attended and hook.event in self._dialect.takes_pause and self._refused >= MAX_REFUSED
        pause = self.inbox.pause_reason if ended else ""
        context = self._context() if hook.carries and not pause else ""
        notice = "\n".join(self.inbox.notices()) if hook.event in self._dialect.takes_notice else ""
        return HookAnswer(
            context=context, pause=pause and f"trustfold: {pause}", notice=notice and f"trustfold: {notice}"
        )

    def resume(self) -> None:
        """Lift a pause: the user has spoken, to this agent or to the one that called it."""
        self.inbox.resume()
        self._refused = 0

    def deliver(self, decision: NudgeIssued | NudgeWithdrawn | PatternDetected) -> None:
        """Queue a nudge, or what a person should be told, for the next answer that can carry it; or drop a nudge."""
        match decision:
            case NudgeIssued():
                self.inbox.deliver(decision)
            case NudgeWithdrawn():
                self.inbox.withdraw(decision.nudge_id)
            case _:
                self.inbox.notify(decision)

    # --- before a call --------------------------------------------------------------------------------------------

    def _judge(self, call: CallBegan, check: Check) -> tuple[HookAnswer, tuple[str, ...]]:
        """Return the answer to a requested call, and the approvals that let it pass."""
        if (pause := self.inbox.before_call()) and not asks_person(call.tool):
            self._refused += 1
            return HookAnswer(refusal=f"trustfold: {pause}"), ()
        verdict = check(call)
        if verdict.refusal:
            return HookAnswer(refusal=verdict.refusal), ()
        if verdict.question and self._dialect.can_ask:
            return HookAnswer(question=f"trustfold: {verdict.question}"), ()
        if verdict.question and not verdict.may_try:
            refusal = (
                f"trustfold: {verdict.question}{verdict.way_out}. Nobody can be asked here; the user can give "
                f"that order in a terminal. {NO_DETOUR}"
            )
            return HookAnswer(refusal=refusal), ()
        return HookAnswer(), verdict.approvals

    def _decided(self, call: CallBegan, answer: HookAnswer, approvals: tuple[str, ...]) -> None:
        """Publish the start of a requested call; of one that is refused here, its end, too."""
        place = _place(call)
        if not (twins := self._open.get(place)):
            return
        twins[-1].question = answer.question
        self._publish_start(twins[-1], call, approvals=approvals or None)
        if answer.refusal:
            self._publish_end(twins.pop(), CallEnded(call, failed(answer.refusal, "blocked_by_guard")))
            if not twins:
                del self._open[place]
            self._ignore_end(place)

    def _ignore_end(self, place: str) -> None:
        """Ignore the end of a call that was refused here, or reported twice."""
        self._ignored[place] = None
        while len(self._ignored) > MAX_IGNORED:
            self._ignored.popitem(last=False)

    def _context(self) -> str:
        return "\n".join(message["content"] for message in self.inbox.messages())

    # --- what happened --------------------------------------------------------------------------------------------

    def _handle(self, happening: Happening) -> None:
        match happening:
            case PromptSent():
                self._prompted(happening)
            case InputReported(source):
                self._event("input.received", source=source)
                if source in WAKING:
                    self._begin_turn()
            case ContextShortened():
                self._event("context.compacted")
            case ModelSpoke():
                self._said(happening)
            case CallBegan():
                self._open_call(happening)
            case CallEnded():
                self._ended(happening)
            case CallsClosed(call_ids):
                for call_id in call_ids:
                    self._cancel(self._remove_open(f"id:{call_id}"))
                self._step += 1
            case TurnOver(text):
                self._turn_over(text)
            case SessionOver(reason):
                self._over(reason)

    def _prompted(self, prompted: PromptSent) -> None:
        known, self._prompt_id = self._prompt_id, prompted.prompt_id
        is_restored = not self._begun and self.inbox.pause_reason  # by a server that has not heard the turn begin
        if prompted.again and (prompted.prompt_id == known or is_restored):
            return
        self._turn_over("")
        self.resume()
        self._event("user.message", words=prompted.words or None)
        self._begin_turn()

    def _said(self, said: ModelSpoke) -> None:
        text = said.text
        if said.message_id:
            text = (self._pieces.pop(said.message_id, "") + text)[:MAX_SPOKEN]
            if not said.final:
                self._pieces[said.message_id] = text
                while len(self._pieces) > MAX_PIECES:
                    self._pieces.popitem(last=False)
                return
        self._speak(text)

    def _speak(self, text: str) -> None:
        """Process a whole message; the agent may repeat its last one when the turn ends."""
        words = text.strip()
        if words and words != self._last_words:
            self._step += 1
            self._begin_turn()
            self._event("model.text", text=shortened(text))
        self._last_words = words or self._last_words

    def _open_call(self, call: CallBegan) -> None:
        self._begin_turn()
        self._last_words = ""
        self._calls += 1
        place = _place(call)
        self._ignored.pop(place, None)
        self._open.setdefault(place, deque()).append(self._opened(call))
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def _opened(self, call: CallBegan) -> _OpenHookCall:
        """Return an open call; its message is that of the calls since the last one whose calls have all ended."""
        message_id = call.message_id or (f"step-{self._step}" if self._dialect.tells_steps else None)
        return _OpenHookCall(call, call.call_id or f"call-{self._calls}", self._at, message_id)

    def _ended(self, ended: CallEnded) -> None:
        place = _place(ended.call)
        open_call = self._remove_open(place)
        if open_call is None:
            if place in self._ignored or ended.looked_up:
                return
            self._begin_turn()
            self._calls += 1
            open_call = self._opened(ended.call)
        if open_call.question and ended.result == open_call.question:
            ended = CallEnded(ended.call, failed(open_call.question, "user_rejected"))
        self._publish_end(open_call, ended)
        if ended.call.call_id:
            self._ignore_end(place)

    def _publish_start(self, open_call: _OpenHookCall, call: CallBegan, at_ms: int | None = None, **more: Any) -> None:
        open_call.published = True
        self._event(
            "tool_call.started",
            at_ms,
            **_about(open_call, call),
            args=bounded_arguments(call.args),
            message_id=open_call.message_id,
            **more,
        )

    def _publish_end(self, open_call: _OpenHookCall, ended: CallEnded) -> None:
        call = open_call.call if ended.looked_up or not ended.call.args else ended.call
        duration = ended.duration_ms
        if duration is None and ended.timed and open_call.published and not open_call.asked:
            duration = self._at - open_call.began_ms
        if ended.ending.status == "success":
            self._evidence.succeeded(call.tool, call.args, self.workspace)
        if not open_call.published:
            began = open_call.began_ms
            if ended.duration_ms is not None:  # without the time of the approval
                began = max(began, self._at - int(ended.duration_ms))
            self._publish_start(open_call, call, began)
        self._event(
            "tool_call.finished",
            **_about(open_call, call),
            status=ended.ending.status,
            error=ended.ending.error,
            result=bounded(ended.result),
            duration_ms=duration,
            workspace_digest=self._evidence.state(ended.workspace, self.workspace),
        )

    def _cancel(self, open_call: _OpenHookCall | None) -> None:
        if open_call is not None:
            self._publish_end(open_call, CallEnded(open_call.call, INTERRUPTED))
            if open_call.call.call_id:
                self._ignore_end(_place(open_call.call))

    def _turn_over(self, text: str) -> None:
        self._speak(text)
        for open_call in [one for twins in self._open.values() for one in twins]:
            self._cancel(open_call)
        self._open.clear()
        self._pieces.clear()
        self._last_words = ""
        self._step += 1
        if self._turn_open:
            self._event("turn.ended")
            self._turn_open = False

    def _over(self, reason: str) -> None:
        self._turn_over("")
        self._event("session.ended", reason=reason or None)
        if self._subagent:  # nobody prompts it; what is called again has a new task
            self.resume()
        self._begun, self._turn, self._prompt_id = False, -1, ""

    def _begin_turn(self) -> None:
        if not self._turn_open:
            self._turn += 1
            self._turn_open = True
            self._event("turn.started")

    def _remove_open(self, place: str) -> _OpenHookCall | None:
        """Remove and return the oldest open call of a key."""
        twins = self._open.get(place)
        if not twins:
            return None
        open_call = twins.popleft()
        if not twins:
            del self._open[place]
        return open_call

    def _event(self, kind: str, at_ms: int | None = None, **fields: Any) -> None:
        if not self._begun:
            self._begun = True
            self._event("session.started", settings=SETTINGS, reports_turn_ends=True, reports_deliveries=True)
        body = {
            "schema_version": "1.0",
            "id": new_id(self._at),
            "type": kind,
            "time": rfc3339(self._at if at_ms is None else at_ms),
            "session_id": self.session_id,
            "workspace_id": self.workspace or None,
            "user_id": self._user or None,
            "agent_id": self._subagent or None,
            "model": self._model or None,
            "turn_index": self._turn if self._turn >= 0 else None,
        }
        whole = {name: value for name, value in (body | fields).items() if value is not None}
        self._events.append(orjson.dumps(whole))


def session_id_of(hook: HookEvent) -> str:
    """Return the id, in events, of the session of a hook; a subagent has one of its own."""
    return name_of(f"{hook.session}/{hook.subagent}" if hook.subagent else hook.session)


def _about(open_call: _OpenHookCall, call: CallBegan) -> dict[str, Any]:
    service = call.service or open_call.call.service
    return {"call_id": open_call.call_id, "tool_name": open_call.call.tool, "service": service or None}


def _place(call: CallBegan) -> str:
    """Return the key that pairs start and end of a call: its id, else its tool and arguments, in order."""
    if call.call_id:
        return f"id:{call.call_id}"
    digest = blake2b(canonical(call.args), digest_size=16).hexdigest()
    return f"args:{call.tool}:{digest}"
