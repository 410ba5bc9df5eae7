"""States and decisions of a later version: unknown fields, values and kinds break no command; `--json` keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from trustfold.cli.clients.client import SettingsOwner, StateOverview, decision_records, state_records
from trustfold.cli.clients.http import HttpTarget
from trustfold.cli.clients.kafka import KafkaTarget
from trustfold.cli.clients.kafka_log import StoredRecord
from trustfold.cli.main import main
from trustfold.errors import TrustfoldError
from trustfold.guard.backends.engine_client import EngineClient

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
DECISION = {name: ENVELOPE[name] for name in ("schema_version", "id", "time", "workspace_id")}
TRUST = DECISION | {"type": "trust.changed", "scope": "key", "from": "trusted", "trigger": "count"}
DECISIONS: list[dict[str, Any]] = [
    TRUST | {"key": "deploy", "to": "escalated", "reason": "3/3 failures in 1h", "mood": {"new": [1, 2]}},
    TRUST | {"key": "bash", "to": "suspended", "reason": "too \x1b[2Jodd"},
    DECISION
    | {"type": "breaker.changed", "breaker_key": "tool:bash", "from": "closed", "to": "ajar", "trigger": "draught"},
    DECISION | {"type": "budget.spent", "key": "bash", "message": "nothing left"},
    DECISION | {"type": "budget.kept", "key": "bash", "time": 5},
    DECISION | {"type": "pattern.detected", "pattern": "daydream", "severity": "minor", "repetitions": 2},
]


@pytest.fixture(autouse=True)
def later_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of a later version with those states."""
    monkeypatch.setattr(HttpTarget, "overview", lambda _self: StateOverview(state_records(STATES), "auto"))
    monkeypatch.setattr(HttpTarget, "history", lambda _self, _limit: decision_records(DECISIONS))


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


def test_decisions_are_shown_as_far_as_they_are_known() -> None:
    """Unknown fields are ignored; of unknown types and values the type, key and reason are shown; JSON keeps all."""
    shown = " ".join(run("status", "--include-history").split())
    assert "! deploy escalated 3/3 failures in 1h" in shown
    assert "· trust.changed of bash too" in shown
    assert "· breaker.changed of tool:bash" in shown
    assert "· budget.spent of bash nothing left" in shown
    assert "· pattern.detected" in shown
    assert "\x1b" not in shown
    assert orjson.loads(run("status", "--include-history", "--json"))["history"] == DECISIONS


def test_an_order_shows_and_gives_decisions_as_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the order caused at the server."""
    monkeypatch.setattr(HttpTarget, "order", lambda _self, _commands: decision_records(DECISIONS))
    assert "! deploy escalated: 3/3 failures in 1h" in run("reset", "deploy")
    assert "· budget.spent of bash: nothing left" in run("reset", "deploy")
    assert orjson.loads(run("reset", "deploy", "--json"))["decisions"] == DECISIONS


def test_a_story_shows_what_is_known_of_each_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items, words and fields of a later server."""
    at = {"time": "2026-03-02T12:00:00.000Z", "failing": False}
    call = {"tool_name": "bash", "arguments": "ls", "verdict": "dozed off", "same_result": None, "duration_ms": None}
    document = {
        "session_id": "s1", "models": ["large-1"], "began": at["time"], "ended": at["time"], "mood": "good",
        "calls": 1, "verdicts": {"dozed off": 1},
        "loops": [
            {"tool_name": "bash", "arguments": "ls", "times": 3, "wasted_calls": 2, "share_of_calls": 1, "mood": 1},
        ],
        "patterns": [
            {"pattern": "daydream", "steps": [{"repetitions": 3, "mood": 1}], "thresholds": [3, 4.5], "nudges": []},
        ],
        "items": [
            at | {"kind": "calls"} | call,
            at | {"kind": "escalations", "decision": DECISIONS[1]},
            at | {"kind": "dreams", "dream": "sheep"},
            at | {"kind": "other", "event": {"type": "dream.began", "reason": "night"}},
        ],
    }  # fmt: skip
    monkeypatch.setattr(HttpTarget, "session", lambda _self, _id: document)
    shown = " ".join(run("story", "s1").split())
    assert "bash ls ×3, same result: 2 calls wasted (100% of all)" in shown
    assert "daydream 3 of 3, 4.5: no nudge; not over" in shown
    assert "→ dozed off" in shown
    assert "· trust.changed of bash too" in shown
    assert "12:00:00 dreams" in shown
    assert "dream began night" in shown
    assert orjson.loads(run("story", "s1", "--json"))["items"] == document["items"]


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
    monkeypatch.setattr(HttpTarget, "overview", lambda _self: StateOverview(state_records([ENVELOPE | state]), "auto"))
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
        lambda _self, topic, *_: [StoredRecord(0, 0, key, one, 0, ()) for key, one in stored.get(topic, ())],
    )
    ran = CliRunner().invoke(main, [*words, "--bootstrap", "127.0.0.1:1"])
    assert ran.exit_code == 0, ran.output
    assert "topic trustfold.state: the record of key odd" in ran.output
    assert "is no JSON object and is left out" in ran.output
    assert "\x1b" not in ran.output


def test_a_key_in_a_state_of_a_later_version_is_not_called_trusted() -> None:
    """It may be worse than any state known here."""
    shown = run("status", "bash")
    assert "no recent failures" not in shown
    assert "bash: in a state of a later version, unknown here" in shown


SESSION = {
    "session_id": "s1", "models": [], "began": "t", "ended": "t", "calls": 1, "verdicts": {}, "loops": [],
    "patterns": [], "items": [{"kind": "call", "time": "2026-03-02T12:00:00.000Z"}],
}  # fmt: skip


@pytest.mark.parametrize("answer", [None, [], {}, SESSION | {"calls": "many"}, SESSION | {"items": [5]}, "sign in"])
def test_a_session_from_something_else_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """A gateway, or a server of another version; the command says so, without a traceback."""
    monkeypatch.setattr(EngineClient, "request", lambda *_, **_options: orjson.dumps(answer))
    ran = CliRunner().invoke(main, ["story", "s1", "--url", "http://127.0.0.1:1"])
    assert isinstance(ran.exception, SystemExit)
    assert (ran.exit_code, "http://127.0.0.1:1 is not `trustfold up`, or another version" in ran.output) == (1, True)


@pytest.mark.parametrize("answer", [b"<html>", b"null", b'{"offset":1,"value":null}', b'{"offset":null,"value":{}}'])
def test_lines_of_something_else_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """They are neither decisions nor dead letters."""
    monkeypatch.setattr(EngineClient, "request", lambda *_, **_options: answer)
    ran = CliRunner().invoke(main, ["dead-letters", "list", "--url", "http://127.0.0.1:1"])
    assert isinstance(ran.exception, SystemExit)
    assert "is not `trustfold up`, or another version" in ran.output


FOREIGN = [
    {},
    {"accepted": 1, "dead_letters": "7"},
    {"accepted": 0, "dead_letters": 1, "faults": [5]},
    {"levels": 5, "rules": {}, "rules_fault": None},
    {"levels": {"galaxy": {}}, "rules": {}, "rules_fault": None},
    {"reloaded": True, "files": None},
    {"agents": [], "sessions": {}, "said": 1},
]  # fmt: skip


@pytest.mark.parametrize("answer", FOREIGN)
@pytest.mark.parametrize(
    "ask",
    [
        lambda target: target.order([]),
        lambda target: target.settings(SettingsOwner("w1", "u1")),
        lambda target: target.save([]),
        lambda target: target.reload(),
        lambda target: target.republish([]),
        lambda target: target.hooks(),
    ],
    ids=["order", "settings", "save", "reload", "republish", "hooks"],
)
def test_an_answer_of_something_else_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[HttpTarget], Any], answer: Any
) -> None:
    """Nobody knows whether an order was taken that a gateway answers in a server's place."""
    monkeypatch.setattr(EngineClient, "request", lambda *_, **_options: orjson.dumps(answer))
    with pytest.raises(TrustfoldError, match=r"http://127\.0\.0\.1:1 is not `trustfold up`, or another version"):
        ask(HttpTarget("http://127.0.0.1:1"))


@pytest.mark.parametrize("words", ["settings", "settings save user breakers.enabled=false", "policies reload"])
def test_a_command_says_so_without_a_traceback(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Its exit code is that of a failure."""
    monkeypatch.setattr(EngineClient, "request", lambda *_, **_options: b"{}")
    ran = CliRunner().invoke(main, [*words.split(), "--url", "http://127.0.0.1:1"])
    assert isinstance(ran.exception, SystemExit)
    assert (ran.exit_code, "http://127.0.0.1:1 is not `trustfold up`, or another version" in ran.output) == (1, True)


def test_an_order_rejected_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where there may be one."""
    monkeypatch.setattr(
        EngineClient, "request", lambda *_, **_options: b'{"accepted":0,"dead_letters":1,"decisions":[]}'
    )
    with pytest.raises(TrustfoldError, match=r"did not take the order: .*dead-letters list"):
        HttpTarget("http://127.0.0.1:1").order([])


def test_an_entry_may_leave_out_what_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the contract says."""
    monkeypatch.setattr(EngineClient, "request", lambda *_, **_options: orjson.dumps(SESSION))
    assert "Session s1" in run("story", "s1", "--errors")
