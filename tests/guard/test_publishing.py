"""What leaves the process is valid JSON within its bounds, whatever callers fill in."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.guard import ToolGuard
from trustfold.guard.json_view import clean_text, is_big, json_form, json_view
from trustfold.guard.privacy import PrivacyFilter
from trustfold.guard.testing import guard_for_tests, published
from trustfold.schemas.codec import decode_event

HALF = "a\ud800b"
ODD: list[Any] = [
    HALF, "\x00", "\x1f", "x" * 5_000, "", 7, 2**70, float("nan"), float("-inf"), {1: "x", None: 2, (1, 2): 3},
    {HALF: HALF},
    [HALF, float("inf"), b"\xff"], object(), b"\xff", True, "ünïcode",
]  # fmt: skip
OPTIONS = (
    "call_id", "request_id", "workspace_id", "namespace", "actor_id", "user_id", "tenant_id", "agent_id",
    "correlation_id", "model", "model_tier", "scenario", "recursion_depth", "idempotency_key",
)  # fmt: skip


def all_are_events(guard: ToolGuard) -> list[dict[str, Any]]:
    """Everything that was published, read by the strict reader; nothing was lost on the way."""
    assert guard.publisher.lost == 0
    assert [decode_event(value) for value in guard.memory.published]
    return [orjson.loads(value) for value in guard.memory.published]


@given(
    st.dictionaries(st.sampled_from(OPTIONS), st.sampled_from(ODD), max_size=4),
    st.sampled_from([HALF, "t\x00", "tool"]),
    st.sampled_from([HALF, "s1", "s\x1f", "ü"]),
    st.dictionaries(st.sampled_from(["url", "command", "path", HALF, "x"]), st.sampled_from(ODD), max_size=4),
    st.sampled_from(ODD),
    st.booleans(),
)
def test_every_field_that_a_caller_fills_leaves_as_valid_json(
    options: dict[str, Any],
    name: str,
    session: str,
    args: dict[str, Any],
    said: Any,
    send: bool,
) -> None:
    """Half a surrogate pair, NaN, keys that are no strings, separators, ids of any type: the events get through."""

    async def tool(**_: Any) -> Any:
        if isinstance(said, str):
            raise RuntimeError(said)  # noqa: TRY004 - a tool's own words
        return said

    async def run() -> None:
        guard = guard_for_tests(send_args=send, send_errors=send)
        guard.register("tool", annotations={"title": HALF, "weight": float("nan"), "x": 2**70}, plugin_name=HALF)
        result = await guard.call(name, tool, args, session_id=session, **options)
        events = all_are_events(guard)
        assert events[-1]["type"] == "tool_call.finished"
        if result.attempts:
            assert {event["type"] for event in events} >= {"tool_call.started", "tool_call.finished"}

    asyncio.run(run())


@pytest.mark.parametrize("odd", [HALF, "\x00\x1f", "x" * 100_000, ""])
async def test_sessions_and_reports_leave_as_valid_json(odd: str) -> None:
    """Texts, reasons, reports, feedback and their contexts."""
    guard = guard_for_tests(send_args=True, send_errors=True)
    async with guard.session("s1", model=odd, user_id=odd, agent_id=odd) as session:
        session.user_message(odd)
        session.model_text(odd)
        session.false_alarm("o1", odd)
        session.report_failure("x", odd, domain=odd or None, context={odd: {1: float("nan"), (2,): object()}})
        session.report_failure("x", {"error": {"message": odd, "code": odd, "type": odd}})
        guard.on_permission_resolved("x", odd, True, odd, "s1")
        session.end(odd)
    kinds = [event["type"] for event in all_are_events(guard)]
    assert {"failure.reported", "feedback.false_alarm", "permission.resolved", "session.ended"} <= set(kinds)


async def test_a_big_result_is_digested_beside_the_loop() -> None:
    """The loop serves others meanwhile, and the finish is published before the caller has the result."""
    guard = guard_for_tests()
    where: list[int] = []
    digest = guard.publisher.digest_of

    def digest_of(output: Any) -> Any:
        where.append(threading.get_ident())
        return digest(output)

    guard.publisher.digest_of = digest_of  # type: ignore[method-assign]

    async def rows(n: int) -> Any:
        return [{"row": one} for one in range(n)]

    await guard.call("rows", rows, {"n": 20_000}, session_id="s1")
    assert published(guard, "tool_call.finished")[0]["result_size"] > 200_000
    await guard.call("rows", rows, {"n": 2}, session_id="s1")
    assert [one == threading.get_ident() for one in where] == [False, True]


def test_what_json_cannot_hold_is_described_by_kind_and_size() -> None:
    """Different values differ, equal ones do not, and nothing shows what an object hides."""

    class Secret:
        def __init__(self) -> None:
            self._value = "hunter2"

        def __repr__(self) -> str:
            return "hunter2"

    seen = json_view({"b": b"abc", "s": Secret(), "n": 2**5000, "f": float("nan"), 1: {2, 1}}, open_objects=False)
    assert seen == {"b": "<bytes 3>", "s": "<Secret>", "n": "<int 5001 bits>", "f": "nan", "1": [1, 2]}
    assert "hunter2" not in str(json_view(Secret()))
    assert json_form(2**70) != json_form(2**70 + 1)
    assert json_form(b"a")[1] != json_form(b"b")[1]
    plain = {"a": [1, 2.5, None, True, "ü"]}
    assert json_form(plain)[0] is plain


def test_text_is_made_valid_unicode() -> None:
    """Two halves of a pair become one character, a lone half the mark for what is lost."""
    assert clean_text("\ud83d\ude00") == "😀"
    assert clean_text("a\ud800b") == "a\ufffdb"
    assert clean_text("plain") == "plain"


@pytest.mark.parametrize(
    ("value", "big"),
    [
        ("x" * 70_000, True),
        (list(range(500)), False),
        (list(range(501)), True),
        ([list(range(250)), list(range(248))], False),
        ([list(range(250)), list(range(249))], True),
        ([["x" * 1000] * 10] * 10, True),
        ({"a": 1}, False),
        (b"x", False),
    ],
)
def test_what_counts_as_big(value: Any, *, big: bool) -> None:
    """Much text or many parts, at any depth."""
    assert is_big(value) is big


def test_a_published_error_message_has_at_most_five_hundred_characters() -> None:
    """Its beginning says what went wrong."""
    told = "it broke; " * 200
    assert PrivacyFilter(send_errors=True).message(told, {}) == told[:500]
