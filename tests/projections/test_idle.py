"""Idle states begin anew and are dropped: decided by the log, and invisible to everybody but the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import orjson
import pytest
from fixed_rules import IdleRules, Rules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from streams_of_events import NERVOUS, START, events_and_orders
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.processor import IdleKeys
from trustfold.projections.snapshot import codec_of
from trustfold.projections.topology import STAGES
from trustfold.schemas.outcomes import US

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SOON = Rules(
    trust=NERVOUS.trust,
    fleet=NERVOUS.fleet,
    idle=IdleRules(session_idle_hours=1, key_idle_hours=1, fleet_idle_hours=1),
)
"""Everything is over after an hour, and dropped after two."""

GAPS = [0, 0, 0, 0, 1, 60, 3599, 3600, 3601, 7000, 7200, 7300, 15_000]
"""Seconds between two arrivals: around the hour after which states are over, and the two hours after which they go."""

LATENESS = [0, 0, 0, 1, 1700, 3500, -80_000_000]
"""Seconds by which an event's own time lies before its arrival; a negative one is a clock that runs ahead."""

Arrival = tuple[str, bytes, int]
"""Topic, value and arrival, milliseconds."""


class Kept:
    """States as an engine stores them."""

    def __init__(self) -> None:
        self.snapshots: dict[tuple[str, bytes], bytes] = {}

    def topology(self, rules: Rules, offsets: dict[str, int] | None = None) -> LocalTopology:
        """A topology that goes on with the stored states, as after a restart."""
        made = LocalTopology(rules, load=lambda stage, key: self.snapshots.get((stage, key)), next_offsets=offsets)
        for name, processor in made.processors.items():
            processor.adopt([(key, one) for (stage, key), one in self.snapshots.items() if stage == name])
        return made

    def save(self, topology: LocalTopology, now: int) -> None:
        """Store what was touched, and drop what is idle."""
        for name, processor in topology.processors.items():
            for key, snapshot in processor.snapshot(now):
                if snapshot is None:
                    del self.snapshots[name, key]
                else:
                    self.snapshots[name, key] = snapshot
            processor.forget_clean(1)

    def keys(self, stage: str) -> set[str]:
        """Keys of a stage that have a stored state."""
        return {key.decode() for name, key in self.snapshots if name == stage}


def milliseconds(at: datetime) -> int:
    """Milliseconds since 1970."""
    return int(at.timestamp() * 1000)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Events and orders with pauses, late, ahead of their time and a little out of order."""
    found, at = [], START
    for topic, value in draw(events_and_orders(50)):
        at += timedelta(seconds=draw(st.sampled_from(GAPS)))
        told = at - timedelta(seconds=draw(st.sampled_from(LATENESS)))
        body = orjson.loads(value) | {"time": told.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        found.append((topic, orjson.dumps(body), milliseconds(at) - draw(st.sampled_from([0, 0, 0, 50_000]))))
    return found


def fed(topology: LocalTopology, records: list[Arrival]) -> list[StageOutput]:
    """Outputs of records."""
    return [out for topic, value, at in records for out in topology.feed(topic, (value,), timestamp=at)]


@given(records=arrivals(), data=st.data())
def test_when_states_are_dropped_shows_nowhere(records: list[Arrival], data: st.DataObject) -> None:
    """Snapshots and restarts at any place, and none at all: the same bytes."""
    kept = Kept()
    topology = kept.topology(SOON)
    outputs: list[StageOutput] = []
    latest = 0
    for record in records:
        outputs += fed(topology, [record])
        latest = max(latest, record[2])
        for _ in range(data.draw(st.sampled_from([0, 1, 1, 2]))):
            kept.save(topology, latest)
        if data.draw(st.booleans()):
            kept.save(topology, latest)
            topology = kept.topology(SOON, topology.next_offsets)
    reference = LocalTopology(SOON)
    assert outputs == fed(reference, records)
    for name, keys in going_on(reference, latest).items():
        assert keys == {key: plain(topology.processors[name].state(key)) for key in keys}


def going_on(topology: LocalTopology, now: int) -> dict[str, dict[str, bytes | None]]:
    """States that are not over, by stage and key."""
    return {
        name: {
            key: plain(state)
            for key, state in processor._live.items()
            if (state.arrived or state.clock) + milliseconds(EPOCH + HOUR) > max(now, processor.stream_time)
        }
        for name, processor in topology.processors.items()
    }


def plain(state: Any) -> bytes | None:
    """A state as it is stored, but its positions: what a dropped one had read cannot come again."""
    if state is None:
        return None
    stage = next(one for one in STAGES if isinstance(state, one.state_type))
    return codec_of(stage).encode(msgspec.structs.replace(state, positions=[]), None)


@given(records=arrivals(), data=st.data())
def test_a_crash_between_snapshot_and_progress_changes_nothing(records: list[Arrival], data: st.DataObject) -> None:
    """States were stored and dropped, and the records since the snapshot before it are folded again."""
    kept = Kept()
    topology = kept.topology(SOON)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), min_size=2, max_size=2)))
    outputs = fed(topology, records[: cuts[0]])
    kept.save(topology, latest_of(records[: cuts[0]]))
    offsets = {topic: topology.next_offsets[topic] for topic in ("events", "commands")}
    outputs += fed(topology, records[cuts[0] : cuts[1]])
    kept.save(topology, latest_of(records[: cuts[1]]))  # stored, but how far it had come was not
    ends = dict(topology.next_offsets)
    topology = kept.topology(SOON, ends | offsets)
    assert [out for out in fed(topology, records[cuts[0] : cuts[1]]) if out.topic != "dead-letters"] == []
    topology.next_offsets.update(ends)
    assert outputs + fed(topology, records[cuts[1] :]) == fed(LocalTopology(SOON), records)


def latest_of(records: list[Arrival]) -> int:
    """The latest arrival."""
    return max((at for _, _, at in records), default=0)


def a_loop(rest: timedelta, rules: Rules | None = None) -> list[dict[str, Any]]:
    """What is said of a call that fails three times, with a rest before the last."""
    story = Story(rules=rules or Rules())
    story.fails("bash", {"command": "ls"}, with_="validation", times=2)
    story.now += rest
    return story.fails("bash", {"command": "ls"}, with_="validation").all(
        "pattern.detected", pattern="error_retry_loop"
    )


def test_a_session_that_comes_back_in_time_goes_on() -> None:
    """Up to 72 hours are a rest: the third repetition is told."""
    assert a_loop(timedelta(hours=71, minutes=59))


def test_a_session_that_rests_is_not_dropped() -> None:
    """Just before its time is over, others having gone on, a session finds its state where it was."""
    churn = Churn(SOON)
    story = Story(rules=SOON, session="rests")
    story.now, story._ids = churn.at, 500_000
    story.fails("bash", {"command": "ls"}, with_="validation", times=2)
    churn.feed(story.records)
    churn.pass_time(timedelta(minutes=1))
    churn.pass_time(timedelta(minutes=57))
    story.records, story.now = [], churn.at
    story.fails("bash", {"command": "ls"}, with_="validation")
    assert "pattern.detected" in {out.type for out in churn.feed(story.records)}


def test_a_session_that_comes_back_later_begins_anew() -> None:
    """After 72 hours the repetitions from before do not count; the bound is a rule."""
    assert not a_loop(timedelta(hours=72, minutes=1))
    assert a_loop(timedelta(hours=72, minutes=1), Rules(idle=IdleRules(session_idle_hours=73)))


def test_a_session_is_idle_by_arrival_and_not_by_its_own_times() -> None:
    """Recordings published late: gaps of days in them are no gaps in the log."""
    story = Story(rules=Rules())
    story.fails("bash", {"command": "ls"}, with_="validation", times=2)
    story.now += timedelta(days=9)
    story.fails("bash", {"command": "ls"}, with_="validation")
    topology = LocalTopology(Rules())
    now = milliseconds(story.now)
    outputs = [out for topic, value in story.records for out in topology.feed(topic, (value,), timestamp=now)]
    assert "pattern.detected" in {out.type for out in outputs}


def test_a_call_in_flight_keeps_its_session() -> None:
    """Its end is told when the session comes back, then the old session is over."""
    story = Story(rules=SOON)
    story.started("deploy", {"to": "prod"}, call="slow")
    story.now += timedelta(hours=30)
    story.fails("bash", {"command": "ls"}, with_="validation")
    lost = [orjson.loads(out.value or b"") for out in story.outputs if out.type == "tool_call.finished"]
    assert [(one["call_id"], one["status"]) for one in lost] == [("slow", "lost")]


class Churn:
    """A log of many short sessions, and the states that stay stored."""

    def __init__(self, rules: Rules) -> None:
        self.kept, self.at = Kept(), START
        self.topology = self.kept.topology(rules)
        self._ids = 0

    def session(self, name: str, *, workspace: str = "w") -> None:
        """One session with one call."""
        story = Story(rules=Rules(), session=name, workspace=workspace)
        story.now, story._ids, story.model = self.at, self._ids, f"model of {workspace}"
        story.works("bash")
        story.turn()
        self._ids += 10
        self.feed(story.records)

    def feed(self, records: list[tuple[str, bytes]]) -> list[StageOutput]:
        """Outputs of records that arrive now."""
        return fed(self.topology, [(topic, value, milliseconds(self.at)) for topic, value in records])

    def pass_time(self, time: timedelta) -> list[StageOutput]:
        """Time passes; a checkpoint is taken, and what falls due told. A session somewhere makes the log go on."""
        self.at += time
        self.session("clock", workspace="elsewhere")
        told = []
        for _ in range(2):
            self.kept.save(self.topology, milliseconds(self.at))
            told += self.topology.tick(milliseconds(self.at))
        self.kept.save(self.topology, milliseconds(self.at))
        return told


def test_states_do_not_grow_with_the_number_of_sessions() -> None:
    """A session a minute for six hours: what is stored is that of two hours."""
    churn = Churn(SOON)
    largest = 0
    for minute in range(1, 6 * 60):
        churn.session(f"s{minute}", workspace=f"w{minute}")
        churn.pass_time(timedelta(minutes=1))
        largest = max(largest, len(churn.kept.keys("session")))
    assert 100 < largest < 140
    assert len(churn.kept.keys("tool")) < 140
    assert len(churn.kept.keys("fleet")) < 300  # told before they are forgotten: twice as long


def test_a_clock_that_runs_ahead_drops_nobody_else() -> None:
    """Neither an event from the next century, nor one that says that it arrived then."""
    churn = Churn(SOON)
    churn.session("mine")
    later = datetime(2126, 1, 1, tzinfo=UTC)
    story = Story(rules=Rules(), session="ahead")
    story.now, story._ids = later, 900_000
    story.works("bash")
    for topic, value in story.records:
        churn.topology.feed(topic, (value,), timestamp=milliseconds(later))
    for _ in range(3):
        churn.kept.save(churn.topology, milliseconds(churn.at))
    assert "mine" in churn.kept.keys("session")


def key_of(tool: str, workspace: str = "w") -> str:
    """State key of a tool."""
    return f"{workspace}{US}tool:{tool}"


def test_a_key_without_a_record_is_dropped_after_its_time() -> None:
    """A tool that works is forgotten in silence."""
    churn = Churn(SOON)
    churn.session("s")
    churn.pass_time(HOUR)
    assert key_of("bash") in churn.kept.keys("tool")
    churn.pass_time(2 * HOUR)
    assert key_of("bash") not in churn.kept.keys("tool")


def test_what_followers_know_of_is_taken_back_before_it_is_forgotten() -> None:
    """Profiles of a model, on a tool and over all sessions, and an acknowledgement: a tombstone, then no state."""
    churn = Churn(SOON)
    story = Story(rules=Rules(), session="s", workspace="w", model="large")
    story.now, story._ids = churn.at, 500_000
    story.works("bash", times=9)
    story.turn(stalled=True)
    story.command("incident.acknowledge", "bash|command=make")
    churn.feed(story.records)
    told = churn.pass_time(HOUR) + churn.pass_time(2 * HOUR)
    ended = {out.key for out in told if out.topic == "state" and out.value is None}
    assert ended == {f"model:w{US}bash{US}large", "model:large", f"incident:w{US}bash|command=make"}
    churn.pass_time(3 * HOUR)
    assert key_of("bash") not in churn.kept.keys("tool")
    assert "model:large" not in churn.kept.keys("fleet")


def test_time_that_is_told_and_time_that_is_revealed_take_back_the_same() -> None:
    """Without a tick the key's own next call finds what is over, and takes it back."""
    story = Story(rules=SOON, model="large")
    story.works("bash", times=9)
    story.now += 5 * HOUR
    story.works("bash")
    assert [out.key for out in story.outputs if out.topic == "state" and out.value is None] == [
        f"model:{story.workspace}{US}bash{US}large"
    ]


STANDING = {
    "escalated": lambda story: story.fails("bash", {"command": "make"}, times=3),
    "blocked": lambda story: story.fails("bash", {"command": "sudo rm -rf /"}),
    "removed": lambda story: story.command("tool.remove", "tool:bash"),
    "declined": lambda story: story.event(
        "permission.resolved", call_id=story.started("bash"), tool_name="bash", granted=False
    ),
    "of lower quality": lambda story: story.fails("bash", with_="crash", scenario="make the release"),
    "switched off": lambda story: story.command("breaker.disable", "tool:bash"),
}
"""What a key may be that is never forgotten."""


@pytest.mark.parametrize("standing", STANDING)
def test_what_stands_is_never_forgotten(standing: str) -> None:
    """Ten years later the key is what it was when its evidence had aged, whoever asks."""
    churn = Churn(SOON)
    story = Story(rules=SOON, session="s", workspace="w")
    story.now, story._ids = churn.at, 500_000
    STANDING[standing](story)
    churn.feed(story.records)
    churn.pass_time(timedelta(days=2))  # escalations age
    for _ in range(4):
        assert [out for out in churn.pass_time(timedelta(days=900)) if out.topic == "state"] == []
    assert key_of("bash") in churn.kept.keys("tool")


def test_a_state_that_was_dropped_is_not_kept_in_memory() -> None:
    """A process that runs for months holds no more than it stores."""
    topology = LocalTopology(SOON)
    tools = topology.processors["tool"]
    for number, tool in enumerate(("bash", "grep")):
        story = Story(rules=Rules(), session=f"s{number}", workspace="w")
        story.now, story._ids = story.now + number * 3 * HOUR, number * 1000
        for topic, value in story.works(tool).records:
            topology.feed(topic, (value,), timestamp=milliseconds(story.now))
        tools.snapshot(milliseconds(story.now))
    assert key_of("grep") in tools._live
    assert key_of("bash") not in tools._live


def test_keys_of_a_minute_are_idle_once_it_is_over() -> None:
    """A key is filed by its minute, and may have had a record in the last moment of it."""
    keys = IdleKeys()
    keys.add(b"key", 90_000)
    assert keys.take(119_999, 10) == []
    assert keys.take(120_000, 10) == [b"key"]


def test_the_fleet_keeps_a_users_tool_until_it_is_trusted_everywhere() -> None:
    """One workspace is too few to escalate it; two more may come after years."""
    churn = Churn(SOON)
    story = Story(rules=SOON, session="s", workspace="w", user="ada")
    story.now, story._ids = churn.at, 500_000
    story.fails("bash", times=3)
    churn.feed(story.records)
    for _ in range(3):
        churn.pass_time(timedelta(days=900))
    assert f"user:ada{US}tool:bash" in churn.kept.keys("fleet")
    story.now = churn.at
    story.command("trust.reset", "tool:bash")
    churn.feed(story.records[-1:])
    for _ in range(3):
        churn.pass_time(timedelta(days=900))
    assert f"user:ada{US}tool:bash" not in churn.kept.keys("fleet")
