"""`trustfold remove`, `restore` and `breaker`: orders by hand, in the words people use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import trustfold, up
from trustfold.rules.rules import RuleSet, TrustRules
from trustfold.streams.embedded.engine import EmbeddedEngine


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A new store, in the place where commands look for it."""
    path = tmp_path / ".trustfold" / "trustfold.sqlite"
    EmbeddedEngine.open(path, RuleSet()).close()
    return path


def said(*words: str, cwd: Path, code: int = 0) -> str:
    """What a command says, standard error last."""
    done = trustfold(*words, cwd=cwd)
    assert done.returncode == code, done.stderr
    return (done.stdout + done.stderr).decode()


def state(path: Path, kind: str, key: str) -> dict[str, Any]:
    """The public state of a key; empty when it is at its default."""
    with EmbeddedEngine.open(path) as engine:
        found = [json.loads(value) for value in engine.views.states().values()]
    return next((one for one in found if (one["kind"], one["key"]) == (kind, key)), {})


def test_a_tool_is_taken_away_and_given_back(store: Path, tmp_path: Path) -> None:
    """`remove` asks or takes --yes; `restore` gives the tool back, trusted."""
    assert "add --yes" in said("remove", "deploy", cwd=tmp_path, code=2)
    assert state(store, "trust", "deploy") == {}
    assert said("remove", "deploy", "--yes", "--reason", "leaks", cwd=tmp_path) == (
        "✕ deploy removed: removed by an operator\n"
    )
    assert state(store, "trust", "deploy")["state"] == "removed"
    done = trustfold("restore", "deploy", "--json", cwd=tmp_path)
    assert [one["to"] for one in json.loads(done.stdout)["decisions"]] == ["trusted"]
    assert state(store, "trust", "deploy").get("state", "trusted") == "trusted"


def test_an_order_that_is_not_taken_says_why(tmp_path: Path) -> None:
    """An order that the fold refuses ends with its reason, not with silence."""
    path = tmp_path / ".trustfold" / "trustfold.sqlite"
    EmbeddedEngine.open(path, RuleSet(trust=TrustRules(max_fine_keys=0))).close()
    words = ("remove", "bash|command=rm", "--yes")
    assert "max_fine_keys" in said(*words, cwd=tmp_path, code=1)


def test_a_circuit_is_opened_closed_disabled_and_observed(store: Path, tmp_path: Path) -> None:
    """Each by its command; opening and disabling, which reach every agent, ask first."""
    for words in (["open", "search"], ["disable", "search"]):
        assert "this affects every agent of workspace default; add --yes" in said(
            "breaker", *words, cwd=tmp_path, code=2
        )
    assert "tool:search circuit forced open" in said("breaker", "open", "search", "--yes", cwd=tmp_path)
    assert state(store, "breaker", "tool:search")["state"] == "forced_open"
    assert "tool:search circuit closed" in said("breaker", "close", "search", cwd=tmp_path)
    said("breaker", "observe", "service:atlassian", cwd=tmp_path)
    assert state(store, "breaker", "service:atlassian")["mode"] == "observe"
    said("breaker", "disable", "service:atlassian", "--yes", cwd=tmp_path)
    assert state(store, "breaker", "service:atlassian")["mode"] == "disabled"
    said("breaker", "close", "service:atlassian", cwd=tmp_path)
    assert state(store, "breaker", "service:atlassian").get("mode", "enforce") == "enforce"


@pytest.mark.slow
def test_an_order_that_moves_no_state_says_what_it_did(store: Path, tmp_path: Path) -> None:
    """Observing a closed circuit leaves it closed and still changes what that means; the answer says so."""
    assert said("breaker", "observe", "search", cwd=tmp_path) == (
        "tool:search in workspace default: its state is unchanged; from now on it counts and reports, "
        "but refuses nothing\n"
    )
    assert "1 circuit only observed" in said("status", cwd=tmp_path)
    assert "from now on nothing is counted" in said("breaker", "disable", "search", "--yes", cwd=tmp_path)
    assert "1 circuit switched off" in said("status", cwd=tmp_path)
    said("breaker", "open", "fetch", "--yes", cwd=tmp_path)
    assert "nothing is known of 'tool:fech'; did you mean 'tool:fetch'?" in said("status", "tool:fech", cwd=tmp_path)
    assert "switched off by an operator" in said("breaker", "disable", "fetch", "--yes", cwd=tmp_path)
    said("breaker", "open", "search", "--yes", "--for", "60", cwd=tmp_path)
    assert "the new time applies" in said("breaker", "open", "search", "--yes", "--for", "90", cwd=tmp_path)
    assert "1 circuit not closed" in said("status", cwd=tmp_path)
    assert "deploy in workspace default: it was not removed" in said("restore", "deploy", cwd=tmp_path)


def test_a_circuit_may_be_opened_for_a_time(store: Path, tmp_path: Path) -> None:
    """--for says when it closes by itself."""
    said("breaker", "open", "search", "--yes", "--for", "90", cwd=tmp_path)
    assert state(store, "breaker", "tool:search")["open_until"]


def test_orders_are_for_the_workspace_that_is_named(store: Path, tmp_path: Path) -> None:
    """--workspace, else the only one that knows the key; where several do, one must be chosen."""
    said("remove", "deploy", "--yes", "--workspace", "acme", cwd=tmp_path)
    assert state(store, "trust", "deploy")["workspace_id"] == "acme"
    assert "deploy trusted again" in said("restore", "deploy", cwd=tmp_path)
    said("remove", "deploy", "--yes", "--workspace", "acme", cwd=tmp_path)
    said("remove", "deploy", "--yes", "--workspace", "other", cwd=tmp_path)
    vague = said("restore", "deploy", cwd=tmp_path, code=2)
    assert "trustfold restore deploy --workspace other" in vague


def test_orders_reach_a_running_engine(store: Path, tmp_path: Path) -> None:
    """While `up` runs, an order goes to it by its address or through the file alone."""
    with up(cwd=tmp_path) as server:
        said("breaker", "open", "search", "--yes", cwd=tmp_path)
        said("remove", "deploy", "--yes", "--url", server.url, cwd=tmp_path)
        states = {(one["kind"], one["key"]): one["state"] for one in server.get("/v1/state")["states"]}
    assert states["breaker", "tool:search"] == "forced_open"
    assert states["trust", "deploy"] == "removed"
