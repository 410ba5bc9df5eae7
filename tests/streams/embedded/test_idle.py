"""Idle states leave the store, and the log alone says what was decided: however it is cut, and whenever it restarts."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from story import Story
from streams_of_events import START, event_lines
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import IdleRules, RuleSet
from trustfold.streams.embedded.engine import INTERNAL_TOPICS, EmbeddedEngine

RULES = RuleSet(idle=IdleRules(session_idle_hours=1, key_idle_hours=1, fleet_idle_hours=1))
GAPS = [0, 0, 0, 5, 3599, 3600, 7300, 20_000]
"""Seconds between two arrivals."""


def at(time: float) -> int:
    """Milliseconds of so many seconds after the start."""
    return int((START + timedelta(seconds=time)).timestamp() * 1000)


def timed(line: bytes, time: float) -> bytes:
    """An event that happened as it arrived."""
    own = (START + timedelta(seconds=time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return orjson.dumps(orjson.loads(line) | {"time": own})


def folded_again(path: Path) -> list[StageOutput]:
    """Outputs of the store's own log, folded in one go."""
    topology = LocalTopology(RULES)
    with sqlite3.connect(path) as log:
        rows = log.execute("SELECT topic, key, value, arrived_ms FROM log ORDER BY seq").fetchall()
    return [
        output
        for topic, key, value, arrived in rows
        if topic in topology.next_offsets
        for output in topology.feed(topic, (value,), timestamp=arrived, key=key)
    ]


def public(outputs: list[StageOutput]) -> list[tuple[str, str, bytes | None]]:
    """What leaves trustfold."""
    return [(out.topic, out.key, out.value) for out in outputs if out.topic not in {*INTERNAL_TOPICS, "events"}]


@settings(max_examples=settings.default.max_examples // 2)  # each opens stores on the disk
@given(lines=event_lines(50), data=st.data())
def test_the_log_gives_the_same_bytes_again(lines: list[bytes], data: st.DataObject) -> None:
    """Batches, ticks and restarts at any place: what was told is what the log alone gives."""
    with TemporaryDirectory() as folder:
        path, time, told = Path(folder) / "s.sqlite", 0.0, list[StageOutput]()
        engine = EmbeddedEngine.open(path, RULES)
        try:
            for line in lines:
                time += data.draw(st.sampled_from(GAPS))
                if data.draw(st.sampled_from([False, False, True])):
                    engine.close()
                    engine = EmbeddedEngine.open(path, RULES)
                if data.draw(st.booleans()):
                    told += engine.tick(at(time), arrived_ms=at(time))
                told += engine.ingest([timed(line, time)], arrived_ms=at(time))
        finally:
            engine.close()
        assert public(told) == public(folded_again(path))


def test_the_store_does_not_grow_with_the_number_of_sessions(tmp_path: Path) -> None:
    """A session a minute for five hours: what is stored is that of two."""
    path, most = tmp_path / "s.sqlite", 0
    with EmbeddedEngine.open(path, RULES) as engine, sqlite3.connect(path) as reader:
        for minute in range(300):
            story = Story(rules=RULES, session=f"s{minute}", workspace=f"w{minute}")
            story.now, story._ids = START + timedelta(minutes=minute), minute * 10
            story.works("bash")
            engine.ingest([value for _, value in story.records], arrived_ms=at(minute * 60))
            most = max(most, reader.execute("SELECT count(*) FROM states").fetchone()[0])
    assert 200 < most < 280  # a session and a tool each
