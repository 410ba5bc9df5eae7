"""Pairing of starts and finishes: late, lone, repeated, reused and missing.

See docs/design/contracts.md#time-and-order.
"""

from __future__ import annotations

import orjson
from story import Story

TOOL = "search_api"


def outcomes(story: Story) -> list[dict[str, object]]:
    """Outcomes told to the tool stage."""
    return [orjson.loads(output.value) for output in story.outputs if output.type == "call.outcome" and output.value]


def test_a_repeated_event_changes_nothing() -> None:
    """The same lines again give no further output."""
    story = Story().fails(TOOL, times=3)
    before = len(story.outputs)
    story.records += story.records[:]
    assert len(story.outputs) == before


def test_a_second_finish_of_a_closed_call_is_a_duplicate() -> None:
    """Even under a new event id."""
    story = Story()
    call = story.started(TOOL)
    story.finished(call, TOOL)
    story.finished(call, TOOL, status="error", result=None)
    assert [one["verdict"] for one in outcomes(story)] == ["success"]


def test_call_ids_may_be_reused() -> None:
    """A finish belongs to the latest open start of its id."""
    story = Story()
    story.started(TOOL, {"q": 1}, call="same")
    story.started("other_tool", {"q": 2}, call="same")
    story.finished("same", "other_tool")
    story.finished("same", TOOL)
    assert [one["tool_name"] for one in outcomes(story)] == ["other_tool", TOOL]


def test_a_finish_without_a_start_is_folded_as_both() -> None:
    """A lone finish is usable; its late start opens nothing."""
    story = Story()
    story.finished("lone", TOOL, status="error", result=None)
    story.started(TOOL, call="lone", time="2026-01-05T09:59:00.000Z")
    story.after(minutes=11).user_says()
    assert [one["verdict"] for one in outcomes(story)] == ["failure"]


def test_a_lone_finish_does_not_swallow_a_later_call_of_its_id() -> None:
    """Ids are reused: a start that happened after the lone finish is a new call."""
    story = Story()
    story.finished("same", TOOL)
    story.after(60)
    story.started(TOOL, call="same")
    story.finished("same", TOOL, status="error", result=None)
    assert [one["verdict"] for one in outcomes(story)] == ["success", "failure"]


def test_more_calls_in_flight_than_are_remembered() -> None:
    """The oldest is forgotten: its finish counts alone, and the others still reach their deadlines."""
    story = Story()
    for number in range(257):
        story.started(TOOL, {"q": number}, call=f"k{number}", deadline_ms=3_000_000)
    story.finished("k0", TOOL, status="error", result=None)
    assert [one["severity"] for one in outcomes(story)] == ["server_error"]
    story.after(5000).tick()
    assert [one["severity"] for one in outcomes(story)].count("timeout") == 256


def test_equal_deadlines_fall_due_each_time() -> None:
    """A second call with the deadline of an earlier, finished one is closed as well."""
    story = Story()
    when = {"time": "2026-01-05T10:00:00.000Z", "deadline_ms": 600_000}
    story.started(TOOL, {"q": 1}, call="a", **when)
    story.event("tool_call.finished", call_id="a", tool_name=TOOL, status="success", time=when["time"])
    story.tick().started(TOOL, {"q": 2}, call="b", **when)
    story.after(minutes=30).tick()
    assert [one["verdict"] for one in outcomes(story)] == ["success", "failure"]


def test_a_missing_finish_becomes_a_timeout_at_its_deadline() -> None:
    """The session's next event reveals it: appended to the log, folded at the deadline, once."""
    story = Story()
    story.started(TOOL, call="lost", deadline_ms=60_000)
    story.after(minutes=5).user_says()
    appended = [output for output in story.outputs if output.type == "tool_call.finished"]
    assert len(appended) == 1
    assert orjson.loads(appended[0].value or b"")["status"] == "timeout"
    assert [(one["verdict"], one["severity"]) for one in outcomes(story)] == [("failure", "timeout")]


def test_tick_and_next_event_reveal_the_same() -> None:
    """Who notices a passed deadline makes no difference to what is decided."""

    def lost(*, tick: bool) -> list[bytes | None]:
        story = Story()
        for number in range(3):
            story.started(f"mcp_db_q{number}", call=f"lost{number}", deadline_ms=60_000 + number)
        story.after(minutes=5)
        if tick:
            story.tick()
        story.user_says()
        return [output.value for output in story.outputs if output.topic == "escalations"]

    assert lost(tick=True) == lost(tick=False) != []


def test_a_real_finish_after_the_timeout_is_a_duplicate() -> None:
    """The log has its answer already."""
    story = Story()
    story.started(TOOL, call="slow", deadline_ms=1000)
    story.after(60)
    story.finished("slow", TOOL)
    assert [one["verdict"] for one in outcomes(story)] == ["failure"]


def test_a_late_event_is_folded_at_the_stream_time() -> None:
    """A finish with an old clock counts now."""
    story = Story()
    call = story.started(TOOL)
    story.event("tool_call.finished", call_id=call, tool_name=TOOL, status="success", time="2026-01-05T09:00:00.000Z")
    assert outcomes(story)[0]["time_ms"] == int(story.now.timestamp() * 1000) - 2000


def test_our_own_timeout_is_recognised_however_late_it_is_read_back() -> None:
    """Behind a backlog the appended finish comes back when nothing recent remembers it, and changes nothing."""
    story = Story()
    story.started(TOOL, call="lost", deadline_ms=1000)
    story.after(60).user_says()
    [appended] = [output.value for output in story.outputs if output.type == "tool_call.finished"]
    for number in range(300):
        story.works("query_db", {"q": number}, result=str(number))
    before = len(outcomes(story))
    story.records.append(("events", appended or b""))
    assert len(outcomes(story)) == before


def test_raw_results_are_judged() -> None:
    """A truthy error, a status of 400 or more, isError and exit codes are failures; a null error is not."""
    story = Story()
    results = (
        {"error": "boom"},
        {"status_code": 503},
        {"isError": True, "content": []},
        {"exit_code": 2, "stderr": "x"},
        {"error": None, "data": 1},
        {"status_code": 200},
        "error: just text",
    )
    for result in results:
        story.works(TOOL, result=result)
    words = [one["verdict"] for one in outcomes(story)]
    assert words == ["failure"] * 4 + ["success"] * 3


def test_what_is_appended_after_the_largest_turn_can_be_read_back() -> None:
    """A publisher's turn may be the last that there is a number for; the finish that we append names a turn, too."""
    story = Story()
    story.event("turn.started", turn_index=2**53)
    story.turn_starts()
    story.started("bash", {"command": "x"}, deadline_ms=1000)
    story.after(seconds=5).tick()
    assert story.state().open_calls == []
