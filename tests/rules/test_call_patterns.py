"""Operators' own expressions are matched with foreign commands: they must take linear time."""

import pytest
from trustfold.rules.calls import CallRules


@pytest.mark.parametrize("field", ["security_patterns", "risky_patterns", "security_allow"])
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "is no regular expression"),
        ("(a+)+$", "more than linear time"),
        ("drop.*table", "any character"),
        ("(?:x|y?|z?){0,40}q", "too large to prove"),
    ],
)
def test_an_expression_that_could_stop_the_product_is_refused(field: str, pattern: str, reason: str) -> None:
    """The message names the expression, what is wrong and what to write."""
    with pytest.raises(ValueError, match=reason):
        CallRules(**{field: (pattern,)})


def test_usual_expressions_are_taken() -> None:
    """Words, bounded gaps, classes, anchors."""
    usual = ("drop database", r"rm\s+-rf\s+/", "^git push --force origin scratch$", "drop.{0,80}table", r"(?i)wipe \w+")
    assert CallRules(security_patterns=usual).security_patterns == usual
