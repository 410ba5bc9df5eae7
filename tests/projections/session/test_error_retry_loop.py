"""The same request that fails the same way, with nothing changed in between (docs/detection.md)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import BehaviourRules, Rules
from story import Story
from trustfold.guard.privacy import PrivacyFilter
from trustfold.rules.rules import SeverityLadder

TEST = ("bash", {"command": "pytest -q"})


def retried(between: str, *, times: int = 8) -> Story:
    """Failing tests, and something between the runs."""
    story = Story()
    for number in range(times):
        story.fails(*TEST, message="1 failed")
        if between == "an edit":
            story.works("edit_file", {"path": "/x.py", "text": number})
        elif between == "a program":
            story.works("bash", {"command": f"python fix.py {number}"}, result=f"fixed {number}")
        elif between == "an unknown tool":
            story.works("compute", {"n": number}, result=f"value {number}")
        elif between == "a look":
            story.works("bash", {"command": f"ls d{number}"}, result=f"files {number}")
        elif between == "the same program":
            story.works("bash", {"command": "python fix.py"}, result="nothing to fix")
        elif between == "a failing edit":
            story.fails("edit_file", {"path": "/x.py", "text": number}, message="no match")
        elif between == "a cancelled edit":
            story.finished(story.started("apply_patch", {"input": f"+{number}"}), "apply_patch", status="cancelled")
        elif between == "a cancelled look":
            story.finished(story.started("read_file", {"path": f"/{number}"}), "read_file", status="cancelled")
        elif between == "a user":
            story.user_says()
    return story


def test_same_call_failing_the_same_way() -> None:
    """Three, four and six unchanged retries."""
    story = Story().fails("bash", {"command": "broken"}, message="fail", times=6)
    assert story.found("error_retry_loop") == [("minor", 3), ("moderate", 4), ("severe", 6)]


@pytest.mark.parametrize("between", ["an edit", "a program", "an unknown tool", "a cancelled edit", "a user"])
def test_what_may_have_changed_something_starts_the_count_afresh(between: str) -> None:
    """Edit and test again is work, also where a program makes the edit."""
    assert retried(between).found("error_retry_loop") == []


@pytest.mark.parametrize("between", ["a look", "a failing edit", "a cancelled look"])
def test_what_changes_nothing_does_not(between: str) -> None:
    """Reads, and what failed itself."""
    assert retried(between, times=4).found("error_retry_loop") == [("minor", 3), ("moderate", 4)]


def test_a_program_that_gave_the_same_before_has_changed_nothing() -> None:
    """An equal call with an equal result is no progress: the first run counts as an effect, the others do not."""
    assert retried("the same program", times=4).found("error_retry_loop") == [("minor", 3)]


def test_another_way_of_failing_is_another_streak() -> None:
    """The exit code, the severity, the type: something has changed."""
    story = Story()
    for number in range(9):
        story.fails(*TEST, with_=("server_error", "validation", "timeout")[number % 3], message="it broke")
    assert story.found("error_retry_loop") == []


def test_another_text_caps_it_at_moderate() -> None:
    """The same request that fails the same way is a retry whatever the text says; it never stops the run."""
    story = Story()
    for word in "alpha beta gamma delta epsilon zeta eta theta".split():
        story.fails("query_db", {"q": 1}, message=f"cannot reach {word}")
    assert story.found("error_retry_loop") == [("minor", 3), ("moderate", 4)]
    assert "interrupt" not in {kind for _, kind in story.nudges()}


def test_texts_that_a_guard_withheld_are_told_apart_by_their_digests() -> None:
    """Different failures never stop the run; the same one does."""
    story, same = Story(), Story()
    for word in "alpha beta gamma delta epsilon zeta eta theta".split():
        story.fails("query_db", {"q": 1}, message=PrivacyFilter().message(f"cannot reach {word}", {}))
        same.fails("query_db", {"q": 1}, message=PrivacyFilter().message("cannot reach db", {}))
    assert story.found("error_retry_loop") == [("minor", 3), ("moderate", 4)]
    assert same.found("error_retry_loop") == [("minor", 3), ("moderate", 4), ("severe", 6)]


@pytest.mark.parametrize(
    "message",
    [
        "idle_for={n}s, giving up",
        "line {n}: unexpected end",
        "failed after {n}.2 seconds",
        "request id 5f{n}a1c2d-77aa-4e0b-9c1d-0123456789ab was refused",
    ],
)
def test_moving_parts_of_a_text_are_no_other_text(message: str) -> None:
    """Durations, line numbers, clocks and ids move by themselves (tests/projections/calls has all of them)."""
    story = Story()
    for number in range(1, 7):
        story.fails("query_db", {"q": 1}, message=message.format(n=number))
    assert story.found("error_retry_loop") == [("minor", 3), ("moderate", 4), ("severe", 6)]


def test_a_success_of_the_call_ends_it() -> None:
    """And what was reported is cleared."""
    story = Story().fails(*TEST, message="1 failed", times=3).works(*TEST, result="passed")
    assert story.cleared() == ["error_retry_loop"]


def test_different_commands_are_diagnosis() -> None:
    """Three different failing commands are no retry."""
    story = Story()
    for number in range(5):
        story.fails("bash", {"command": f"broken {number}"}, message="fail")
    assert story.found("error_retry_loop") == []


def test_waits_between_keep_it_from_stopping_the_run() -> None:
    """What will not pass by itself is told, too, but never paused."""
    story = waits_between(message="no such table: t")
    assert story.found("error_retry_loop") != []
    assert "interrupt" not in {kind for _, kind in story.nudges()}


def test_to_wait_for_what_may_pass_is_no_retry() -> None:
    """Trying again after a minute is what one does with a service that is away, or that limits requests."""
    for failure in ({"with_": "transient"}, {"http_status": 429}, {"http_status": 503}):
        assert waits_between(**failure).patterns() == []


def waits_between(**failure: Any) -> Story:
    """Nine equal failures with a minute of waiting between."""
    story = Story()
    for _ in range(9):
        story.fails("query_db", {"q": 1}, **failure).works("bash", {"command": "sleep 60"}, result="")
    return story


def test_a_line_that_waits_itself_is_no_retry() -> None:
    """It is judged as a poll, by its pace."""
    story = Story().fails("bash", {"command": "sleep 30; curl -f http://localhost:1/"}, message="refused", times=9)
    assert story.found("error_retry_loop") == []


@pytest.mark.parametrize("kind", ["user_rejected", "sibling_error"])
def test_refusals_and_cancelled_siblings_are_not_failures(kind: str) -> None:
    """Neither a user's rejection nor a sibling cancelled with a failed batch is a retry."""
    story = Story()
    for _ in range(4):
        call = story.started("bash", {"command": "x"})
        story.finished(call, "bash", status="error", result=None, error={"type": kind, "message": kind})
    assert story.patterns() == []


def test_calls_that_the_client_rejected_count() -> None:
    """The model hears of it, and it is the model that must do something else; trust and circuits do not."""
    story = Story()
    for _ in range(6):
        call = story.started("edit_file", {"path": "/a", "old": "x"})
        error = {"message": "file has not been read yet"}
        story.finished(call, "edit_file", status="rejected", result=None, error=error)
    assert story.found("error_retry_loop") == [("minor", 3), ("moderate", 4), ("severe", 6)]
    assert story.all("trust.changed") == []
    assert story.all("breaker.changed") == []


def test_a_tool_may_have_a_ladder_of_its_own() -> None:
    """One tool is retried more patiently; the others are not."""
    patient = SeverityLadder(minor=6, moderate=8, severe=10)
    rules = Rules(behaviour=BehaviourRules(error_retry_by_tool={"web_search": patient}))
    story = Story(rules=rules).fails("web_search", {"q": "x"}, times=5).fails("bash", {"command": "make"}, times=3)
    assert [one["tool_sequence"][0] for one in story.all("pattern.detected", pattern="error_retry_loop")] == ["bash"]
    story.fails("web_search", {"q": "x"})
    assert story.found("error_retry_loop")[-1] == ("minor", 6)


# --- the state of the workspace -----------------------------------------------------------------------------------


def in_a_workspace(states: list[str], *, between: tuple[str, dict[str, object]] | None = None) -> Story:
    """Failing tests, each with the state of the workspace after it."""
    story = Story()
    for number, state in enumerate(states):
        story.fails(*TEST, message="1 failed", workspace_digest=state)
        if between is not None:
            story.works(between[0], {**between[1], "n": number}, result=f"done {number}")
    return story


def test_a_changed_workspace_is_progress_whatever_ran_between() -> None:
    """Somebody else has edited, or a read that was more than that."""
    story = in_a_workspace(["a", "b", "c", "d", "e", "f"], between=("read_file", {"path": "/x"}))
    assert story.found("error_retry_loop") == []


def test_an_equal_workspace_is_proof_that_nothing_changed() -> None:
    """Whatever programs ran between, and whatever an edit says that it did."""
    for between in (("compute", {}), ("edit_file", {"path": "/x"})):
        story = in_a_workspace(["a"] * 6, between=between)
        assert story.found("error_retry_loop") == [("minor", 3), ("moderate", 4), ("severe", 6)], between
        assert "error_retry_loop" not in story.cleared(), between


def test_an_unknown_workspace_proves_nothing() -> None:
    """Where the digest comes only now and then, what ran between decides."""
    story = Story()
    for number in range(6):
        story.fails(*TEST, message="1 failed", workspace_digest="a" if number % 2 == 0 else None)
        story.works("compute", {"n": number}, result=f"value {number}")
    assert story.found("error_retry_loop") == []


def test_a_workspace_that_goes_back_is_progress_still() -> None:
    """Edits that undo each other have changed something between the two runs."""
    assert in_a_workspace(["a", "b"] * 4).found("error_retry_loop") == []
