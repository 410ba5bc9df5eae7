"""Tools that come too early, and tools that are named and not called (docs/detection.md)."""

from __future__ import annotations

import pytest
from fixed_rules import Policy, Rules
from story import Story
from trustfold.rules.older_shapes import RulesMisfit
from trustfold.rules.parser import overlaid

TEMPLATES = Policy(requires="list_templates", before=("write_file", "multi_*"), within_turns=2)


def ruled(policy: Policy = TEMPLATES, **rules: object) -> Story:
    """A session under one policy."""
    return Story(rules=Rules(policies={"templates": policy}, **rules))  # type: ignore[arg-type]


def test_each_violation_is_a_step_more_severe() -> None:
    """The first is a hint, the others guidance; the tools of one policy count together."""
    story = ruled()
    for number, tool in enumerate(("write_file", "multi_edit", "multi_write")):
        story.turn_starts()
        story.works(tool, {"path": f"/{number}"}, result=str(number))
    assert story.found("prerequisite_violated") == [("minor", 1), ("moderate", 2), ("severe", 3)]
    assert [kind for pattern, kind in story.nudges() if pattern == "prerequisite_violated"] == [
        "gentle", "direct", "direct",
    ]  # fmt: skip


def test_the_report_names_policy_and_tool() -> None:
    """At the start of the call, so that a platform can still stop it."""
    story = ruled()
    story.started("write_file", {"path": "/a"})
    report = story.decided("pattern.detected", pattern="prerequisite_violated")
    assert report["expected_action"] == "call list_templates first (policy templates)"
    assert report["tool_sequence"] == ["write_file"]
    assert "list_templates" in story.decided("nudge.issued")["message"]


def test_the_required_tool_may_come_in_the_same_turn() -> None:
    """Or still be in flight when the other starts."""
    story = ruled().works("list_templates").works("write_file", {"path": "/a"})
    assert story.patterns() == []
    story = ruled()
    story.started("list_templates")
    story.started("write_file", {"path": "/a"})
    assert story.patterns() == []


@pytest.mark.parametrize(("turns", "violations"), [(2, 0), (3, 1)])
def test_it_may_lie_some_turns_back(turns: int, violations: int) -> None:
    """At most `within_turns` of them."""
    story = ruled()
    story.turn_starts()
    story.works("list_templates")
    for _ in range(turns):
        story.turn_starts()
    story.works("write_file", {"path": "/a"})
    assert len(story.found("prerequisite_violated")) == violations


def test_anywhere_in_the_session() -> None:
    """Without `within_turns` once is enough."""
    story = ruled(Policy(requires="list_templates", before=("write_file",)))
    story.works("list_templates")
    for _ in range(50):
        story.turn_starts()
    story.user_says()
    assert story.works("write_file", {"path": "/a"}).patterns() == []


@pytest.mark.parametrize("status", ["error", "cancelled", "timeout"])
def test_a_failed_call_satisfies_nothing(status: str) -> None:
    """The required tool must have answered."""
    story = ruled()
    story.finished(story.started("list_templates"), "list_templates", status=status, result=None)
    story.works("write_file", {"path": "/a"})
    assert story.found("prerequisite_violated") == [("minor", 1)]


def test_other_tools_and_policies_switched_off_are_left_alone() -> None:
    """The policy is about the tools it names."""
    assert ruled().works("read_file", {"path": "/a"}).works("write", {"path": "/b"}).patterns() == []
    off = Policy(requires="list_templates", before=("*",), enabled=False)
    assert ruled(off).works("write_file", {"path": "/a"}).patterns() == []


def test_a_policy_about_every_tool_does_not_mean_its_own() -> None:
    """The required tool may come first."""
    story = ruled(Policy(requires="login", before=("*",))).works("login").works("write_file", {"path": "/a"})
    assert story.patterns() == []


def test_calling_the_required_tool_clears_it() -> None:
    """The nudge worked, and the next violation is the first again."""
    story = ruled(Policy(requires="list_templates", before=("write_file",), within_turns=1))
    story.works("write_file", {"path": "/a"}).works("list_templates")
    assert "prerequisite_violated" in story.cleared()
    assert [one["effective"] for one in story.all("nudge.judged")] == [True]
    for _ in range(2):
        story.turn_starts()
    story.works("write_file", {"path": "/b"}, result="b")
    assert story.found("prerequisite_violated") == [("minor", 1), ("minor", 1)]


def test_the_violation_itself_is_no_progress_out_of_it() -> None:
    """A successful write is what the policy is about, not its end."""
    story = ruled().works("write_file", {"path": "/a"})
    assert story.cleared() == []


def test_a_policy_may_bring_its_own_text() -> None:
    """With the same placeholders."""
    story = ruled(
        Policy(requires="list_templates", before=("write_file",), message="{required_tool} before {tool_name}!")
    )
    story.works("write_file", {"path": "/a"})
    assert story.decided("nudge.issued")["message"] == "list_templates before write_file!"


# --- tool_avoidance -----------------------------------------------------------------------------------------------


def known(tool: str) -> Story:
    """A session in which the tool has been called once."""
    return Story().works(tool, {"q": 0})


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("run_tests", "I'll use run_tests to check this."),
        ("runTests", "Let me call `runTests` now."),
        ("Bash", "I'll use the Bash tool for that."),
        ("bash", "Let me run it; I'm going to call `bash`."),
    ],
)
def test_a_tool_that_is_named_and_not_called(tool: str, text: str) -> None:
    """Two, three and four announcements, with other calls between."""
    story = known(tool)
    for number in range(4):
        story.says(text)
        story.works("read_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("tool_avoidance") == [("minor", 2), ("moderate", 3), ("severe", 4)]
    assert story.decided("pattern.detected", pattern="tool_avoidance")["expected_action"] == f"call {tool}"


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("run_tests", "The function run_tests is defined in the helper."),
        ("run_other", "I'll use run_tests to check this."),
        ("Edit", "Let me Edit the next file now."),
        ("Bash", "Let me add a test for the Bash tool filtering."),
        ("run_tests", "I'll look at src/run_tests/helper.py next."),
    ],
)
def test_what_is_no_intention_to_call_a_tool(tool: str, text: str) -> None:
    """Talk about a tool, other tools, ordinary words, paths."""
    story = known(tool)
    for number in range(4):
        story.says(text)
        story.works("read_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("tool_avoidance") == []


def test_calling_it_ends_it() -> None:
    """Whatever comes of the call."""
    story = known("run_tests")
    for _ in range(2):
        story.says("I'll use run_tests to check this.")
    story.fails("run_tests", {"q": 1})
    assert "tool_avoidance" in story.cleared()
    story.says("I'll use run_tests to check this.")
    assert story.found("tool_avoidance") == [("minor", 2)]


def test_publishers_may_say_which_tools_are_named() -> None:
    """With private texts, in any language, for tools that were never called here."""
    story = Story()
    for number in range(2):
        story.event("model.text", text_digest=f"d{number}", announces=True, mentions=["deploy"])
        story.works("read_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("tool_avoidance") == [("minor", 2)]


def test_a_tool_that_does_not_exist_cannot_be_avoided() -> None:
    """Naming what was answered with "no such tool" is not avoidance."""
    story = Story().fails("run_tests", message="No such tool available: run_tests")
    for _ in range(3):
        story.says("I'll use run_tests to check this.")
    assert story.found("tool_avoidance") == []


def test_a_violated_policy_names_its_tool() -> None:
    """Twice told, still not called."""
    story = ruled()
    for number in range(2):
        story.works("write_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("tool_avoidance") == [("minor", 2)]


def own_ladder(**policy: object) -> Story:
    """A policy with thresholds or texts of its own."""
    given = {"requires": "plan", "before": ["write_file"], **policy}
    return Story(rules=overlaid(Rules(), {"policies": {"plan first": given}}))


def violate(story: Story, times: int) -> Story:
    """Calls that come too early, each another."""
    for number in range(times):
        story.works("write_file", {"n": number}, result=str(number))
    return story


def test_a_policy_may_have_a_ladder_of_its_own() -> None:
    """Thresholds count the violations before this one: minor at the second, severe at the fourth."""
    story = violate(own_ladder(severity_thresholds={"minor": 1, "moderate": 2, "severe": 3}), 4)
    assert story.found("prerequisite_violated") == [("minor", 2), ("moderate", 3), ("severe", 4)]


def test_what_a_policys_ladder_leaves_out_keeps_its_default() -> None:
    """Where several hold, the highest counts: severe at once hides the others."""
    story = violate(own_ladder(severity_thresholds={"severe": 9}), 10)
    assert story.found("prerequisite_violated") == [("minor", 1), ("moderate", 2), ("severe", 10)]
    story = violate(own_ladder(severity_thresholds={"severe": 0}), 1)
    assert story.found("prerequisite_violated") == [("severe", 1)]


def test_a_policys_ladder_is_its_own_alone() -> None:
    """Another policy that is violated by the same calls rises as usual."""
    policies = {
        "lenient": {"requires": "plan", "before": ["write_file"], "severity_thresholds": {"minor": 2}},
        "usual": {"requires": "review", "before": ["write_file"]},
    }
    story = violate(Story(rules=overlaid(Rules(), {"policies": policies})), 1)
    assert story.found("prerequisite_violated") == [("minor", 1)]
    assert "review" in story.decided("pattern.detected", pattern="prerequisite_violated")["expected_action"]


def test_a_policy_may_have_texts_of_its_own() -> None:
    """By severity, before its one message and before the shipped texts; and what it expects."""
    story = own_ladder(
        texts={"minor": "First {required_tool}, please."},
        message="{required_tool} comes before {tool_name}.",
        expected_action="call {required_tool}, then {tool_name} again",
    )
    violate(story, 2)
    assert [one["message"] for one in story.all("nudge.issued", pattern="prerequisite_violated")] == [
        "First plan, please.",
        "plan comes before write_file.",
    ]
    found = story.decided("pattern.detected", pattern="prerequisite_violated")
    assert found["expected_action"] == "call plan, then write_file again"


@pytest.mark.parametrize("field", [{"texts": {"minor": "{toll}"}}, {"expected_action": "{toll}"}])
def test_a_policys_text_with_a_placeholder_that_nothing_fills_is_refused(field: dict[str, object]) -> None:
    """When it is loaded, not when a model is stuck."""
    with pytest.raises(RulesMisfit, match=r"placeholder \{toll\}"):
        own_ladder(**field)


@pytest.mark.parametrize(("others", "found"), [(7, [("minor", 2)]), (8, [])])
def test_the_latest_eight_tools_that_were_named_are_remembered(others: int, found: list[tuple[str, int]]) -> None:
    """A tool named before them is named for the first time again."""
    story = Story()
    for tool in ("read_file", *(f"tool_{number}" for number in range(others)), "read_file"):
        story.event("model.text", mentions=[tool])
    assert story.found("tool_avoidance") == found
