"""The contract of dedupe stores, run over every one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from local_redis import PATIENT
from trustfold.guard.idempotency.memory import InMemoryDedupeStore
from trustfold.guard.idempotency.record import DedupeRecord, DedupeState, DedupeStore
from trustfold.guard.idempotency.redis import RedisDedupeStore
from trustfold.guard.idempotency.sqlite import SqliteDedupeStore
from trustfold.guard.testing import MovableClock

LONG = 60_000


class Stores:
    """Makes stores of one kind that share their keys, and lets their time pass."""

    def __init__(self, kind: str, url: str, file: Path) -> None:
        self.kind = kind
        self.url = url
        self.file = file
        self.prefix = f"trustfold-test:{uuid4()}:"
        self.clock = MovableClock()
        self.memory = InMemoryDedupeStore(clock=self.clock)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[DedupeStore]:
        """A store; the memory's is one and the same, for it belongs to its process."""
        if self.kind == "memory":
            yield self.memory
            return
        redis = self.kind == "redis"
        store = RedisDedupeStore.from_url(self.url, self.prefix, **PATIENT) if redis else SqliteDedupeStore(self.file)
        try:
            yield store
        finally:
            await store.close()

    async def passes(self, ms: int) -> None:
        """Let so much of the store's time pass."""
        if self.kind == "memory":
            self.clock.move(ms=ms)
            return
        ends = time.monotonic() + ms / 1000
        while time.monotonic() < ends:  # noqa: ASYNC110 - it has a clock of its own, and only that counts
            await asyncio.sleep(0.005)


@pytest.fixture(params=["memory", "redis", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Every kind of store."""
    url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    return Stores(request.param, url, tmp_path / "keys.sqlite")


def record(key: str = "k", holder: str = "h1", **fields: Any) -> DedupeRecord:
    """A record as a guard makes it."""
    return DedupeRecord(
        **{"key": key, "tool": "send", "state": DedupeState.INFLIGHT, "holder": holder, "params_digest": "p", **fields}
    )


def ended(claimed: DedupeRecord, state: DedupeState = DedupeState.DONE, **fields: Any) -> DedupeRecord:
    """The end of a run."""
    return msgspec.structs.replace(claimed, state=state, **{"payload": {"n": 1}, "kept": True, **fields})


async def test_one_of_many_gets_a_free_key(stores: Stores) -> None:
    """A hundred claims at once: one has it, the others see whose it is."""
    async with stores.one() as store, stores.one() as other:
        claims = await asyncio.gather(*((store, other)[n % 2].claim(record(holder=f"h{n}"), LONG) for n in range(100)))
        winners = [claim.record.holder for claim in claims if claim.mine]
        assert len(winners) == 1
        assert {claim.record.holder for claim in claims} == set(winners)
        assert {claim.record.state for claim in claims} == {DedupeState.INFLIGHT}


async def test_an_end_is_kept_for_its_time_and_no_longer(stores: Stores) -> None:
    """A finished run answers later claims until it expires; then the key is free."""
    async with stores.one() as store:
        claimed = (await store.claim(record(), LONG)).record
        assert await store.finish(ended(claimed), 200)
        later = await store.claim(record(holder="h2"), LONG)
        assert (later.mine, later.record.state, later.record.payload, later.record.kept) == (
            False, DedupeState.DONE, {"n": 1}, True,
        )  # fmt: skip
        await stores.passes(250)
        assert await store.get("k") is None
        assert (await store.claim(record(holder="h3"), LONG)).mine


async def test_a_dead_holder_frees_its_key(stores: Stores) -> None:
    """Without a sign of life the lease ends, and one other takes over; what the dead one says then does not count."""
    async with stores.one() as store:
        dead = (await store.claim(record(), 150)).record
        await stores.passes(200)
        claims = await asyncio.gather(*(store.claim(record(holder=f"n{n}"), LONG) for n in range(20)))
        assert sum(claim.mine for claim in claims) == 1
        assert not await store.extend(dead, LONG)
        assert not await store.finish(ended(dead), LONG)
        now = await store.get("k")
        assert (now.state, now.holder[0]) == (DedupeState.INFLIGHT, "n")


async def test_a_dead_holder_of_a_change_leaves_its_outcome_unknown(stores: Stores) -> None:
    """Nobody gets the key, those who wait are told, and what the holder says after all settles it."""
    async with stores.one() as store, stores.one() as other:
        dead = (await store.claim(record(change=True), 150)).record
        waiting = asyncio.create_task(other.wait("k", dead.version, 10_000))
        await asyncio.sleep(0)
        await stores.passes(200)
        told = await waiting
        late = await other.claim(record(holder="h2", change=True), LONG)
        assert (told.state, late.mine, late.record.state) == (DedupeState.UNKNOWN, False, DedupeState.UNKNOWN)
        assert not await store.extend(dead, LONG)
        assert await store.finish(ended(dead), LONG)
        assert (await other.claim(record(holder="h3", change=True), LONG)).record.payload == {"n": 1}


async def test_an_unknown_outcome_is_settled_once(stores: Stores) -> None:
    """Of two who settle it one succeeds, also where the change was not made and the key becomes free."""
    async with stores.one() as store, stores.one() as other:
        held = (await store.claim(record(change=True), LONG)).record
        assert await store.finish(ended(held, DedupeState.UNKNOWN, payload=None, kept=False), LONG)
        unknown = await other.get("k")
        assert unknown.state is DedupeState.UNKNOWN
        assert await other.finish(ended(unknown, DedupeState.CANCELLED), LONG)
        assert not await store.finish(ended(unknown), LONG)
        assert (await store.claim(record(holder="h2", change=True), LONG)).mine


async def test_a_claim_whose_answer_was_lost_is_its_own(stores: Stores) -> None:
    """Who asks again for what it was given, is given it."""
    async with stores.one() as store, stores.one() as other:
        first = await store.claim(record(), LONG)
        again = await other.claim(record(), LONG)
        assert again.mine
        assert again.record.version == first.record.version


async def test_signs_of_life_keep_a_key(stores: Stores) -> None:
    """A holder that gives signs of life keeps its key beyond its first lease."""
    async with stores.one() as store:
        held = (await store.claim(record(), 200)).record
        for _ in range(3):
            await stores.passes(100)
            assert await store.extend(held, 200)
        assert not (await store.claim(record(holder="h2"), LONG)).mine
        assert await store.finish(ended(held), LONG)


async def test_an_end_is_final(stores: Stores) -> None:
    """A finished record changes no more: not by its own holder, not by another."""
    async with stores.one() as store:
        held = (await store.claim(record(), LONG)).record
        assert await store.finish(ended(held), LONG)
        assert not await store.finish(ended(held, payload={"n": 2}), LONG)
        assert not await store.extend(held, LONG)
        assert not await store.finish(ended(record(holder="thief"), payload={"n": 3}), LONG)
        now = await store.get("k")
        assert now.payload == {"n": 1}


@pytest.mark.parametrize(
    "changes", [{"state": DedupeState.CANCELLED}, {"state": DedupeState.FAILED, "transient": True}, {"transient": True}]
)
async def test_what_is_kept_for_nobody_leaves_the_key_free(stores: Stores, changes: dict[str, Any]) -> None:
    """A cancelled run and a transient end can be seen, but the next claim takes the key, in a later version."""
    async with stores.one() as store:
        held = (await store.claim(record(), LONG)).record
        assert await store.finish(ended(held, **changes), LONG)
        seen = await store.get("k")
        assert seen.state is changes.get("state", DedupeState.DONE)
        claim = await store.claim(record(holder="h2"), LONG)
        assert claim.mine
        assert claim.record.version > seen.version


async def test_waiting_ends_with_the_run(stores: Stores) -> None:
    """Fifty who wait see the end of the run that they waited for; who waits too short sees it run."""
    async with stores.one() as store, stores.one() as other:
        held = (await store.claim(record(), LONG)).record
        soon = asyncio.create_task(other.wait("k", held.version, 20))
        await asyncio.sleep(0)
        await stores.passes(20)
        short = await soon
        assert short.state is DedupeState.INFLIGHT
        waiting = [asyncio.create_task((store, other)[n % 2].wait("k", held.version, 10_000)) for n in range(50)]
        await asyncio.sleep(0)
        await store.finish(ended(held), LONG)
        for seen in await asyncio.gather(*waiting):
            assert (seen.state, seen.payload) == (DedupeState.DONE, {"n": 1})
        assert await store.wait("nobody", 1, 10_000) is None


async def test_a_record_comes_back_as_it_was(stores: Stores) -> None:
    """Errors, attempts and odd payloads survive the store."""
    async with stores.one() as store:
        held = (await store.claim(record(request_id="r1"), LONG)).record
        error = {"status": "error", "code": "400", "message": "no — ü", "retriable": False, "terminal": True}
        await store.finish(
            ended(held, DedupeState.FAILED, payload=[None, {"a": "\x00"}], error=error, attempts=3), LONG
        )
        seen = await store.get("k")
        assert (seen.error, seen.attempts, seen.payload, seen.request_id) == (error, 3, [None, {"a": "\x00"}], "r1")


async def test_an_operator_can_forget_keys(stores: Stores) -> None:
    """Everything of one tool, or everything, but nothing whose repetition might do harm now."""
    async with stores.one() as store:
        for n in range(5):
            await store.claim(record(f"send-{n}"), LONG)
        await store.claim(record("other", tool="other"), LONG)
        assert await store.size() == 6
        assert await store.clear("send") == 5
        assert await store.get("other") is not None
        assert await store.clear() == 1
        assert await store.size() == 0
        running = (await store.claim(record("running", change=True), LONG)).record
        unknown = (await store.claim(record("unknown", change=True), LONG)).record
        await store.finish(ended(unknown, DedupeState.UNKNOWN), LONG)
        assert await store.clear() == 0
        assert not (await store.claim(record("running", "h2"), LONG)).mine
        assert await store.finish(ended(running), LONG)


async def test_memory_is_bounded_and_never_forgets_a_running_call() -> None:
    """The least recently used end goes first; calls that run stay, for their twins would run beside them."""
    store = InMemoryDedupeStore(max_keys=3, clock=MovableClock())
    running = (await store.claim(record("running"), LONG)).record
    for n in range(5):
        await store.finish(ended((await store.claim(record(f"k{n}"), LONG)).record), LONG)
    assert await store.size() == 3
    assert store.evicted == 3
    assert await store.get("k0") is None
    assert await store.get(running.key) is not None


async def test_memory_hands_out_copies() -> None:
    """What one caller does to a result does not reach the next."""
    store = InMemoryDedupeStore()
    held = (await store.claim(record(), LONG)).record
    payload = {"items": [1]}
    await store.finish(ended(held, payload=payload), LONG)
    payload["items"].append(2)
    first = await store.get("k")
    first.payload["items"].append(3)
    second = await store.get("k")
    assert second.payload == {"items": [1]}


async def test_memory_is_swept_as_it_is_used() -> None:
    """What has expired goes without anybody asking for it."""
    clock = MovableClock()
    store = InMemoryDedupeStore(clock=clock)
    await store.finish(ended((await store.claim(record("old"), LONG)).record), 1000)
    clock.move(10)
    for n in range(300):
        await store.claim(record(f"k{n}"), LONG)
    assert "old" not in store._records


async def test_a_result_that_is_asked_for_again_is_kept_longer() -> None:
    """Of two results of the same age the one goes first that nobody has used since."""
    store = InMemoryDedupeStore(max_keys=2, clock=MovableClock())
    for key in ("used again", "used once"):
        await store.finish(ended((await store.claim(record(key), LONG)).record), LONG)
    assert not (await store.claim(record("used again", "h2"), LONG)).mine
    await store.claim(record("new"), LONG)
    assert await store.get("used once") is None
    assert await store.get("used again") is not None
