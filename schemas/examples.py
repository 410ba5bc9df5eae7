"""Example of every wire type, as a publisher would write it; included in the JSON Schemas and AsyncAPI.

The examples share one scenario: a flaky `http_request` in the workspace `shop`, and a model that keeps calling it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import orjson

EXAMPLES: dict[str, dict[str, Any]] = {
    example["type"]: example
    for example in map(orjson.loads, files(__package__).joinpath("examples.ndjson").read_bytes().splitlines())
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
