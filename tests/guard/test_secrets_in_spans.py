"""Spans of guarded calls hold no secret: every kind planted in what a caller names and in what a tool answers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from secret_kinds import FEW
from trustfold.guard import ToolGuard
from trustfold.guard.testing import guard_for_tests


def shown_by(exporter: InMemorySpanExporter) -> str:
    """Names, attributes, events, links and status of all spans."""
    return "\n".join(
        repr(
            (
                span.name, dict(span.attributes or {}), span.status.description,
                [(event.name, dict(event.attributes or {})) for event in span.events],
                [dict(link.attributes or {}) for link in span.links], span.resource.attributes,
            )
        )
        for span in exporter.get_finished_spans()
    )  # fmt: skip


async def call_in_every_way(guard: ToolGuard, text: str) -> None:
    """Successes, failures that are tried again, errors in results, a cancelled wait; with a secret in each text."""
    kind = type(text, (ConnectionError,), {})

    def raises(**_: Any) -> None:
        raise kind(text)

    def is_cancelled(**_: Any) -> None:
        raise asyncio.CancelledError(text)

    def answers(**_: Any) -> dict[str, Any]:
        return {"error": {"code": text, "type": text, "message": text}, "error_type": text, "status_code": 500}

    guard.register("lookup", read_only=True)
    for function in (answers, raises, is_cancelled):
        for name in ("lookup", f"lookup {text}"[:200]):
            with contextlib.suppress(asyncio.CancelledError):
                await guard.call(
                    name, function, {"note": text, "password": "open-sesame"}, session_id=f"s {text}"[:200],
                    call_id=f"c {text}"[:200], idempotency_key=text, scenario=text, model=text[:200],
                )  # fmt: skip


async def test_spans_hold_no_secret(spans: InMemorySpanExporter) -> None:
    """Every kind, in names, ids, keys, arguments, exceptions, their types, and errors in results."""
    guard = guard_for_tests(tracing=True)
    for text, _ in FEW.values():
        await call_in_every_way(guard, text)
    shown = shown_by(spans)
    await guard.close()
    assert len(spans.get_finished_spans()) > 5 * len(FEW)
    assert shown.count("retry_delay") > 10
    leaked = [kind for kind, (_, secret) in FEW.items() if secret in shown or secret in shown.replace("\\\\", "\\")]
    assert leaked == []


async def test_what_is_secret_in_the_arguments_stands_on_no_span(spans: InMemorySpanExporter) -> None:
    """A password that looks like a word is known by its name in the arguments, wherever it is repeated."""
    guard = guard_for_tests(tracing=True)

    def answers(**_: Any) -> dict[str, Any]:
        return {"error": {"code": "open-sesame", "type": "open-sesame", "message": "open-sesame is wrong"}}

    def raises(**_: Any) -> None:
        raise type("open-sesame", (Exception,), {})("open-sesame")

    for function in (answers, raises):
        await guard.call(
            "login", function, {"password": "open-sesame"}, session_id="of open-sesame", call_id="open-sesame"
        )
    assert len(spans.get_finished_spans()) == 2
    assert "open-sesame" not in shown_by(spans)
    await guard.close()


async def test_a_wait_that_is_cut_off_leaves_no_message(spans: InMemorySpanExporter) -> None:
    """What ends the wait for a retry is not written on its span: its message may be anything."""
    guard = guard_for_tests(tracing=True)
    guard.register("lookup", read_only=True)

    async def breaks(_ms: float) -> None:
        raise RuntimeError("the password is open-sesame")

    guard.clock.sleep = breaks  # type: ignore[method-assign]

    def fails() -> None:
        raise ConnectionResetError

    with contextlib.suppress(RuntimeError):
        await guard.call("lookup", fails, session_id="s1")
    assert "retry_delay" in shown_by(spans)
    assert "open-sesame" not in shown_by(spans)
    await guard.close()
