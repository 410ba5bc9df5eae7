"""States that a later version wrote: unknown fields, values and kinds break no command, and `--json` keeps them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from trustfold.cli.clients.base import Overview, state_records
from trustfold.cli.clients.http import HttpTarget
from trustfold.cli.clients.kafka import KafkaTarget
from trustfold.cli.clients.kafka_log import Stored
from trustfold.cli.main import main

ENVELOPE = {
    "type": "state.updated",
    "schema_version": "1.9",
    "id": "s1",
    "time": "2026-03-02T12:00:00.000Z",
    "workspace_id": "w1",
}
STATES: list[dict[str, Any]] = [
    ENVELOPE | {"kind": "trust", "key": "deploy", "scope": "key", "state": "escalated", "mood": {"new": [1, 2]}},
    ENVELOPE | {"kind": "trust", "key": "bash", "scope": "key", "state": "suspended"},
    ENVELOPE | {"kind": "budget", "key": "bash", "left": 3},
    ENVELOPE | {"kind": "model", "key": "large-1", "scope": "model", "turns": 4, "mood": "good"},
    ENVELOPE | {"kind": "quality", "key": "search", "score": 0.5, "registered_score": 0.9, "mood": "good"},
]


@pytest.fixture(autouse=True)
def later_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of a later version with those states."""
    monkeypatch.setattr(HttpTarget, "overview", lambda _self: Overview(state_records(STATES), "auto"))
    monkeypatch.setattr(HttpTarget, "history", lambda _self, _limit: [])


def run(*words: str) -> str:
    """Output of a command at that server; it must succeed."""
    ran = CliRunner().invoke(main, [*words, "--url", "http://127.0.0.1:1"])
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_json_gives_every_record_as_received() -> None:
    """Whatever is in it."""
    assert orjson.loads(run("status", "--json"))["states"] == STATES
    assert orjson.loads(run("behavior", "--json"))["models"] == [STATES[3]]
    assert orjson.loads(run("quality", "--json"))["states"] == [STATES[4]]


def test_tables_show_what_is_known_and_count_the_rest() -> None:
    """An unknown field is ignored; an unknown value or kind is left out, and a note says so."""
    shown = run("status")
    assert "ESCALATED" in shown
    assert "2 states of a later version are not shown: update trustfold, or use --json" in shown
    assert "later version" not in run("status", "deploy")
    assert "every tool is trusted" not in shown
    assert "large-1" in run("behavior")
    assert "search" in run("quality")


@pytest.mark.parametrize("words", [["patterns"], ["stalls"], ["quality", "rank", "find a page"]])
def test_other_readers_of_states_work(words: list[str]) -> None:
    """They use the states that they know."""
    run(*words)


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["status"], {"kind": "trust", "key": "bash", "scope": "key", "state": "suspended"}),
        (["behavior"], {"kind": "model", "key": "large-1", "scope": "model", "turns": "many"}),
        (["quality"], {"kind": "quality", "key": "search", "score": "good"}),
    ],
)
def test_a_table_without_what_it_cannot_read_claims_no_health(
    words: list[str], state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note counts it, and no line says that every tool is trusted."""
    monkeypatch.setattr(HttpTarget, "overview", lambda _self: Overview(state_records([ENVELOPE | state]), "auto"))
    shown = run(*words)
    assert "1 state of a later version is not shown" in shown
    assert "every circuit closed" not in shown


@pytest.mark.parametrize("words", [["status"], ["status", "deploy"], ["behavior"], ["quality"]])
@pytest.mark.parametrize("value", [b"not json", b'"x"', b'["x"]', b"null", b"5"])
def test_a_record_that_is_no_object_is_left_out_by_name(
    words: list[str], value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it to Kafka, the others are shown."""
    stored = {"state": [("trust:w1:deploy", orjson.dumps(STATES[0])), ("odd\x1b[1m", value)]}
    monkeypatch.setattr(
        KafkaTarget,
        "_read",
        lambda _self, topic: [Stored(0, 0, key, one, 0, ()) for key, one in stored.get(topic, ())],
    )
    ran = CliRunner().invoke(main, [*words, "--bootstrap", "127.0.0.1:1"])
    assert ran.exit_code == 0, ran.output
    assert "topic trustfold.state: the record of key odd" in ran.output
    assert "is no JSON object and is left out" in ran.output
    assert "\x1b" not in ran.output
