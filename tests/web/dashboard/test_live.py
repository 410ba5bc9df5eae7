"""Telling open pages what has changed: joined, numbered, and ended with the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from dashboard_kit import dashboard, failures
from trustfold.web.dashboard import live
from trustfold.web.dashboard.current_state import StateBoard
from trustfold.web.dashboard.live import MAX_RING, MAX_STREAMS_OF_ONE, StreamHub


class Message:
    """A server-sent event, read."""

    def __init__(self, raw: bytes) -> None:
        """Read it."""
        fields = dict(line.split(": ", 1) for line in raw.decode().strip().split("\n") if ": " in line)
        self.event = fields.get("event", "heartbeat")
        self.id = fields.get("id", "")
        self.body: dict[str, int] = orjson.loads(fields.get("data", "{}"))


async def following(stream: AsyncIterator[bytes]) -> Message:
    """The next message."""
    async with asyncio.timeout(60):
        return Message(await anext(stream))


def run(scene: Any, monkeypatch: pytest.MonkeyPatch, *, pace: float = 0.0) -> None:
    """Play a scene with a hub."""
    monkeypatch.setattr(live, "PACE_S", pace)
    monkeypatch.setattr(live, "FLOOD_PACE_S", pace)
    monkeypatch.setattr(live, "LOOK_S", 0.0)

    async def play() -> None:
        await scene(StreamHub(StateBoard()))

    asyncio.run(play())


def test_a_page_hears_of_its_topics_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the stream says which topics somebody watches."""
    board = StateBoard()

    async def scene(_hub: StreamHub) -> None:
        hub = StreamHub(board)
        stream = hub.stream("me", frozenset({"now", "session:s1"}))
        assert (await following(stream)).event == "open"
        assert board.watched == Counter({"now": 1, "session:s1": 1})
        board.notify({"feed": 3})
        board.notify({"now": 2, "feed": 1})
        message = await following(stream)
        assert (message.event, message.body) == ("change", {"now": 2})
        await stream.aclose()  # type: ignore[attr-defined]
        assert not board.watched
        assert hub.streams == 0

    run(scene, monkeypatch)


def test_a_flood_becomes_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many changes come while a client reads nothing; what is kept for it does not grow."""

    async def scene(hub: StreamHub) -> None:
        stream = hub.stream("slow", frozenset({"now"}))
        await following(stream)
        hub.notify({"now": 1})
        assert (await following(stream)).body == {"now": 1}
        for _ in range(10 * MAX_RING):
            hub.notify({"now": 2})
        message = await following(stream)
        assert (message.event, message.body) == ("change", {"now": 20 * MAX_RING})

    run(scene, monkeypatch)


def test_a_client_that_missed_too_much_fetches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told so once, and goes on from there."""

    async def scene(hub: StreamHub) -> None:
        stream = hub.stream("slow", frozenset({"now"}))
        await following(stream)
        for _ in range(MAX_RING + 5):
            hub.notify({"now": 1})
            hub.mark  # noqa: B018 - others see each change by itself
        assert (await following(stream)).event == "resync"
        hub.notify({"now": 1})
        assert (await following(stream)).body == {"now": 1}

    run(scene, monkeypatch)


def test_a_client_that_comes_back_hears_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the id of the last message; of another start of the server, it fetches everything."""

    async def scene(hub: StreamHub) -> None:
        stream = hub.stream("me", frozenset({"now"}))
        last = (await following(stream)).id
        await stream.aclose()  # type: ignore[attr-defined]
        hub.notify({"now": 4})
        again = hub.stream("me", frozenset({"now"}), last)
        assert (await following(again)).event == "open"
        assert (await following(again)).body == {"now": 4}
        other = hub.stream("me", frozenset({"now"}), "dead-7")
        assert (await following(other)).event == "resync"

    run(scene, monkeypatch)


def test_nothing_is_lost_between_a_page_and_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says under which mark it was made, and the stream goes on from there."""

    async def scene(hub: StreamHub) -> None:
        hub.notify({"now": 1})
        mark = hub.mark
        hub.notify({"now": 3})
        stream = hub.stream("me", frozenset({"now"}), mark)
        assert (await following(stream)).event == "open"
        assert (await following(stream)).body == {"now": 3}

    run(scene, monkeypatch)


def test_what_nobody_reads_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without an open page remembers little of a million sessions; the next page fetches everything."""
    monkeypatch.setattr(live, "MAX_JOINED", 100)

    async def scene(hub: StreamHub) -> None:
        mark = hub.mark
        for number in range(1000):
            hub.notify({f"session:{number}": 1})
        assert sum(len(changes) for _, changes in hub._ring) <= 101
        stream = hub.stream("me", frozenset({"session:1"}), mark)
        await following(stream)
        assert (await following(stream)).event == "resync"

    run(scene, monkeypatch)


def test_messages_of_a_stream_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second change waits for its time, and carries all that came meanwhile."""

    async def scene(hub: StreamHub) -> None:
        stream = hub.stream("me", frozenset({"now"}))
        await following(stream)
        hub.notify({"now": 1})
        await following(stream)
        hub.notify({"now": 1})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await anext(stream)

    run(scene, monkeypatch, pace=3600)


def test_silence_is_broken_by_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the idle limits of proxies."""
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.01)

    async def scene(hub: StreamHub) -> None:
        stream = hub.stream("me", frozenset({"now"}))
        await following(stream)
        assert (await following(stream)).event == "heartbeat"

    run(scene, monkeypatch)


def test_one_client_cannot_take_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told why in words; others still get theirs."""

    async def scene(hub: StreamHub) -> None:
        streams = [hub.stream("greedy", frozenset({"now"})) for _ in range(MAX_STREAMS_OF_ONE)]
        for stream in streams:
            await following(stream)
        assert "close some" in (hub.refusal("greedy") or "")
        assert hub.refusal("other") is None
        await streams[0].aclose()  # type: ignore[attr-defined]
        assert hub.refusal("greedy") is None

    run(scene, monkeypatch)


def test_streams_that_are_asked_for_at_once_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are let in before the first has begun."""

    async def scene(hub: StreamHub) -> None:
        assert hub.refusal("greedy") is None
        streams = [hub.stream("greedy", frozenset({"now"})) for _ in range(MAX_STREAMS_OF_ONE + 5)]
        begun = [await anext(stream, None) for stream in streams]
        assert begun.count(None) == 5
        assert hub.streams == MAX_STREAMS_OF_ONE

    run(scene, monkeypatch)


def test_a_mark_that_is_no_number_of_ours_fetches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is."""

    async def scene(hub: StreamHub) -> None:
        boot = hub.mark.partition("-")[0]
        for number in ("9" * 5000, "-1", "x", ""):
            stream = hub.stream("me", frozenset({"now"}), f"{boot}-{number}")
            assert (await following(stream)).event == "resync", number[:9]
            await stream.aclose()  # type: ignore[attr-defined]

    run(scene, monkeypatch)


def test_the_streams_end_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a word, at once; new ones are refused."""

    async def scene(hub: StreamHub) -> None:
        stream = hub.stream("me", frozenset({"now"}))
        await following(stream)
        hub.stop()
        assert (await following(stream)).event == "bye"
        with pytest.raises(StopAsyncIteration):
            await following(stream)
        assert hub.refusal("me") == "the server stops"

    run(scene, monkeypatch)


def test_events_reach_the_pages_that_show_them(tmp_path: Path) -> None:
    """Through the whole server: states, decisions, and the session, if somebody looks at it."""
    with dashboard(tmp_path) as client:
        board = next(one.__self__.board for one in client.app.state.service.writer.heard)  # type: ignore[attr-defined]
        told: Counter[str] = Counter()
        board.listeners.append(told.update)
        client.post("/v1/events", content=failures("deploy", 1, session="s1"))
        assert "session:s1" not in told
        board.watched["session:s1"] += 1
        client.post("/v1/events", content=failures("deploy", 2, session="s1"))
        assert told["session:s1"] >= 1
        assert told["now"] >= 1
        assert told["tool:deploy"] >= 1
