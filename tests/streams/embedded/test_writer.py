"""The one writer of a served store: shared commits, faults that reach everyone they concern, back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from scenarios import cli_command_failures
from story import Story
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded import writer as writer_module
from trustfold.streams.embedded.engine import CommitReceipt, EmbeddedEngine, SubmitRequest
from trustfold.streams.embedded.store import StoreError
from trustfold.streams.embedded.writer import EngineWriter, WriterBusy

LINES = [value for _, value in cli_command_failures().records]
T = TypeVar("T")


def run(path: Path, work: Callable[[EngineWriter], Awaitable[T]]) -> T:
    """Run something beside a writer over a new store."""

    async def whole() -> T:
        writer = EngineWriter(EmbeddedEngine.open(path / "store.sqlite", RuleSet()))
        writer.start()
        try:
            return await work(writer)
        finally:
            await writer.stop()

    return asyncio.run(whole())


def test_waiting_requests_share_a_commit(tmp_path: Path) -> None:
    """Requests that come while the engine is busy are committed together, each with its own receipt, in order."""

    async def work(writer: EngineWriter) -> tuple[list[CommitReceipt], int]:
        requests = [SubmitRequest("events", [line]) for line in LINES]
        receipts = await asyncio.gather(*(writer.submit(request) for request in requests))
        return receipts, writer.committed

    receipts, commits = run(tmp_path, work)
    assert [receipt.accepted for receipt in receipts] == [1] * len(LINES)
    assert [output.type for output in receipts[-1].outputs].count("trust.changed") == 1
    assert commits < len(LINES)


def test_urgent_requests_are_folded_before_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an agent waits for shares no commit with a publisher's backlog, and waits for one batch of it at most."""
    monkeypatch.setattr(writer_module, "MAX_BATCH_BYTES", 1)

    async def work(writer: EngineWriter) -> list[str]:
        order: list[str] = []

        async def submit(name: str, line: bytes, *, urgent: bool) -> None:
            await writer.submit(SubmitRequest("events", [line]), urgent=urgent)
            order.append(name)

        backlog = [asyncio.create_task(submit(f"{n}", line, urgent=False)) for n, line in enumerate(LINES[:4])]
        await asyncio.sleep(0)
        assert not writer.busy
        await submit("urgent", LINES[4], urgent=True)
        await asyncio.gather(*backlog)
        return order

    assert run(tmp_path, work)[:2] in (["urgent", "0"], ["0", "urgent"])


def test_a_fault_reaches_every_publisher_of_the_batch_and_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """When a commit fails each publisher in it hears so and the writer reports ill; with the cause gone, it goes on."""

    async def work(writer: EngineWriter) -> list[object]:
        connection = writer.engine._store.connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        await writer.call(lambda: connection.execute(f"PRAGMA max_page_count={pages}"))
        story = Story()
        story.event("model.text", text="x" * 500_000)
        request = SubmitRequest("events", [story.records[0][1]])
        failed = await asyncio.gather(writer.submit(request), writer.submit(request), return_exceptions=True)
        assert writer.fault is not None
        assert "disk is full" in writer.fault
        await writer.call(lambda: connection.execute("PRAGMA max_page_count=1000000"))
        receipt = await writer.submit(request)
        assert receipt.accepted == 1
        assert writer.fault is None
        return list(failed)

    assert [type(answer) for answer in run(tmp_path, work)] == [StoreError, StoreError]
    assert "a batch was not stored" in caplog.text


def test_too_much_waiting_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the room for waiting bytes a publisher is asked to come again; a single large request always fits."""
    monkeypatch.setattr(writer_module, "MAX_WAITING_BYTES", 10)

    async def work(writer: EngineWriter) -> list[object]:
        requests = [SubmitRequest("events", [line]) for line in LINES[:3]]
        return list(await asyncio.gather(*(writer.submit(one) for one in requests), return_exceptions=True))

    first, *others = run(tmp_path, work)
    assert isinstance(first, CommitReceipt)
    assert [type(answer) for answer in others] == [WriterBusy, WriterBusy]


def test_what_is_waiting_is_written_before_the_end(tmp_path: Path) -> None:
    """Stopping keeps what was already taken in."""

    async def work(writer: EngineWriter) -> list[asyncio.Task[CommitReceipt]]:
        tasks = [asyncio.create_task(writer.submit(SubmitRequest("events", [line]))) for line in LINES]
        await asyncio.sleep(0)
        return tasks

    tasks = run(tmp_path, work)
    assert [task.done() and task.result().accepted for task in tasks] == [1] * len(LINES)
    with EmbeddedEngine.open(tmp_path / "store.sqlite") as engine:
        types = [one.output.type for one in engine.views.decisions(["escalations"])]
        assert types == ["trust.changed", "trust.danger_noted"]


def test_old_records_are_forgotten_by_the_catalogue() -> None:
    """Every topic of the catalogue has a time from which its records are kept, in milliseconds before now."""
    kept = writer_module._kept_since(10**12)
    assert kept["events"] == 10**12 - 7 * 86_400_000
    assert kept["escalations"] == 10**12 - 30 * 86_400_000
    assert kept["state"] == 10**12 - writer_module.STATE_KEPT_MS
