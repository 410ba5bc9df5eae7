"""The durable embedded engine: the outputs of a replay, however the input is cut, and nothing lost or doubled."""

from __future__ import annotations

import gzip
import os
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import ALL, cli_command_failures
from story import Story
from streams_of_events import event_lines
from trustfold.errors import ConfigError
from trustfold.projections.emitter import StageOutput, is_record_of_call
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet, TrustRules
from trustfold.streams.embedded import engine as engine_module
from trustfold.streams.embedded.engine import INTERNAL_TOPICS, EmbeddedEngine, SubmitRequest
from trustfold.streams.embedded.replay import FileReplay

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES", Path(__file__).parents[3] / ".." / "shared" / "traces"))
RULES = RuleSet()


def folded(lines: list[bytes]) -> list[StageOutput]:
    """What one process without a store decides, a tick at the end included."""
    topology = LocalTopology(RULES)
    return topology.feed("events", lines) + topology.tick(topology.stream_time)


def stored(engine: EmbeddedEngine) -> list[StageOutput]:
    """Every output the store holds, in order."""
    topics = ("escalations", "breakers", "nudges", "suggestions", "state", "dead-letters", "events", "outcomes")
    return [one.output for one in engine.views.decisions(topics, limit=10_000)]


def kept(outputs: list[StageOutput]) -> list[StageOutput]:
    """Outputs as they belong in the store, which has one partition."""
    return [
        output._replace(own_partition=False)
        for output in outputs
        if output.topic not in INTERNAL_TOPICS or is_record_of_call(output)
    ]


@settings(max_examples=settings.default.max_examples // 2)  # each opens stores on the disk
@given(lines=event_lines(), cuts=st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=8))
def test_outputs_are_those_of_a_replay(lines: list[bytes], cuts: list[tuple[int, bool]]) -> None:
    """However the input is cut into batches, and wherever it is restarted, outputs are the replay's, bytewise."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "store.sqlite")
        engine = EmbeddedEngine.open(path, RULES)
        outputs: list[StageOutput] = []
        rest, turn = lines, 0
        while rest:
            size, restart = cuts[turn % len(cuts)]
            outputs += engine.ingest(rest[:size])
            rest, turn = rest[size:], turn + 1
            if restart:
                engine.close()
                engine = EmbeddedEngine.open(path)
        outputs += engine.tick(engine.stream_time)
        assert outputs == folded(lines)
        assert stored(engine) == kept(outputs)
        engine.close()


@pytest.mark.parametrize("name", ["openhands_maverick", "tau_airline_gpt4o", "agentv_copilot"])
def test_recorded_runs_give_the_outputs_of_a_replay(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real sessions through the store give what a replay gives, bytewise, with next to no state in memory."""
    trace = TRACES / f"{name}.ndjson.gz"
    if not trace.exists():
        pytest.skip("the recorded runs are not here (TRUSTFOLD_TRACES)")
    monkeypatch.setattr(engine_module, "LIVE_STATES", 1)
    expected = list(FileReplay(RULES).run([str(trace)]))
    with gzip.open(trace) as lines, EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        outputs: list[StageOutput] = []
        while batch := [line.strip() for line in islice(lines, 200)]:
            outputs += engine.ingest(batch)
        assert outputs + engine.tick(engine.stream_time) == expected


@pytest.mark.parametrize("name", sorted(ALL))
def test_public_states_are_the_latest_of_the_state_topic(name: str, tmp_path: Path) -> None:
    """`states` holds the newest record of each key, and nothing of a key that is back to its default."""
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        latest: dict[str, bytes | None] = {}
        for topic, value in ALL[name]().records:
            receipt = engine.submit([SubmitRequest(topic, [value])])[0]
            latest.update({output.key: output.value for output in receipt.outputs if output.topic == "state"})
        assert engine.views.states() == {key: value for key, value in latest.items() if value is not None}


def test_states_that_were_forgotten_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one live state of each stage, decisions are the same: the rest is read back from the store."""
    monkeypatch.setattr(engine_module, "FORGET_EVERY", 1)
    monkeypatch.setattr(engine_module, "LIVE_STATES", 1)
    lines = [value for story in ALL.values() for _, value in story().records]
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        outputs = [output for line in lines for output in engine.ingest([line])]
        assert outputs + engine.tick(engine.stream_time) == folded(lines)


def test_what_was_due_stays_due_over_a_restart(tmp_path: Path) -> None:
    """A call whose deadline passes while the engine is down is closed by the first tick, as it would have been."""
    story = Story()
    story.started("bash", {"command": "make"}, deadline_ms=30_000)
    lines = [value for _, value in story.records]
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        engine.ingest(lines)
    with EmbeddedEngine.open(tmp_path / "store.sqlite") as engine:
        due = engine.next_due()
        assert due is not None
        assert engine.tick(due - 1) == []
        outputs = engine.tick(due)
        assert [orjson.loads(out.value or b"")["status"] for out in outputs if out.topic == "events"] == ["timeout"]
        assert engine.tick(due) == []
    topology = LocalTopology(RULES)
    topology.feed("events", lines)
    assert outputs == topology.tick(due)


def test_a_request_sent_again_is_answered_from_the_first_time(tmp_path: Path) -> None:
    """A publisher that did not hear the answer repeats the request; nothing is folded twice, even after a restart."""
    lines = [value for _, value in cli_command_failures().records]
    request = SubmitRequest("events", [*lines, b"no json"], b"token-1")
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        (first,) = engine.submit([request])
        before = stored(engine)
        assert (first.accepted, first.dead_letters, first.repeated) == (len(lines), 1, False)
        both = engine.submit([request, request])
        assert stored(engine) == before
    with EmbeddedEngine.open(tmp_path / "store.sqlite") as engine:
        both += engine.submit([request])
        assert stored(engine) == before
    assert {(one.accepted, one.dead_letters, one.repeated) for one in both} == {(len(lines), 1, True)}


def test_requests_of_one_transaction_have_receipts_of_their_own(tmp_path: Path) -> None:
    """Requests that are committed together keep their own counts, in the order they came."""
    lines = [value for _, value in cli_command_failures().records]
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        receipts = engine.submit(
            [SubmitRequest("events", lines[:2]), SubmitRequest("events", [b"{"]), SubmitRequest("events", lines[2:])]
        )
        assert [(one.accepted, one.dead_letters) for one in receipts] == [(2, 0), (0, 1), (4, 0)]
        joined = [output for receipt in receipts for output in receipt.outputs]
    assert joined == LocalTopology(RULES).feed("events", [*lines[:2], b"{", *lines[2:]])


def command(engine: EmbeddedEngine, value: bytes) -> list[StageOutput]:
    """Outputs of an operator's command."""
    return engine.submit([SubmitRequest("commands", [value])])[0].outputs


def test_commands_fold_like_events(tmp_path: Path) -> None:
    """A reset unblocks, durably; a command that makes no sense becomes a dead letter."""
    story = cli_command_failures()
    story.command("trust.reset", "bash")
    *events, (_, reset) = story.records
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        engine.ingest([value for _, value in events])
        assert '"blocked"' in str(engine.views.states())
        moved = [orjson.loads(out.value or b"") for out in command(engine, reset) if out.type == "trust.changed"]
        assert [(one["key"], one["to"]) for one in moved] == [("bash|danger=root", "trusted")]
        assert [output.topic for output in command(engine, b'{"type":"trust.reset"}')] == ["dead-letters"]
    with EmbeddedEngine.open(tmp_path / "store.sqlite") as engine:
        assert '"blocked"' not in str(engine.views.states())
        assert len(engine.views.dead_letters()) == 1


def test_only_source_topics_take_input(tmp_path: Path) -> None:
    """Records for a topic that nothing reads are refused before anything is folded."""
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        with pytest.raises(ConfigError, match="'nudges' takes no input"):
            engine.submit([SubmitRequest("nudges", [b"{}"])])
        assert stored(engine) == []


def test_rules_are_remembered(tmp_path: Path) -> None:
    """Opened without rules, a store goes on under those it was last opened with."""
    rules = orjson.loads(b'{"trust":{"default_rule":{"count_threshold":1}}}')
    strict = engine_module.msgspec.convert(rules, RuleSet)
    EmbeddedEngine.open(tmp_path / "store.sqlite", strict).close()
    with EmbeddedEngine.open(tmp_path / "store.sqlite") as engine:
        assert engine.rules == strict
        story = Story()
        story.fails("deploy")
        outputs = engine.ingest([value for _, value in story.records])
    assert '"to":"escalated"' in "".join((out.value or b"").decode() for out in outputs)


def test_dead_letters_can_be_folded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fix the original bytes are folded as new records, once, and the letters are done with."""
    lines = [value for _, value in cli_command_failures().records]
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        fold = type(engine._topology.processors["session"].stage).fold

        def broken(*_: object) -> None:
            raise RuntimeError("a fault of ours")

        stage = type(engine._topology.processors["session"].stage)
        monkeypatch.setattr(stage, "fold", broken)
        engine.ingest([*lines, b'\xff{"not": "utf-8"}'])
        monkeypatch.setattr(stage, "fold", fold)
        letters = engine.views.dead_letters()
        reasons = [orjson.loads(one.output.value or b"")["reason"] for one in letters]
        assert reasons == ["internal_error"] * len(lines) + ["invalid_utf8"]
        outputs = engine.republish([one.offset for one in letters])
        assert [out.key for out in outputs if out.type == "trust.changed"] == ["w1\x1fbash|danger=root"]
        again = engine.views.dead_letters()
        assert [orjson.loads(one.output.value or b"")["reason"] for one in again] == ["invalid_utf8"]
        assert len(engine.views.dead_letters(republished=True)) == len(letters) + 1
        with pytest.raises(ConfigError, match="no dead letter has the offset 99999"):
            engine.republish([99_999])


def test_pages_follow_one_another(tmp_path: Path) -> None:
    """Reading on from the last offset gives every output of the chosen topics once, whatever the page size."""
    lines = [value for story in ALL.values() for _, value in story().records]
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        outputs = kept(engine.ingest(lines))
        for topics in (["nudges"], ["nudges", "escalations", "state"]):
            after, found = 0, []
            while page := engine.views.decisions(topics, after=after, limit=3):
                found += [one.output for one in page]
                after = page[-1].offset
            assert found == [output for output in outputs if output.topic in topics]


def test_what_is_old_is_forgotten(tmp_path: Path) -> None:
    """Records that arrived before a topic's time are deleted; states and records of unknown arrival stay."""
    lines = [value for _, value in cli_command_failures().records]
    half = len(lines) // 2
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RULES) as engine:
        engine.ingest([b"old"], arrived_ms=1_000)
        engine.ingest(lines[:half], arrived_ms=2_000)
        engine.ingest([*lines[half:], b"new"], arrived_ms=3_000)
        before, states = stored(engine), engine.views.states()
        engine.forget({"events": 2_500, "dead-letters": 3_000})
        assert [orjson.loads(one.output.value or b"")["value"] for one in engine.views.dead_letters()] == ["new"]
        assert stored(engine) == before[1:]
        assert engine.views.states() == states
        rows = engine._store.connection.execute("SELECT arrived_ms FROM log WHERE topic <> 'rules'").fetchall()
        assert {arrived for (arrived,) in rows} == {3_000}
        engine.forget({"dead-letters": 4_000})
        engine.ingest([b"newest"], arrived_ms=-1)
        engine.forget({"dead-letters": 1 << 60})
        assert [orjson.loads(one.output.value or b"")["value"] for one in engine.views.dead_letters()] == ["newest"]


def test_what_the_folds_count_is_that_of_kept_batches(tmp_path: Path) -> None:
    """Failures beyond the fine keys of a tool are counted once their batch is durable, and not when it was not kept."""
    story = Story()
    for folder in "abc":
        story.fails("read_file", {"path": f"/{folder}/x"})
    lines = [value for _, value in story.records]
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RuleSet(trust=TrustRules(max_fine_keys=1))) as engine:
        with pytest.raises(ConfigError):
            engine.submit([SubmitRequest("events", lines), SubmitRequest("nudges", [b""])])
        assert not engine.counted
        engine.ingest(lines)
        assert engine.counted == {"untracked": 2}
