"""Converts rules of older file formats to the current one.

An older `reliability.json` has the trust tables at its top level. Existing files of prerequisites have a list under
`prerequisite_policies`, and thresholds under `pattern_detection`. All of them load unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .rules import BehaviourRules, SeverityLadder, TrustRules

Step = str | int

TRUST_FIELDS = frozenset(TrustRules.__struct_fields__)
_IGNORED = frozenset({"version", "persist_across_sessions", "max_history_entries"})
"""Fields of an older `reliability.json` about its own storage; ignored, as the log replaces it."""

_LONGEST_OVERDUE_MS = 86_399_999
"""Largest `calls.overdue_after_ms`: under its older name, `deadline_ms`, it could be up to a week."""

_LONGEST_WINDOW = 100
"""Largest `behaviour.window_steps`."""

_LOOKBACK_TURNS = 2
"""Number of turns that an older policy looks back by default."""

_POLICY_FIELDS = {
    "prerequisite_tool": "requires",
    "gated_tools": "before",
    "lookback_turns": "within_turns",
    "enabled": "enabled",
    "severity_thresholds": "severity_thresholds",
    "nudge_templates": "texts",
    "expected_action_template": "expected_action",
}
_PLACEHOLDERS = {"{prerequisite_tool}": "{required_tool}", "{violation_count}": "{count}"}
"""Placeholders of older texts, with their replacements."""

_LADDERS = {
    "repetitive_call_threshold": "repetitive_calls",
    "error_retry_threshold": "error_retry_loop",
    "introspection_loop_threshold": "introspection_loop",
    "max_reads_before_action": "reread",
}
_AS_THEY_ARE = ("enabled", "announce_phrases", "max_turn_duration_seconds")
_CLASSES = {"introspection_tool_names": "introspection", "read_only_tools": "read", "action_tools": "action"}


class RulesMisfit(ValueError):
    """Invalid value in a document of rules.

    Attributes:
        path: keys and positions of the value in the document; empty for the document as a whole.
        what: fault, and the valid values.
    """

    def __init__(self, path: tuple[Step, ...], what: str) -> None:
        super().__init__(path, what)
        self.path = path
        self.what = what

    def __str__(self) -> str:
        return f"{shown(self.path)}: {self.what}" if self.path else self.what


def shown(path: tuple[Step, ...]) -> str:
    """Format a path: `domain_rules.'api.x.com'.severity_filter[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step!r}" if "." in step else f".{step}"
    return text.removeprefix(".")


def moved(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with all values at their current paths.

    Raises:
        RulesMisfit: a value is set twice, or an older field has an invalid value.
    """
    rest = dict(document)
    for name, move in _MOVES.items():
        if name in rest:
            value = rest.pop(name)
            for path, found in move(value).items():
                _put(rest, path, found, name)
    for name in sorted(TRUST_FIELDS & rest.keys()):
        _put(rest, ("trust", name), rest.pop(name), name)
    return {name: value for name, value in rest.items() if name not in _IGNORED}


def _put(document: dict[str, Any], path: tuple[str, ...], value: Any, name: str) -> None:
    """Set a nested value without changing the caller's tables."""
    *above, last = path
    table = document
    for step in above:
        inner = table.get(step, {})
        if not isinstance(inner, Mapping):
            return  # the fault of that table is reported when the rules are built
        table[step] = dict(inner)
        table = table[step]
    if last in table:
        there = table[last]
        if path[0] == "trust" or not (isinstance(there, Mapping) and isinstance(value, Mapping)):
            raise _twice(name, path)
        for key in there.keys() & value.keys():
            raise _twice(name, (*path, key))
    table[last] = {**table.get(last, {}), **value} if isinstance(value, Mapping) else value


def _twice(name: str, path: tuple[str, ...]) -> RulesMisfit:
    if len(path) == 2 and path[1] == name:
        return RulesMisfit((), f"{name} is set at the top level and under {path[0]}; keep one of them")
    return RulesMisfit((), f"{name} and {shown(path)} say the same; keep one of them")


def _automatic(value: Any) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, bool):
        raise RulesMisfit((), f"enable_auto_recovery must be true or false, not {value!r}")
    return {("trust", "recovery_mode"): "auto" if value else "ask"}


def _policies(value: Any) -> dict[tuple[str, ...], Any]:
    top = "prerequisite_policies"
    if not isinstance(value, list):
        raise RulesMisfit((top,), "expected a list of policies")
    found: dict[str, Any] = {}
    for number, entry in enumerate(value):
        if not isinstance(entry, Mapping):
            raise RulesMisfit((top, number), "expected a policy: policy_id, prerequisite_tool, gated_tools")
        name = entry.get("policy_id")
        if not isinstance(name, str) or not name:
            raise RulesMisfit((top, number), "a policy needs a policy_id, which names it")
        if name in found:
            raise RulesMisfit((top, number, "policy_id"), f"there are two policies {name!r}; rename one of them")
        for field in entry:
            if field not in _POLICY_FIELDS and field != "policy_id":
                raise RulesMisfit(
                    (top, number, field), f"a policy has no such field; it has {', '.join(_POLICY_FIELDS)}"
                )
        for field in ("prerequisite_tool", "gated_tools"):
            if field not in entry:
                raise RulesMisfit((top, number), f"policy {name!r} needs {field}")
        gated = entry["gated_tools"]
        if not isinstance(gated, list) or not all(isinstance(tool, str) for tool in gated):
            raise RulesMisfit((top, number, "gated_tools"), f"expected a list of tool names, not {gated!r}")
        found[name] = {ours: entry[theirs] for theirs, ours in _POLICY_FIELDS.items() if theirs in entry}
        found[name].setdefault("within_turns", _LOOKBACK_TURNS)
        _read_texts(found[name], name)
    return {("policies",): found}


def _read_texts(policy: dict[str, Any], name: str) -> None:
    """Convert the texts of an older policy: by severity, alone or after the type of the nudge.

    With older placeholders.
    """
    if isinstance(texts := policy.get("texts"), Mapping):
        policy["texts"] = {
            severity: _convert_placeholders(text[-1] if isinstance(text, list) and text else text, name)
            for severity, text in texts.items()
        }
    if "expected_action" in policy:
        policy["expected_action"] = _convert_placeholders(policy["expected_action"], name)


def _convert_placeholders(text: Any, name: str) -> Any:
    if not isinstance(text, str):
        return text
    for theirs, ours in {**_PLACEHOLDERS, "{policy_id}": name}.items():
        text = text.replace(theirs, ours)
    return text


def _detection(value: Any) -> dict[tuple[str, ...], Any]:
    top = "pattern_detection"
    if not isinstance(value, Mapping):
        raise RulesMisfit((top,), "expected a table of thresholds")
    found: dict[tuple[str, ...], Any] = {}
    scaled: dict[str, int]
    classes: dict[str, str] = {}
    for name, setting in value.items():
        if name in _LADDERS:
            if type(setting) is not int or not 1 <= setting <= 100:
                raise RulesMisfit((top, name), f"must be a whole number from 1 to 100, not {setting!r}")
            scaled = _scaled(getattr(BehaviourRules(), _LADDERS[name]), setting)
            if name == "repetitive_call_threshold" and scaled["severe"] > BehaviourRules().window_steps:
                scaled["severe"] = found["behaviour", "window_steps"] = min(scaled["severe"], _LONGEST_WINDOW)
                scaled["moderate"] = min(scaled["moderate"], scaled["severe"])
            found["behaviour", _LADDERS[name]] = scaled
        elif name in _CLASSES:
            if not isinstance(setting, list) or not all(isinstance(tool, str) for tool in setting):
                raise RulesMisfit((top, name), "expected a list of tool names")
            classes |= dict.fromkeys(setting, _CLASSES[name])
        elif name in _AS_THEY_ARE:
            found["behaviour", name] = setting
        else:
            known = ", ".join((*_LADDERS, *_CLASSES, *_AS_THEY_ARE))
            raise RulesMisfit((top, name), f"there is no such threshold; there are {known}")
    return found | ({("tools", "classes"): classes} if classes else {})


def _scaled(ladder: SeverityLadder, minor: int) -> dict[str, int]:
    """Return the steps of a ladder that begins at another count with the same ratios."""
    steps = {"minor": ladder.minor, "moderate": ladder.moderate, "severe": ladder.severe}
    return {name: max(minor, round(step * minor / ladder.minor)) for name, step in steps.items() if step is not None}


def _calls(value: Any) -> dict[tuple[str, ...], Any]:
    old, new = "deadline_ms", "overdue_after_ms"
    if isinstance(value, Mapping) and old in value:
        if new in value:
            raise RulesMisfit(("calls", old), f"says the same as {new}; keep {new}")
        given = value[old]
        after = min(given, _LONGEST_OVERDUE_MS) if type(given) is int else given
        value = {**{name: one for name, one in value.items() if name != old}, new: after}
    return {("calls",): value}


_MOVES: dict[str, Callable[[Any], dict[tuple[str, ...], Any]]] = {
    "enable_auto_recovery": _automatic,
    "calls": _calls,
    "prerequisite_policies": _policies,
    "pattern_detection": _detection,
}
