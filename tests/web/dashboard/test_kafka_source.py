"""What the dashboard over Kafka makes of the records it follows; no broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from trustfold.history.reports import BY_NAME
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.feed import FollowedRecord
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.lag import WorkersLag
from trustfold.web.dashboard import current_state, kafka_source, recorded_events
from trustfold.web.dashboard.history_answers import HistoryArchive, QuestionUnanswered
from trustfold.web.dashboard.kafka_source import KafkaSource
from trustfold.web.dashboard.recorded_events import FRESH_S, RecordedEvents
from trustfold.web.dashboard.render import environment, prose

NOON = 1_767_268_800_000
"""12:00 on the day of these records, milliseconds since 1970."""


CIRCUIT = {"type": "breaker.changed", "breaker_key": "tool:bash", "from": "closed", "to": "open", "trigger": "rate"}
ESCALATED = {"type": "trust.changed", "key": "bash", "scope": "tool", "from": "trusted", "to": "escalated"}
ESCALATED |= {"trigger": "count", "reason": "3/3 failures in 1h"}


class Topics:
    """Topics that a source follows, without a broker behind them."""

    complete, fault, lost_since, cluster_id = True, "", None, "here"

    def __init__(self, *given: Any) -> None:
        self.forget: Callable[[str], None] = given[3]
        self._tell: Callable[[Sequence[FollowedRecord]], None] = given[2]
        self._offset = 0

    def write(self, topic: str, at_s: int, key: str, /, **record: Any) -> None:
        """Let a record come, so many seconds after noon."""
        self._offset += 1
        known = {"schema_version": "1.0", "id": f"d{self._offset}", "time": f"2026-01-01T12:00:{at_s:02}Z"}
        value = orjson.dumps(known | record)
        self._tell([FollowedRecord(topic, 0, self._offset, key, value, NOON + at_s * 1000)])

    def pattern(self, session: str, at_s: int, kind: str = "pattern.detected", **record: Any) -> None:
        """Let a decision come about a session that repeats itself."""
        about = {"pattern": "repetitive_calls", "fingerprint": "f", "repetitions": 5, "severity": "minor"}
        self.write("nudges", at_s, session, type=kind, session_id=session, tool_sequence=["bash"], **(about | record))


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> tuple[KafkaSource, Topics]:
    """A source and the topics that it follows."""
    made: list[Topics] = []
    monkeypatch.setattr(kafka_source, "TopicFeed", lambda *given: made.append(Topics(*given)) or made[0])
    return KafkaSource(KafkaSettings()), made[0]


def test_sessions_that_decisions_name_are_listed(followed: tuple[KafkaSource, Topics]) -> None:
    """With where they are, what they are stuck in now and how severe it was; one that broke out is stuck no more."""
    source, topics = followed
    topics.pattern("s1", 1, workspace_id="acme", user_id="ada", model="large-2")
    topics.pattern("s1", 9, severity="severe", repetitions=12)
    topics.write("events", 10, "s1", type="model.text", session_id="s1")
    topics.pattern("s2", 3)
    topics.pattern("s2", 4, kind="pattern.cleared")
    topics.write("breakers", 5, "tool:bash", **CIRCUIT)
    first, second = sorted(asyncio.run(source.sessions()))
    assert (first.session_id, first.patterns, first.last_ms) == ("s1", 2, NOON + 9_000)
    (stuck,) = source.board.incidents(NOON + 11_000)
    assert stuck.reason == "repetitive calls: bash 12 times, as of 2026-01-01T12:00:09Z"
    assert ', as of <time datetime="2026-01-01T12:00:09.000Z"' in prose(stuck.reason)
    assert (first.workspace, first.model) == ("acme", "large-2")
    assert [(one.pattern, one.severity, one.times, one.what) for one in first.news.patterns] == [
        ("repetitive_calls", 3, 12, "bash")
    ]
    assert (second.session_id, second.news.patterns, second.last_ms) == ("s2", (), NOON + 4_000)


def test_questions_to_people_and_lost_calls_are_incidents(followed: tuple[KafkaSource, Topics]) -> None:
    """They stand in events, the lost ones in those that workers append; an answer ends a question."""
    source, topics = followed
    for session in ("asks", "answered"):
        topics.write("events", 1, session, type="permission.requested", session_id=session, call_id="c1")
    topics.write("events", 2, "answered", type="permission.resolved", session_id="answered", call_id="c1", granted=True)
    topics.write("events", 3, "lost", type="tool_call.finished", session_id="lost", call_id="c2", status="lost")
    found = {one.subject: one.state for one in source.board.incidents(NOON + 5_000)}
    assert found == {"asks": "waiting", "lost": "unknown"}
    assert not asyncio.run(source.decisions())


def test_a_log_ahead_of_this_clock_is_told(
    followed: tuple[KafkaSource, Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what clocks may differ; then ages of a page are wrong."""
    source, topics = followed
    topics.pattern("s1", 1)
    for before_s, words in ((59, ""), (7_200, "the log is 7,200 s ahead of this machine's clock")):
        monkeypatch.setattr(kafka_source.time, "time", lambda at=NOON / 1000 + 1 - before_s: at)
        assert source.freshness().clocks == words


def test_circuits_that_changed_within_a_time(followed: tuple[KafkaSource, Topics]) -> None:
    """Both bounds count; decisions about anything else are no changes of circuits."""
    source, topics = followed
    for at in (1, 2, 3, 4):
        topics.write("breakers", at, "tool:bash", **CIRCUIT)
        topics.write("escalations", at, "bash", **ESCALATED)
        topics.pattern("s1", at)
    found = asyncio.run(source.circuits(NOON + 2_000, NOON + 3_000))
    assert [one.record["time"][-3:-1] for one in found] == ["02", "03"]
    assert {one.record["type"] for one in found} == {"breaker.changed"}


def test_rules_are_those_given_or_the_shipped_ones() -> None:
    """Pages say by them what counts."""
    assert KafkaSource(KafkaSettings()).rules == RuleSet()
    given = RuleSet()
    assert KafkaSource(KafkaSettings(), rules=given).rules is given


def test_a_topic_made_anew_takes_only_its_own_decisions_with_it(followed: tuple[KafkaSource, Topics]) -> None:
    """Those of the other topics are read once, so they stay; what the topic told of sessions is over."""
    source, topics = followed
    topics.write("breakers", 1, "tool:bash", **CIRCUIT)
    topics.pattern("s1", 2)
    topics.forget("nudges")
    assert [one.record["type"] for one in asyncio.run(source.decisions())] == ["breaker.changed"]
    assert not source.board.sessions


def test_a_list_of_sessions_decodes_no_decision_again(
    followed: tuple[KafkaSource, Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of up to 20,000 decisions in memory each is decoded once, when it comes."""
    source, topics = followed
    topics.pattern("s1", 1, workspace_id="acme")
    topics.pattern("s1", 2, workspace_id=None, model="large-2")
    topics.write("nudges", 3, "s1", session_id="s1", type="pattern.detected", workspace_id=["no name"])
    monkeypatch.setattr(current_state, "read_decision", None)
    (one,) = asyncio.run(source.sessions())
    assert (one.workspace, one.model) == ("acme", "large-2")


def test_a_record_that_cannot_be_read_is_skipped_and_counted(
    followed: tuple[KafkaSource, Topics], caplog: pytest.LogCaptureFixture
) -> None:
    """On any topic; what came before it stays, pages go on, and their head says how many there were."""
    source, topics = followed
    topics.pattern("s1", 1)
    topics.pattern("s1", 2, severity="enormous", repetitions=12)
    topics.pattern("s2", 2, pattern=None)
    topics.write("breakers", 3, "tool:bash", **(CIRCUIT | {"time": "yesterday"}))
    topics.write("state", 3, "trust:w\x1fbash", type="state.updated", kind="trust", key="bash", state="adored")
    topics.write("state", 3, "mood:w\x1fbash", type="state.updated", kind="mood", key="bash")
    assert [one.session_id for one in asyncio.run(source.sessions())] == ["s1"]
    assert source.board.states == {}
    assert [one.record["id"] for one in asyncio.run(source.decisions())] == ["d1"]
    assert source.freshness().skipped == 5
    shown = source.freshness()
    assert shown.skipped_last == f"topic {KafkaSettings().topic('state')}, partition 0, offset 6"
    head = environment().get_template("parts.html").module.freshness(shown, datetime.now(UTC))  # type: ignore[attr-defined]
    assert f"5 records could not be read, the last one of {shown.skipped_last}" in head
    assert sum("skipped" in record.message for record in caplog.records) == 5
    assert any("topic breakers, partition 0, offset 4: " in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        ("kafka here trustfold.*", ""),
        ("", ""),
        ("kafka elsewhere trustfold.*", "holds the history of kafka elsewhere trustfold.*"),
        ("kafka here other.*", "holds the history of kafka here other.*"),
        ("store 1234", "holds the history of store 1234"),
    ],
)
def test_a_history_of_something_else_is_not_read_and_said(
    recorded: str, why: str, followed: tuple[KafkaSource, Topics], tmp_path: Path
) -> None:
    """Its offsets, sessions and decisions would be taken for those of these topics."""
    if recorded:
        (tmp_path / ".source").write_text(recorded)
    source = KafkaSource(KafkaSettings(), tmp_path)
    assert why in source.foreign
    assert bool(source.foreign) == bool(why)
    assert (source.freshness().past or "") == source.foreign

    async def ask() -> str:
        archive = HistoryArchive(tmp_path, refusal=lambda: source.foreign)
        try:
            with pytest.raises(QuestionUnanswered) as refused:
                await archive.ask(BY_NAME["overview"])
            return str(refused.value)
        finally:
            archive.close()

    told = asyncio.run(ask())
    assert why in told if why else "holds the history of" not in told


def test_a_fault_while_measuring_is_logged_once_and_measuring_goes_on(
    followed: tuple[KafkaSource, Topics], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong there, the pages know how far the workers are as soon as it is over."""
    source, _ = followed
    asked = 0

    async def standing_of(*_: object) -> WorkersLag:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise ValueError("a fault of ours")
        return WorkersLag(7, 1, {"trustfold.events": 7})

    async def read(*_: object, **_more: object) -> tuple[list[Any], int]:
        return [], 0

    monkeypatch.setattr(kafka_source, "standing_of", standing_of)
    monkeypatch.setattr(kafka_source, "read", read)
    monkeypatch.setattr(kafka_source, "LOOK_S", 0.001)

    async def measure() -> None:
        measuring = asyncio.create_task(source._measure())
        async with asyncio.timeout(60):
            while source.freshness().behind != 7:  # noqa: ASYNC110 - the source rings no bell
                await asyncio.sleep(0.001)
        measuring.cancel()
        await asyncio.wait([measuring])

    asyncio.run(measure())
    assert [record.message for record in caplog.records if record.exc_info] == [
        "the workers' lag cannot be measured; trying again"
    ]


def test_a_search_looks_at_the_latest_events_of_the_topic(
    monkeypatch: pytest.MonkeyPatch, followed: tuple[KafkaSource, Topics]
) -> None:
    """The newest first, in upper or lower case, without what no fold has taken, and no more than asked for."""
    source, _ = followed
    about = {"schema_version": "1.0", "type": "model.text", "time": "2026-01-01T12:00:00Z", "session_id": "s"}

    async def latest(_topic: str) -> list[Any]:
        texts = ["Make Deploy", "make test", "then make deploy again", "MAKE DEPLOY"]
        events = [orjson.dumps(about | {"id": f"e{at}", "text": text}) for at, text in enumerate(texts)]
        kept = [*events, b"make deploy, but no event", None]
        return [SimpleNamespace(value=value, timestamp=at) for at, value in enumerate(kept)]

    monkeypatch.setattr(source, "_latest", latest)
    assert [one["id"] for one in asyncio.run(source.search("make DEPLOY", 10)).records] == ["e3", "e2", "e0"]
    assert [one["id"] for one in asyncio.run(source.search("deploy", 2)).records] == ["e3", "e2"]


def test_requests_for_the_list_of_sessions_share_one_look_into_the_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A page asks again with every change; questions of seconds would wait for each other for minutes."""
    made = RecordedEvents(tmp_path)
    asked = 0

    def rows(_question: str, _values: object) -> list[Any]:
        nonlocal asked
        asked += 1
        return [(f"s{asked}", "w", "m", 3, 1, 3, 0, 5)]

    monkeypatch.setattr(made, "_rows", rows)

    async def list_them() -> None:
        first = await asyncio.gather(*[made.sessions() for _ in range(20)])
        assert {one[0].session_id for one in first} == {"s1"}
        made._listed_at -= FRESH_S
        assert (await made.sessions())[0].session_id == "s1"  # at once, while it is made anew
        assert made._listing is not None
        await made._listing
        assert (await made.sessions())[0].session_id == "s2"

    asyncio.run(list_them())
    made.close()
    assert asked == 2


def test_no_page_waits_long_for_the_sessions_of_a_young_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hundreds of small files take seconds the first time; the list is there for whoever asks afterwards."""
    made = RecordedEvents(tmp_path)
    opened = threading.Event()

    def rows(_question: str, _values: object) -> list[Any]:
        opened.wait(60)
        return [("s1", "w", "m", 3, 1, 3, 0, 5)]

    monkeypatch.setattr(made, "_rows", rows)
    monkeypatch.setattr(recorded_events, "WAIT_S", 0.01)

    async def list_them() -> None:
        assert await made.sessions() == []
        opened.set()
        assert made._listing is not None
        await made._listing
        assert [one.session_id for one in await made.sessions()] == ["s1"]

    asyncio.run(list_them())
    made.close()
