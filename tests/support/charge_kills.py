"""Campaign: charges under one key while processes are killed between charge and remembering, over every kind of store.

A run is one key. Up to four processes make the call one after the other (two at once now and then), each under a timer
that kills it at a random moment, or with a caller that goes away, an answer that is lost or a tool that hangs. The tool
writes each charge into a file. No key may be charged twice. `make charges` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from local_redis import LocalRedis
from trustfold.guard import DedupePolicy, InMemoryDedupeStore, RedisDedupeStore, SqliteDedupeStore, ToolGuard
from trustfold.guard.log import LOGGER

KINDS = ("memory", "sqlite", "redis", "far", "replica", "half-way")
MOST_PROCESSES = 4
ROUND_TRIP_S = 0.060
CUT = 0.12
"""Share of the pieces of traffic at which the connection is cut; some have reached Redis, and the answer is lost."""


class Proxy:
    """A path to Redis that is long, or that breaks: before a request, or between a request and its answer."""

    def __init__(self, kind: str, port: int, chance: random.Random) -> None:
        self.kind, self.port, self.chance = kind, port, chance

    async def serve(self, here: socket.socket) -> None:
        """Serve for ever."""
        async with await asyncio.start_server(self._connected, sock=here) as server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_connection("127.0.0.1", self.port)
        ways = [self._carry(reader, redis_writer), self._carry(redis_reader, writer)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        redis_writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if self.kind == "far":
                await asyncio.sleep(ROUND_TRIP_S / 2)
            elif self.chance.random() < CUT:
                return
            writer.write(data)


def start_proxy(kind: str, port: int, seed: int) -> tuple[int, int]:
    """Start a proxy in a process of its own; return its process id and its port."""
    here = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        asyncio.run(Proxy(kind, port, random.Random(seed)).serve(here))
        os._exit(0)
    found: int = here.getsockname()[1]
    here.close()
    return child, found


class Campaign:
    """All runs of one kind of store."""

    def __init__(self, kind: str, urls: list[str], folder: Path, seed: int, policy: str) -> None:
        self.kind, self.urls, self.folder, self.policy = kind, urls, folder, policy
        self.chance = random.Random(f"{seed}-{kind}")
        self.said: Counter[str] = Counter()
        self.charges: Counter[int] = Counter()
        self.twice: list[int] = []
        self.ledger = folder / f"{kind}.ledger"
        self.words = folder / f"{kind}.words"

    def run(self, number: int) -> None:
        """One key."""
        for path in (self.ledger, self.words):
            path.write_bytes(b"")
        if self.kind == "memory":  # one process alone knows its keys: callers go away in it
            self._wait(self._fork(number, range(MOST_PROCESSES), ends=False))
        else:
            turn = 0
            while turn < MOST_PROCESSES:
                together = 2 if self.chance.random() < 0.25 else 1
                children = [self._fork(number, [turn + n], ends=turn + n < MOST_PROCESSES - 1) for n in range(together)]
                for child in children:
                    self._wait(child)
                turn += together
        made = self.ledger.read_bytes().count(b"\n")
        self.charges[made] += 1
        self.said.update(self.words.read_text().split())
        if made > 1:
            self.twice.append(number)

    def _fork(self, number: int, turns: Any, *, ends: bool) -> int:
        chance = random.Random(self.chance.random())
        child = os.fork()
        if child:
            return child
        try:
            if ends and chance.random() < 0.7:  # the signal's own action ends the process, wherever it is
                longest = 0.5 if self.kind == "far" else 0.06
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, longest))
            asyncio.run(self._calls(number, turns, chance))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - this process ends here
            traceback.print_exc()
            os._exit(1)

    @staticmethod
    def _wait(child: int) -> None:
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            raise SystemExit("a process failed; see above")

    async def _calls(self, number: int, turns: Any, chance: random.Random) -> None:
        store: Any = InMemoryDedupeStore()
        if self.kind == "sqlite":
            store = SqliteDedupeStore(self.folder / "keys.sqlite")
        elif self.kind != "memory":
            store = RedisDedupeStore.from_url(chance.choice(self.urls), "charges:")
        guard = ToolGuard.in_memory(store=store, dedupe=DedupePolicy(on_store_down=self.policy))
        for _ in turns:
            await self._call(guard, number, chance)
        if chance.random() < 0.5:
            await guard.close()

    async def _call(self, guard: ToolGuard, number: int, chance: random.Random) -> None:
        async def charge() -> str:
            await asyncio.sleep(chance.choice((0, 0, 0.002, 0.01)))
            write_line(self.ledger, "charge")
            if how == "reset":
                raise ConnectionResetError
            await asyncio.sleep(600 if how == "hangs" else chance.choice((0, 0, 0.002, 0.01)))
            return "receipt"

        how = chance.choice(("fine", "fine", "fine", "reset", "hangs"))
        call = guard.call(
            "charge", charge, session_id="s", idempotency_key=f"{self.kind}-{number}",
            deadline_ms=1_500 if self.kind == "far" else 400, timeout_ms=30 if how == "hangs" else None,
        )  # fmt: skip
        task = asyncio.ensure_future(call)
        if chance.random() < 0.3:
            asyncio.get_running_loop().call_later(chance.uniform(0, 0.03), task.cancel)
        await asyncio.wait({task})
        said = "cancelled"
        if not task.cancelled():
            result = task.result()
            said = str(result.output) if result.ok else result.error.code if result.error else ""
        write_line(self.words, said)


def write_line(path: Path, text: str) -> None:
    """Append a line in one piece; what is written survives the process."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def main() -> None:
    """Print one line of JSON for each kind; exit with 1 if a key was charged twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="wait", help="on_store_down; with `local` keys are charged twice")
    given = parser.parse_args()
    LOGGER.propagate = False
    kinds, bad = given.kind or KINDS, False
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as ends:
        folder = Path(made)
        redis = LocalRedis(folder)
        ends.callback(redis.stop)
        replica = LocalRedis(folder, replica_of=redis)
        ends.callback(replica.stop)
        urls = {kind: [redis.url] for kind in kinds} | {"replica": [redis.url, replica.url]}
        for kind in ("far", "half-way"):
            child, port = start_proxy(kind, redis.port, given.seed)
            ends.callback(os.kill, child, signal.SIGKILL)
            urls[kind] = [f"redis://127.0.0.1:{port}/0"]
        for kind in kinds:
            campaign = Campaign(kind, urls[kind], folder, given.seed, given.policy)
            for number in range(-(-given.runs // len(kinds))):
                campaign.run(number)
            bad = bad or bool(campaign.twice)
            told = {"charges of a key": dict(campaign.charges), "answers": dict(campaign.said)}
            print(json.dumps({"kind": kind, "charged twice": campaign.twice, **told}), flush=True)
    sys.exit(bad)


if __name__ == "__main__":
    main()
