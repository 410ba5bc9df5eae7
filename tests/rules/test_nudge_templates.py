"""Own nudge texts are checked when rules are loaded, not when a model is stuck."""

from __future__ import annotations

import msgspec
import pytest
from trustfold.rules.rules import NudgeRules, PrerequisitePolicy, RuleSet


def test_own_texts_may_use_every_placeholder() -> None:
    """And braces that are no placeholder stand as written."""
    texts = {"monologue.minor": '{tool_name} {count} {pattern} {seconds} {required_tool} {"a": 1} { count }'}
    assert NudgeRules(texts=texts).texts == texts


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"monologue.minor": "{tool}"}, ["monologue.minor", "{tool}", "{tool_name}", "{required_tool}"]),
        ({"monologue.minor": "{}"}, ["monologue.minor", "{tool_name}"]),
        ({"monolog.minor": "x"}, ["monolog.minor", "names no pattern", "monologue", "call_budget"]),
        ({"monologue.mild": "x"}, ["monologue.mild", "names no severity", "minor, moderate, severe"]),
        ({"monologue": "x"}, ["monologue", "names no severity", "monologue.SEVERITY"]),
    ],
)
def test_slips_are_refused_and_named(texts: dict[str, str], says: list[str]) -> None:
    """The key, what is wrong with it, and what would be right."""
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"nudges": {"texts": texts}}, RuleSet)
    assert all(word in str(refused.value) for word in says), str(refused.value)
    assert "$.nudges" in str(refused.value)


def test_a_policy_is_checked_too() -> None:
    """It needs tools to come before, and its own text follows the same rules."""
    with pytest.raises(msgspec.ValidationError, match="at least one tool in `before`"):
        msgspec.convert({"policies": {"p": {"requires": "a", "before": []}}}, RuleSet)
    with pytest.raises(msgspec.ValidationError, match=r"\{prerequisite_tool\}.*\{required_tool\}"):
        msgspec.convert(
            {"policies": {"p": {"requires": "a", "before": ["b"], "message": "{prerequisite_tool}"}}}, RuleSet
        )
    assert PrerequisitePolicy(requires="a", before=("b",), message="{required_tool} first").enabled
