"""Trust: thresholds, recovery, relapse, blocking, commands (docs/design/semantics.md#trust)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from fixed_rules import BreakerRules, DefaultRule, Rules, TrustRules
from story import Story
from trustfold.projections.tool import trust
from trustfold.projections.tool.tool_state import TrustRecord
from trustfold.rules.rules import EscalationPatch, EscalationRule
from trustfold.schemas.vocabulary import FailureSeverity, RecoveryMode, TrustState, TrustTrigger

KEY = "deploy"


def ruled(**patch: object) -> Story:
    """A story under a default rule with some fields set."""
    return Story(rules=Rules(trust=TrustRules(default_rule=DefaultRule(**patch))))  # type: ignore[arg-type]


def escalated() -> Story:
    """A tool that has just been escalated."""
    return Story().fails(KEY, times=3)


@pytest.mark.parametrize(("before", "move"), list(itertools.product(TrustState, TrustTrigger)))
def test_only_the_table_moves_trust(before: TrustState, move: TrustTrigger) -> None:
    """Every state and every move: the table's transition, or nothing at all."""
    record = TrustRecord(key="k", scope="tool", state=before, duration_ms=1000)
    changes = trust._move(record, move, EscalationRule(), 1_000_000, 1, None)
    expected = trust.TRANSITIONS.get((before, move))
    assert record.state is (expected or before)
    assert [(change.before, change.after) for change in changes] == ([(before, expected)] if expected else [])


def test_three_quick_failures_escalate_although_they_age() -> None:
    """Age counts in whole hours: three failures in minutes are three, not 2.99."""
    story = Story()
    for _ in range(3):
        story.fails(KEY).after(minutes=3)
    assert story.moves(KEY) == [("trusted", "escalated")]


def test_failures_outside_the_window_do_not_count() -> None:
    """Two failures, an hour and a second, one more: still trusted."""
    story = Story().fails(KEY, times=2).after(3601)
    assert story.fails(KEY).moves(KEY) == []


def test_older_failures_lose_a_tenth_per_whole_hour() -> None:
    """In a day's window, three failures two hours old and one now are 3 × 0.8 + 1."""
    story = ruled(window_seconds=86_400, count_threshold=4).fails(KEY, times=3).after(minutes=130).fails(KEY)
    assert story.moves(KEY) == []
    assert story.decided("state.updated", key=KEY)["failures"] == pytest.approx(3.4)


def test_failures_of_earlier_sessions_count_less() -> None:
    """Each later session that only worked takes a fifth; one in which the key failed, too, takes nothing."""
    story = ruled(count_threshold=4).fails(KEY, times=2)
    for session in ("s2", "s3"):
        story.moved(session=session).works(KEY)
    story.moved(session="s4").fails(KEY).works(KEY)
    assert story.decided("state.updated", key=KEY)["failures"] == pytest.approx(2 * 0.64 + 1)
    story.moved(session="s3").fails(KEY)
    assert story.decided("state.updated", key=KEY)["failures"] == pytest.approx(2 * 0.8 + 2)


def test_sessions_that_are_forgotten_have_counted() -> None:
    """Only sixteen sessions are remembered; what the earlier ones took from a failure stays taken."""
    story = ruled(count_threshold=4, window_seconds=86_400).fails(KEY)
    for number in range(20):
        story.moved(session=f"later{number}").works(KEY)
    story.fails(KEY)
    assert story.decided("state.updated", key=KEY)["failures"] == pytest.approx(0.8**19 + 1, abs=1e-4)


def test_a_model_error_counts_half() -> None:
    """So many invalid inputs weigh three failures that the last one escalates; no layer sets the weight."""
    needed = math.ceil(3 / EscalationRule().model_error_weight)
    assert needed > 3
    story = Story().fails(KEY, with_="invalid_input", times=needed - 1)
    assert story.moves(KEY) == []
    assert story.fails(KEY, with_="invalid_input").moves(KEY) == [("trusted", "escalated")]


def test_a_rate_limit_counts_half_where_it_counts() -> None:
    """It passes by itself: its weight makes more than three escalate, and only where the filter has them."""
    needed = math.ceil(3 / EscalationRule().transient_weight)
    assert needed > 3
    assert Story().fails(KEY, with_="transient", times=20).moves(KEY) == []
    story = ruled(severity_filter=frozenset({FailureSeverity.TRANSIENT}))
    assert story.fails(KEY, with_="transient", times=needed - 1).moves(KEY) == []
    assert story.fails(KEY, with_="transient").moves(KEY) == [("trusted", "escalated")]


def test_severities_outside_the_filter_are_neutral() -> None:
    """Not-found answers neither count nor reset the row of counted failures."""
    story = ruled(count_threshold=None, consecutive_threshold=3)
    story.fails(KEY, times=2).fails(KEY, with_="not_found", times=5)
    assert story.moves(KEY) == []
    assert story.fails(KEY).moves(KEY) == [("trusted", "escalated")]
    assert story.decided("trust.changed", key=KEY)["trigger"] == "consecutive"


def test_a_success_resets_the_consecutive_count() -> None:
    """Two failures, a success, two failures: no row of three."""
    story = ruled(count_threshold=None, consecutive_threshold=3)
    assert story.fails(KEY, times=2).works(KEY).fails(KEY, times=2).moves(KEY) == []


def test_rate_needs_its_minimum_of_calls() -> None:
    """Half of the calls failing escalates once five calls were made."""
    story = ruled(count_threshold=None, rate_threshold=0.5)
    assert story.fails(KEY).works(KEY).fails(KEY).works(KEY).moves(KEY) == []
    assert story.fails(KEY).moves(KEY) == [("trusted", "escalated")]
    assert story.decided("trust.changed", key=KEY)["trigger"] == "rate"


def test_third_authentication_failure_escalates_as_such() -> None:
    """Three 401s in the window mean a broken credential, whatever the count threshold."""
    story = ruled(count_threshold=10).fails(KEY, http_status=401, times=3)
    assert story.decided("trust.changed", key=KEY)["trigger"] == "repeated_auth"


def test_a_failure_while_escalated_restarts_the_cooldown_and_tells_nobody() -> None:
    """A late failure pushes recovery back by the cooldown; no second escalation is emitted."""
    story = escalated().after(minutes=29).fails(KEY).after(minutes=5).works(KEY)
    assert story.moves(KEY) == [("trusted", "escalated")]
    assert story.after(minutes=11).works(KEY).moves(KEY)[-1] == ("escalated", "recovering")


def test_an_early_success_only_counts() -> None:
    """A success before the escalation has lasted starts no recovery."""
    assert escalated().after(minutes=20).works(KEY).moves(KEY) == [("trusted", "escalated")]


def test_one_needed_success_recovers_at_once() -> None:
    """With success_count_to_recover 1 the first eligible success restores trust."""
    story = ruled(success_count_to_recover=1).fails(KEY, times=3).after(minutes=31).works(KEY)
    assert story.moves(KEY)[1:] == [("escalated", "recovering"), ("recovering", "trusted")]


def test_relapse_doubles_the_escalation_and_starts_the_successes_afresh() -> None:
    """A counted failure in recovery escalates for an hour; half an hour later nothing may recover."""
    story = escalated().after(minutes=31).works(KEY, times=2).fails(KEY)
    assert story.moves(KEY)[-1] == ("recovering", "escalated")
    assert story.decided("trust.changed", key=KEY)["trigger"] == "relapse"
    assert story.after(minutes=45).works(KEY).moves(KEY)[-1] == ("recovering", "escalated")
    assert story.after(minutes=20).works(KEY, times=2).moves(KEY)[-1] == ("escalated", "recovering")
    assert story.works(KEY).moves(KEY)[-1] == ("recovering", "trusted")


def test_an_uncounted_failure_leaves_recovery_alone() -> None:
    """A not-found in recovery changes nothing."""
    story = escalated().after(minutes=31).works(KEY).fails(KEY, with_="not_found").works(KEY, times=2)
    assert story.moves(KEY)[-1] == ("recovering", "trusted")


def test_failures_before_recovery_never_count_again() -> None:
    """After recovery one failure is one failure."""
    story = escalated().after(minutes=31).works(KEY, times=3).fails(KEY, times=2)
    assert story.moves(KEY)[-1] == ("recovering", "trusted")


def test_ten_failures_without_a_success_block() -> None:
    """An escalated tool that only fails is blocked at the tenth; a success in between starts the ten afresh."""
    story = escalated().fails(KEY, times=9).works(KEY).fails(KEY, times=9)
    assert story.moves(KEY) == [("trusted", "escalated")]
    assert story.fails(KEY).moves(KEY)[-1] == ("escalated", "blocked")


def test_ask_mode_waits_for_the_operator() -> None:
    """In mode ask recovery is pending once, and the recover command ends it."""
    story = Story(rules=Rules(trust=TrustRules(recovery_mode=RecoveryMode.ASK)))
    story.fails(KEY, times=3).after(minutes=31).works(KEY, times=5)
    assert len(story.all("trust.recovery_pending", key=KEY)) == 1
    assert story.moves(KEY)[-1] == ("escalated", "recovering")
    story.command("trust.recover", KEY)
    assert story.moves(KEY)[-1] == ("recovering", "trusted")


def test_an_unrecoverable_failure_waits_for_the_operator() -> None:
    """Whoever reports that a failure does not mend itself is believed: successes alone bring no trust back."""
    story = Story()
    for recoverable in (True, False, True):
        story.event("failure.reported", tool_name=KEY, severity="server_error", recoverable=recoverable)
    story.after(minutes=31).works(KEY, times=5)
    assert len(story.all("trust.recovery_pending", key=KEY)) == 1
    story.command("trust.recover", KEY)
    assert story.moves(KEY)[-1] == ("recovering", "trusted")
    story.fails(KEY, times=3).after(minutes=31).works(KEY, times=3)
    assert story.moves(KEY)[-1] == ("recovering", "trusted"), "a recovery starts afresh"


def test_reset_is_a_watermark() -> None:
    """Failures before a reset never count again, also those of a key that was still trusted."""
    story = Story().fails(KEY, times=2)
    story.command("trust.reset", KEY)
    assert story.fails(KEY, times=2).moves(KEY) == []
    assert story.fails(KEY).moves(KEY) == [("trusted", "escalated")]


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize(
    ("order", "key", "shown"),
    [
        ("trust.reset", KEY, f"trust:w1\x1f{KEY}"),
        ("trust.recover", KEY, f"trust:w1\x1f{KEY}"),
        ("trust.recover", "bash|command=tar", "trust:w1\x1fbash|command=tar"),
        ("tool.restore", KEY, f"trust:w1\x1f{KEY}"),
        ("breaker.close", KEY, f"breaker:w1\x1ftool:{KEY}"),
    ],
)
def test_an_order_clears_what_only_followers_still_know(order: str, key: str, shown: str, *, called: bool) -> None:
    """A lost changelog leaves a key escalated on `state` that the workers trust; nothing else corrects it."""
    story = Story().works(KEY) if called else Story()
    story.command(order, key)
    assert [(one.key, one.value) for one in story.outputs if one.topic == "state"][-1:] == [(shown, None)]


def test_remove_and_restore() -> None:
    """An operator takes a tool away; only restore brings it back, clean."""
    story = escalated()
    story.command("tool.remove", KEY)
    story.fails(KEY, with_="security")
    story.command("trust.reset", KEY)
    assert story.moves(KEY)[-1] == ("escalated", "removed")
    story.command("tool.restore", KEY)
    assert story.fails(KEY, times=2).moves(KEY)[-1] == ("removed", "trusted")


def test_security_blocks_from_recovery_too() -> None:
    """Security needs no count and no particular state, and always carries a reason."""
    story = escalated().after(minutes=31).works(KEY).fails(KEY, with_="security")
    assert story.moves(KEY)[-1] == ("recovering", "blocked")
    assert story.decided("trust.changed", key=KEY)["reason"]


def test_silence_marks_but_never_drops() -> None:
    """notify_user false emits the escalation all the same, marked silent."""
    story = ruled(notify_user=False).fails(KEY, times=3)
    assert story.decided("trust.changed", key=KEY)["silent"] is True


def test_expected_cached_refused_and_cancelled_calls_do_not_count() -> None:
    """None of them is a failure of the tool."""
    story = Story().fails(KEY, times=3, expected_failure=True)
    story.fails(KEY, times=3, from_cache=True).fails(KEY, times=3, status="circuit_open")
    story.fails(KEY, times=3, status="rejected")
    for _ in range(3):
        story.finished(story.started(KEY), KEY, status="cancelled", result=None)
    assert story.moves(KEY) == []


def test_a_denial_is_counted_apart() -> None:
    """A user's refusal is no failure; the key's state says how often it was declined."""
    story = Story().fails(KEY)
    for number in range(4):
        story.event("permission.resolved", call_id=f"x{number}", tool_name=KEY, granted=False, method="prompt")
    assert story.fails(KEY).moves(KEY) == []
    assert story.decided("state.updated", key=KEY)["denials"] == 4


def test_state_is_tombstoned_when_back_to_default() -> None:
    """A recovered key leaves no record behind on the compacted topic."""
    story = escalated().after(minutes=31).works(KEY, times=3)
    last = [output for output in story.outputs if output.topic == "state" and output.key.endswith(KEY)][-1]
    assert last.value is None


def test_fine_keys_are_bounded() -> None:
    """The sixty-fifth fine key of a tool counts in the tool's key only."""
    story = ruled(count_threshold=1000)
    for number in range(70):
        story.fails("readFile", {"path": f"/d{number}/f"})
    keys = {one["key"] for one in story.all("state.updated")}
    assert len([key for key in keys if "|" in key]) == 64
    assert "readFile" in keys
    assert story.counted() == {"untracked": 6}


def test_an_order_cannot_exceed_the_fine_keys() -> None:
    """Removing an unseen fine key beyond the bound is refused with the way out; known keys and the tool obey."""
    story = Story(rules=Rules(trust=TrustRules(max_fine_keys=2)))
    for number in range(3):
        story.command("tool.remove", f"bash|command=x{number}")
    refusal = story.refusals()[0]
    assert (refusal["reason"], refusal["path"]) == ("bad_value", "$.key")
    assert "2 fine keys (trust.max_fine_keys)" in refusal["message"]
    assert "remove the tool as a whole" in refusal["message"]
    story.command("tool.restore", "bash|command=x0")
    story.command("tool.remove", "bash|command=x0")
    story.command("tool.remove", "bash")
    assert len(story.refusals()) == 1
    removed = {one["key"] for one in story.all("trust.changed") if one["to"] == "removed"}
    assert removed == {"bash", "bash|command=x0", "bash|command=x1"}


def test_a_refused_order_hides_nothing_that_time_has_done() -> None:
    """What fell due before the order is told by the next record, as it is without the order."""
    story = Story(rules=Rules(trust=TrustRules(max_fine_keys=0)))
    story.command("breaker.force_open", "tool:bash", duration_s=30)
    story.after(minutes=2).command("tool.remove", "bash|command=x")
    assert len(story.refusals()) == 1
    story.works("bash", {"command": "ls"})
    moves = [(one["from"], one["to"]) for one in story.all("breaker.changed")]
    assert moves[-1] == ("forced_open", "closed")


def test_what_is_tracked_counts_as_nothing_special() -> None:
    """Keys below the bound, and successes of keys that never failed, are not counted as untracked."""
    story = Story().fails("readFile", {"path": "/a/x"}).works("readFile", {"path": "/b/y"})
    assert story.counted() == {}


def test_more_specific_layers_overlay_only_what_they_set() -> None:
    """A tool rule that sets the count keeps the plugin's window."""
    rules = TrustRules(
        plugin_rules={"cli": EscalationPatch(window_seconds=60, count_threshold=9)},
        tool_rules={KEY: EscalationPatch(count_threshold=2)},
    )
    story = Story(rules=Rules(trust=rules, breakers=BreakerRules()))
    story.fails(KEY, times=2, plugin_name="cli")
    assert story.decided("trust.changed", key=KEY)["window_s"] == 3600


@pytest.mark.parametrize("tool", ["we|ird=tool", "bash|command=git", "service:foo", "back\\slash"])
def test_orders_reach_keys_of_odd_names(tool: str) -> None:
    """What a decision calls a key, a command may call it too."""
    story = Story().fails(tool, times=3)
    [key] = {one["key"] for one in story.all("trust.changed")}
    story.command("trust.reset", key)
    assert story.moves(key)[-1] == ("escalated", "trusted")


def test_late_failures_of_another_session_do_not_undo_a_reset() -> None:
    """What happened before the reset never counts, however late it arrives."""
    story = Story().fails(KEY, times=2).after(minutes=10)
    story.command("trust.reset", KEY)
    story.session = "slow publisher"
    for number in range(3):
        story.event(
            "tool_call.finished", call_id=f"c{number}", tool_name=KEY, status="error", time="2026-01-05T10:02:00.000Z"
        )
    assert story.moves(KEY) == []


def test_only_failures_make_a_fine_key() -> None:
    """Cancelled calls do not use up the room for fine keys."""
    story = Story()
    for number in range(70):
        call = story.started("readFile", {"path": f"/d{number}/f"})
        story.finished(call, "readFile", status="cancelled", result=None)
    assert story.fails("readFile", {"path": "/etc/x"}, times=3).moves("readFile|path_prefix=/etc") == [
        ("trusted", "escalated")
    ]


def test_an_order_about_an_unknown_key_creates_nothing() -> None:
    """Resetting keys that never failed leaves no records behind."""
    story = Story()
    for number in range(5):
        story.command("trust.reset", f"bash|command=x{number}")
    assert story.all("state.updated") == story.all("trust.changed") == []


def test_a_relapse_starts_counting_afresh() -> None:
    """The count is zero after a relapse."""
    story = escalated().after(minutes=31).works(KEY).fails(KEY)
    assert story.decided("state.updated", key=KEY)["failures"] == 0


def test_secrets_stay_out_of_reported_domains() -> None:
    """A reporter that passes a whole URL as domain leaks nothing."""
    story = Story()
    for _ in range(3):
        story.event("failure.reported", tool_name="fetcher", domain="https://bob:hunter2@API.example.com:443/v1")
    assert all(b"hunter2" not in (output.value or b"") + output.key.encode() for output in story.outputs)
    assert story.moves("service:api.example.com") == [("trusted", "escalated")]


def test_successes_in_a_row_end_an_escalation_before_its_time() -> None:
    """As many as recovery needs; one alone only counts, a failure between begins anew, and late ones prove nothing."""
    story = Story().fails("deploy", times=3).works("deploy", times=2).fails("deploy").works("deploy", times=2)
    assert story.moves("deploy") == [("trusted", "escalated")]
    assert story.works("deploy").moves("deploy")[1:] == [("escalated", "recovering"), ("recovering", "trusted")]
    assert story.decided("trust.changed", to="recovering")["reason"] == "3 successes in a row"
    one = Rules(trust=TrustRules(default_rule=EscalationPatch(success_count_to_recover=1)))
    story = Story(rules=one).fails("deploy", times=3).works("deploy")
    assert story.moves("deploy") == [("trusted", "escalated")]
    assert story.works("deploy").moves("deploy")[-1] == ("recovering", "trusted")
    story = Story()
    begun = [story.started("deploy", {"n": number}) for number in range(5)]
    story.fails("deploy", times=3)
    for call in begun:
        story.finished(call, "deploy")
    assert story.moves("deploy") == [("trusted", "escalated")]


def test_evidence_ages_in_a_day() -> None:
    """By a tick or at the next call, silently, at its own time; a blocked key never, and a failure puts it off."""
    ticked, revealed = (Story().fails("deploy", times=3).after(minutes=24 * 60) for _ in range(2))
    ticked.tick()
    revealed.works("deploy")
    for story in (ticked, revealed):
        told = story.decided("trust.changed", trigger="aged")
        assert (told["to"], told["silent"], told["reason"]) == ("trusted", True, "no counted failure for 24h")
    assert ticked.decided("trust.changed", trigger="aged") == revealed.decided("trust.changed", trigger="aged")
    assert ticked.public("trust:w1\x1fdeploy") is None
    story = Story().fails("deploy", times=3).after(minutes=12 * 60).fails("deploy").after(minutes=13 * 60)
    story.tick()
    assert not story.all("trust.changed", trigger="aged")
    blocked = Story().fails("deploy", with_="security").after(minutes=48 * 60)
    blocked.tick()
    assert not blocked.all("trust.changed", trigger="aged")


def test_a_layer_that_sets_a_threshold_sets_them_all() -> None:
    """A rate rule is a rate rule: no count of a layer below holds beside it; a field of another kind leaves all."""
    rules = TrustRules(tool_rules={"a": EscalationPatch(rate_threshold=0.4), "b": EscalationPatch(window_seconds=60)})
    rated, timed = rules.rules_for("a").key, rules.rules_for("b").key
    assert (rated.count_threshold, rated.consecutive_threshold, rated.rate_threshold) == (None, None, 0.4)
    assert timed.count_threshold == rules.rules_for("c").key.count_threshold == 3


@pytest.mark.parametrize(
    ("error", "held"),
    [
        ({"error": {"type": "ECONNREFUSED"}}, True),
        ({"error": {"http_status": 503}}, True),
        ({"error": {"http_status": 429}}, True),
        ({"status": "timeout"}, True),
        ({"error": {"http_status": 422}}, False),
        ({"error": {"http_status": 403}}, False),
        ({"error": {"type": "ToolError", "code": "503"}}, False),
    ],
)
def test_a_service_is_judged_by_its_transport_alone(error: dict[str, Any], held: bool) -> None:
    """What it answered, and what its tool reports about others, says nothing about it; a success between ends it."""
    for tool, args, scope in (
        ("mcp__jira__search", {}, "service:jira"),
        ("http_request", {"url": "https://api.example.com/v1"}, "service:api.example.com"),
    ):
        story = Story()
        for _ in range(3):
            call = story.started(tool, args)
            story.finished(call, tool, status=error.get("status", "error"), result=None, error=error.get("error"))
        reports = error.get("error", {}).get("type") == "ToolError" and scope != "service:jira"
        assert bool(story.moves(scope)) is (held or reports), scope
    interrupted = Story()
    for _ in range(4):
        interrupted.fails("mcp__jira__search", http_status=503).works("mcp__jira__search")
    assert not interrupted.moves("service:jira")


def test_a_program_that_never_ran_has_no_record() -> None:
    """A shell that finds no such program leaves no key behind, and takes no other's place."""
    story = Story()
    for number in range(100):
        call = story.started("bash", {"command": f"nothere{number} now"})
        story.finished(call, "bash", status="error", result=None, error={"type": "exit_code_127"})
    story.fails("bash", {"command": "deployctl go"}, times=3)
    assert story.outputs
    held = story._topology.processors["tool"].state("w1\x1ftool:bash")  # type: ignore[union-attr]
    assert list(held.fine) == ["bash|command=deployctl"]  # type: ignore[attr-defined]
