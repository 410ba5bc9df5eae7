"""JSON with comments, changed in place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.integrations.json_text import drop, parse, put, set_member

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)
layouts = st.sampled_from([None, 2, 4, "\t"])


@given(objects, layouts)
def test_what_is_read_is_what_stands_there(value: dict[str, object], indent: int | str | None) -> None:
    """Every JSON text is read as `json` reads it."""
    assert parse(json.dumps(value, indent=indent)).value == value


@given(objects, layouts, values)
def test_put_and_drop_undo_each_other(value: dict[str, object], indent: int | str | None, element: object) -> None:
    """An element put into a new array and taken out with it leaves the value as it was."""
    value.pop("hooks", None)
    text = put(json.dumps(value, indent=indent), ["hooks", "PreToolUse"], element)
    assert parse(text).value == value | {"hooks": {"PreToolUse": [element]}}
    assert parse(drop(text, ["hooks"])).value == value
    twice = put(text, ["hooks", "PreToolUse"], "second")
    assert parse(drop(twice, ["hooks", "PreToolUse", 0])).value == value | {"hooks": {"PreToolUse": ["second"]}}


COMMENTED = """\
{
  // the model I like
  "model": "large-1", /* for now */
  "hooks": {
    "PreToolUse": [
      {"mine": true}, // keep
    ],
  },
}
"""


def test_comments_and_trailing_commas_stay() -> None:
    """What people wrote around their settings is there afterwards, character for character."""
    text = put(COMMENTED, ["hooks", "PreToolUse"], {"ours": 1})
    assert parse(text).value["hooks"]["PreToolUse"] == [{"mine": True}, {"ours": 1}]
    for comment in ("// the model I like", "/* for now */", "// keep"):
        assert comment in text
    text = drop(text, ["hooks", "PreToolUse", 1])
    assert parse(text).value == parse(COMMENTED).value
    assert "// keep" in text


def test_line_ends_and_marks_of_the_encoding_stay() -> None:
    """A file of another system keeps its line ends and its mark."""
    text = put('\ufeff{\r\n  "a": 1\r\n}\r\n', ["b"], 2)
    assert text == '\ufeff{\r\n  "a": 1,\r\n  "b": [\r\n    2\r\n  ]\r\n}\r\n'


def test_a_member_is_set_once() -> None:
    """A member that is there stays as it is."""
    assert parse(set_member("{}", "version", 1)).value == {"version": 1}
    assert set_member('{"version": 2}', "version", 1) == '{"version": 2}'


@pytest.mark.parametrize(
    "text", ["", "{", "[1,", '{"a" 1}', '{"a": }', "{a: 1}", '{"a": 1} x', "[" * 200, '{"a": 1, "a": 2}', '"\x01"']
)
def test_what_is_no_json_is_refused_with_its_line(text: str) -> None:
    """A file that cannot be read is not touched; the fault names the line."""
    with pytest.raises(ValueError, match=r"^line 1: "):
        parse(text)


def test_something_else_on_the_way_is_refused() -> None:
    """Where an object or an array is needed and another value stands, nothing is overwritten."""
    for text in ("[]", '{"hooks": 1}', '{"hooks": {"PreToolUse": {}}}'):
        with pytest.raises(ValueError, match="is no"):
            put(text, ["hooks", "PreToolUse"], {})
