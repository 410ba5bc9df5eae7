"""Topic catalogue as data: the source of `topics create`, the documents and the ACLs.

See docs/design/contracts.md#topics.

Names are catalogue names; `full_name` returns the real one. All topics have the same number of partitions, because the
stages are co-partitioned; it cannot change later: adding partitions would separate keys from their states.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args

import msgspec

from ..errors import ConfigError
from . import commands, decisions, events
from .settings import SettingsChanged

DEFAULT_PREFIX = "trustfold."
"""Prefix of all topic names; ACLs can be given by prefix."""

DEFAULT_PARTITIONS = 12
"""Partitions per topic; the largest useful number of workers."""

MAX_TOPIC_NAME = 249
"""Longest topic name that brokers accept."""

_DAY_MS = 86_400_000
_REPEATABLE_MS = 8 * _DAY_MS
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class TopicRole(StrEnum):
    """Role with rights on topics."""

    PLATFORM = "platform"
    OPERATOR = "operator"
    WORKER = "worker"
    RECORDER = "recorder"
    DASHBOARD = "dashboard"


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the catalogue.

    Attributes:
        name: catalogue name, without prefix.
        carries: content, in one sentence.
        key: meaning of the record key.
        cleanup: Kafka's `cleanup.policy`. Only on `compact` topics may a record have no value.
        retention_ms: retention in milliseconds; None on compacted topics, which keep the latest record of each key.
        writers: roles that need Write.
        readers: roles that need Read.
        kinds: structs of the values; empty for private formats.
        internal: written and read only by trustfold.
        max_message_bytes: Kafka's `max.message.bytes`; None: the broker's default of 1 MiB.
        compaction_lag_ms: on compacted topics, milliseconds for which older records of a key stay readable; None: until
            the broker compacts.
    """

    name: str
    carries: str
    key: str
    cleanup: Literal["delete", "compact"] = "delete"
    retention_ms: int | None = None
    writers: frozenset[TopicRole]
    readers: frozenset[TopicRole]
    kinds: tuple[type[msgspec.Struct], ...] = ()
    internal: bool = False
    max_message_bytes: int | None = None
    compaction_lag_ms: int | None = None

    @property
    def types(self) -> tuple[str, ...]:
        """Wire types of the values."""
        return tuple(str(kind.__struct_config__.tag) for kind in self.kinds)

    @property
    def config(self) -> dict[str, str]:
        """Return the topic settings in Kafka's names and spelling."""
        config: dict[str, str] = {"cleanup.policy": self.cleanup}
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        if self.max_message_bytes is not None:
            config["max.message.bytes"] = str(self.max_message_bytes)
        if self.compaction_lag_ms is not None:
            config["min.compaction.lag.ms"] = str(self.compaction_lag_ms)
        return config


_ON_KEY = "workspace_id, U+001F, scope (tool:NAME, service:NAME or tier:NAME)"
_READ_BACK = frozenset({TopicRole.OPERATOR, TopicRole.RECORDER})
_PAGES = _READ_BACK | {TopicRole.DASHBOARD}
_SHOWN = _PAGES | {TopicRole.PLATFORM}
_WORKER = frozenset({TopicRole.WORKER})
_OPERATOR = frozenset({TopicRole.OPERATOR})
_ORDERS = _OPERATOR | {TopicRole.DASHBOARD}

_CATALOGUE = (
    TopicSpec(
        name="events",
        carries="Every input event.",
        key="session_id",
        retention_ms=7 * _DAY_MS,
        # A worker appends the finish of an overdue call, a web page a report of a false alarm.
        writers=frozenset({TopicRole.PLATFORM, TopicRole.WORKER, TopicRole.DASHBOARD}),
        readers=_PAGES | _WORKER,
        kinds=get_args(events.Event),
    ),
    TopicSpec(
        name="outcomes",
        carries="The record of each finished call, classified, once per scope.",
        key=_ON_KEY,
        retention_ms=_DAY_MS,
        writers=_WORKER,
        readers=_WORKER | {TopicRole.RECORDER, TopicRole.DASHBOARD},
        internal=True,
    ),
    TopicSpec(
        name="standings",
        carries="How tools stand with a user in a workspace, and what models did: what the fleet stage adds up.",
        key="user:ID, U+001F, tool:NAME; or model:NAME",
        retention_ms=_DAY_MS,
        writers=_WORKER,
        readers=_WORKER | {TopicRole.RECORDER},
        internal=True,
    ),
    TopicSpec(
        name="commands",
        carries="Reset, recover, remove, restore, breaker and quality commands.",
        key=_ON_KEY,
        retention_ms=30 * _DAY_MS,
        writers=_ORDERS,
        readers=_PAGES | _WORKER,
        kinds=get_args(commands.Command),
    ),
    TopicSpec(
        name="settings",
        carries="Settings and rule overrides of a scope; a tombstone clears it.",
        key="scope (user:ID or workspace:ID)",
        cleanup="compact",
        writers=_OPERATOR,
        readers=_READ_BACK | _WORKER,
        kinds=(SettingsChanged,),
        # After a crash events are folded again under their original settings, so these are kept as long as events are.
        compaction_lag_ms=_REPEATABLE_MS,
    ),
    TopicSpec(
        name="rules",
        carries="Which rules and settings hold for a partition of a source topic, and from which offset on.",
        key="source topic, /, partition",
        cleanup="compact",
        writers=_WORKER,
        readers=_READ_BACK,
        internal=True,
        compaction_lag_ms=30 * _DAY_MS,
    ),
    TopicSpec(
        name="escalations",
        carries="Transitions of trust.",
        key="workspace_id (or user:ID where it holds for a user everywhere), U+001F, trust key",
        retention_ms=30 * _DAY_MS,
        writers=_WORKER,
        readers=_SHOWN,
        kinds=(decisions.TrustChanged, decisions.TrustRecoveryPending, decisions.TrustDangerNoted),
    ),
    TopicSpec(
        name="breakers",
        carries="Transitions of circuits, and answers to requests for a probe.",
        key="workspace_id, U+001F, breaker key",
        retention_ms=30 * _DAY_MS,
        writers=_WORKER,
        readers=_PAGES,
        kinds=(decisions.BreakerChanged, decisions.BreakerProbeGranted, decisions.BreakerProbeDenied),
    ),
    TopicSpec(
        name="nudges",
        carries="Patterns of behaviour, and what to tell the model.",
        key="session_id",
        retention_ms=7 * _DAY_MS,
        writers=_WORKER,
        readers=_SHOWN,
        kinds=(
            decisions.PatternDetected,
            decisions.PatternCleared,
            decisions.NudgeIssued,
            decisions.NudgeJudged,
            decisions.NudgeWithdrawn,
            decisions.SessionRestored,
        ),
    ),
    TopicSpec(
        name="suggestions",
        carries="Model switches, low confidence, limits nearly or fully spent.",
        key="session_id or model",
        retention_ms=7 * _DAY_MS,
        writers=_WORKER,
        readers=_SHOWN,
        kinds=(
            decisions.ModelSwitchSuggested,
            decisions.ConfidenceLow,
            decisions.GuaranteeWarned,
            decisions.GuaranteeViolated,
        ),
    ),
    TopicSpec(
        name="state",
        carries="Latest state of each key; a tombstone when it is back to its default.",
        key="trust:, breaker:, quality: or model: and the key",
        cleanup="compact",
        writers=_WORKER,
        readers=_SHOWN,
        kinds=(decisions.StateUpdated,),
    ),
    TopicSpec(
        name="dead-letters",
        carries="What could not be processed, whole, with the reason; marks on what was published again.",
        key="key of the original record; of a mark, the dead letter's id",
        retention_ms=30 * _DAY_MS,
        writers=_WORKER | _OPERATOR,
        readers=_READ_BACK,
        kinds=(decisions.DeadLetter, decisions.DeadLetterRepublished),
        # A record of 1 MiB grows inside JSON: up to sixfold if every character must be escaped.
        max_message_bytes=8 * 1_048_576,
    ),
)

TOPICS: dict[str, TopicSpec] = {topic.name: topic for topic in _CATALOGUE}
"""Catalogue by name, inputs first."""


def full_name(prefix: str, name: str) -> str:
    """Return the real name of a catalogue topic under a prefix."""
    if name not in TOPICS:
        raise ConfigError(f"no topic {name!r} in the catalogue; there are: {', '.join(TOPICS)}")
    real = prefix + name
    if len(real) > MAX_TOPIC_NAME or not _LEGAL.issuperset(real):
        raise ConfigError(
            f"topic prefix {prefix!r} makes {real[:40]!r}, which no broker takes; use letters, digits, '.', '_' and "
            f"'-', at most {MAX_TOPIC_NAME - max(map(len, TOPICS))} of them"
        )
    return real
