"""An operator's approval of one call: who gets it, what uses it up, what ends it."""

from __future__ import annotations

import pytest
from story import Story

KEY = "deploy"
RM = {"command": "rm build"}
RM_KEY = "bash|command=rm"


def approval(story: Story, key: str) -> str | None:
    """Id of the approval that the published state of a key shows."""
    state = story.state_of("trust", key)
    return None if state is None else state.get("approval_id")


def test_an_approval_of_an_escalated_key_is_published_with_its_end() -> None:
    """It is known by the id of its command and waits for one hour; the key stays escalated."""
    story = Story().fails(KEY, times=3)
    story.command("trust.approve", KEY)
    state = story.state_of("trust", KEY)
    assert state is not None
    assert state["state"] == "escalated"
    assert state["approval_id"]
    assert story.moves(KEY) == [("trusted", "escalated")]
    assert state["approval_expires_at"] > state["time"]


def test_a_call_uses_its_approval_up() -> None:
    """Named by the start or by a lone finish; another call's end leaves it."""
    story = Story().fails(KEY, times=3)
    story.command("trust.approve", KEY)
    given = approval(story, KEY)
    story.works(KEY)
    assert approval(story, KEY) == given
    call = story.started(KEY, {}, approvals=[given])
    story.finished(call, KEY)
    assert approval(story, KEY) is None
    story.command("trust.approve", KEY)
    story.finished("lone", KEY, approvals=[approval(story, KEY)])
    assert approval(story, KEY) is None


def test_a_call_that_is_never_finished_has_used_its_approval() -> None:
    """It is closed as timed out by its deadline."""
    story = Story().fails(KEY, times=3)
    story.command("trust.approve", KEY)
    story.started(KEY, {}, approvals=[approval(story, KEY)], deadline_ms=1000)
    story.after(minutes=2).works("other")
    assert approval(story, KEY) is None


def test_an_approval_of_a_tool_is_one_for_all_of_its_keys() -> None:
    """Every key that asks shows the same approval; one call uses all of them up."""
    story = Story().fails("bash", RM, times=3).fails("bash", {"command": "git pull"}, times=3)
    story.command("trust.approve", "tool:bash")
    given = approval(story, RM_KEY)
    assert given is not None
    assert approval(story, "bash|command=git") == given
    call = story.started("bash", RM, approvals=[given])
    story.finished(call, "bash")
    assert approval(story, RM_KEY) is None
    assert approval(story, "bash|command=git") is None


@pytest.mark.parametrize("order", ["trust.reset", "trust.recover", "tool.remove"])
def test_a_change_of_state_ends_an_approval(order: str) -> None:
    """It was given for a state that is over."""
    story = Story().fails(KEY, times=3)
    story.command("trust.approve", KEY)
    story.command(order, f"tool:{KEY}")
    assert approval(story, KEY) is None
    story.command("tool.restore", f"tool:{KEY}")
    story.fails(KEY, times=3)
    assert approval(story, KEY) is None


def test_only_what_asks_can_be_approved() -> None:
    """A trusted, a blocked and an unknown key are left as they are."""
    story = Story().works(KEY)
    story.command("trust.approve", KEY)
    story.command("trust.approve", "nothing")
    assert story.state_of("trust", KEY) is None
    assert story.state_of("trust", "nothing") is None
    story.command("tool.remove", f"tool:{KEY}")
    story.command("trust.approve", KEY)
    assert approval(story, KEY) is None


def test_a_later_approval_takes_the_place_of_an_earlier_one() -> None:
    """One call may pass, however often it is approved."""
    story = Story().fails(KEY, times=3)
    story.command("trust.approve", KEY)
    first = approval(story, KEY)
    story.command("trust.approve", KEY)
    assert approval(story, KEY) not in {None, first}


def test_an_approval_of_a_session_is_not_used_up() -> None:
    """It stays until the state changes, and goes with it; services hold it for their tools, too."""
    story = Story().fails(KEY, times=3).fails("bash", RM, times=3)
    for key in (KEY, "tool:bash"):
        story.command("trust.approve", key, session_id="s7")
    given = approval(story, KEY)
    story.finished(story.started(KEY, {}, approvals=[given]), KEY)
    for key in (KEY, RM_KEY):
        state = story.state_of("trust", key)
        assert state is not None
        assert state["approval_session_id"] == "s7"
    story.command("trust.recover", KEY)
    story.fails(KEY, times=3)
    state = story.state_of("trust", KEY)
    assert state is None or "approval_session_id" not in state
