"""Rules from text: older shapes, partial tables, and faults that name their line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from trustfold.errors import ConfigError
from trustfold.rules.parser import RulesDocument
from trustfold.rules.rules import READ_ONLY_POLICY, PrerequisitePolicy, RuleSet, SeverityLadder
from trustfold.rules.text_positions import line_of
from trustfold.schemas.vocabulary import PatternSeverity, ToolClass


def rules_of(text: str, name: str = "rules.toml") -> RuleSet:
    """The rules that a text makes of the shipped ones."""
    return RulesDocument(name, text, suffix=Path(name).suffix).over(RuleSet())


def fault(text: str, name: str = "rules.toml") -> str:
    """What is said of a text that cannot be used."""
    with pytest.raises(ConfigError) as raised:
        rules_of(text, name)
    return str(raised.value)


def test_a_table_names_only_what_it_changes() -> None:
    """Half a ladder, one number of a shipped policy: the rest stays as it is."""
    rules = rules_of("[behaviour.repetitive_calls]\nsevere = 9\n[breakers.read_only]\nopen_s = 5\n")
    assert rules.behaviour.repetitive_calls == structs.replace(RuleSet().behaviour.repetitive_calls, severe=9)
    assert rules.breakers.read_only == structs.replace(READ_ONLY_POLICY, open_s=5)


OLDER_POLICIES = """{
  "version": 1,
  "prerequisite_policies": [
    {
      "policy_id": "template_check",
      "prerequisite_tool": "listAvailableTemplates",
      "gated_tools": ["writeNewFile", "updateFile"],
      "lookback_turns": 3,
      "severity_thresholds": {"minor": 1, "severe": 4},
      "nudge_templates": {"minor": ["direct", "Call {prerequisite_tool} first."], "severe": "Stop."},
      "expected_action_template": "{prerequisite_tool}, then {tool_name}"
    },
    {"policy_id": "plan", "prerequisite_tool": "createPlan", "gated_tools": ["updateStep"]}
  ]
}"""


def test_older_policy_files_load_unchanged() -> None:
    """The list of policies in use elsewhere; without a lookback it is two turns."""
    assert rules_of(OLDER_POLICIES, "policies.json").policies == {
        "template_check": PrerequisitePolicy(
            requires="listAvailableTemplates",
            before=("writeNewFile", "updateFile"),
            within_turns=3,
            severity_thresholds={PatternSeverity.MINOR: 1, PatternSeverity.SEVERE: 4},
            texts={PatternSeverity.MINOR: "Call {required_tool} first.", PatternSeverity.SEVERE: "Stop."},
            expected_action="{required_tool}, then {tool_name}",
        ),
        "plan": PrerequisitePolicy(requires="createPlan", before=("updateStep",), within_turns=2),
    }


def test_policies_in_our_own_form_say_the_same() -> None:
    """A table a policy, in TOML; globs stand for several tools."""
    found = rules_of('[policies.plan]\nrequires = "createPlan"\nbefore = ["update*"]\nwithin_turns = 2\n').policies
    assert found == {"plan": PrerequisitePolicy(requires="createPlan", before=("update*",), within_turns=2)}


def scaled(ladder: SeverityLadder, minor: int) -> SeverityLadder:
    """A ladder that begins elsewhere, with steps in the same proportion."""
    moderate, severe = (round(step * minor / ladder.minor) for step in (ladder.moderate, ladder.severe))
    return SeverityLadder(minor=minor, moderate=moderate, severe=severe)


def test_older_thresholds_become_ladders_and_classes() -> None:
    """A threshold moves the first step, and the others with it; lists of tools become their classes."""
    introspection = RuleSet().behaviour.introspection_loop
    rules = rules_of(
        '{"pattern_detection": {"repetitive_call_threshold": 6, "enabled": false,'
        f' "introspection_loop_threshold": {introspection.minor},'
        ' "max_turn_duration_seconds": 120.0,'
        ' "read_only_tools": ["glob"], "action_tools": ["writeFile"]}}',
        "policies.json",
    )
    assert rules.behaviour.repetitive_calls == scaled(RuleSet().behaviour.repetitive_calls, 6)
    assert rules.behaviour.introspection_loop == introspection
    assert rules.tools.classes == {"glob": ToolClass.READ, "writeFile": ToolClass.ACTION}
    assert not rules.behaviour.enabled
    assert rules.behaviour.max_turn_duration_seconds == 120


FAULTS = [
    (
        "r.toml",
        "[trust.default_rule]\ncount_threshold = 3\n\n[trust.tool_rules.'my tool']\ncount_treshold = 1\n",
        "r.toml:5: trust.tool_rules.my tool.count_treshold: there is no such rule; did you mean 'count_threshold'?",
    ),
    (
        "r.toml",
        "# a comment\n[behaviour.repetitive_calls]\nminor = 7\nmoderate = 4\nsevere = 6\n",
        "r.toml:2: behaviour.repetitive_calls: steps must rise: minor 7 <= moderate 4 <= severe 6",
    ),
    ("r.toml", "[nudges]\nlevel =\n  'loud'\n", "r.toml: not TOML: Invalid value (at line 2, column 8)"),
    (
        "r.toml",
        "[nudges]\nenabled = 'yes'\n",
        'r.toml:2: nudges.enabled: must be true or false, not the text "yes"',
    ),
    (
        "r.json",
        '{\n  "domain_rules": {\n    "a": {},\n    "api.x.com": {\n      "count_threshold": 0\n    }\n  }\n}',
        "r.json:5: domain_rules.'api.x.com'.count_threshold: must be a whole number from 1 to 100, or \"off\" (nul",
    ),
    (
        "r.json",
        '{"trust":\n {"tool_rules": {"bash":\n {"severity_filter": ["crash",\n "boom"]}}}}',
        "r.json:4: trust.tool_rules.bash.severity_filter[1]: must be one of transient, ",
    ),
    (
        "r.toml",
        "[quality.by_cause]\ncrsh = 'low'\n",
        "r.toml:1: quality.by_cause: 'crsh' is no name here; it must be one of transient, ",
    ),
    (
        "r.toml",
        "[quality.by_cause]\ncrash = 'lo'\n",
        'r.toml:2: quality.by_cause.crash: must be one of low, medium, high, or "off" (null in JSON), not the t',
    ),
    ("r.json", "{\n  'a': 1}", "r.json: not JSON: Expecting property name enclosed in double quotes: line 2 column 3"),
    (
        "p.json",
        '{"pattern_detection": {\n"repetitive_call_threshold": 0}}',
        "p.json:2: pattern_detection.repetitive_call_threshold: must be a whole number from 1 to 100, not 0",
    ),
    ("p.json", '{"pattern_detection": "invalid"}', "p.json:1: pattern_detection: expected a table of thresholds"),
    (
        "p.json",
        (
            '{"prerequisite_policies": [\n{"policy_id": "a", "prerequisite_tool": "x", "gated_tools": ["y"]},\n'
            '{"policy_id": "b",\n"gated_tools": ["y"]}]}'
        ),
        "p.json:3: prerequisite_policies[1]: policy 'b' needs prerequisite_tool",
    ),
    (
        "p.toml",
        (
            "[[prerequisite_policies]]\npolicy_id = 'a'\nprerequisite_tool = 'x'\ngated_tools = ['y']\n"
            "[[prerequisite_policies]]\npolicy_id = 'a'\nprerequisite_tool = 'x'\ngated_tools = ['y']\n"
        ),
        "p.toml:6: prerequisite_policies[1].policy_id: there are two policies 'a'; rename one of them",
    ),
    (
        "p.toml",
        "[policies.plan]\nrequires = 'plan'\nbefore = []\n",
        "p.toml:1: policies.plan: a policy that requires 'plan' must name at least one tool in `before`",
    ),
    (
        "p.json",
        (
            '{"policies": {"a": {"requires": "x", "before": ["y"]}}, "prerequisite_policies": '
            '[{"policy_id": "a", "prerequisite_tool": "x", "gated_tools": ["y"]}]}'
        ),
        "p.json: prerequisite_policies and policies.a say the same; keep one of them",
    ),
]


@pytest.mark.parametrize(("name", "text", "said"), FAULTS, ids=[said[:40] for _, _, said in FAULTS])
def test_faults_name_line_field_and_fix(name: str, text: str, said: str) -> None:
    """File, line and field of the fault, in the words of the file, and what would be right."""
    assert fault(text, name).startswith(said)


def test_a_policies_file_holds_policies() -> None:
    """Other rules in it are refused, so that nobody looks for them there."""
    document = RulesDocument(
        "p.toml", "[policies.a]\nrequires='x'\nbefore=['y']\n[nudges]\nlevel='off'\n", suffix=".toml"
    )
    with pytest.raises(ConfigError, match=r"p.toml:4: nudges: a policies file holds policies and nothing else"):
        document.only_policies()


_KEYS = st.text("ab .\"'\\\n", min_size=1, max_size=4)
_DOCUMENTS = st.recursive(
    st.integers() | st.text(max_size=6) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(_KEYS, _DOCUMENTS, min_size=1, max_size=4))
def test_every_value_of_a_json_document_has_the_line_it_stands_on(document: dict[str, object]) -> None:
    """Pretty-printed, a key stands on a line of its own; that line is found for each path of one step."""
    text = json.dumps(document, indent=1)
    lines = text.splitlines()
    for key in document:
        line = line_of(text, (key,), as_json=True)
        assert line is not None
        assert lines[line - 1].startswith(f" {json.dumps(key)}:")


def test_places_in_toml_of_every_form() -> None:
    """Headers, quoted and dotted keys, inline tables, values over several lines, arrays of tables."""
    text = """\
a.b = 1
[t."x y"]   # header
list = [
  1,
  2,
]
inline = {k = 1, m = {n = 2}}
text = \"\"\"
fake = 1
\"\"\"
last = true
[[rows]]
id = 1
[[rows]]
id = 2
[rows.sub]
deep = 3
"""
    places = {
        ("a", "b"): 1,
        ("t", "x y"): 2,
        ("t", "x y", "list", 1): 3,
        ("t", "x y", "inline", "m", "n"): 7,
        ("t", "x y", "text"): 8,
        ("t", "x y", "last"): 11,
        ("rows", 0, "id"): 13,
        ("rows", 1, "id"): 15,
        ("rows", 1, "sub", "deep"): 17,
        ("rows", 1, "sub", "unknown"): 16,
    }
    assert {path: line_of(text, path, as_json=False) for path in places} == places
    assert line_of(text, ("nowhere",), as_json=False) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[policies.a]\nbefore = ['x']", "policies.a: requires is missing"),
        ("[policies.a]\nrequires = ''\nbefore = ['x']", 'must be a text of 1 to 256 characters, not the text ""'),
        (
            "[policies.a]\nrequires = 'x'\nbefore = 'y'",
            "must be a list, each a text of 1 to 256 characters, not the text",
        ),
        ("[tools]\nkey_by = 'x'", 'must be one of family, args, not the text "x"'),
        ("[guarantees]\nmax_cost_usd = -1", "must be a number from 0 to 1000000000, not -1"),
        ("[breakers.tool]\nbackoff = 99", "must be a number from 1 to 16, not 99"),
        ("[models]\npreferred_models = [1]", "preferred_models[0]: must be a text, not 1"),
        ("[trust]\nmax_fine_keys = [1]", "must be a whole number from 1 to 1000000, not a list"),
        ("[nudges]\ntexts = 2020-01-01", "nudges.texts: must be a table, not"),
    ],
)
def test_faults_speak_of_values_and_not_of_types(text: str, said: str) -> None:
    """What may stand there and what stands there, in words that a person who writes rules uses."""
    assert said in fault(text, "r.toml")
    assert "`" not in fault(text, "r.toml")


def test_the_older_name_of_when_a_call_is_overdue() -> None:
    """`calls.deadline_ms` loads as `calls.overdue_after_ms`, a week as a day; both together are one too many."""
    assert RulesDocument("old.toml", "[calls]\ndeadline_ms = 60000\n").over(RuleSet()).calls.overdue_after_ms == 60_000
    week = RulesDocument("old.toml", "[calls]\ndeadline_ms = 604800000\n").over(RuleSet())
    assert week.calls.overdue_after_ms == 86_399_999
    with pytest.raises(ConfigError, match=r"old.toml:3: calls.deadline_ms: says the same as overdue_after_ms"):
        RulesDocument("old.toml", "[calls]\noverdue_after_ms = 1000\ndeadline_ms = 60000\n")


def test_a_ladder_beyond_its_window_is_refused() -> None:
    """It could never hold; the window, and what to do, are named. A ladder that is off may say what it likes."""
    for text in (
        "[behaviour]\nwindow_steps = 30\n[behaviour.repetitive_calls]\nminor = 3\nmoderate = 10\nsevere = 31\n",
        "[behaviour]\nwindow_steps = 6\n",
        "[behaviour.repetitive_calls_with_news]\nminor = 40\nmoderate = 50\nsevere = 60\n",
    ):
        with pytest.raises(ConfigError, match=r"but only the last \d+ steps \(window_steps\) are looked at"):
            rules_of(text, "mine.toml")
    assert rules_of("[behaviour]\nwindow_steps = 6\nrepetitive_calls_with_news = {enabled = false}\n", "mine.toml")
    assert rules_of("[behaviour]\nwindow_steps = 60\nrepetitive_calls = {severe = 60}\n", "mine.toml")


def test_an_older_threshold_beyond_the_window_brings_its_window() -> None:
    """Such files load unchanged."""
    behaviour = rules_of('{"pattern_detection": {"repetitive_call_threshold": 20}}', "old.json").behaviour
    wanted = scaled(RuleSet().behaviour.repetitive_calls, 20)
    assert (behaviour.repetitive_calls, behaviour.window_steps) == (wanted, wanted.severe)
    assert wanted.severe > RuleSet().behaviour.window_steps
    longest = rules_of('{"pattern_detection": {"repetitive_call_threshold": 100}}', "old.json").behaviour
    assert (longest.repetitive_calls, longest.window_steps) == (
        SeverityLadder(minor=100, moderate=100, severe=100),
        100,
    )
