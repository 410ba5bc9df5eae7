"""What is no reason to ask: counts among successes, bursts, late finishes, normal failures; and denials, security."""

from __future__ import annotations

import shlex

import pytest
from fixed_rules import TO_OPEN, DefaultRule, Rules, TrustRules
from story import Story
from trustfold.rules.rules import ToolRules
from trustfold.schemas.vocabulary import FailureSeverity

KEY = "deploy"
GIT = {"command": "git pull"}


def ruled(**patch: object) -> Story:
    """A story under a default rule with some fields set."""
    return Story(rules=Rules(trust=TrustRules(default_rule=DefaultRule(**patch))))  # type: ignore[arg-type]


def test_three_failures_among_a_hundred_successes_are_noise() -> None:
    """The count is reached, but hardly any of the latest calls failed."""
    story = Story()
    for _ in range(10):
        story.works("bash", GIT, times=30).fails("bash", GIT)
    assert story.moves("bash|command=git") == []


def test_three_in_a_row_are_an_outage_whatever_came_before() -> None:
    """A hundred successes excuse nothing."""
    story = Story().works("bash", GIT, times=100).fails("bash", GIT, times=3)
    assert story.moves("bash|command=git") == [("trusted", "escalated")]


def test_half_of_the_latest_calls_is_enough() -> None:
    """Three of the latest six."""
    story = Story()
    for _ in range(2):
        story.fails(KEY).works(KEY)
    assert story.moves(KEY) == []
    assert story.fails(KEY).moves(KEY) == [("trusted", "escalated")]


def test_an_answer_is_a_call_that_did_not_fail() -> None:
    """A command that says no works: crashes between many answers are noise. What passes by itself is no call."""
    story = Story()
    for _ in range(4):
        story.fails(KEY, with_="validation", times=6).fails(KEY, with_="crash")
    assert story.moves(KEY) == []
    story.fails(KEY, with_="transient", times=6).fails(KEY, with_="crash").fails(KEY, with_="crash")
    assert story.moves(KEY) == [("trusted", "escalated")]


def test_the_rate_looks_at_all_calls_of_the_window() -> None:
    """Successes before the first failure are calls, too."""
    story = ruled(count_threshold=None, rate_threshold=0.5).works("bash", GIT, times=10)
    assert story.fails("bash", GIT, times=9).moves("bash|command=git") == []
    assert story.fails("bash", GIT).moves("bash|command=git") == [("trusted", "escalated")]


def test_a_parallel_burst_escalates_once_and_blocks_nothing() -> None:
    """Thirty calls in flight fail together: those that began before the escalation tell nothing new."""
    story = Story()
    calls = [story.started(KEY, {"n": number}) for number in range(30)]
    for call in calls:
        story.finished(call, KEY, status="error", result=None, error={"severity": "server_error"})
    assert story.moves(KEY) == [("trusted", "escalated")]
    assert story.state_of("trust", KEY)["failures"] == 3  # type: ignore[index]


def test_a_late_failure_does_not_relapse_a_recovering_key() -> None:
    """It began before recovery did."""
    story = Story().fails(KEY, times=3)
    slow = story.started(KEY, {"slow": True}, deadline_ms=3_600_000)
    story.after(minutes=31).works(KEY)
    story.finished(slow, KEY, status="error", result=None, error={"severity": "server_error"})
    assert story.moves(KEY)[-1] == ("escalated", "recovering")
    assert story.works(KEY, times=2).moves(KEY)[-1] == ("recovering", "trusted")


@pytest.mark.parametrize("order", ["trust.reset", "trust.recover"])
def test_late_failures_never_count_after_an_order(order: str) -> None:
    """Calls that began before the order fail after it."""
    story = Story().fails(KEY, times=3)
    calls = [story.started(KEY, {"n": number}) for number in range(5)]
    story.command(order, KEY)
    for call in calls:
        story.finished(call, KEY, status="error", result=None, error={"severity": "server_error"})
    assert story.moves(KEY)[-1] == ("escalated", "trusted")
    assert story.state_of("trust", KEY) is None


def test_a_stale_order_to_recover_does_nothing() -> None:
    """The key was ready and has failed again since: the operator has to look again."""
    story = Story()
    story.session_sets(recovery_mode="ask")
    story.fails(KEY, times=3).after(minutes=31).works(KEY, times=3)
    assert story.all("trust.recovery_pending", key=KEY)
    story.fails(KEY)
    story.command("trust.recover", KEY)
    assert story.moves(KEY)[-1] == ("recovering", "escalated")


def test_denials_are_published_as_they_grow() -> None:
    """The user declines a command that never failed: its key says how often, and nothing is asked for that."""
    story = Story()
    for number in range(5):
        call = story.started("bash", {"command": "curl x"})
        story.event("permission.resolved", call_id=call, tool_name="bash", granted=False, method="user")
        assert story.state_of("trust", "bash|command=curl")["denials"] == number + 1  # type: ignore[index]
    assert story.moves("bash|command=curl") == []
    before = len(story.all("state.updated"))
    story.works("bash", {"command": "curl x"}, times=3)
    assert len(story.all("state.updated")) == before
    story.command("trust.reset", "bash|command=curl")
    assert story.state_of("trust", "bash|command=curl") is None


def test_denials_of_a_service_count_at_its_key() -> None:
    """Where the key lives with a service, its denials do, too."""
    story = Story()
    call = story.started("mcp__jira__delete", {"id": 1})
    story.event("permission.resolved", call_id=call, tool_name="mcp__jira__delete", granted=False, method="user")
    key = "mcp__jira__delete|mcp_server=jira"
    assert story.state_of("trust", key)["denials"] == 1  # type: ignore[index]


def test_a_state_says_when() -> None:
    """Times of the latest failures and success, of the present state, of the cooldown; and the window."""
    story = Story().works(KEY).fails(KEY, times=3)
    state = story.state_of("trust", KEY)
    assert state is not None
    assert state["failure_history"][-1] == state["last_failure_at"] == state["since"] == state["escalated_at"]
    assert len(state["failure_history"]) == 3
    assert state["last_success_at"] < state["failure_history"][0] < state["cooldown_until"] < state["recovery_at"]
    assert state["window_s"] == 3600


def test_a_circuit_says_when() -> None:
    """Since when it is open, and when calls through it last worked and failed."""
    story = Story().works(KEY).fails(KEY, with_="timeout", times=TO_OPEN)
    state = story.state_of("breaker", f"tool:{KEY}")
    assert state is not None
    assert state["last_success_at"] < state["last_failure_at"] == state["since"] == state["opened_at"]
    assert state["consecutive"] == TO_OPEN


def test_an_escalation_that_has_lapsed_is_no_longer_published() -> None:
    """Two failures leave the window: the next success takes the record away."""
    story = Story().fails(KEY, times=2).after(minutes=61).works(KEY)
    assert story.state_of("trust", KEY) is None


def test_only_what_the_filter_has_is_an_expected_severity() -> None:
    """A filter of its own turns the same failures into neither failure nor noise."""
    story = (
        ruled(severity_filter=frozenset({FailureSeverity.CRASH})).fails(KEY, times=5).fails(KEY, with_="crash", times=2)
    )
    assert story.moves(KEY) == []


def test_an_expected_failure_rate_excuses_that_share() -> None:
    """A tool of which half of the calls may fail is escalated when more of the latest ones do; at 1 it never is."""
    for rate, escalated in ((0.5, 1), (1.0, 0)):
        story = Story(rules=Rules(tools=ToolRules(expected_failure_rates={KEY: rate})))
        for _ in range(6):
            story.works(KEY).fails(KEY)
        assert story.moves(KEY) == []
        assert len(story.fails(KEY, times=5).moves(KEY)) == escalated


def test_what_a_tool_answers_blames_no_model_and_costs_little() -> None:
    """Failing tests are no failures of the model's own making; a no to a scenario costs 0.01 and leaves no tag."""
    story = Story(model="m1")
    story.fails("bash", {"command": "pytest"}, with_="", message="3 failed", times=4)
    assert story.all("state.updated", kind="quality") == []
    story.fails("bash", {"command": "pytest"}, with_="", message="3 failed", scenario="test the billing", times=2)
    state = story.all("state.updated", kind="quality")[-1]
    assert state["score"] == pytest.approx(0.88)
    assert not state.get("tags")


def test_sites_that_refuse_never_hold_a_tool_that_works() -> None:
    """A fifth of the sites answer 403, each for itself; only they are held."""
    story = Story()
    for number in range(60):
        url = {"url": f"https://site{number % 20}.example/page"}
        if number % 4 == 1:
            story.fails("fetch", url, http_status=403, with_="", message="Forbidden")
        else:
            story.works("fetch", url)
    assert story.moves("fetch") == []
    assert story.moves("fetch|domain=site1.example|path_prefix=page")


def test_a_tool_is_held_once_none_of_its_domains_answers() -> None:
    """Six failures in a row of three domains are the tool's own, whatever came before."""
    story = Story()
    for domain in "abcdef":
        story.works("fetch", {"url": f"https://{domain}.example/page"})
    for domain in "abcabc":
        assert story.moves("fetch") == []
        story.fails("fetch", {"url": f"https://{domain}.example/page"}, http_status=503, with_="", message="no")
    assert story.moves("fetch") == [("trusted", "escalated")]


def test_a_credential_that_mostly_works_is_not_invalid() -> None:
    """The third 401 or 403 escalates at once only where half of the latest calls failed."""
    story = Story()
    for _ in range(3):
        story.fails("deploy", http_status=403, with_="", message="Forbidden").works("deploy", times=4)
    assert story.moves("deploy") == []
    story.fails("deploy", http_status=401, with_="", message="no", times=3)
    assert story.moves("deploy") == [("trusted", "escalated")]


def test_an_order_can_be_pasted_into_a_shell_whatever_the_key_holds() -> None:
    """A quote in a path ends neither the order nor its own quotes."""
    story = Story()
    story.fails("Read", {"file_path": "/it's; echo/a b.py"}, times=3)
    told = story.decided("trust.changed", key="Read|path_prefix=/it's; echo")
    for text in (told["recovery_hint"], told["permission_warning"]):
        order = text[text.index("`trustfold") + 1 : text.rindex("`")]
        assert shlex.split(order) == ["trustfold", "reset", "Read|path_prefix=/it's; echo"]


def test_one_refusal_told_twice_is_one_denial() -> None:
    """By the answer of the user, by the end of the call, and again when the session has long forgotten the call."""
    story = Story()
    call = story.started("bash", {"command": "curl x"})
    story.event("permission.resolved", call_id=call, tool_name="bash", granted=False, method="user")
    story.finished(call, "bash", status="error", result=None, error={"type": "user_rejected"})
    story.works("read_file", times=300)
    story.started("bash", {"command": "curl x"}, call=call)
    story.event("permission.resolved", call_id=call, tool_name="bash", granted=False, method="user")
    assert story.state_of("trust", "bash|command=curl")["denials"] == 1  # type: ignore[index]
