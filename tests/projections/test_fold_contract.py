"""The fold contract, over every stage: deterministic, deaf to repeats, resumable anywhere, bounded.

See docs/design/quality.md#tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson
import pytest
from fixed_rules import BehaviourRules, Policy, Rules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from streams_of_events import NERVOUS, ORDERS, event_lines, events_and_orders
from trustfold.errors import StateIncompatible
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.snapshot import SnapshotCodec, header
from trustfold.projections.tool.tool_state import ToolState
from trustfold.projections.topology import DECISION_TOPICS, STAGE_OF_TOPIC, STAGES
from trustfold.rules.rules import SeverityLadder
from trustfold.schemas.outcomes import US

RULES = Rules(
    policies={"look first": Policy(requires="read_file", before=("edit_*", "bash"), within_turns=1)},
    behaviour=BehaviourRules(
        call_budget=SeverityLadder(minor=4, moderate=8, severe=12),
        failure_streak=SeverityLadder(minor=2, moderate=3, severe=4),
        missing_environment=SeverityLadder(minor=1, moderate=2, severe=None),
        stagnation=SeverityLadder(minor=2, moderate=3, severe=4),
        reread=SeverityLadder(minor=2, moderate=3, severe=None),
        restated=SeverityLadder(minor=1, moderate=2, severe=3),
        monologue=SeverityLadder(minor=2, moderate=3, severe=4),
        same_error_loop=SeverityLadder(minor=2, moderate=3, severe=4),
        repetitive_calls=SeverityLadder(minor=2, moderate=3, severe=4),
        repetitive_calls_with_effects=SeverityLadder(minor=2, moderate=None, severe=None),
        error_retry_loop=SeverityLadder(minor=2, moderate=3, severe=4),
        alternating_loop=SeverityLadder(minor=2, moderate=3, severe=4),
        self_appending=SeverityLadder(minor=2, moderate=3, severe=None),
        poll=SeverityLadder(minor=2, moderate=3, severe=None),
        slow_poll_seconds=60,
        introspection_loop=SeverityLadder(minor=2, moderate=3, severe=4),
        announce_no_action_in_turn=SeverityLadder(minor=2, moderate=3, severe=4),
        announce_no_action_by_structure=SeverityLadder(minor=2, moderate=3, severe=4),
        text_loop=SeverityLadder(minor=2, moderate=3, severe=4),
        unknown_tool=SeverityLadder(minor=1, moderate=2, severe=3),
        planning_loop=SeverityLadder(minor=2, moderate=3, severe=4),
        max_turn_duration_seconds=300,
    ),
)
"""Thresholds that streams of a hundred events reach."""


class Stored:
    """States as an engine stores them."""

    def __init__(self) -> None:
        self.snapshots: dict[tuple[str, bytes], bytes] = {}

    def load(self, stage: str, key: bytes) -> bytes | None:
        """The stored snapshot of a key."""
        return self.snapshots.get((stage, key))

    def save(self, topology: LocalTopology) -> None:
        """Store what was touched."""
        for name, processor in topology.processors.items():
            for key, snapshot in processor.snapshot():
                assert snapshot is not None
                self.snapshots[name, key] = snapshot

    def resume(self, offsets: dict[str, int], rules: Rules = RULES) -> LocalTopology:
        """A topology as after a restart."""
        topology = LocalTopology(rules, load=self.load, next_offsets=offsets)
        for name, processor in topology.processors.items():
            processor.adopt((key, snapshot) for (stage, key), snapshot in self.snapshots.items() if stage == name)
        return topology


def decisions(outputs: Iterable[StageOutput]) -> list[tuple[str, str, bytes | None]]:
    """What consumers see, state included."""
    return [(o.topic, o.key, o.value) for o in outputs if o.topic in {*DECISION_TOPICS, "state"}]


def fold(lines: list[bytes]) -> tuple[list[StageOutput], LocalTopology]:
    """Everything in one go, and a tick at the end."""
    topology = LocalTopology(RULES)
    outputs = topology.feed("events", lines)
    return outputs + topology.tick(topology.stream_time), topology


@given(event_lines())
def test_the_same_input_gives_the_same_bytes(lines: list[bytes]) -> None:
    """Twice the same log, twice the same outputs, byte for byte."""
    assert fold(lines)[0] == fold(lines)[0]


@given(event_lines(), st.data())
def test_repeated_events_change_nothing(lines: list[bytes], data: st.DataObject) -> None:
    """Any event published again, any time later, leaves every decision as it was."""
    noisy = list(lines)
    for _ in range(min(5, len(lines))):
        index = data.draw(st.integers(0, len(lines) - 1))
        place = data.draw(st.integers(noisy.index(lines[index]) + 1, len(noisy)))
        noisy.insert(place, lines[index])
    assert decisions(fold(noisy)[0]) == decisions(fold(lines)[0])


@given(event_lines(), st.data())
def test_resuming_from_a_snapshot_anywhere_gives_the_same(lines: list[bytes], data: st.DataObject) -> None:
    """Stop after any event, restart from the stored states: nothing is lost, nothing differs."""
    cut = data.draw(st.integers(0, len(lines)))
    stored, first = Stored(), LocalTopology(RULES)
    outputs = first.feed("events", lines[:cut])
    stored.save(first)
    second = stored.resume(first.next_offsets)
    outputs += second.feed("events", lines[cut:])
    outputs += second.tick(second.stream_time)
    assert outputs == fold(lines)[0]


@given(event_lines(), st.data())
def test_redelivery_after_a_crash_changes_no_state(lines: list[bytes], data: st.DataObject) -> None:
    """States were saved, the committed offset was not: the same records come again and change nothing."""
    cut = data.draw(st.integers(0, len(lines)))
    back = data.draw(st.integers(0, cut))
    stored, first = Stored(), LocalTopology(RULES)
    first.feed("events", lines[:cut])
    stored.save(first)
    before = dict(stored.snapshots)
    again = stored.resume({**first.next_offsets, "events": back})
    assert decisions(again.feed("events", lines[back:cut])) == []
    stored.save(again)
    assert stored.snapshots == before


@given(event_lines(), st.lists(st.integers(0, 120), max_size=6))
def test_ticks_change_when_not_what(lines: list[bytes], places: list[int]) -> None:
    """Ticks at any point of stream time lead to the same decisions of every session."""
    ticked = LocalTopology(RULES)
    outputs: list[StageOutput] = []
    for number, line in enumerate(lines):
        outputs += ticked.feed("events", (line,))
        if number in places:
            outputs += ticked.tick(ticked.stream_time)
    outputs += ticked.tick(ticked.stream_time)
    expected = fold(lines)[0]
    for session in ("s0", "s1", "s2", "s3"):
        mine = [o.value for o in outputs if o.topic == "nudges" and o.key == session]
        assert mine == [o.value for o in expected if o.topic == "nudges" and o.key == session]


@given(event_lines())
def test_output_ids_are_unique(lines: list[bytes]) -> None:
    """No two different outputs share an id, so dropping repeats by id loses nothing."""
    seen: dict[str, bytes | None] = {}
    for output in fold(lines)[0]:
        if output.id and output.topic in {*DECISION_TOPICS, "state"}:
            assert seen.setdefault(output.id, output.value) == output.value
            assert list(seen).count(output.id) == 1


@pytest.mark.slow
def test_states_do_not_grow_with_the_length_of_a_session() -> None:
    """However long a session goes on, its state, that of a tool, a user or a model needs no more room."""
    story = Story(user="ada", model="m")

    def sizes(first: int, last: int) -> dict[str, int]:
        for number in range(first, last):
            story.event("turn.started")
            story.fails("bash", {"command": f"cmd{number} x"}, with_="timeout", model=f"m{number}")
            story.fails("bash", {"n": number}, with_="validation", scenario=f"thing{number} well", model=f"m{number}")
            story.works("read_file", {"path": f"/d{number}/f"}, result=str(number))
            story.started("edit_file", {"path": f"/d{number}/f"}, deadline_ms=50)
            story.says(f"I'll use tool_{number % 4} now. This is sentence {number} of very many.")
            story.thinks("The same sentence as ever, said once more.")
            story.works(f"tool_{number % 4}", {"page": number}, result=f"page {number}")
            story.fails(f"tool_{number % 4}", {"a": number}, message=f"Tool tool_{number % 4} not found")
            story.works("think", {"n": number}, result=str(number))
            story.objects(f"output-{number}")
            if number % 7 == 0:
                story.turn_starts()
        _ = story.outputs
        assert story._topology is not None
        return {name: max(len(s or b"") for _, s in p.snapshot()) for name, p in story._topology.processors.items()}

    few, many = sizes(0, 200), sizes(200, 500)
    for stage in few:
        assert many[stage] <= few[stage] * 1.1 + 200, (stage, few, many)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_an_older_shorter_snapshot_loads(stage: object) -> None:
    """Fields are only appended, so a snapshot with the first two fields alone still decodes."""
    codec = SnapshotCodec(stage.state_type, stage.state_version)  # type: ignore[attr-defined]
    state = codec.decode(codec.encode(stage.state_type(), None)[:17] + b"\x92\x91\x07\xcd\x03\xe8")  # type: ignore[attr-defined]
    assert (state.positions, state.clock) == ([7], 1000)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_snapshot_of_another_version_is_refused(stage: object) -> None:
    """Whose fault and what next, instead of a wrong state."""
    codec = SnapshotCodec(stage.state_type, 1)  # type: ignore[attr-defined]
    other = SnapshotCodec(stage.state_type, 2).encode(stage.state_type(), None)  # type: ignore[attr-defined]
    with pytest.raises(StateIncompatible, match="version 2"):
        codec.decode(other)


def test_the_snapshot_header_tells_clock_and_due_time() -> None:
    """An engine finds what is due without decoding a state."""
    story = Story()
    story.started("bash", {"command": "x"}, deadline_ms=60_000)
    _ = story.outputs
    assert story._topology is not None
    [(_, snapshot)] = story._topology.processors["session"].snapshot()
    assert snapshot is not None
    start = int(story.now.timestamp() * 1000)
    assert header(snapshot) == (STAGES[0].state_version, start, start + 60_000)


def test_bad_records_become_dead_letters_and_nothing_stops() -> None:
    """A poison record among good ones is kept whole, with its reason; the others are folded."""
    good = Story().fails("bash", {"command": "x"}, times=3).records
    lines = [value for _, value in good]
    lines[3:3] = [b"not json", b"\xff\xfe", b"[]", b'{"type": "no.such"}']
    outputs, topology = fold(lines)
    letters = [o for o in outputs if o.topic == "dead-letters"]
    assert len(letters) == 4
    assert topology.processors["session"].rejected == 4
    assert [o.type for o in outputs].count("trust.changed") == 1


@given(event_lines(), st.data())
def test_outcomes_written_again_change_nothing(lines: list[bytes], data: st.DataObject) -> None:
    """After a crash outcomes are written again, at new offsets; the tool stage drops them by their origin."""
    outcomes = [o.value for o in fold(lines)[0] if o.topic == "outcomes" and o.value and b'"origin":' in o.value]
    cut = data.draw(st.integers(0, len(outcomes)))
    back = data.draw(st.integers(0, cut))
    plain, again = LocalTopology(RULES), LocalTopology(RULES)
    expected = plain.feed("outcomes", outcomes)
    outputs = again.feed("outcomes", outcomes[:cut])
    assert decisions(again.feed("outcomes", outcomes[back:cut])) == []
    outputs += again.feed("outcomes", outcomes[cut:])
    assert decisions(outputs) == decisions(expected)


def test_what_is_scheduled_does_not_grow_with_the_length_of_a_session() -> None:
    """A due time that moves with every event is looked up when it has come, not scheduled anew each time."""
    story = Story()
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    for number in range(500):
        story.works("query_db", {"q": number}, result=str(number))
    _ = story.outputs
    assert story._topology is not None
    assert len(story._topology.processors["session"]._due_heap) <= 2
    story.after(minutes=2.1).tick()
    assert [one["pattern"] for one in story.all("pattern.detected")][-1] == "stalled_turn"


def in_force(topology: LocalTopology) -> Iterator[tuple[str, str, int]]:
    """Record key, state and denials of every key and circuit that is not at its default, by the states themselves."""
    processor = topology.processors["tool"]
    for key in processor._live:
        state = processor.state(key)
        assert isinstance(state, ToolState)
        followed = state.kind == "mcp" and state.scope.startswith("tool:")  # for the fleet alone
        records = {record.key: record for record in state.fine.values()}
        whole = state.trust
        if whole is not None and (whole.key not in records or whole.state != "trusted"):
            records[whole.key] = whole
        for record in records.values():
            if record.state != "trusted" and (record.published or not followed):
                yield f"trust:{state.workspace_id}{US}{record.key}", str(record.state), record.denials
        if state.breaker.state != "closed":
            yield f"breaker:{key}", str(state.breaker.state), 0


CLEARING = {"trust.reset", "trust.recover", "tool.restore", "breaker.close", "breaker.disable", "breaker.observe"}
"""Orders that clear a state of which the fold knows nothing: `state` may show what a lost changelog held."""


@given(events_and_orders(orders=ORDERS))
def test_followers_see_what_is_in_force_after_every_record(records: list[tuple[str, bytes]]) -> None:
    """The state topic holds every key and circuit that is not at its default, as it is, and no other that is not."""
    topology = LocalTopology(NERVOUS)
    seen: dict[str, tuple[str, int]] = {}
    for topic, value in records:
        for output in topology.feed(topic, (value,)):
            if output.topic != "state" or not output.key.startswith(("trust:", "breaker:")):
                continue
            cleared = topic == "commands" and orjson.loads(value)["type"] in CLEARING
            assert output.value is not None or output.key in seen or cleared, "a tombstone of nothing"
            seen.pop(output.key, None)
            if output.value is not None:
                state = orjson.loads(output.value)
                seen[output.key] = (state["state"], state.get("denials") or 0)
        told = {
            key: state
            for key, state in seen.items()
            if state[0] not in {"trusted", "closed"} and not key.startswith("trust:user:")  # those are the fleet's
        }
        assert told == {key: (state, denials) for key, state, denials in in_force(topology)}


@given(events_and_orders(orders=ORDERS))
def test_followers_that_lost_the_states_are_given_all_of_them_again(records: list[tuple[str, bytes]]) -> None:
    """A new `state` topic is filled from the stored states with what the old one held; no state changes thereby."""
    topology, stored = LocalTopology(NERVOUS), Stored()
    seen: dict[str, bytes] = {}
    for topic, value in records:
        for output in topology.feed(topic, (value,)):
            if output.topic == "state":
                seen.pop(output.key, None)
                if output.value is not None:
                    seen[output.key] = output.value
    stored.save(topology)
    before = dict(stored.snapshots)
    again = {}
    for name, processor in stored.resume({}, NERVOUS).processors.items():
        for output in processor.republish(key for stage, key in stored.snapshots if stage == name):
            assert output.topic == "state"
            if output.value is not None:
                again[output.key] = output.value
        assert not processor.snapshot()
    assert stored.snapshots == before
    told, told_again = ({key: _public(value) for key, value in states.items()} for states in (seen, again))
    assert told_again == told


def _public(value: bytes) -> tuple[object, ...]:
    """What followers go by in a state."""
    state = orjson.loads(value)
    return tuple(state.get(name) for name in ("kind", "key", "state", "mode", "denials", "reason", "expires_at"))


@given(events_and_orders(orders=ORDERS), st.data())
def test_orders_given_or_delivered_again_change_nothing(records: list[tuple[str, bytes]], data: st.DataObject) -> None:
    """Orders are passed on between tools and services: a restart and repeats in between change no decision."""
    cut = data.draw(st.integers(0, len(records)))
    plain, first, stored = LocalTopology(RULES), LocalTopology(RULES), Stored()
    expected = [output for topic, value in records for output in plain.feed(topic, (value,))]
    outputs = [output for topic, value in records[:cut] for output in first.feed(topic, (value,))]
    stored.save(first)
    second = stored.resume(first.next_offsets)
    repeated = [record for record in records[:cut] if record[0] == "commands"]
    assert decisions(output for topic, value in repeated for output in second.feed(topic, (value,))) == []
    outputs += [output for topic, value in records[cut:] for output in second.feed(topic, (value,))]
    assert decisions(outputs) == decisions(expected)


def test_refused_credentials_of_one_target_fill_no_list() -> None:
    """A tool as a whole is not judged while one of its targets fails; what it remembers of that stays small."""
    story = Story()
    for _ in range(40):
        story.fails("http_request", {"url": "https://api.example.com/v1"}, http_status=401)
    _ = story.outputs
    assert story._topology is not None
    state = story._topology.processors["tool"].state(f"w1{US}tool:http_request")
    assert isinstance(state, ToolState)
    assert state.trust is not None
    assert len(state.trust.auth_failures) <= 3


@pytest.mark.parametrize("topic", sorted(STAGE_OF_TOPIC))
def test_a_record_without_a_value_becomes_a_dead_letter(topic: str) -> None:
    """A tombstone says nothing in a log of events; whoever wrote it can find it."""
    (letter,) = LocalTopology(RULES).feed(topic, (None,))
    assert letter.topic == "dead-letters"
    assert orjson.loads(letter.value or b"")["reason"] == "null_value"
