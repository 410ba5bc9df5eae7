"""Emitters read states and change none, and rules keep their own answers."""

from __future__ import annotations

import msgspec
import pytest
from fixed_rules import Rules, TrustRules
from story import Story
from trustfold.projections.emitter import OutputEmitter
from trustfold.projections.tool import emitters
from trustfold.projections.tool.tool_state import ToolFold, ToolState, TrustRecord
from trustfold.rules.rules import EscalationPatch, EscalationRule
from trustfold.schemas.outcomes import US
from trustfold.schemas.vocabulary import TrustState


def states() -> dict[str, ToolState]:
    """States of a tool in trouble and of one that an operator watches, by scope."""
    story = Story(user="ada")
    story.fails("bash", {"command": "git push"}, with_="timeout", times=5)
    story.command("breaker.force_open", "tool:bash")
    story.command("trust.reset", "bash")
    story.fails("api", with_="server_error", times=6)
    story.command("breaker.observe", "tool:api")
    assert story.outputs
    assert story._topology is not None
    tools = story._topology.processors["tool"]
    return {scope: tools.state(f"w1{US}{scope}") for scope in ("tool:bash", "tool:api")}  # type: ignore[misc]


@pytest.mark.parametrize("scope", ["tool:bash", "tool:api"])
def test_publishing_a_state_changes_nothing_of_it(scope: str) -> None:
    """What is published is noted by whoever called the emitter, so publishing twice gives the same bytes."""
    state = states()[scope]
    before = msgspec.msgpack.encode(state)
    written = []
    for _ in range(2):
        emit = OutputEmitter()
        emit.begin("cause", state.clock)
        fold = ToolFold(state, state.clock, Rules(), emit)
        emitters.breaker_state(fold)
        for record in (state.trust, *state.fine.values()):
            assert record is not None
            emitters.trust_state(fold, record, EscalationRule())
        written.append(emit.outputs)
    assert msgspec.msgpack.encode(state) == before
    assert written[0] == written[1] != []


def test_changed_rules_give_answers_of_their_own() -> None:
    """Rules remember how they resolve; a change of them starts afresh."""
    rules = TrustRules(tool_rules={"bash": EscalationPatch(count_threshold=7)})
    assert rules.rules_for("bash").key.count_threshold == 7
    assert msgspec.structs.replace(rules, tool_rules={}).rules_for("bash").key.count_threshold == 3
    assert rules.rules_for("bash").key.count_threshold == 7


def test_a_state_tells_why_trust_was_lost() -> None:
    """With the words of the decision."""
    story = Story().fails("deploy", times=3)
    assert story.decided("state.updated", kind="trust", key="deploy")["reason"] == "3/3 failures in 1h"
    assert story.decided("trust.changed", key="deploy")["reason"] == "3/3 failures in 1h"


def test_a_hint_counts_the_successes_that_are_missing() -> None:
    """While trust recovers; when enough calls worked and a person must agree, it says how."""
    record = TrustRecord(key="deploy", scope="key", state=TrustState.RECOVERING, successes=1, successes_needed=3)
    said = emitters.recovery_hint(record, EscalationRule(), "deploy", 0, "shop")
    assert said == "2 more successful calls restore trust"
    record.pending = True
    said = emitters.recovery_hint(record, EscalationRule(), "deploy", 0, "shop")
    assert said == "ready: `trustfold recover 'deploy'` restores trust"


def test_printed_orders_name_a_workspace_that_is_a_folder() -> None:
    """They work in whatever folder they are typed, from the history and the dashboard, too."""
    place = "/srv/ada's shop"
    story = Story().moved(workspace=place).fails("deploy", times=3)
    ordered = "`trustfold reset 'deploy' --workspace '/srv/ada'\\''s shop'` at once"
    told = story.decided("trust.changed", key="deploy")
    assert told["recovery_hint"].endswith(ordered)
    assert told["permission_warning"].endswith(ordered)


def test_only_an_escalation_that_ends_by_itself_tells_when() -> None:
    """Trust that an operator has given back has no end."""
    story = Story().fails("deploy", times=3)
    story.command("trust.reset", "deploy")
    assert ["expires_at" in change for change in story.all("trust.changed", key="deploy")] == [True, False]
