"""Example of every wire type, as a publisher would write it; included in the JSON Schemas and AsyncAPI.

The examples share one scenario: a flaky `http_request` in the workspace `shop`, and a model that keeps calling it.
"""

from __future__ import annotations

from typing import Any

_V = {"schema_version": "1.0"}
_EVENT = {
    **_V,
    "id": "01980d2e-6f00-7000-8000-000000000001",
    "time": "2026-01-31T12:00:00.000Z",
    "session_id": "s-4711",
    "turn_index": 3,
    "workspace_id": "shop",
    "user_id": "ada",
    "model": "large-1",
}
_COMMAND = {
    **_V,
    "id": "01980d2e-6f00-7000-8000-0000000000c1",
    "time": "2026-01-31T12:30:00.000Z",
    "workspace_id": "shop",
    "issued_by": "ada",
    "reason": "the upstream was repaired",
}
_OUTPUT = {
    **_V,
    "id": "0c3c4ca3-ba8a-8c41-8efb-de8b45975192",
    "time": "2026-01-31T12:00:02.500Z",
    "session_id": "s-4711",
    "workspace_id": "shop",
    "caused_by": ["01980d2e-6f00-7000-8000-000000000001"],
}
_TRUST_KEY = "http_request|domain=api.example.com|path_prefix=/v1"
_NUDGE = "You have made the same call to http_request 3 times with the same result. Use what you know, or ask."


def _event(**fields: Any) -> dict[str, Any]:
    return {**_EVENT, **fields}


def _command(**fields: Any) -> dict[str, Any]:
    return {**_COMMAND, **fields}


def _output(**fields: Any) -> dict[str, Any]:
    return {**_OUTPUT, **fields}


_INPUTS: dict[str, dict[str, Any]] = {
    "session.started": _event(
        settings={"nudge_level": "direct", "recovery_mode": "ask"},
        reports_turn_ends=True,
        models=["large-1", "small-1"],
    ),
    "session.ended": _event(reason="the user closed the window"),
    "session.settings_changed": _event(settings={"nudge_enabled": False, "nudge_level": None}),
    "turn.started": _event(),
    "turn.ended": _event(stalled=False),
    "tool_call.started": _event(
        call_id="call-1",
        tool_name="http_request",
        plugin_name="web",
        args={"url": "https://api.example.com/v1/orders", "method": "GET"},
        deadline_ms=30_000,
        scenario="list the open orders",
        annotations={"readOnlyHint": True},
        message_id="msg-7",
    ),
    "tool_call.finished": _event(
        call_id="call-1",
        tool_name="http_request",
        status="error",
        plugin_name="web",
        duration_ms=2500.5,
        attempts=2,
        error={"type": "http_error", "message": "service unavailable", "http_status": 503, "retriable": True},
        result={"status_code": 503, "body": ""},
        workspace_digest="5e884898da280471",
    ),
    "user.message": _event(text_digest="9f86d081884c7d65", words=12),
    "input.received": _event(source="report", text_digest="2c26b46b68ffc68f"),
    "context.compacted": _event(),
    "model.text": _event(text="Let me try that once more."),
    "permission.requested": _event(call_id="call-1", tool_name="http_request"),
    "permission.resolved": _event(call_id="call-1", tool_name="http_request", granted=True, method="user"),
    "models.available": _event(models=["large-1", "small-1"]),
    "failure.reported": _event(
        tool_name="http_request",
        error={"message": "certificate has expired"},
        severity="server_error",
        domain="api.example.com",
        context={"batch": 7},
        recoverable=True,
    ),
    "success.reported": _event(tool_name="http_request", domain="api.example.com"),
    "breaker.probe_requested": _event(breaker_key="tool:http_request", guard_id="host-7/4242", call_id="call-9"),
    "guarantee.overridden": _event(limits={"max_cost_usd": 5.0}, confirmed_by="ada"),
    "nudge.delivered": _event(nudge_id=_OUTPUT["id"]),
    "feedback.false_alarm": _event(output_id=_OUTPUT["id"], reason="it was waiting for a deployment"),
    "synthesis.completed": _event(
        strategy="weighted",
        confidence=0.25,
        results=[
            {"confidence": 0.2, "id": "branch-1", "weight": 0.4},
            {"confidence": 0.3, "id": "branch-2", "weight": 0.6},
        ],
    ),
    "time.passed": _event(),
    "trust.reset": _command(key=_TRUST_KEY),
    "trust.recover": _command(key="http_request"),
    "trust.approve": _command(key=_TRUST_KEY, expires_in_s=600.0),
    "tool.remove": _command(key="tool:http_request"),
    "tool.restore": _command(key="tool:http_request"),
    "breaker.force_open": _command(key="tool:http_request", duration_s=600.0),
    "breaker.close": _command(key="tool:http_request"),
    "breaker.disable": _command(key="service:atlassian"),
    "breaker.observe": _command(key="service:atlassian"),
    "quality.mark": _command(
        tool="nmt_translator",
        severity="high",
        scenario="translate english text to french",
        error_message="wrong language",
    ),
    "quality.restore": _command(tool="nmt_translator", score=0.9),
    "settings.changed": {
        **_V,
        "id": "01980d2e-6f00-7000-8000-0000000000d1",
        "time": "2026-01-31T12:30:00.000Z",
        "scope": "workspace:shop",
        "overrides": {"recovery_mode": "ask", "rules": {"trust": {"tool_rules": {"bash": {"count_threshold": 5}}}}},
        "issued_by": "ada",
    },
}

_TRUST = _output(
    key=_TRUST_KEY,
    scope="key",
    **{"from": "trusted", "to": "escalated"},
    trigger="count",
    reason="3/3 failures in 1h",
    count=3.0,
    threshold=3.0,
    window_s=3600.0,
    expires_at="2026-01-31T12:30:02.500Z",
    successes=0,
    successes_needed=3,
    recovery_hint="3 successful calls after 12:30:02 UTC restore trust",
    notification="Tool 'http_request' escalated to require approval",
    permission_warning="This tool has been escalated due to: 3/3 failures in 1h",
    silent=False,
)
_PATTERN = _output(
    pattern="repetitive_calls",
    severity="minor",
    repetitions=3,
    tool_sequence=["http_request", "http_request", "http_request"],
    fingerprint="9f86d081884c7d65",
    duration_ms=4200,
    model="large-1",
    agent_id="researcher",
    turn_index=3,
)
_PROBE = _output(
    breaker_key="tool:http_request", holder="host-7/4242", call_id="call-9", lease_until="2026-01-31T12:01:02.500Z"
)
_OUTPUTS: dict[str, dict[str, Any]] = {
    "trust.changed": _TRUST,
    "trust.recovery_pending": {
        **_TRUST,
        "from": "recovering",
        "to": "recovering",
        "trigger": "recovery",
        "reason": "3/3 successes since recovery began",
        "successes": 3,
    },
    "trust.danger_noted": _output(
        key="bash|danger=root",
        danger="root",
        made=True,
        reason="a call that would remove or change a root or home directory was made",
        count=1,
        notification="bash: a call that would remove or change a root or home directory was made",
        silent=False,
    ),
    "breaker.changed": _output(
        breaker_key="tool:http_request",
        **{"from": "closed", "to": "open"},
        trigger="consecutive",
        consecutive_failures=5,
        failure_rate=0.8333,
        measured=6,
        open_until="2026-01-31T12:00:32.500Z",
        mode="enforce",
    ),
    "breaker.probe_granted": _PROBE,
    "breaker.probe_denied": {**_PROBE, "holder": "host-8/99", "call_id": "call-3"},
    "pattern.detected": _PATTERN,
    "pattern.cleared": {**_PATTERN, "repetitions": 4, "severity": "moderate"},
    "nudge.issued": _output(
        nudge_type="gentle",
        message=_NUDGE,
        pattern="repetitive_calls",
        severity="minor",
        pattern_id=_OUTPUT["id"],
        lane="context_hint",
        duration_ms=4200,
        model="large-1",
        agent_id="researcher",
        turn_index=3,
    ),
    "nudge.judged": _output(nudge_id=_OUTPUT["id"], effective=True),
    "nudge.withdrawn": _output(nudge_id=_OUTPUT["id"]),
    "session.restored": _output(turn_index=3, active_patterns=1, pending_nudges=1, settings_restored=True),
    "model_switch.suggested": _output(
        current_model="small-1",
        suggested_model="large-1",
        failure_key="http_request",
        current_success_rate=0.4,
        suggested_success_rate=0.95,
        current_attempts=25,
        suggested_attempts=60,
        strategy="suggest",
    ),
    "confidence.low": _output(
        confidence=0.25, threshold=0.3, strategy="weighted", signals={"self_consistency": 0.2, "tool_success": 0.5}
    ),
    "guarantee.warned": _output(guarantee="max_cost_usd", used=0.81, limit=1.0),
    "guarantee.violated": _output(
        guarantee="max_recursive_calls",
        used=21.0,
        limit=20.0,
        plan={
            "partial_result": "3 of 5 sources were read",
            "recommendations": ["narrow the question"],
            "recursive_calls": 21,
        },
    ),
    "state.updated": _output(
        kind="breaker",
        key="tool:http_request",
        scope="tool",
        state="half_open",
        mode="enforce",
        reason="cooldown_over",
        successes=1,
        failure_rate=0.8333,
        measured=6,
        opened_at="2026-01-31T12:00:02.500Z",
        open_until="2026-01-31T12:00:32.500Z",
        lease={"holder": "host-7/4242", "call_id": "call-9", "lease_until": "2026-01-31T12:01:02.500Z"},
        reopen_count=1,
        time_in_state_ms={"closed": 86_400_000, "open": 30_000},
    ),
    "dead_letter": {
        **_V,
        "id": "1b4f0e98-51a7-8e5c-9d7f-0a4b1c2d3e4f",
        "topic": "events",
        "partition": 4,
        "offset": 17,
        "reason": "missing_field",
        "path": "$.session_id",
        "message": "the field `session_id` is required; send it",
        "time": "2026-01-31T12:00:00.000Z",
        "key": "s-4711",
        "value": '{"schema_version":"1.0"}',
    },
    "dead_letter.republished": {
        **_V,
        "id": "7c1d9a52-0b6e-8f13-a2c4-5e6f7a8b9c0d",
        "dead_letter_id": "1b4f0e98-51a7-8e5c-9d7f-0a4b1c2d3e4f",
        "attempt_id": "5a0c6f2e9b7d4c3e8f1a2b3c4d5e6f70",
        "state": "sent",
        "time": "2026-01-31T12:30:00.000Z",
    },
}

EXAMPLES: dict[str, dict[str, Any]] = {
    wire: {"type": wire, **fields} for wire, fields in {**_INPUTS, **_OUTPUTS}.items()
}
"""One example of every wire type, by type."""

ENVELOPE_EXAMPLES: dict[str, dict[str, Any]] = {
    "tool-call-envelope": {
        "contractVersion": "1.1",
        "requestId": "01890a5d-ac96-774b-bcce-b302099a8057",
        "toolCallId": "call_1",
        "toolName": "http_request",
        "toolNamespace": "agents.tools.web",
        "target": {"sessionKey": "s-4711", "actorId": "u-7", "workspaceId": "w1"},
        "payload": {
            "version": "1.0",
            "params": {"url": "https://api.example.com/v1/data"},
            "callHints": {"expectedRetrySafe": True, "timeoutMs": 5000},
        },
        "transport": {"dedupeMode": "enforced", "retryBudget": {"maxAttempts": 4, "maxElapsedMs": 30_000}},
    },
    "tool-result-envelope": {
        "requestId": "01890a5d-ac96-774b-bcce-b302099a8057",
        "status": "success",
        "fromCache": False,
        "toolName": "http_request",
        "durationMs": 412.5,
        "attempts": 2,
        "output": {"content": {"items": 3}},
        "retriedBy": [{"attempt": 1, "delayMs": 131.7, "reasonCode": "503", "latencyMs": 88.2}],
    },
}
"""One example of each of the guard's envelopes, by name."""
