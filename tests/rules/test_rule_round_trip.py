"""Rules as text and back: thresholds switched off, and `config show`, whose output loads again to the same rules."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT, Struct, inspect
from trustfold.rules.behaviour import PLACEHOLDERS
from trustfold.rules.merging import plain
from trustfold.rules.parser import RulesDocument, as_toml, overlaid
from trustfold.rules.rules import EscalationPatch, PrerequisitePolicy, QualityRules, RuleSet, SeverityLadder
from trustfold.schemas.vocabulary import FailureSeverity, PatternSeverity, PatternType

_WORDS = st.text(st.characters(codec="utf-8", exclude_characters="{}"), min_size=1, max_size=12)
_LADDERS = st.tuples(st.integers(2, 4), st.integers(0, 1), st.integers(0, 1)).map(
    lambda steps: {"minor": steps[0], "moderate": sum(steps[:2]), "severe": sum(steps)}
)
_TEXTS = st.dictionaries(
    st.builds("{}.{}".format, st.sampled_from(PatternType), st.sampled_from(PatternSeverity)),
    st.builds("{} {{{}}}".format, _WORDS, st.sampled_from(PLACEHOLDERS)),
    max_size=2,
)
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "NudgeRules.texts": _TEXTS,
    "CallRules.security_patterns": st.just([r"curl\b[^|]{0,200}\| *sh"]),
    "CallRules.risky_patterns": st.just([r"npm publish"]),
    "CallRules.security_allow": st.just([r"^rm -rf /tmp/"]),
    "BehaviourRules.window_steps": st.integers(20, 100),
    "FleetRules.failure_rate": st.floats(0.6, 1),
    "FleetRules.release_rate": st.floats(0.1, 0.5),
}
"""Fields with rules of their own."""


def loaded(text: str, suffix: str = ".toml") -> RuleSet:
    """The rules that a file with this text makes."""
    return RulesDocument(f"r{suffix}", text, suffix=suffix).over(RuleSet())


def values(node: Any) -> st.SearchStrategy[Any]:
    """Everything a document may hold at a place of this type."""
    match node:
        case inspect.UnionType():
            return st.one_of([values(kind) for kind in node.types])
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(node.ge or 0, min(node.le or 1000, 1000))
        case inspect.FloatType():
            least, most = node.ge if node.ge is not None else 0, min(node.le or 1000, 1000)
            return st.floats(least, most, exclude_min=node.gt is not None) | st.just(most)
        case inspect.EnumType():
            return st.sampled_from(node.cls).map(str)
        case inspect.LiteralType():
            return st.sampled_from(sorted(node.values))
        case inspect.StrType():
            return st.from_regex(node.pattern, fullmatch=True) if node.pattern else _WORDS
        case inspect.DictType():
            return st.dictionaries(values(node.key_type), values(node.value_type), max_size=2)
        case inspect.StructType():
            return patches(node.cls)
    assert isinstance(node, inspect.ListType | inspect.FrozenSetType | inspect.SetType | inspect.VarTupleType), node
    return st.lists(values(node.item_type), min_size=1, max_size=3)


def patches(kind: type[Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """Documents that set some fields of a group of rules."""
    if kind is SeverityLadder:
        return _LADDERS
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    fields = {field.name: _BY_NAME.get(f"{kind.__name__}.{field.name}", values(field.type)) for field in info.fields}
    needed = [field.name for field in info.fields if field.default is NODEFAULT and field.default_factory is NODEFAULT]
    return st.fixed_dictionaries(
        {name: fields[name] for name in needed}, optional={n: s for n, s in fields.items() if n not in needed}
    )


@given(patches(RuleSet))
def test_what_show_prints_loads_again_to_the_same_rules(patch: dict[str, Any]) -> None:
    """For any rules: as TOML, as TOML with every rule, and as JSON."""
    rules = overlaid(RuleSet(), patch)
    assert loaded(as_toml(rules)) == rules
    assert loaded(as_toml(rules, everything=True)) == rules
    shown = {"files": ["r.toml"], "environment": {}, "rules": plain(rules)}
    assert loaded(orjson.dumps(shown).decode(), ".json") == rules
    assert loaded(orjson.dumps(plain(rules)).decode(), ".json") == rules


def test_every_threshold_that_can_be_off_can_be_switched_off_in_toml() -> None:
    """TOML has no null; `"off"` stands for it, as `false` does."""
    for word in ('"off"', "false"):
        rules = loaded(
            f"""
            [default_rule]
            count_threshold = {word}
            [trust.tool_rules.bash]
            block_after = {word}
            [breakers.tool]
            rate_threshold = {word}
            [behaviour]
            max_turn_duration_seconds = {word}
            [quality.by_cause]
            crash = {word}
            """
        )
        assert rules.trust.default_rule == EscalationPatch(count_threshold=None)
        assert rules.trust.tool_rules["bash"] == EscalationPatch(block_after=None)
        assert rules.breakers.tool.rate_threshold is None
        assert rules.behaviour.max_turn_duration_seconds is None
        assert rules.quality.by_cause == QualityRules().by_cause | {FailureSeverity.CRASH: None}


def test_off_is_a_word_like_any_other_where_nothing_can_be_switched_off() -> None:
    """A tool, a text or a level of this name."""
    rules = loaded('[nudges]\nlevel = "off"\n[policies.p]\nrequires = "off"\nbefore = ["off"]\nenabled = false\n')
    assert rules.nudges.level == "off"
    assert rules.policies == {"p": PrerequisitePolicy(requires="off", before=("off",), enabled=False)}


@pytest.mark.parametrize("value", ['"no"', "0", "[]"])
def test_the_fault_says_how_a_threshold_is_switched_off(value: str) -> None:
    """Whoever tries something else is told the word."""
    with pytest.raises(Exception, match=r'r\.toml:1: .*whole number from 1 to 100, or "off" \(null in JSON\), not'):
        loaded(f"default_rule.count_threshold = {value}")


def test_a_fault_in_what_show_printed_as_json_names_its_line() -> None:
    """The document of `config show --json`, edited by hand."""
    text = '{"files": [],\n"environment": {},\n"rules": {"nudges": {\n"level": "loud"}}}'
    with pytest.raises(Exception, match=r"r\.json:4: rules\.nudges\.level: must be one of"):
        loaded(text, ".json")
