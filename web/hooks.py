"""HTTP endpoint for coding agents' hooks: takes events and returns the answer for the agent.

    POST /hooks/AGENT     ?event=NAME where the payload does not name it; ?shadow=1: fold, and answer nothing;
                          ?unattended=1: no person sees how the run ends; ?too_large=1: the client could not send it
    GET  /v1/hooks        which agents have been heard, and what was said to them, or would have been

A hook always gets 200, at worst with `{}`: an error here must never stop an agent. Of a session that the private socket
has told of, nothing else is believed (docs/operating.md, Publishers).
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..errors import EventRejected, RejectReason
from ..guard.request import GuardedCall
from ..guard.result import told_to_model
from ..guard.tools import ToolRegistration
from ..guard.workspace import WorkspaceDigests, is_evidence
from ..ingest.hooks import DIALECTS, HookAnswer, HookDialect, HookEvent
from ..ingest.hooks.dialect import CallBegan, CallEnded, PromptSent
from ..ingest.reading import parse
from ..ingest.workspaces import workspace_of
from ..integrations.hook_session import HookSession, HookVerdict, session_id_of
from ..integrations.policy import HookPolicy
from ..projections.emitter import StageOutput
from ..schemas.codec import decode_decision, rfc3339
from ..schemas.decisions import NudgeIssued, NudgeWithdrawn, PatternDetected
from ..schemas.fields import MAX_NAME
from ..schemas.outcomes import DEFAULT_WORKSPACE
from ..schemas.vocabulary import NudgeLane
from ..streams.embedded.engine import CommitReceipt, SubmitRequest
from ..streams.embedded.publishers import HOOKS, SenderIdentity
from ..streams.embedded.server import QUICK_BYTES, EmbeddedService

log = logging.getLogger(__name__)

# Maximum size of a payload in bytes; a larger one is counted and not judged. Clients send less (`hook_client`).
MAX_BODY_BYTES = 8 * 1024 * 1024

MAX_SESSIONS = 1_000  # Maximum sessions kept; the least recently used are evicted, and start again with their next hook
MAX_SAID = 200  # Number of latest answers kept for `trustfold status`

FOLD_S, BUSY_FOLD_S = 0.3, 0.02
"""Maximum seconds that an agent waits for its events to be folded, and while publishers' events are being folded.

They are folded even after that. While they are not, no other hook waits: a disk that hangs costs this time once.
"""

TAIL_BYTES = 256 * 1024  # Bytes at the end of an agent's own log that are read

NOTHING = b"{}"

_SAID = frozenset({"nudge.issued", "nudge.withdrawn", "pattern.detected"})


class AgentHooks:
    """Sessions of all agents on this machine, for one engine."""

    def __init__(self, service: EmbeddedService, policy: HookPolicy, user: str = "") -> None:
        """Answer for an engine that is served, by the policy that follows its states; `user` owns every session."""
        self._policy = policy
        self._writer = service.writer
        self._read = service.read
        self._user = user
        self._workspaces = WorkspaceDigests()
        self._changes: Counter[str] = Counter()
        self._sessions: OrderedDict[tuple[str, str, str], HookSession] = OrderedDict()
        self._by_id: dict[str, HookSession] = {}
        self._publishers: dict[str, SenderIdentity] = {}
        self._heard: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._shadow: set[str] = set()
        self._faults: Counter[str] = Counter()
        self._late: set[asyncio.Future[CommitReceipt]] = set()
        self._said: deque[dict[str, Any]] = deque(maxlen=MAX_SAID)
        service.writer.listeners.append(self._listen)

    def routes(self) -> Sequence[BaseRoute]:
        """The paths of this endpoint."""
        return [Route("/hooks/{agent}", self.post, methods=["POST"]), Route("/v1/hooks", self.overview)]

    async def post(self, request: HttpRequest) -> Response:
        """Handle one hook call."""
        body = NOTHING
        agent = str(request.path_params["agent"])[:40]
        try:
            dialect = DIALECTS.get(agent)
            asked = request.query_params
            received = await _body(request)
            if len(received) > MAX_BODY_BYTES or asked.get("too_large") == "1":
                self._faults[RejectReason.TOO_LARGE.value] += 1
            elif dialect is not None and isinstance(payload := parse(received), dict):
                hook = dialect.read(payload, asked.get("event", "")[:MAX_NAME], read_tail)
                if hook is not None:
                    hook = hook._replace(attended=asked.get("unattended") != "1")
                    shadow, publisher = asked.get("shadow") == "1", _publisher_of(request)
                    answer = await self._answer(dialect, hook, publisher, shadow=shadow, size=_size_of(request))
                    body = orjson.dumps(answer)
        except Exception as error:  # noqa: BLE001 - an agent must continue despite any error here
            self._faults[type(error).__name__] += 1
            log.warning("a hook of %s was ignored: %s", agent, type(error).__name__)
        return Response(body, media_type="application/json")

    async def overview(self, request: HttpRequest) -> Response:
        """Return the agents whose hooks were received, their sessions, and the answers they got."""
        del request
        agents = {
            agent: {"hooks": heard, "last_time": rfc3339(self._last[agent]), "shadow": agent in self._shadow}
            for agent, heard in self._heard.items()
        }
        return Response(
            orjson.dumps(
                {
                    "agents": agents,
                    "sessions": sorted({session for _, session, _ in self._sessions}),
                    "said": list(self._said),
                    "paused": {one.session_id: one.inbox.pause_reason for one in self._sessions.values()},
                    "faults": dict(self._faults),
                }
            ),
            media_type="application/json",
        )

    async def _answer(
        self, dialect: HookDialect, hook: HookEvent, publisher: SenderIdentity, *, shadow: bool, size: int = 0
    ) -> dict[str, Any]:
        now_ms = time.time_ns() // 1_000_000
        place = (dialect.agent, hook.session, hook.subagent)
        known = self._by_id.get(session_id_of(hook))
        if known is not None and self._publishers[known.session_id] != publisher:
            if publisher != HOOKS:
                self._faults[RejectReason.NOT_YOURS.value] += 1
                return {}
            self._sessions.pop(place, None)  # begun by somebody who is no agent's hook
        self._heard[dialect.agent] += 1
        self._last[dialect.agent] = now_ms
        (self._shadow.add if shadow else self._shadow.discard)(dialect.agent)
        is_new = place not in self._sessions
        session = self._session(place, dialect, hook, publisher)
        if is_new:
            await self._restore(session)
        if any(map(_calls_for_digest, hook.happened)) and session.workspace == workspace_of(hook.folder):
            hook = _with_digest(hook, await self._workspaces.digest(hook.folder))
        self._resume_subagents(hook)
        wait_s = BUSY_FOLD_S if self._writer.busy else FOLD_S
        if folded := self._fold(session.handle(hook, now_ms), publisher):
            if not self._late:
                await asyncio.wait({folded}, timeout=wait_s)
            if not folded.done():
                self._late.add(folded)
                folded.add_done_callback(self._late.discard)

        calls = {id(begun): self._call(session, begun) for begun in hook.happened if isinstance(begun, CallBegan)}
        if size > QUICK_BYTES:
            await asyncio.to_thread(lambda: [call.trust_keys for call in calls.values()])  # reads the command lines

        def check(begun: CallBegan) -> HookVerdict:
            judged = self._policy.judge(calls[id(begun)], now_ms, use=not shadow)
            if not judged.decision.allowed:
                return HookVerdict(refusal=told_to_model(judged.decision.code, judged.decision.message))
            if not judged.decision.ask:
                return HookVerdict(approvals=judged.approvals)
            return HookVerdict(question=judged.decision.message, way_out=judged.way_out, may_try=judged.may_try)

        answer = session.answer(hook, check, shadow=shadow)
        self._fold(session.taken(), publisher)
        self._note(dialect, hook, session, answer, now_ms, shadow=shadow)
        return {} if shadow else dialect.write(hook.event, answer)

    def _call(self, session: HookSession, begun: CallBegan) -> GuardedCall:
        where, rules = session.workspace or DEFAULT_WORKSPACE, self._writer.engine.rules
        call = GuardedCall(
            ToolRegistration(name=begun.tool, service=begun.service or None), begun.args, session.session_id, where
        )
        call.user_id = self._user or None
        call.families, call.rules = rules.tools.families, rules.calls
        return call

    def _fold(self, events: list[bytes], publisher: SenderIdentity) -> asyncio.Future[CommitReceipt] | None:
        if not events:
            return None
        request = SubmitRequest("events", events, publisher=publisher)
        folded = asyncio.ensure_future(self._writer.submit(request, urgent=True))
        folded.add_done_callback(self._count)
        return folded

    def _count(self, folded: asyncio.Future[CommitReceipt]) -> None:
        if not folded.cancelled() and (fault := folded.exception()) is not None:
            self._faults[type(fault).__name__] += 1

    def _session(
        self, place: tuple[str, str, str], dialect: HookDialect, hook: HookEvent, publisher: SenderIdentity
    ) -> HookSession:
        """The session of a hook; it stays in the workspace in which it was heard first, wherever its shell goes."""
        session = self._sessions.get(place)
        if session is None:
            session = HookSession(dialect, hook, user=self._user, changes=self._changes)
            self._sessions[place] = session
            self._by_id[session.session_id] = session
            self._publishers[session.session_id] = publisher
            while len(self._sessions) > MAX_SESSIONS:
                _, quiet = self._sessions.popitem(last=False)
                if self._by_id.get(quiet.session_id) is quiet:
                    del self._by_id[quiet.session_id], self._publishers[quiet.session_id]
        self._sessions.move_to_end(place)
        session.workspace = session.workspace or workspace_of(hook.folder)
        return session

    def _resume_subagents(self, hook: HookEvent) -> None:
        """Lift the pauses of a session's subagents if the user has spoken, which they do to the main agent alone."""
        if not hook.subagent and any(isinstance(one, PromptSent) and not one.again for one in hook.happened):
            for (_, name, subagent), session in self._sessions.items():
                if subagent and name == hook.session:
                    session.resume()

    async def _restore(self, session: HookSession) -> None:
        """Deliver the pause that a session of an earlier server is in, if nobody has spoken since."""
        decided = [decode_decision(one.value) for one in await self._read("session_decisions", session.session_id)]
        pauses = [one for one in decided if isinstance(one, NudgeIssued) and one.lane is NudgeLane.PAUSE]
        if not pauses:
            return
        for event in await self._read("session_events", session.session_id):
            known = orjson.loads(event.value)
            if known.get("type") == "user.message" and known.get("time", "") > pauses[-1].time:
                return
        session.deliver(pauses[-1])

    def _note(
        self,
        dialect: HookDialect,
        hook: HookEvent,
        session: HookSession,
        answer: HookAnswer,
        now_ms: int,
        *,
        shadow: bool,
    ) -> None:
        for kind, text in answer._asdict().items():
            if text:
                self._said.append(
                    {
                        "time": rfc3339(now_ms),
                        "agent": dialect.agent,
                        "session_id": session.session_id,
                        "event": hook.event,
                        "kind": kind,
                        "text": text,
                        "shadow": shadow,
                    }
                )

    def _listen(self, outputs: Sequence[StageOutput]) -> None:
        """Deliver nudges, and what persons should be told, to their sessions; called in commit order."""
        for output in outputs:
            if output.topic == "nudges" and output.type in _SAID and output.value is not None:
                try:
                    decision = decode_decision(output.value)
                except EventRejected:
                    continue
                if not isinstance(decision, NudgeIssued | NudgeWithdrawn | PatternDetected):
                    continue
                session = self._by_id.get(decision.session_id or "")
                if session is not None:
                    session.deliver(decision)


def _publisher_of(request: HttpRequest) -> SenderIdentity:
    """Return the sender of a hook: an agent's own hooks come by the private socket, which has no port."""
    server = request.scope.get("server")
    if server is not None and server[1] is None:
        return HOOKS
    publisher: SenderIdentity | None = request.state.publisher
    return publisher or SenderIdentity()


def _size_of(request: HttpRequest) -> int:
    """Return the size that a request states, in bytes; a body without one may be large."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isdecimal() else MAX_BODY_BYTES


async def _body(request: HttpRequest) -> bytes:
    """Return the body; of one that is too large its start, with more than `MAX_BODY_BYTES`."""
    body = bytearray()
    async for chunk in request.stream():
        if len(body) <= MAX_BODY_BYTES:
            body += chunk
    return bytes(body)


def read_tail(path: str) -> bytes:
    """Last part of an agent's log of a session; empty for everything that is none, and where it cannot be read."""
    if not path.endswith(".jsonl") or "\x00" in path:
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return b""
        return os.pread(descriptor, TAIL_BYTES, max(0, about.st_size - TAIL_BYTES))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _calls_for_digest(happening: object) -> bool:
    """Whether something that happened is a failure after which the state of the workspace is evidence."""
    return (
        isinstance(happening, CallEnded)
        and happening.ending.status == "error"
        and is_evidence(happening.call.tool, happening.call.args)
    )


def _with_digest(hook: HookEvent, digest: str | None) -> HookEvent:
    """Return a hook whose failed calls state the digest of the workspace."""
    return hook._replace(
        happened=tuple(
            one._replace(workspace=digest) if isinstance(one, CallEnded) and _calls_for_digest(one) else one
            for one in hook.happened
        )
    )
