"""What the dashboard over Kafka makes of the records it follows; no broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
from trustfold.rules.rules import Rules
from trustfold.streams.kafka.feed import Followed
from trustfold.streams.kafka.settings import KafkaSettings
from trustfold.web.dashboard import kafka_source
from trustfold.web.dashboard.kafka_source import KafkaSource

NOON = 1_767_268_800_000
"""12:00 on the day of these records, milliseconds since 1970."""


class Topics:
    """Topics that a source follows, without a broker behind them."""

    complete, fault, lost_since = True, "", None

    def __init__(self, *given: Any) -> None:
        self.forget: Callable[[str], None] = given[3]
        self._tell: Callable[[Sequence[Followed]], None] = given[2]
        self._offset = 0

    def write(self, topic: str, at_s: int, key: str, /, **record: Any) -> None:
        """Let a record come, so many seconds after noon."""
        self._offset += 1
        value = orjson.dumps({"id": f"d{self._offset}", "time": f"2026-01-01T12:00:{at_s:02}Z"} | record)
        self._tell([Followed(topic, 0, self._offset, key, value, NOON + at_s * 1000)])

    def pattern(self, session: str, at_s: int, kind: str = "pattern.detected", **record: Any) -> None:
        """Let a decision come about a session that repeats itself."""
        about = {"pattern": "repetitive_calls", "fingerprint": "f", "repetitions": 5, "severity": "minor"}
        self.write("nudges", at_s, session, type=kind, session_id=session, tool_name="bash", **(about | record))


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> tuple[KafkaSource, Topics]:
    """A source and the topics that it follows."""
    made: list[Topics] = []
    monkeypatch.setattr(kafka_source, "Feed", lambda *given: made.append(Topics(*given)) or made[0])
    return KafkaSource(KafkaSettings()), made[0]


def test_sessions_that_decisions_name_are_listed(followed: tuple[KafkaSource, Topics]) -> None:
    """With whose they are, what they are stuck in now and how severe it was; one that broke out is stuck no more."""
    source, topics = followed
    topics.pattern("s1", 1, workspace_id="acme", user_id="ada", model="large-2")
    topics.pattern("s1", 9, severity="severe", repetitions=12)
    topics.pattern("s2", 3)
    topics.pattern("s2", 4, kind="pattern.cleared")
    topics.write("breakers", 5, "tool:bash", type="breaker.changed", breaker_key="tool:bash")
    first, second = sorted(asyncio.run(source.sessions()))
    assert (first.session_id, first.patterns, first.last_ms) == ("s1", 2, NOON + 9_000)
    assert (first.workspace, first.user, first.model) == ("acme", "ada", "large-2")
    assert [(one.pattern, one.severity, one.times, one.tool) for one in first.stuck] == [
        ("repetitive_calls", 3, 12, "bash")
    ]
    assert (second.session_id, second.stuck, second.last_ms) == ("s2", (), NOON + 4_000)


def test_circuits_that_changed_within_a_time(followed: tuple[KafkaSource, Topics]) -> None:
    """Both bounds count; decisions about anything else are no changes of circuits."""
    source, topics = followed
    for at in (1, 2, 3, 4):
        topics.write("breakers", at, "tool:bash", type="breaker.changed", breaker_key="tool:bash")
        topics.write("escalations", at, "bash", type="trust.escalated", trust_key="bash")
        topics.pattern("s1", at)
    found = asyncio.run(source.circuits(NOON + 2_000, NOON + 3_000))
    assert [one.record["time"][-3:-1] for one in found] == ["02", "03"]
    assert {one.record["type"] for one in found} == {"breaker.changed"}


def test_rules_are_those_given_or_the_shipped_ones() -> None:
    """Pages say by them what counts."""
    assert KafkaSource(KafkaSettings()).rules == Rules()
    given = Rules()
    assert KafkaSource(KafkaSettings(), rules=given).rules is given


def test_a_topic_made_anew_takes_only_its_own_decisions_with_it(followed: tuple[KafkaSource, Topics]) -> None:
    """Those of the other topics are read once, so they stay; what the topic told of sessions is over."""
    source, topics = followed
    topics.write("breakers", 1, "tool:bash", type="breaker.changed", breaker_key="tool:bash")
    topics.pattern("s1", 2)
    topics.forget("nudges")
    assert [one.record["type"] for one in asyncio.run(source.decisions())] == ["breaker.changed"]
    assert source.board.open_patterns() == []
