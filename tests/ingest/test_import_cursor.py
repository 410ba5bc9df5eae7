"""Transcripts of Cursor's agents as events."""

from __future__ import annotations

from import_kit import Events, imported, pairs, told
from session_logs import Record


def says(role: str, *parts: str | Record) -> Record:
    """A line of a transcript."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": role, "message": {"content": content}}


def asks(tool: str, **arguments: str) -> Record:
    """A call in a message."""
    return {"type": "tool_use", "name": tool, "input": arguments}


PROMPT = says("user", "<external_links>\n<b>news</b>\n</external_links>\n<user_query>\nfix it please\n</user_query>")
OVER = {"type": "turn_ended", "status": "success"}


def of(*records: Record, **defaults: str) -> Events:
    """Events of a transcript."""
    return imported("cursor", *records, **defaults)


def test_a_session() -> None:
    """What was said and called, in order, without times; the user's words are counted without contexts."""
    look = says("assistant", "I look.", asks("Read", path="a.py"), asks("Grep", pattern="x"))
    again = says("user", "<user_query>\nand now?\n</user_query>")
    events = of(PROMPT, look, says("assistant", "Done."), OVER, again)
    assert told(events, "words", "tool_name", "status", "message_id", ends=True) == [
        ("user.message", 3, None, None, None),
        ("model.text", None, None, None, None),
        ("tool_call.started", None, "Read", None, "line 2"),
        ("tool_call.started", None, "Grep", None, "line 2"),
        ("tool_call.finished", None, "Read", "cancelled", None),
        ("tool_call.finished", None, "Grep", "cancelled", None),
        ("model.text", None, None, None, None),
        ("turn.ended", None, None, None, None),
        ("user.message", 2, None, None, None),
        ("turn.ended", None, None, None, None),
    ]
    assert {e["session_id"] for e in events} == {"log"}
    assert events[0]["time"] == "2020-01-01T00:00:00.000Z"


def test_no_result_is_invented() -> None:
    """A call has ended when the model goes on; how it ended is unknown, so it is neutral."""
    events = of(PROMPT, says("assistant", asks("Write", path="a.py")), says("assistant", "Written."))
    assert pairs(events) == [({"path": "a.py"}, None)]
    ended = next(e for e in events if e["type"] == "tool_call.finished")
    assert (ended["error"], "duration_ms" in ended) == ({"type": "result_unavailable"}, False)


def test_a_model_that_goes_on_without_a_call_was_told_something() -> None:
    """Some versions leave the calls out: their messages are no monologue."""
    events = of(PROMPT, says("assistant", "I look."), says("assistant", "I see."), OVER)
    assert told(events, "source", "text", ends=True)[1:-1] == [
        ("model.text", None, "I look."),
        ("input.received", "client", None),
        ("model.text", None, "I see."),
    ]


def test_headings_in_bold_are_thoughts() -> None:
    """At the end of a text; bold words of a message stay in it."""
    events = of(
        PROMPT, says("assistant", "I look at `a`.\n\n**Planning the change**", "**Reading it**", "It is **done**")
    )
    assert told(events, "text", "thought", ends=True)[1:-1] == [
        ("model.text", "I look at `a`.", None),
        ("model.text", "**Planning the change**", True),
        ("model.text", "**Reading it**", True),
        ("model.text", "It is **done**", None),
    ]


def test_texts_without_a_query() -> None:
    """The user's, unless the client wrapped them."""
    events = of(says("user", "fix it"), says("user", "<system-reminder>\nbe brief\n</system-reminder>"))
    assert told(events, "words", "source")[:2] == [("user.message", 2, None), ("input.received", None, "client")]


def test_a_sub_agent_is_told_by_its_folder() -> None:
    """Its prompt is another agent's."""
    events = of(PROMPT, says("assistant", "Done."), file="/x/agent-transcripts/c1/subagents/c2.jsonl", source="c2")
    assert told(events, "agent_id", "source")[0] == ("input.received", "c2", "agent")
    assert told(of(PROMPT, file="/x/agent-transcripts/c1/c1.jsonl"), "agent_id")[0] == ("user.message", None)
