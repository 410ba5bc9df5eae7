"""Generates the AsyncAPI 3.1.0 document: every topic as a channel, with its Kafka settings, keys and messages.

The document describes trustfold as the application: it receives events and sends decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .examples import EXAMPLES
from .topics import DEFAULT_PARTITIONS, DEFAULT_PREFIX, TopicRole, TopicSpec, full_name

WIRE_VERSION = "1.0.0"
"""Version of the contract; a new minor version only adds optional fields and new types."""

KAFKA_BINDING = "0.5.0"

_ABOUT = (
    "trustfold folds the events of AI agents' tool calls into decisions: circuit breakers, trust, nudges for models "
    "that are stuck. Topic names begin with a configurable prefix. Every value is one JSON object in UTF-8. Unknown "
    "fields are ignored; a consumer must ignore fields and types that it does not know."
)
_CE_HEADERS = {
    "type": "object",
    "description": "CloudEvents binary mode; absent on tombstones.",
    "properties": {
        "ce_specversion": {"type": "string", "const": "1.0"},
        "ce_id": {"type": "string", "description": "the output's id"},
        "ce_type": {"type": "string", "description": "the output's type"},
        "ce_source": {"type": "string"},
        "ce_time": {"type": "string", "format": "date-time"},
        "content-type": {"type": "string", "const": "application/json"},
        "traceparent": {"type": "string", "description": "W3C trace context of the newest input event behind it"},
    },
}
_INPUT_HEADERS = {
    "type": "object",
    "properties": {"traceparent": {"type": "string", "description": "W3C trace context; continued when present"}},
}


def asyncapi(topics: Mapping[str, TopicSpec], schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Build the document from the catalogue and the schemas of all values."""
    return {
        "asyncapi": "3.1.0",
        "id": "urn:trustfold:asyncapi:1",
        "info": {
            "title": "trustfold",
            "version": WIRE_VERSION,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "localhost:9092",
                "protocol": "kafka",
                "description": "Any Kafka cluster from version 3 on.",
            }
        },
        "channels": {name: _channel(topic) for name, topic in topics.items()},
        "operations": dict(
            _operation(topic, action)
            for topic in topics.values()
            for action, roles in (("receive", topic.readers), ("send", topic.writers))
            if TopicRole.WORKER in roles
        ),
        "components": {
            "messages": {
                wire: _message(topic, wire, kind.__name__, schemas)
                for topic in topics.values()
                for wire, kind in zip(topic.types, topic.kinds, strict=True)
            },
            "schemas": dict(sorted(schemas.items())),
        },
    }


def _channel(topic: TopicSpec) -> dict[str, Any]:
    configuration: dict[str, Any] = {"cleanup.policy": [topic.cleanup]}
    if topic.retention_ms is not None:
        configuration["retention.ms"] = topic.retention_ms
    if topic.max_message_bytes is not None:
        configuration["max.message.bytes"] = topic.max_message_bytes
    return {
        "address": full_name(DEFAULT_PREFIX, topic.name),
        "title": topic.name,
        "description": _rights(topic),
        "messages": {wire: {"$ref": f"#/components/messages/{wire}"} for wire in topic.types},
        "bindings": {
            "kafka": {
                "topic": full_name(DEFAULT_PREFIX, topic.name),
                "partitions": DEFAULT_PARTITIONS,
                "topicConfiguration": configuration,
                "bindingVersion": KAFKA_BINDING,
            }
        },
    }


def _rights(topic: TopicSpec) -> str:
    who = {
        verb: ", ".join(role.value for role in TopicRole if role in roles)
        for verb, roles in (("Written by", topic.writers), ("Read by", topic.readers))
    }
    internal = " Internal: the shape may change with any release." if topic.internal else ""
    return (
        f"{topic.carries} Key: {topic.key}. " + " ".join(f"{verb}: {roles}." for verb, roles in who.items()) + internal
    )


def _operation(topic: TopicSpec, action: str) -> tuple[str, dict[str, Any]]:
    name = action + "".join(word.capitalize() for word in topic.name.split("-"))
    channel = f"#/channels/{topic.name}"
    return name, {
        "action": action,
        "title": f"{action} {topic.name}",
        "summary": topic.carries,
        "channel": {"$ref": channel},
        "messages": [
            {"$ref": f"{channel}/messages/{wire}"} for wire in topic.types if action == "receive" or _sent(topic, wire)
        ],
    }


def _sent(topic: TopicSpec, wire: str) -> bool:
    """Whether trustfold sends a type itself: of the events only those caused by time."""
    return topic.name != "events" or wire in {"tool_call.finished", "time.passed"}


def _message(topic: TopicSpec, wire: str, schema: str, schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    sent = TopicRole.WORKER in topic.writers and topic.name != "events"
    return {
        "name": wire,
        "title": wire,
        "summary": str(schemas[schema]["description"]).partition("\n")[0],
        "contentType": "application/json",
        "headers": _CE_HEADERS if sent else _INPUT_HEADERS,
        "payload": {"$ref": f"#/components/schemas/{schema}"},
        "bindings": {"kafka": {"key": {"type": "string", "description": topic.key}, "bindingVersion": KAFKA_BINDING}},
        "examples": [{"name": "example", "payload": EXAMPLES[wire]}],
    }
