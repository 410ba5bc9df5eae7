"""What falls due while nothing comes in: once, at its own time, when that time has come; a replay tells the same."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from fixed_rules import Rules
from moved_time import Machine
from story import START, Story
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.streams.embedded import writer as writer_module
from trustfold.streams.embedded.engine import INTERNAL_TOPICS, EmbeddedEngine, SubmitRequest
from trustfold.streams.embedded.writer import EngineWriter

RULES = Rules()
HOUR = 3600
DAY = 24 * HOUR
LONG_TICK_S = 10
"""Seconds between two ticks after an hour of silence: days of seconds would be half a million ticks."""


class Told(NamedTuple):
    """An event that fell due: its type, its time and when it was appended, seconds since the start."""

    kind: str
    due: float
    at: float


class Served:
    """A store that is served on a machine: it ticks every second, later `LONG_TICK_S`; events come at their times."""

    def __init__(self, path: Path) -> None:
        self.path = path / "store.sqlite"
        self.machine = Machine(START)
        self.outputs: list[StageOutput] = []
        self.engine = EmbeddedEngine.open(self.path, RULES, clock=self.machine.stream_clock())

    def restart(self) -> None:
        """The process ends and another one begins."""
        self.engine.close()
        self.engine = EmbeddedEngine.open(self.path, RULES, clock=self.machine.stream_clock())

    def waits(self, seconds: float) -> None:
        """Nothing comes in."""
        long, rest = divmod(max(round(seconds) - HOUR, 0), LONG_TICK_S)
        for tick in [1] * min(round(seconds), HOUR) + [LONG_TICK_S] * long + [1] * rest:
            self.machine.passes(tick)
            self.outputs += self.engine.fall_due()

    def hears(self, story: Story, behind: float = 0.0) -> None:
        """What a story has written arrives, each event when it happens and so many seconds later."""
        for topic, value in story.records:
            time = datetime.fromisoformat(orjson.loads(value)["time"]).timestamp()
            self.waits(max(time + behind - self.machine.wall, 0.0))
            requests = [SubmitRequest(topic, [value])]
            self.outputs += self.engine.submit(requests, arrived_ms=self.machine.wall_ms)[0].outputs
        story.records.clear()

    def told(self) -> list[Told]:
        """Everything that was appended because it fell due."""
        rows = self._log("WHERE key IS NOT NULL")
        return [Told(_kind(value), _since(_time(value)), _since(arrived)) for _, _, value, arrived in rows]

    def replayed(self) -> list[StageOutput]:
        """Outputs of the log alone, folded in one go."""
        topology = LocalTopology(RULES)
        return [
            output
            for topic, key, value, arrived in self._log()
            if topic in topology.next_offsets
            for output in topology.feed(topic, (value,), timestamp=arrived, key=key)
        ]

    def check(self, behind: float = 0.0) -> None:
        """What every run must keep: on time by the publisher's clock, once, and the same in a replay."""
        told = self.told()
        assert [one for one in told if not 0 <= one.at - one.due - behind <= LONG_TICK_S] == []
        assert len(set(told)) == len(told)
        assert public(self.outputs) == public(self.replayed())

    def _log(self, where: str = "") -> list[Any]:
        with sqlite3.connect(self.path) as log:
            return log.execute(f"SELECT topic, key, value, arrived_ms FROM log {where} ORDER BY seq").fetchall()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A new store that is served."""
    one = Served(tmp_path / "served")
    yield one
    one.engine.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Served]:
    """Another one to compare with."""
    one = Served(tmp_path / "watched")
    yield one
    one.engine.close()


def _kind(value: bytes) -> str:
    body = orjson.loads(value)
    return f"{body['type']} {body.get('status', '')}".strip()


def _time(value: bytes) -> int:
    body = orjson.loads(value)
    stated = body.get("time_ms")
    return stated if stated is not None else int(datetime.fromisoformat(body["time"]).timestamp() * 1000)


def _since(ms: int) -> float:
    return round(ms / 1000 - START.timestamp(), 3)


def public(outputs: list[StageOutput]) -> list[tuple[str, str, bytes | None]]:
    """What leaves trustfold."""
    return [(out.topic, out.key, out.value) for out in outputs if out.topic not in {*INTERNAL_TOPICS, "events"}]


# --- what falls due -------------------------------------------------------------------------------------------------


def silent_turn(story: Story) -> None:
    """The model stops in its turn, on a platform that ends turns."""
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    story.works("read_file", {"path": "/a"})


def promised(story: Story) -> None:
    """Three calls whose publisher says how long they may take."""
    for seconds in (90, 5, 90):
        story.started("deploy", {"n": seconds}, deadline_ms=seconds * 1000)


def overdue(story: Story) -> None:
    """A call whose publisher says nothing."""
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    story.started("deploy", {"n": 1})


def in_several_places(story: Story) -> None:
    """A tool fails in three workspaces of a user, who gets an escalation that ends after a day, as those of each do."""
    story.user = "ada"
    for workspace in ("w1", "w2", "w3"):
        story.moved(workspace=workspace).fails("deploy", times=5)


def probed(story: Story) -> None:
    """A guard asks for the probe of an open circuit and dies."""
    story.fails("fetch", times=5).after(60)
    story.event("breaker.probe_requested", breaker_key="tool:fetch", guard_id="g", call_id="p")


def forced_open(story: Story) -> None:
    """An operator opens two circuits, one for a minute and one for an hour."""
    story.command("breaker.force_open", "tool:mail", duration_s=60)
    story.command("breaker.force_open", "tool:print", duration_s=HOUR)


KINDS: dict[str, tuple[Callable[[Story], None], int, list[tuple[str, float]]]] = {
    "stalls": (silent_turn, 3 * HOUR, [("time.passed", 8 + 120 * n) for n in (1, 2, 4)]),
    "deadlines": (
        promised,
        HOUR,
        [
            ("tool_call.finished timeout", 4 + 5),
            ("time.passed", 4 + 10),
            ("time.passed", 4 + 20),
            ("tool_call.finished timeout", 2 + 90),
            ("tool_call.finished timeout", 6 + 90),
            *(("time.passed", since + 90 * n) for n in (2, 4) for since in (2, 6)),
        ],
    ),
    "overdue and lost": (
        overdue,
        DAY + HOUR,
        [*(("time.passed", 6 + 600 * n) for n in (1, 2, 4)), ("tool_call.finished lost", 6 + DAY)],
    ),
    "lease": (probed, HOUR, [("time.passed", 82 + 60)]),
    "forced opening": (forced_open, 2 * HOUR, [("time.passed", 2 + 60), ("time.passed", 4 + HOUR)]),
    "escalation of a user": (
        in_several_places,
        DAY + HOUR,
        [*(("time.passed", seconds + DAY) for seconds in (20, 40, 60)), ("standing.due", 60 + DAY)],
    ),
}
"""By name: what happens, how long nothing comes in, and what falls due at which second."""


BEHIND = pytest.mark.parametrize("behind", [0, DAY])
"""Seconds by which the publishers' clock is behind ours: with it, or so far that only the stream tells their time."""


@BEHIND
@pytest.mark.parametrize("kind", KINDS)
def test_it_falls_due_once_at_its_time(kind: str, behind: int, served: Served) -> None:
    """Each within a tick of its due time, whatever else has fallen due before, with nothing coming in."""
    happens, seconds, expected = KINDS[kind]
    story = Story()
    happens(story)
    served.hears(story, behind)
    served.waits(seconds)
    assert [(one.kind, one.due) for one in served.told()] == expected
    served.check(behind)


def everything() -> Story:
    """All of it, each in a session of its own."""
    story = Story()
    for number, (happens, _, _) in enumerate(KINDS.values()):
        happens(story.moved(session=f"s{number}", workspace="w1", user="bob"))
    return story


@BEHIND
def test_many_due_times_do_not_disturb_each_other(behind: int, served: Served) -> None:
    """Whatever falls due in between: the clock neither gains nor loses."""
    served.hears(everything(), behind)
    served.waits(DAY + HOUR)
    due = [len(expected) for _, _, expected in KINDS.values()]
    assert len(served.told()) == sum(due) + 1  # that of the lease's tool ages, too, in so long a time
    served.check(behind)


def test_what_readers_derive_needs_no_event(served: Served) -> None:
    """The cooldowns of a circuit and of an escalation are over by their states; the next event finds them so."""
    story = Story()
    story.fails("fetch", times=5)
    served.hears(story)
    served.waits(DAY - HOUR)
    assert served.told() == []
    states = [orjson.loads(out.value or b"{}") for out in served.outputs if out.topic == "state"]
    closed_until = [one["open_until"] for one in states if one.get("open_until")][-1]
    before = len(served.outputs)
    story.after(DAY - HOUR).works("fetch")
    served.hears(story)
    moved = [orjson.loads(out.value or b"{}") for out in served.outputs[before:] if out.type.endswith(".changed")]
    assert [(one["type"], one["to"]) for one in moved] == [
        ("breaker.changed", "half_open"),
        ("trust.changed", "recovering"),
    ]
    assert moved[0]["time"] == closed_until
    assert public(served.outputs) == public(served.replayed())


@pytest.mark.parametrize("every", [50, 1_000, 7 * HOUR])
def test_restarts_in_the_middle_change_nothing_but_the_moment(every: int, served: Served, watched: Served) -> None:
    """What was told is not told again; the rest at its own time, later by at most the silences before the restarts."""
    for one in (served, watched):
        one.hears(everything())
    for _ in range(5):
        served.waits(every)
        served.restart()
    for one in (served, watched):
        one.waits(2 * DAY)
    told = served.told()
    assert sorted(one[:2] for one in told) == sorted(one[:2] for one in watched.told())
    assert all(0 <= one.at - one.due <= 5 * every + 1 for one in told)
    assert sorted(public(served.outputs), key=repr) == sorted(public(watched.outputs), key=repr)
    assert public(served.outputs) == public(served.replayed())


# --- clocks that disagree -------------------------------------------------------------------------------------------


def test_a_sleep_counts_when_the_next_event_shows_it(served: Served) -> None:
    """The monotonic clock stands while a laptop sleeps: nothing falls due on waking, all of it by the next event."""
    served.hears(everything())
    before = len(served.told())
    served.machine.sleeps(8 * HOUR)
    served.waits(1)
    assert len(served.told()) == before
    awake = Story(session="later")
    awake.now = START
    awake.after(seconds=served.machine.wall - START.timestamp()).user_says()
    served.hears(awake)
    served.waits(1)
    late = served.told()[before:]
    assert len(late) > 5
    assert all(one.due + 5 * HOUR < one.at for one in late)
    assert public(served.outputs) == public(served.replayed())


def test_a_monotonic_clock_that_counts_sleep_tells_the_same_at_once(served: Served, watched: Served) -> None:
    """All that fell due in eight hours falls due in one tick, each at its own time, as if told second by second."""
    for one in (served, watched):
        one.hears(everything())
    served.machine.passes(8 * HOUR - 1)
    served.waits(1)
    watched.waits(8 * HOUR)
    assert sorted(one[:2] for one in served.told()) == sorted(one[:2] for one in watched.told())
    assert sorted(public(served.outputs), key=repr) == sorted(public(watched.outputs), key=repr)
    assert public(served.outputs) == public(served.replayed())


@pytest.mark.parametrize("behind", [600, 30, -60])
def test_one_publisher_with_another_clock(behind: float, served: Served) -> None:
    """A clock behind ours is followed at its distance; nothing of one ahead falls due before our clock says so."""
    story = Story()
    silent_turn(story)
    story.now = START
    served.hears(story, behind)
    heard = served.machine.wall - START.timestamp()
    served.waits(600)
    told = served.told()
    assert [one.due for one in told] == [128, 248, 488]
    assert [one.at - one.due for one in told] == pytest.approx([max(heard - 8, 0)] * 3, abs=1)
    assert public(served.outputs) == public(served.replayed())


def test_a_publisher_ahead_ends_no_call_of_another(served: Served) -> None:
    """A minute ahead, one says a word each second; a call of a right clock has all of its thirty seconds."""
    story = Story()
    promised(story.moved(session="right"))
    served.hears(story)
    ahead = Story(session="ahead")
    for _ in range(120):
        ahead.now = datetime.fromtimestamp(served.machine.wall + 58, START.tzinfo)
        ahead.user_says()
        served.hears(ahead, behind=-60)
        served.waits(1)
    finished = [one for one in served.told() if one.kind == "tool_call.finished timeout"]
    assert [one.due for one in finished] == [9, 92, 96]
    served.check()


def test_a_publisher_behind_holds_nobody_up(served: Served) -> None:
    """An hour behind, one says a word each second; the silence of another is told in time."""
    story = Story()
    silent_turn(story)
    served.hears(story)
    behind = Story(session="behind")
    for _ in range(500):
        behind.now = datetime.fromtimestamp(served.machine.wall - HOUR, START.tzinfo)
        behind.user_says()
        served.hears(behind, behind=HOUR)
        served.waits(1)
    assert [one.due for one in served.told()] == [128, 248, 488]
    served.check()


def test_old_events_pass_at_their_own_times(served: Served) -> None:
    """A log of a year ago is published: what it leaves open falls due in its year, one second a second."""
    served.machine.sleeps(365 * DAY)
    story = Story()
    overdue(story)
    served.hears(story)
    served.waits(599)
    assert served.told() == []
    served.waits(HOUR)
    assert [one.due for one in served.told()] == [606, 1206, 2406]
    assert public(served.outputs) == public(served.replayed())


def test_a_wall_clock_that_is_set_back_ends_no_call_early(served: Served) -> None:
    """What begins afterwards has its time by that clock."""
    served.hears(Story().turn())
    served.machine.wall -= HOUR
    story = Story(session="after").after(-HOUR)
    promised(story)
    served.hears(story)
    served.waits(2)
    assert served.told() == []
    served.waits(100)
    assert [one.due + HOUR for one in served.told()] == [9, 14, 24, 92, 96]


# --- who asks -------------------------------------------------------------------------------------------------------


def test_the_writer_tells_what_falls_due(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ticks go by the engine's clock, and its listeners hear what they told."""
    monkeypatch.setattr(writer_module, "TICK_S", 0.001)
    story = Story()
    silent_turn(story)
    served.hears(story)
    heard: list[str] = []

    async def serve() -> None:
        writer = EngineWriter(served.engine)
        writer.listeners.append(lambda outputs: heard.extend(output.type for output in outputs))
        writer.start()
        for seconds in (119, 120, 240):
            ticked = writer.signal()
            served.machine.passes(seconds)
            if seconds > 119:
                await ticked.wait()
            else:
                await asyncio.sleep(0.05)
                assert heard == []
        await writer.stop()

    asyncio.run(serve())
    assert heard.count("pattern.detected") == 2
    assert [one.due for one in served.told()] == [128, 248]
