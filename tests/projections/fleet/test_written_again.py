"""After a crash the stages before the fleet tell again what they told: its states and decisions stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from streams_of_events import NERVOUS, events_and_orders
from trustfold.projections.emitter import StageOutput
from trustfold.projections.fleet.fleet_stage import FleetStage
from trustfold.projections.fleet.fleet_state import FleetState
from trustfold.projections.local_topology import LocalTopology, LogRecord
from trustfold.projections.processor import StageProcessor
from trustfold.schemas.standings import Standing

Records = list[tuple[str, bytes]]


class Stages:
    """The stages before the fleet, which can be thrown back to where they were saved."""

    def __init__(self) -> None:
        self._saved: dict[tuple[str, bytes], bytes] = {}
        self._offsets: dict[str, int] = {}
        self._now = LocalTopology(NERVOUS)

    def save(self) -> None:
        """A checkpoint."""
        for name, processor in self._now.processors.items():
            self._saved |= {(name, key): snapshot for key, snapshot in processor.snapshot() if snapshot is not None}
        self._offsets = dict(self._now.next_offsets)

    def crash(self) -> None:
        """Everything since the last checkpoint is forgotten; the logs are read again from there."""
        self._now = LocalTopology(
            NERVOUS, load=lambda stage, key: self._saved.get((stage, key)), next_offsets=self._offsets
        )

    def tell(self, records: Iterable[tuple[str, bytes]]) -> list[bytes]:
        """What these records make them tell the fleet, as it is written."""
        outputs = [output for topic, value in records for output in self._now.feed(topic, (value,))]
        return [output.value for output in outputs if output.topic == "standings" and output.value]


def fleet(told: Iterable[bytes]) -> tuple[list[StageOutput], dict[str, FleetState]]:
    """Decisions and final states of the fleet over what it is told."""
    processor = StageProcessor(FleetStage(), 0, NERVOUS)
    outputs = processor.process("standings", [LogRecord(None, value, at) for at, value in enumerate(told)])
    assert not processor.rejected
    states: dict[str, Any] = {key.decode(): processor.state(key.decode()) for key, _ in processor.snapshot()}
    for state in states.values():
        state.positions = []
    return outputs, states


@given(events_and_orders(), st.data())
def test_a_crash_of_the_stages_before_changes_nothing(records: Records, data: st.DataObject) -> None:
    """They were saved, went on, died, and did it all again: every decision and state is that of a quiet run."""
    saved = data.draw(st.integers(0, len(records)))
    died = data.draw(st.integers(saved, len(records)))
    quiet = fleet(Stages().tell(records))
    stages = Stages()
    told = stages.tell(records[:saved])
    stages.save()
    told += stages.tell(records[saved:died])
    stages.crash()
    told += stages.tell(records[saved:])
    assert fleet(told) == quiet


@given(events_and_orders(), st.data())
def test_a_crash_of_the_fleet_changes_nothing(records: Records, data: st.DataObject) -> None:
    """Its own records come again, from anywhere: nothing is decided twice, and no sum is added to twice."""
    told = Stages().tell(records)
    cut = data.draw(st.integers(0, len(told)))
    back = data.draw(st.integers(0, cut))
    assert fleet(told[:cut] + told[back:]) == fleet(told)


@given(events_and_orders())
def test_what_the_sources_tell_of_a_key_rises(records: Records) -> None:
    """The rule that repeats are recognised by: origins of one key rise within each topic and partition."""
    highest: dict[tuple[str, str], int] = {}
    for value in Stages().tell(records):
        standing = msgspec.json.decode(value, type=Standing)
        place = standing.key, standing.space
        assert standing.origin > highest.get(place, -1)
        highest[place] = standing.origin


def test_an_order_and_a_call_that_change_places_are_put_right() -> None:
    """Before the crash a call came before the order, after it the order before the call: the fleet learns the truth.

    The two come from different topics, and nothing fixes which is read first.
    """
    story = Story(user="ada")
    story.fails("deploy", times=5)
    reset = len(story.records)
    story.command("trust.reset", "tool:deploy")
    story.fails("deploy", with_="security")
    late = story.records[reset + 1 :]
    story.after(minutes=11)
    later = len(story.records)
    story.fails("deploy")
    stages = Stages()
    told = stages.tell(story.records[:reset])
    stages.save()
    told += stages.tell([*late, story.records[reset]])
    stages.crash()
    told += stages.tell([story.records[reset], *late])
    _, states = fleet(told)
    blocked = "the tool is blocked, and the fleet was last told the other history"
    user = states["user:ada\x1ftool:deploy"].user
    assert user is not None
    assert not user.places, blocked
    told += stages.tell(story.records[later:])
    user = fleet(told)[1]["user:ada\x1ftool:deploy"].user
    assert user is not None
    assert list(user.places) == ["w1"]


def test_an_end_that_a_crash_hid_is_heard_in_the_next_bucket() -> None:
    """The other way round: the tool is trusted again and healthy, and the fleet still holds it for blocked."""
    story = Story(user="ada")
    story.fails("deploy", times=5)
    reset = len(story.records)
    story.command("trust.reset", "tool:deploy")
    story.fails("deploy", with_="security")
    late = story.records[reset + 1 :]
    later = len(story.records)
    story.after(minutes=11).works("deploy")
    stages = Stages()
    told = stages.tell(story.records[:reset])
    stages.save()
    told += stages.tell([story.records[reset], *late])
    stages.crash()
    told += stages.tell([*late, story.records[reset]])
    user = fleet(told)[1]["user:ada\x1ftool:deploy"].user
    assert user is not None
    assert list(user.places) == ["w1"], "the fleet was last told the other history"
    told += stages.tell(story.records[later:])
    user = fleet(told)[1]["user:ada\x1ftool:deploy"].user
    assert user is not None
    assert not user.places
