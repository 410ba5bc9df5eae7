"""The contract of guard backends (guard/backends/base.py), run over each of them (tests/support/backend_sides.py)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from backend_sides import SIDES, Side, session_of
from trustfold.guard.backends.base import GuardBackend
from trustfold.guard.metrics import EVENTS, GuardMetrics
from trustfold.rules.rules import BehaviourRules
from trustfold.schemas import events as ev
from trustfold.schemas.codec import decode_event, encode
from trustfold.schemas.commands import BreakerForceOpen
from trustfold.schemas.vocabulary import CallStatus
from waiting import wait_until

SECONDS = 30
"""Longest wait for the other side, on a busy machine; no test waits that long where the contract is kept."""


MARKS = {"kafka": pytest.mark.broker}
IMPLEMENTATIONS = [pytest.param(name, marks=MARKS.get(name, ())) for name in SIDES]


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """The other side of one implementation, shared by all tests: each has a session and a tool of its own."""
    made = SIDES[request.param](request, tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture
def remote(side: Side) -> Iterator[Side]:
    """A side that was left or not, and is back for the next test."""
    yield side
    side.come()


over_a_network = pytest.mark.parametrize(
    "side", [one for one in IMPLEMENTATIONS if SIDES[str(one.values[0])].remote], indirect=True
)


@pytest.fixture
def session() -> str:
    """Session of one test."""
    return f"s-{uuid4()}"


@asynccontextmanager
async def started(side: Side, metrics: GuardMetrics | None = None) -> AsyncIterator[GuardBackend]:
    """A backend that is connected, and is closed in the end."""
    backend = side.backend(metrics or GuardMetrics(), 1000)
    await backend.start(SECONDS)
    assert backend.connected
    try:
        yield backend
    finally:
        await backend.close()


def envelope(**fields: Any) -> dict[str, Any]:
    """Fields that every record has."""
    return {
        "schema_version": "1.0",
        "id": str(uuid4()),
        "time": datetime.now(UTC).replace(microsecond=0),
        "workspace_id": "w1",
        **fields,
    }


def message(session: str, text: str = "hello") -> ev.ModelText:
    """An event."""
    return ev.ModelText(**envelope(session_id=session, text=text))


def publish_repetitions(backend: GuardBackend, session: str) -> None:
    """So many equal calls that the folds answer with a nudge."""
    for _ in range(BehaviourRules().repetitive_calls.minor):
        call = {"session_id": session, "call_id": str(uuid4()), "tool_name": "read_file"}
        backend.publish(ev.ToolCallStarted(**envelope(**call), args=msgspec.Raw(b'{"path":"x"}')))
        backend.publish(ev.ToolCallFinished(**envelope(**call), status=CallStatus.SUCCESS, result_digest="d"))


def open_circuit(backend: GuardBackend, tool: str) -> None:
    """An operator's command, which the folds answer with a state."""
    order = envelope(key=f"tool:{tool}")
    backend.publish(BreakerForceOpen(**order | {"time": order["time"].isoformat()}))


def is_open(backend: GuardBackend, tool: str) -> bool:
    """Whether the view holds the circuit as open."""
    return backend.view.circuit("w1", f"tool:{tool}", 0) is not None


def arrived(side: Side, session: str, count: int = 1) -> list[bytes]:
    """Events of a session that have arrived, once so many have."""

    def enough() -> list[bytes]:
        found = [event for event in side.arrived() if session_of(event) == session]
        return found if len(found) >= count else []

    return wait_until(enough, timeout=SECONDS, what=f"{count} events of {session}")


def ids_of(events: list[bytes]) -> list[str]:
    """Ids of events."""
    return [decode_event(event).id for event in events]


async def until(backend: GuardBackend, holds: Callable[[], bool]) -> None:
    """Wait by `changed` alone: each wait would outlast this test if nothing woke it."""
    async with asyncio.timeout(SECONDS):
        while True:
            change = asyncio.ensure_future(backend.changed(10 * SECONDS * 1000))
            await asyncio.sleep(0)  # it waits before the look, so that no change falls between
            if holds():
                change.cancel()
                return
            await change


async def test_events_arrive_as_they_were_published(side: Side, session: str) -> None:
    """In order, of several kinds, with text of any script: what is decoded equals what was published."""
    call = {"session_id": session, "call_id": "c1", "tool_name": "read_file"}
    events = [
        ev.SessionStarted(**envelope(session_id=session, model="m1")),
        message(session, "grüße 😀 \u2028"),
        ev.ToolCallStarted(**envelope(**call), args=msgspec.Raw(b'{"path":"x","n":[1,2.5,null]}')),
        ev.ToolCallFinished(
            **envelope(**call), status=CallStatus.ERROR, error=ev.ErrorInfo(type="OSError", message="no")
        ),
        ev.SessionEnded(**envelope(session_id=session)),
    ]
    metrics = GuardMetrics()
    async with started(side, metrics) as backend:
        for event in events:
            backend.publish(event)
        assert await backend.flush(SECONDS)
    assert [encode(decode_event(value)) for value in arrived(side, session, len(events))] == list(map(encode, events))
    assert metrics.value(EVENTS, "published") == len(events)


async def test_a_record_that_cannot_be_sent_holds_up_no_other(side: Side, session: str) -> None:
    """It raises nothing, and is counted."""
    metrics = GuardMetrics()
    async with started(side, metrics) as backend:
        backend.publish(
            ev.ToolCallStarted(**envelope(session_id=session, call_id="c", tool_name="t"), annotations=object())
        )  # type: ignore[arg-type]
        backend.publish(after := message(session))
        assert await backend.flush(SECONDS)
    assert ids_of(arrived(side, session)) == [after.id]
    assert (metrics.value(EVENTS, "refused"), metrics.value(EVENTS, "published")) == (1, 1)


async def test_a_state_is_seen_and_wakes_who_waits(side: Side, session: str) -> None:
    """By the guard whose event caused it, and by every other one; a guard that starts later sees it at once."""
    async with started(side) as one:
        open_circuit(one, session)
        await until(one, lambda: is_open(one, session))
        if side.remote:
            async with started(side) as other:
                assert is_open(other, session)
                open_circuit(one, f"{session}-2")
                await until(other, lambda: is_open(other, f"{session}-2"))


async def test_a_decision_reaches_its_session_once(side: Side, session: str) -> None:
    """However often it is read, and nobody else."""
    async with started(side) as backend:
        heard: list[Any] = []
        elsewhere: list[Any] = []
        stop = backend.decisions.listen(session, heard.append)
        backend.decisions.listen(f"{session}-other", elsewhere.append)
        publish_repetitions(backend, session)
        await until(backend, lambda: bool(heard))
        side.repeat()
        backend.decisions.dispatch(heard[0])
        publish_repetitions(backend, f"{session}-other")
        await until(backend, lambda: bool(elsewhere))  # follows whatever was repeated
        assert [one.session_id for one in elsewhere] == [f"{session}-other"] * len(elsewhere)
        assert len({one.id for one in heard}) == len(heard)
        stop()
        before = len(heard)
        publish_repetitions(backend, session)
        publish_repetitions(backend, f"{session}-other")
        assert await backend.flush(SECONDS)
        assert len(heard) == before


async def test_closing_delivers_what_is_buffered(side: Side, session: str) -> None:
    """All of it, in order."""
    events = [message(session) for _ in range(50)]
    async with started(side) as backend:
        for event in events:
            backend.publish(event)
    assert ids_of(arrived(side, session, 50)) == [event.id for event in events]


@over_a_network
@pytest.mark.parametrize("turns", range(5))
async def test_closing_ends_at_whatever_moment(remote: Side, session: str, turns: int) -> None:
    """Also while an event is being taken up and nobody is there: no task outlives its cancellation."""
    remote.leave()
    backend = remote.backend(GuardMetrics(), 1000)
    await backend.start(0)
    backend.publish(message(session))
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS):
        await backend.close()


@over_a_network
async def test_who_is_away_at_the_start_gets_everything_later(remote: Side, session: str) -> None:
    """Nothing blocks or raises meanwhile; `start`, `changed` and `flush` come back in time, and `flush` says no."""
    remote.leave()
    backend = remote.backend(GuardMetrics(), 1000)
    await backend.start(0.05)
    assert not backend.connected
    events = [message(session) for _ in range(20)]
    for event in events:
        backend.publish(event)
    assert not await backend.flush(0.05)
    await backend.changed(1)
    remote.come()
    assert await backend.flush(SECONDS)
    assert ids_of(arrived(remote, session, 20)) == [event.id for event in events]
    await backend.close()


@over_a_network
async def test_who_leaves_is_noticed_and_waited_for(remote: Side, session: str) -> None:
    """The last view holds; events are kept, each arrives once; then the view goes on."""
    async with started(remote) as backend, started(remote) as other:
        open_circuit(backend, session)
        await until(backend, lambda: is_open(backend, session))
        remote.leave()
        backend.publish(first := message(session))
        async with asyncio.timeout(SECONDS):
            while backend.connected:  # noqa: ASYNC110 - a lost connection is no change of the view
                await asyncio.sleep(0.01)
        assert is_open(backend, session)
        backend.publish(second := message(session))
        assert not await backend.flush(0.05)
        remote.come()
        assert await backend.flush(SECONDS)
        assert ids_of(arrived(remote, session, 2)) == [first.id, second.id]
        open_circuit(other, f"{session}-2")
        async with asyncio.timeout(SECONDS):
            while not (backend.connected and is_open(backend, f"{session}-2")):
                await backend.changed(100)


@over_a_network
async def test_a_full_buffer_drops_the_oldest_and_counts(remote: Side, session: str) -> None:
    """The latest arrive; what is lost is counted, to the event."""
    remote.leave()
    metrics = GuardMetrics()
    backend = remote.backend(metrics, 3)
    await backend.start(0.05)
    events = [message(session) for _ in range(20)]
    for event in events:
        backend.publish(event)
    remote.come()
    assert await backend.flush(SECONDS)
    dropped = int(metrics.value(EVENTS, "dropped"))
    came = ids_of(arrived(remote, session, 20 - dropped))
    assert 3 <= len(came) <= 6  # the buffer's, and what was under way when it was full
    assert came[-3:] == [event.id for event in events[-3:]]
    assert sorted(came, key=[event.id for event in events].index) == came
    await backend.close()


def test_a_child_process_begins_anew(remote: Side, session: str) -> None:
    """It connects by itself with its first event; each process delivers its own, once."""
    with asyncio.Runner() as loop:
        remote.leave()
        backend = remote.backend(GuardMetrics(), 1000)
        loop.run(backend.start(0.05))
        backend.publish(parents := message(session))
        childs = message(session)
        child = os.fork()
        if child == 0:
            backend.after_fork()
            os._exit(0 if asyncio.run(delivers(backend, childs)) else 1)
        remote.come()
        try:
            assert loop.run(backend.flush(SECONDS))
        finally:
            assert os.waitpid(child, 0)[1] == 0
        expected = {parents.id, childs.id} if remote.remote else {parents.id}
        assert sorted(ids_of(arrived(remote, session, len(expected)))) == sorted(expected)
        loop.run(backend.close())


async def delivers(backend: GuardBackend, event: ev.EventBase) -> bool:
    """Whether a child publishes an event and is connected."""
    backend.publish(event)
    if not await backend.flush(SECONDS):
        return False
    async with asyncio.timeout(SECONDS):
        while not backend.connected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    return True
