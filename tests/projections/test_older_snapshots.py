"""States that an older version has stored: they load, folding goes on, and every key can be set free by its name.

`older/states.json` was written by the version before fine keys of services moved to their services (decision 0027):
its snapshots as bytes, and the state that each of its keys had on the `state` topic.
"""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from fixed_rules import Rules
from story import Story
from trustfold.projections.emitter import Output
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.snapshot import SnapshotCodec, codec_of
from trustfold.projections.tool.failure_counts import failed_lately
from trustfold.projections.tool.state import Failure, TrustRecord
from trustfold.projections.topology import STAGES
from trustfold.schemas.outcomes import US

OLDER: dict[str, Any] = orjson.loads((Path(__file__).parent / "older" / "states.json").read_bytes())
PUBLISHED: dict[str, str] = OLDER["published"]
DISTRUSTED = sorted(
    key.partition(US)[2] for key, state in PUBLISHED.items() if key.startswith("trust:") and state != "trusted"
)
OPEN = sorted(key.partition(US)[2] for key, state in PUBLISHED.items() if key.startswith("breaker:"))


STORED = {
    (stage, key.encode()): b64decode(snapshot)
    for stage, states in OLDER["snapshots"].items()
    for key, snapshot in states.items()
}


def resumed(stored: dict[tuple[str, bytes], bytes], next_offsets: dict[str, int]) -> LocalTopology:
    """A topology that goes on with stored states."""
    topology = LocalTopology(Rules(), load=lambda stage, key: stored.get((stage, key)), next_offsets=next_offsets)
    for name, processor in topology.processors.items():
        processor.adopt((key, snapshot) for (stage, key), snapshot in stored.items() if stage == name)
    return topology


class GoingOn(Story):
    """A story that goes on with the states of the older version, and a follower's view of all of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(user="ada", model="m", **options)
        self.now = datetime.fromisoformat(OLDER["now"])
        self._ids = 10_000
        self._topology = resumed(STORED, OLDER["next_offsets"])

    @property
    def shown(self) -> dict[str, str]:
        """State of every key and circuit that a follower sees."""
        view = dict(PUBLISHED)
        for output in self.outputs:
            if output.topic == "state":
                view.pop(output.key, None)
                if output.value is not None and (state := orjson.loads(output.value).get("state")) is not None:
                    view[output.key] = state
        return view


@pytest.mark.parametrize("stage", [one for one in STAGES if one.name in OLDER["snapshots"]], ids=lambda one: one.name)
def test_states_of_the_older_version_are_read(stage: Any) -> None:
    """Nobody has to rebuild what tools, users and models have shown; sessions are short, and begin anew."""
    codec: SnapshotCodec[Any] = codec_of(stage)
    for snapshot in OLDER["snapshots"][stage.name].values():
        assert codec.decode(b64decode(snapshot)).clock > 0


def test_folding_goes_on_after_an_upgrade() -> None:
    """Time passes, keys that were blocked work again: nothing is refused."""
    story = GoingOn()
    story.after(minutes=30)
    for path in ("api", "slow", "once", "good", "gone"):
        story.works("http_request", {"url": f"https://{path}.example.com/v1/x"}, times=3)
    story.works("mcp_db_query", {"q": 1}, times=3)
    story.works("bash", {"command": "pytest"}, times=3)
    story.works("read_file", {"path": "/a/x"}, result="x", times=3)
    story.event("session.ended")
    assert story.refusals() == []


@pytest.mark.parametrize("key", DISTRUSTED)
def test_every_key_that_is_not_trusted_is_set_free_by_its_name(key: str) -> None:
    """The key that `status` shows is the key to give: also one that has since moved from its tool to its service."""
    story = GoingOn()
    order = "tool.restore" if PUBLISHED[f"trust:w1{US}{key}"] == "removed" else "trust.reset"
    story.command(order, key)
    assert f"trust:w1{US}{key}" not in story.shown
    assert story.refusals() == []


def test_an_order_for_a_tool_reaches_its_older_keys() -> None:
    """Older keys of services still live with the tool; a reset of the tool frees them with it."""
    story = GoingOn()
    story.command("trust.reset", "http_request")
    assert [key for key in story.shown if key.startswith(f"trust:w1{US}http_request")] == [
        f"trust:w1{US}http_request|domain=gone.example.com|path_prefix=v1"
    ]


def test_an_older_key_that_is_removed_is_told_once() -> None:
    """The service holds the key from the order on; nothing of the tool's old record is told after that."""
    story = GoingOn()
    key = "http_request|domain=slow.example.com|path_prefix=v1"
    story.command("tool.remove", key)
    assert story.shown[f"trust:w1{US}{key}"] == "removed"
    assert len([output for output in story.outputs if output.key == f"trust:w1{US}{key}"]) == 1
    story.command("tool.restore", key)
    assert f"trust:w1{US}{key}" not in story.shown


def test_the_first_call_of_an_older_key_ends_its_old_record() -> None:
    """Decision 0027: the key starts afresh with its service."""
    story = GoingOn()
    key = "http_request|domain=api.example.com|path_prefix=v1"
    story.works("http_request", {"url": "https://api.example.com/v1/x"})
    assert f"trust:w1{US}{key}" not in story.shown


@pytest.mark.parametrize("scope", OPEN)
def test_no_older_circuit_stays_open_for_ever(scope: str) -> None:
    """A tool's circuit closes by calls of its services, too, although they do not count in it any more."""
    story = GoingOn()
    story.after(minutes=30)
    if scope == "tool:bash":
        story.works("bash", {"command": "pytest"}, times=2)
    else:
        story.works("http_request", {"url": "https://api.example.com/v1/x"}, times=2)
    assert f"breaker:w1{US}{scope}" not in story.shown


def test_a_failing_service_does_not_hold_its_tools_older_circuit_open() -> None:
    """The tool ran; it was the service that failed."""
    story = GoingOn()
    story.after(minutes=30)
    story.fails("http_request", {"url": "https://other.example.com/v1/x"}, times=2, with_="server_error")
    assert f"breaker:w1{US}tool:http_request" not in story.shown


def test_states_of_the_older_version_decide_the_same_however_they_are_cut() -> None:
    """A restart in the middle of going on changes nothing."""
    story = GoingOn()
    story.works("http_request", {"url": "https://api.example.com/v1/x"})
    story.fails("http_request", {"url": "https://slow.example.com/v1/x"}, times=3, with_="server_error")
    story.command("trust.reset", "http_request")
    story.works("bash", {"command": "pytest"}, times=3)

    def outputs(cut: int) -> list[Output]:
        first, stored = resumed(STORED, OLDER["next_offsets"]), dict(STORED)
        written = [output for topic, value in story.records[:cut] for output in first.feed(topic, (value,))]
        for name, processor in first.processors.items():
            stored |= {(name, key): snapshot for key, snapshot in processor.snapshot() if snapshot is not None}
        second = resumed(stored, first.next_offsets)
        return written + [output for topic, value in story.records[cut:] for output in second.feed(topic, (value,))]

    assert outputs(0) == outputs(3) == outputs(6) == outputs(len(story.records))


def test_failures_that_an_older_version_did_not_number_came_before_all_calls_counted_since() -> None:
    """They count among the latest calls until as many others have followed."""
    failure = msgspec.convert([1767607204000, 1.0, 1, "an event"], Failure)
    record = TrustRecord("bash", "tool", failures=[failure], calls_seen=5)
    assert failed_lately(record, 6) == 1
    assert failed_lately(record, 5) == 0
