"""Dedupe store in Redis for a fleet, with atomic claims and changes (extra `redis`).

One hash per key, with Redis' own expiry: a running record expires with its lease, which frees the key of a dead holder.
Claims and changes are scripts, which Redis runs one at a time. A change names its holder, so that a holder whose lease
has expired cannot overwrite its successor. All times are Redis' clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from .record import Claim, DedupeRecord, DedupeState

if TYPE_CHECKING:
    from redis.asyncio import Redis

DEFAULT_PREFIX = "trustfold:dedupe:"

_CLAIM = """
local known = redis.call('HMGET', KEYS[1], 'record', 'state', 'version', 'created', 'holder', 'free')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if known[1] and known[6] ~= '1' then
  return {0, known[1], known[2], known[3], now - known[4], known[5]}
end
local version = (tonumber(known[3] or '0') or 0) + 1
redis.call('HSET', KEYS[1], 'record', ARGV[1], 'holder', ARGV[2], 'state', 'inflight', 'version', version,
  'created', now, 'free', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, ARGV[1], 'inflight', version, 0, ARGV[2]}
"""

_EXTEND = """
local held = redis.call('HMGET', KEYS[1], 'holder', 'state')
if held[1] ~= ARGV[1] or held[2] ~= 'inflight' then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""

_FINISH = """
local held = redis.call('HMGET', KEYS[1], 'holder', 'state')
if held[1] ~= ARGV[1] or held[2] ~= 'inflight' then return 0 end
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'state', ARGV[3], 'free', ARGV[5])
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""

_FIRST_PAUSE_MS = 10.0
_LAST_PAUSE_MS = 200.0


class RedisDedupeStore:
    """Dedupe store of all processes that share a Redis and a prefix.

    Calls of one process that wait for the same key share one poll.
    """

    in_process = False

    def __init__(self, client: Redis, prefix: str = DEFAULT_PREFIX) -> None:
        """Use a client of `redis.asyncio`; `close` closes it."""
        from redis.exceptions import ResponseError  # extra `redis`

        self._refused = ResponseError
        self._client = client
        self._prefix = prefix
        self._claim = client.register_script(_CLAIM)
        self._extend = client.register_script(_EXTEND)
        self._finish = client.register_script(_FINISH)
        self._parents: list[Any] = []
        self._polls: dict[tuple[str, int], asyncio.Task[None]] = {}

    @classmethod
    def from_url(cls, url: str, prefix: str = DEFAULT_PREFIX, **options: Any) -> RedisDedupeStore:
        """Connect to `redis://host:port/0`; `options` go to the client."""
        from redis.asyncio import Redis  # extra `redis`

        options = {"socket_timeout": 5.0, "socket_connect_timeout": 2.0, **options}
        return cls(Redis.from_url(url, **options), prefix)

    async def claim(self, record: DedupeRecord, lease_ms: int) -> Claim:
        """Claim a key if it is free or its lease has expired."""
        value = msgspec.json.encode(record)
        name = self._name(record.key)
        for _ in range(2):
            found: Any = None
            with contextlib.suppress(self._refused):  # the key holds something that is no record
                found = await self._claim(keys=[name], args=[value, record.holder, lease_ms])
            if found is not None:
                mine, stored, state, version, age, holder = found
                known = _read(stored, state, version, holder)
                if known is not None:
                    return Claim(bool(mine), known, float(age))
            await self._client.delete(name)
        raise self._refused(f"{name} cannot be claimed: it holds no record, however often it is removed")

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Extend the holder's lease."""
        with contextlib.suppress(self._refused):
            return bool(await self._extend(keys=[self._name(record.key)], args=[record.holder, lease_ms]))
        return False

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Replace the running record by the call's result."""
        value = msgspec.json.encode(record)
        arguments: list[Any] = [record.holder, value, str(record.state), ttl_ms, int(record.is_free)]
        with contextlib.suppress(self._refused):
            return bool(await self._finish(keys=[self._name(record.key)], args=arguments))
        return False

    async def get(self, key: str) -> DedupeRecord | None:
        """Return the current record."""
        fields: Any = self._client.hmget(self._name(key), ["record", "state", "version", "holder"])
        try:
            stored, state, version, holder = await fields
        except self._refused:
            return None
        return None if stored is None else _read(stored, state, version, holder)

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Poll with growing delays until the record changes or expires, at most `timeout_ms` milliseconds."""
        task = self._polls.get((key, version))
        if task is None:
            task = self._polls[key, version] = asyncio.create_task(self._poll(key, version))
            task.add_done_callback(lambda _: self._polls.pop((key, version), None))
        # A poll that fails raises in all calls that wait for it.
        done, _ = await asyncio.wait({task}, timeout=max(0.0, timeout_ms) / 1000)
        for finished in done:
            finished.result()
        return await self.get(key)

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records below the prefix, or all records of one tool; return their number."""
        gone = 0
        async for name in self._client.scan_iter(match=f"{self._prefix}*", count=500):
            if tool is not None:
                reading: Any = self._client.hget(name, "record")
                try:
                    known = _tool_of(await reading)
                except self._refused:
                    continue
                if known != tool:
                    continue
            gone += await self._client.delete(name)
        return gone

    async def size(self) -> int:
        """Return the number of records below the prefix."""
        return len([name async for name in self._client.scan_iter(match=f"{self._prefix}*", count=500)])

    def after_fork(self) -> None:
        """Reconnect; the parent's connections are kept, as finalizing them would close them for the parent, too."""
        self._parents.append(self._client)
        self._polls = {}
        self._client = self._fresh_client()
        self._claim, self._extend, self._finish = map(self._client.register_script, (_CLAIM, _EXTEND, _FINISH))

    def on_another_loop(self) -> RedisDedupeStore:
        """Return a store with the same Redis and prefix, over connections of its own."""
        return RedisDedupeStore(self._fresh_client(), self._prefix)

    def _fresh_client(self) -> Redis:
        pool = self._client.connection_pool
        fresh = type(pool)(pool.connection_class, pool.max_connections, **pool.connection_kwargs)
        return type(self._client).from_pool(fresh)  # closing the client closes the pool as well

    async def close(self) -> None:
        """Close the connections."""
        for task in self._polls.values():
            task.cancel()
        await self._client.aclose()

    async def _poll(self, key: str, version: int) -> None:
        pause = _FIRST_PAUSE_MS
        while True:
            reading: Any = self._client.hget(self._name(key), "version")
            try:
                found = await reading
            except self._refused:
                return
            if found != str(version).encode() and found != str(version):
                return
            await asyncio.sleep(pause / 1000)
            pause = min(_LAST_PAUSE_MS, pause * 1.5)

    def _name(self, key: str) -> str:
        return f"{self._prefix}{key}"


def _read(stored: Any, state: Any, version: Any, holder: Any) -> DedupeRecord | None:
    """Decode a stored record; None if it was not written by this library."""
    try:
        record = msgspec.json.decode(stored, type=DedupeRecord)
        return msgspec.structs.replace(
            record, state=DedupeState(_text(state)), version=int(version), holder=_text(holder)
        )
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None


def _tool_of(stored: Any) -> str | None:
    try:
        return msgspec.json.decode(stored, type=DedupeRecord).tool
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
