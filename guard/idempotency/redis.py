"""Dedupe store in Redis for a fleet, with atomic claims and changes (extra `redis`).

One hash per key, with Redis' own expiry: a running record expires with its lease, which frees the key of a dead holder;
that of a change stays, and counts as unknown from then on. Claims and changes are scripts, which Redis runs one at a
time. A change names its holder, so that a holder whose lease has expired cannot overwrite its successor. All times are
Redis' clock. A mark beside the records shows whether Redis was emptied: changes are refused then, as their keys may
have been among those that are lost.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from .polling import SharedPolls
from .record import KEEP_UNKNOWN_MS, ClaimResult, DedupeRecord, DedupeState, StoreEmptied

if TYPE_CHECKING:
    from redis.asyncio import Redis

DEFAULT_PREFIX = "trustfold:dedupe:"

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function state_of(state, lease)
  if state == 'inflight' and lease and tonumber(lease) and tonumber(lease) <= now then return 'unknown' end
  return state
end
"""
"""Prelude: `lease` is the time at which a running change becomes unknown; other records have none."""

_CLAIM = (
    _NOW
    + """
local mark = ''
if ARGV[5] ~= '' then
  redis.call('HSETNX', KEYS[2], 'id', ARGV[5])
  mark = redis.call('HGET', KEYS[2], 'id')
end
local known = redis.call('HMGET', KEYS[1], 'record', 'state', 'version', 'created', 'holder', 'free', 'lease')
local age = now - (tonumber(known[4] or now) or now)
if known[1] and known[5] == ARGV[2] and known[2] == 'inflight' then
  return {1, known[1], known[2], known[3], age, known[5], mark}
end
if known[1] and known[6] ~= '1' then
  return {0, known[1], state_of(known[2], known[7]), known[3], age, known[5], mark}
end
local version = (tonumber(known[3] or '0') or 0) + 1
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'record', ARGV[1], 'holder', ARGV[2], 'state', 'inflight', 'version', version,
  'created', now, 'free', '0')
if ARGV[4] ~= '0' then redis.call('HSET', KEYS[1], 'lease', now + ARGV[3]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3] + ARGV[4])
return {1, ARGV[1], 'inflight', version, 0, ARGV[2], mark}
"""
)

_READ = (
    _NOW
    + """
local known = redis.call('HMGET', KEYS[1], 'record', 'state', 'version', 'holder', 'lease')
if not known[1] then return false end
return {known[1], state_of(known[2], known[5]), known[3], known[4]}
"""
)

_EXTEND = (
    _NOW
    + """
local held = redis.call('HMGET', KEYS[1], 'holder', 'state', 'lease')
if held[1] ~= ARGV[1] or state_of(held[2], held[3]) ~= 'inflight' then return 0 end
if ARGV[3] ~= '0' then redis.call('HSET', KEYS[1], 'lease', now + ARGV[2]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[3])
return 1
"""
)

_FINISH = """
local held = redis.call('HMGET', KEYS[1], 'holder', 'state')
if held[1] ~= ARGV[1] or (held[2] ~= 'inflight' and held[2] ~= 'unknown') then return 0 end
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'state', ARGV[3], 'free', ARGV[5])
redis.call('HDEL', KEYS[1], 'lease')
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""

_NO_RECORD = ("WRONGTYPE", "must be strings or integers")


class RedisDedupeStore:
    """Dedupe store of all processes that share a Redis and a prefix."""

    in_process = False

    def __init__(self, client: Redis, prefix: str = DEFAULT_PREFIX) -> None:
        """Use a client of `redis.asyncio`; `close` closes it."""
        from redis.exceptions import ResponseError  # extra `redis`

        self._refused = ResponseError
        self._prefix = prefix
        self._parents: list[Any] = []
        self._polls = SharedPolls(self.get)
        self._mark = ""
        self._use(client)

    def _use(self, client: Redis) -> None:
        self._client = client
        self._claim, self._read, self._extend, self._finish = map(
            client.register_script, (_CLAIM, _READ, _EXTEND, _FINISH)
        )

    @classmethod
    def from_url(cls, url: str, prefix: str = DEFAULT_PREFIX, **options: Any) -> RedisDedupeStore:
        """Connect to `redis://host:port/0`; `options` go to the client."""
        from redis.asyncio import Redis  # extra `redis`

        options = {"socket_timeout": 5.0, "socket_connect_timeout": 2.0, **options}
        return cls(Redis.from_url(url, **options), prefix)

    async def claim(self, record: DedupeRecord, lease_ms: int) -> ClaimResult:
        """Claim a key if it is free or its lease has expired.

        Raises:
            StoreEmptied: the record is a change, and Redis has lost the records that it had; the key stays free.
        """
        value = msgspec.json.encode(record)
        name = self._name(record.key)
        keep_ms, mark = _keep_ms(record), uuid4().hex if record.change else ""
        for _ in range(2):
            found: Any = None
            try:
                arguments: list[Any] = [value, record.holder, lease_ms, keep_ms, mark]
                found = await self._claim(keys=[name, self._name("mark")], args=arguments)
            except self._refused as error:
                if not any(words in str(error) for words in _NO_RECORD):
                    raise  # read-only, out of memory, loading
            if found is not None:
                mine, stored, state, version, age, holder, mark_there = found
                known = _decoded(stored, state, version, holder)
                if known is not None:
                    if record.change:
                        await self._check_mark(_text(mark_there), known if mine else None)
                    return ClaimResult(bool(mine), known, float(age))
            await self._client.delete(name)
        raise self._refused(f"{name} cannot be claimed: it holds no record, however often it is removed")

    async def _check_mark(self, mark: str, claimed: DedupeRecord | None) -> None:
        if self._mark in {"", mark}:
            self._mark = mark
            return
        if claimed is not None:
            await self.finish(msgspec.structs.replace(claimed, state=DedupeState.CANCELLED), 1)
        raise StoreEmptied

    def accept_loss(self) -> None:
        """Make changes again although Redis was emptied: an operator knows that no lost key will be repeated."""
        self._mark = ""

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Extend the holder's lease."""
        with contextlib.suppress(self._refused):
            arguments: list[Any] = [record.holder, lease_ms, _keep_ms(record)]
            return bool(await self._extend(keys=[self._name(record.key)], args=arguments))
        return False

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Replace the running or unknown record by the call's end."""
        value = msgspec.json.encode(record)
        arguments: list[Any] = [record.holder, value, str(record.state), ttl_ms, int(record.is_free)]
        try:
            return bool(await self._finish(keys=[self._name(record.key)], args=arguments))
        except self._refused as error:
            if not any(words in str(error) for words in _NO_RECORD):
                raise
        return False

    async def get(self, key: str) -> DedupeRecord | None:
        """Return the current record."""
        found: Any = None
        with contextlib.suppress(self._refused):
            found = await self._read(keys=[self._name(key)], args=[])
        return None if found is None else _decoded(*found)

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Poll until the record changes or its lease ends, at most `timeout_ms` milliseconds."""
        return await self._polls.wait(key, version, timeout_ms)

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records below the prefix, or all of one tool, except those that are open; return their number."""
        gone = 0
        async for name in self._client.scan_iter(match=f"{self._prefix}*", count=500):
            key = _text(name).removeprefix(self._prefix)
            known = await self.get(key)
            if key == "mark" or (known is None and tool is not None):
                continue
            if known is None or (tool in {None, known.tool} and not known.is_open):
                gone += await self._client.delete(name)
        return gone

    async def size(self) -> int:
        """Return the number of records below the prefix."""
        names = self._client.scan_iter(match=f"{self._prefix}*", count=500)
        return len([name async for name in names if _text(name) != self._name("mark")])

    def after_fork(self) -> None:
        """Reconnect; the parent's connections are kept, as finalizing them would close them for the parent, too."""
        self._parents.append(self._client)
        self._polls = SharedPolls(self.get)
        self._use(self._fresh_client())

    def on_another_loop(self) -> RedisDedupeStore:
        """Return a store with the same Redis and prefix, over connections of its own."""
        made = RedisDedupeStore(self._fresh_client(), self._prefix)
        made._mark = self._mark
        return made

    def _fresh_client(self) -> Redis:
        pool = self._client.connection_pool
        fresh = type(pool)(pool.connection_class, pool.max_connections, **pool.connection_kwargs)
        return type(self._client).from_pool(fresh)  # closing the client closes the pool as well

    async def close(self) -> None:
        """Close the connections."""
        self._polls.close()
        await self._client.aclose()

    def _name(self, key: str) -> str:
        return f"{self._prefix}{key}"


def _keep_ms(record: DedupeRecord) -> int:
    """Milliseconds that a running record is kept after its lease."""
    return KEEP_UNKNOWN_MS if record.change else 0


def _decoded(stored: Any, state: Any, version: Any, holder: Any) -> DedupeRecord | None:
    """Decode a stored record; None if it was not written by this library."""
    try:
        record = msgspec.json.decode(stored, type=DedupeRecord)
        return msgspec.structs.replace(
            record, state=DedupeState(_text(state)), version=int(version), holder=_text(holder)
        )
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
