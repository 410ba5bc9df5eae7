"""The same input through Kafka and through one process: the same outputs, byte for byte.

See docs/architecture.md#engines.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from kafka_run import OUTPUT_TOPICS, Written, run_through_kafka, settings_for
from scenarios import ALL
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker]

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES", Path(__file__).parents[2] / ".." / "shared" / "traces"))


def locally(records: list[tuple[str, bytes]]) -> Written:
    """What one process decides, a tick at the end included."""
    topology = LocalTopology(RuleSet())
    outputs = [output for topic, value in records for output in topology.feed(topic, (value,))]
    outputs += topology.tick(topology.stream_time)
    written: Written = {}
    for output in outputs:
        if output.topic in OUTPUT_TOPICS:
            written.setdefault((output.topic, output.key), []).append(output.value)
    return written


def as_many_as(expected: Written) -> Any:
    """Whether everything that is expected has been written."""
    total = sum(map(len, expected.values()))
    return lambda written: sum(map(len, written.values())) >= total


def assert_same(written: Written, expected: Written) -> None:
    """Per topic and key, the same bytes in the same order."""
    assert sorted(written) == sorted(expected)
    for place, values in expected.items():
        assert written[place] == values, place


def test_the_seeds_scenarios_decide_the_same_on_kafka(broker: Any, topic_prefix: str) -> None:
    """Every scenario, told to a worker on a broker, ends as it does in one process."""
    records = [record for story in ALL.values() for record in _apart(story().records, story().session)]
    expected = locally(records)
    written = run_through_kafka(settings_for(broker.bootstrap, topic_prefix), records, as_many_as(expected))
    assert_same(written, expected)
    decided = {place for place in written if place[0] == "escalations"}
    assert ("escalations", "cli\x1fbash|danger=root") in decided
    assert ("escalations", "cli\x1fbash") not in decided
    assert ("escalations", "mcp\x1fservice:atlassian") not in decided  # two time-outs; three hold a server
    assert ("escalations", "degradation\x1fservice:api.example.com") in decided
    assert ("nudges", "announce") in written
    everywhere = [json.loads(value or b"") for value in written["escalations", "user:ada\x1fdeploy"]]
    assert [one["trigger"] for one in everywhere] == ["promotion", "demotion", "promotion", "expiry"]
    assert ("state", "model:large-1") in written


def _apart(records: list[tuple[str, bytes]], name: str) -> list[tuple[str, bytes]]:
    """The records of one story in a workspace and with ids of their own."""
    return [
        (topic, value.replace(b'"w1"', f'"{name}"'.encode()).replace(b'"00000000-', f'"{name[:8]}-'.encode()))
        for topic, value in records
    ]


@pytest.mark.parametrize("trace", ["pi_sessions", "openhands_maverick"])
def test_a_recorded_run_decides_the_same_on_kafka(broker: Any, topic_prefix: str, trace: str) -> None:
    """Real sessions with calls that never finish: the worker's outputs are the replay's, per key and in order."""
    expected, records = _recorded(trace)
    written = run_through_kafka(settings_for(broker.bootstrap, topic_prefix), records, as_many_as(expected))
    assert_same(written, expected)


def test_what_a_session_is_told_does_not_depend_on_partitions(broker: Any, topic_prefix: str) -> None:
    """Over four partitions every session's nudges are the replay's, byte for byte."""
    expected, records = _recorded("tau_airline_gpt4o")
    nudges = {place: values for place, values in expected.items() if place[0] == "nudges"}
    total = sum(map(len, nudges.values()))
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=4)
    written = run_through_kafka(
        settings, records, lambda seen: sum(len(v) for place, v in seen.items() if place[0] == "nudges") >= total
    )
    assert_same({place: values for place, values in written.items() if place[0] == "nudges"}, nudges)


def _recorded(trace: str) -> tuple[Written, list[tuple[str, bytes]]]:
    path = TRACES / f"{trace}.ndjson.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set TRUSTFOLD_TRACES to the folder of recorded runs")
    with gzip.open(path) as lines:
        records = [("events", line.strip()) for line in lines]
    return locally(records), records
