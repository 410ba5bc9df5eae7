"""A final text that says that checks pass, although the last one failed (docs/detection.md)."""

from __future__ import annotations

import pytest
from story import Story

CLAIM = "All tests pass now, the work is done."


def checked(*, passes: bool, command: str = "pytest -q") -> Story:
    """A turn in which a check was run last."""
    story = Story()
    story.turn_starts()
    if passes:
        return story.works("bash", {"command": command}, result="12 passed")
    return story.fails("bash", {"command": command}, with_="validation", message="1 failed, 11 passed")


def claims(story: Story, text: str = CLAIM) -> Story:
    """The turn ends with a text."""
    story.says(text)
    story.turn_ends()
    return story


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("pytest -q", CLAIM),
        ("npm run build", "The build passes."),
        ("cargo test --all", "Done. All 14 tests are passing."),
        ("make check 2>&1 | tail -5", "Everything is in place, checks are green."),
        ("mvn -q test", "Fertig: alle Tests laufen jetzt erfolgreich durch."),
        ("vendor/bin/phpunit", "Terminé : tous les tests passent maintenant."),
        ("pytest -q", "修改完成 所有测试都已通过。"),
        ("npm test", "すべてのテストが成功しました。"),
    ],
)
def test_a_claim_after_a_failed_check(command: str, text: str) -> None:
    """Told when the turn ends, with the check that failed; a hint, and never more."""
    story = claims(checked(passes=False, command=command), text)
    assert story.patterns() == [("unproven_claim", "minor", 1)]
    nudge = story.decided("nudge.issued")
    assert nudge["nudge_type"] == "gentle"
    assert command.split(" 2>", maxsplit=1)[0] in nudge["message"]


def test_a_check_that_passed_proves_it() -> None:
    """The last one decides, whatever failed before."""
    assert claims(checked(passes=True)).patterns() == []
    story = (
        checked(passes=False).works("edit_file", {"path": "/a"}).works("bash", {"command": "pytest -q"}, result="ok")
    )
    assert claims(story).patterns() == []


def test_without_a_check_nothing_is_known() -> None:
    """And a command that fails is no check."""
    assert claims(Story()).patterns() == []
    assert claims(Story().fails("bash", {"command": "ls /nowhere"}, with_="not_found")).patterns() == []


@pytest.mark.parametrize(
    "text",
    [
        "The tests still fail in one place; the build passes otherwise.",
        "All tests pass except the one that was red before.",
        "Once all tests pass, I will push.",
        "The tests should all pass; please make sure that all tests pass.",
        "I could not get it to work.",
        "Not all tests pass.",
        "Sobald alle Tests erfolgreich sind, lade ich es hoch.",
        "如果所有测试都通过就提交。",
    ],
)
def test_a_doubt_or_a_condition_is_no_claim(text: str) -> None:
    """Who says what fails makes no false claim."""
    assert claims(checked(passes=False), text).patterns() == []


def test_a_claim_in_the_middle_of_the_work_is_none() -> None:
    """A call follows, and the turn goes on."""
    story = checked(passes=False)
    story.says(CLAIM)
    story.works("read_file", {"path": "/a"})
    story.turn_ends()
    assert story.patterns() == []


def test_a_user_message_ends_the_turn_as_well() -> None:
    """Of publishers that do not end their turns."""
    story = Story().fails("bash", {"command": "pytest -q"}, with_="validation", message="1 failed")
    story.says(CLAIM)
    story.user_says()
    assert story.found("unproven_claim") == [("minor", 1)]


def test_a_check_that_passes_clears_it() -> None:
    """In the next turn."""
    story = claims(checked(passes=False))
    story.turn_starts()
    story.works("bash", {"command": "pytest -q"}, result="12 passed")
    assert story.cleared() == ["unproven_claim"]
