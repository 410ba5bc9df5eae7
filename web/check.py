"""`POST /v1/check`: whether a call would be allowed, for platforms that do not write Python.

    {"tool_name": "bash", "args": {"command": "git push"}, "session_id": "s1", "workspace_id": "shop"}
        ->  {"allowed": true, "ask": true, "code": "approval_required", "message": "tool 'bash' is escalated - ...",
             "keys": ["bash|command=git", "bash"]}

The body is a `tool_call.started` event, or some of its fields: only `tool_name` is required. Nothing is published or
counted. With `"use": true` an operator's approval that allows the call is consumed: the answer lists it in
`approvals`, no other call can use it, and the caller repeats that list in the events of the call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..errors import EventRejected
from ..guard.request import NO_SESSION, recorded_call
from ..integrations.policy import HookPolicy
from ..projections.emitter import StageOutput
from ..projections.session.calls import args_of
from ..schemas.codec import MAX_BYTES, decode_event, rfc3339
from ..schemas.events import ToolCallStarted
from ..schemas.outcomes import DEFAULT_WORKSPACE
from ..security.redaction import redact_record
from ..streams.embedded.server import EmbeddedService, read_body, unhindered

STARTED = "tool_call.started"


def check_routes(service: EmbeddedService, policy: HookPolicy) -> Sequence[BaseRoute]:
    """Route of this endpoint; it decides by `policy`, which tracks the states of the served engine."""

    async def check(request: HttpRequest) -> Response:
        now_ms = time.time_ns() // 1_000_000
        body = await read_body(request)
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"a call is larger than {MAX_BYTES >> 20} MiB; no event may be")
        event, use = await unhindered(read_check, body, now_ms)
        workspace, user = event.workspace_id, event.user_id
        if policy.view.keys() and event.session_id != NO_SESSION and not (workspace and user):
            known = await service.read("owner", event.session_id)
            workspace, user = workspace or known[0], user or known[1]
        rules = service.writer.engine.rules
        args, owner = args_of(event), workspace or DEFAULT_WORKSPACE
        call = recorded_call(event, args, owner, user or None, rules.tools.families, rules.calls)
        await unhindered(lambda _: call.trust_keys, body)  # reads the command line
        judged = policy.judge(call, now_ms, use=use)
        answer: dict[str, Any] = {**judged.decision._asdict(), "keys": call.trust_keys}
        if judged.approvals:
            answer["approvals"] = judged.approvals
        return Response(orjson.dumps(answer), media_type="application/json")

    return [Route("/v1/check", check, methods=["POST"])]


def read_check(body: bytes, now_ms: int) -> tuple[ToolCallStarted, bool]:
    """Parse a body into the call to check, and whether to consume an approval for it.

    Secrets are removed as from events, so that the call has the same keys as its event.
    """
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    if not isinstance(given, dict) or given.get("type", STARTED) != STARTED:
        raise HTTPException(400, f'send an object with "tool_name" and "args", or a {STARTED} event')
    use = given.pop("use", False)
    if not isinstance(use, bool):
        raise HTTPException(400, '"use" must be true or false')
    frame = {
        "schema_version": "1.0",
        "id": "check",
        "type": STARTED,
        "time": rfc3339(now_ms),
        "session_id": NO_SESSION,
        "call_id": "check",
    }
    try:
        event = decode_event(redact_record(orjson.dumps(frame | given)))
    except orjson.JSONEncodeError as error:
        raise HTTPException(400, f"the body cannot be read: {error}") from error
    except EventRejected as rejected:
        raise HTTPException(400, f"{rejected.path}: {rejected.message}") from rejected
    assert isinstance(event, ToolCallStarted)  # noqa: S101 - its type was checked
    return event, use


def policy_of(service: EmbeddedService) -> HookPolicy:
    """Create a policy that tracks the engine's states from now on, in commit order."""
    writer = service.writer
    policy = HookPolicy(lambda: writer.engine.rules)
    for key, value in writer.engine.views.states().items():
        policy.view.apply(key, value)

    def listen(outputs: Sequence[StageOutput]) -> None:
        for output in outputs:
            if output.topic == "state":
                policy.view.apply(output.key, output.value)

    writer.listeners.append(listen)
    return policy
