"""What a store has lived through is folded again to the same decisions, each in the same words."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from random import Random

import orjson
import pytest
from fixed_rules import Rules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from recorded import record, told
from refolded import compared, lenient
from story import Story
from streams_of_events import NERVOUS, events_and_orders
from trustfold.history.catalogue import connect
from trustfold.history.inputs import lined_up
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.whatif.rules_replay import recorded_rules
from trustfold.recording.store_recorder import StoreRecording
from trustfold.streams.embedded.engine import EmbeddedEngine, SubmitRequest

ARRIVED = 1_767_607_200_000


def copied(folder: Path) -> Path:
    """The history of the store in a folder."""
    recorder = PartitionRecorder(folder / "history")
    copying = StoreRecording(recorder, folder / "store.sqlite")
    copying.run(threading.Event(), once=True)
    copying.close()
    recorder.close()
    return folder / "history"


def time_of(value: bytes) -> int:
    """When an event happened, milliseconds."""
    return int(datetime.fromisoformat(orjson.loads(value)["time"]).timestamp() * 1000)


def setting(number: int, like: bytes, scope: str, threshold: int) -> bytes:
    """A scope's own threshold; none at 0."""
    overrides = {"rules": {"trust": {"default_rule": {"count_threshold": threshold}}}} if threshold else {}
    body = {"schema_version": "1.0", "id": f"set-{number}", "type": "settings.changed", "scope": scope}
    return orjson.dumps({**body, "time": orjson.loads(like)["time"], "overrides": overrides})


def live(folder: Path, records: list[tuple[str, bytes]], chance: Random) -> None:
    """An engine's life: time passes, clocks are set back, records come twice or broken, rules change, it restarts."""
    path = folder / "store.sqlite"
    engine = EmbeddedEngine.open(path, NERVOUS)
    ahead = chance.choice([0, 10**10])  # recordings are published long after they happened
    for number, (topic, value) in enumerate(records):
        now = time_of(value)
        for _ in range(chance.randrange(3)):
            passed = engine.stream_time + chance.randrange(max(1, now - engine.stream_time))
            engine.tick(passed, arrived_ms=passed + ahead)
        arrived = chance.choice([now + ahead] * 5 + [-1])
        ahead -= chance.choice([0] * 9 + [90_000])
        event = [SubmitRequest(topic, [value])] * chance.choice([1, 1, 1, 2])
        broken = [SubmitRequest(topic, [b"broken"])] * chance.choice([0, 0, 0, 1])
        scope = chance.choice(["workspace:w1", "user:ada"])
        saved = [SubmitRequest("settings", [setting(number, value, scope, chance.choice([0, 2, 5]))])]
        engine.submit([*broken, *saved * chance.choice([0, 0, 0, 1]), *event], arrived_ms=arrived)
        if chance.random() < 0.05:
            engine.rebase(chance.choice([NERVOUS, Rules()]))
        if chance.random() < 0.05:
            engine.close()
            engine = EmbeddedEngine.open(path, chance.choice([NERVOUS, Rules()]))
    engine.close()


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events_and_orders(max_size=60), st.integers(0, 1 << 30))
def test_whatever_a_store_has_lived_through_is_decided_again(
    tmp_path_factory: object, records: list[tuple[str, bytes]], seed: int
) -> None:
    """Compared with what was recorded, not only one fold with another."""
    folder: Path = tmp_path_factory.mktemp("store")  # type: ignore[attr-defined]
    live(folder, records, Random(seed))
    found = compared(copied(folder), Rules())
    assert (found.recorded.again, found.recorded.otherwise) == (found.recorded.count, 0)
    assert compared(folder / "history", NERVOUS, present=NERVOUS).difference.empty


def test_rules_that_were_swapped_are_followed(tmp_path: Path) -> None:
    """Three failures escalated under one rule and four did not under the other; both are found again."""
    story = Story()
    story.fails("deploy", times=3)
    first = len(story.records)
    story.fails("search", times=4)
    with EmbeddedEngine.open(tmp_path / "store.sqlite", Rules()) as engine:
        engine.ingest([value for _, value in story.records[:first]], arrived_ms=ARRIVED)
        engine.rebase(lenient())
        engine.rebase(lenient())
        engine.ingest([value for _, value in story.records[first:]], arrived_ms=ARRIVED)
    with EmbeddedEngine.open(tmp_path / "store.sqlite", lenient()):
        pass  # the same rules again are not written down again
    root = copied(tmp_path)
    with connect(root) as connection:
        assert recorded_rules(connection) == [Rules(), lenient()]
    found = compared(root, Rules())
    assert found.versions == 2
    assert found.recorded.again == found.recorded.count > 0
    assert {example.subject for example in found.difference.added if example.what == "trust escalated"} == {"search"}
    assert not found.difference.gone, "deploy was escalated then and would be"


def test_a_detector_that_falls_silent_renames_nobody_else(tmp_path: Path) -> None:
    """What another detector said of the same event is the same decision, though its id holds a running number."""
    story = Story()
    story.fails("bash", {"command": "make"}, with_="", message="1 failed", times=6)
    told(tmp_path, story)
    behaviour = Rules().behaviour
    quiet = structs.replace(behaviour.repetitive_calls, enabled=False)
    retries = structs.replace(behaviour.error_retry_loop, enabled=False)
    for name, ladder in (("repetitive_calls", quiet), ("error_retry_loop", retries)):
        other = structs.replace(Rules(), behaviour=structs.replace(behaviour, **{name: ladder}))
        kinds = compared(tmp_path, other).difference.kinds
        touched = {what for what, kind in kinds.items() if kind.differs and what.startswith("pattern")}
        assert touched <= {f"pattern {name}"}


def test_since_folds_sessions_settings_and_orders_from_their_beginning(tmp_path: Path) -> None:
    """A session and a forced opening of last week still count, and what was over then is not read."""
    story = Story()
    story.command("breaker.disable", "deploy")
    story.started("sleeper", call="long")
    story.moved(session="over").works("read_file", times=5)
    story.after(minutes=60 * 24 * 7).moved(session="s1")
    since = story.now
    story.fails("deploy", times=3)
    told(tmp_path, story)
    with connect(tmp_path) as connection, lined_up(connection, since) as inputs:
        kept = list(inputs)
        assert inputs.count == len(kept) == 1 + 1 + 6
        assert inputs.whole == frozenset()
        assert not [one for one in kept if b'"over"' in (one.value or b"")]
    found = compared(tmp_path, Rules(), since=since)
    assert found.recorded.again == found.recorded.count > 0


def test_other_deadlines_pass_by_event_time_where_recordings_were_published(tmp_path: Path) -> None:
    """Events of last year that arrive today: only the call that was open for minutes is overdue, by its own time."""
    story = Story()
    story.works("search", times=3)
    story.started("sleepy")
    story.after(minutes=11)
    story.works("search", times=3)
    record(tmp_path, story.records, arrived_ms=ARRIVED + 10**10)
    rules = structs.replace(Rules(), calls=structs.replace(Rules().calls, overdue_after_ms=60_000))
    found = compared(tmp_path, rules).difference
    stalled = "pattern stalled_call"
    assert {(one.time[11:19], one.after) for one in found.added if one.what == stalled} == {
        ("10:01:14", "minor, 1"),
        ("10:02:14", "moderate, 2"),
        ("10:04:14", "severe, 4"),
    }
    assert [(one.time[11:19], one.before) for one in found.gone if one.what == stalled] == [("10:10:14", "minor, 1")]
