"""Load of a campaign: events, poison and skewed clocks, published from a thread while brokers come and go."""

from __future__ import annotations

import asyncio
import random
import threading
import time

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from lane_harness import event

POISON = (b"{", b"", b"\xff\xfe", b"[]", b'{"id": 7}', None)
"""Values that no stage can read."""

POISON_SHARE = 0.004
SKEW_SHARE = 0.05
SKEW_MS = (-2 * 86_400_000, 50 * 60_000)
"""How far record timestamps may be wrong; brokers refuse what lies more than an hour ahead."""


TICK_S = 0.1
DELIVERY_S = 30.0
STOP_S = 3.0


class Load(threading.Thread):
    """Publishes so many events a second until told to stop.

    What the brokers have in the end is the truth: a batch that failed may be there or not.

    Attributes:
        sent: events handed to a producer.
        failed: batches that were not acknowledged.
    """

    def __init__(self, servers: list[str], topic: str, seed: int, rate: int) -> None:
        """Prepare; `start` begins."""
        super().__init__(name="load", daemon=True)
        self._servers, self._topic, self._rate = servers, topic, rate
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self.sent = self.failed = 0

    def stop(self) -> None:
        """Publish no more, and wait until what is under way has been acknowledged or has failed."""
        self._over.set()
        self.join(DELIVERY_S + 3 * STOP_S)

    def run(self) -> None:
        """Publish, with a new producer whenever one fails."""
        while not self._over.is_set():
            asyncio.run(self._publish())

    async def _publish(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            enable_idempotence=True,
            request_timeout_ms=int(DELIVERY_S * 1000),
            linger_ms=5,
        )
        try:
            await producer.start()
            while not self._over.is_set():
                began = time.monotonic()
                sent = [await self._send(producer) for _ in range(int(self._rate * TICK_S))]
                async with asyncio.timeout(DELIVERY_S + STOP_S):
                    results = await asyncio.gather(*sent, return_exceptions=True)
                if any(isinstance(result, BaseException) for result in results):
                    self.failed += 1
                    return
                await asyncio.sleep(max(TICK_S - (time.monotonic() - began), 0))
        except (KafkaError, OSError, TimeoutError):
            self.failed += 1
            await asyncio.sleep(0.5)
        finally:
            await asyncio.wait({asyncio.ensure_future(producer.stop())}, timeout=STOP_S)

    async def _send(self, producer: AIOKafkaProducer) -> asyncio.Future[object]:
        chance = self._chance
        self.sent += 1
        session = f"s{int(chance.random() ** 2 * 300)}"
        value: bytes | None = event(self.sent, session, f"t{chance.randrange(25)}")
        key: bytes | None = session.encode()
        if chance.random() < POISON_SHARE:
            value = chance.choice(POISON)
            key = chance.choice([key, None]) if value is not None else key
        skew = chance.randint(*SKEW_MS) if chance.random() < SKEW_SHARE else 0
        now = int(time.time() * 1000) + skew
        return await producer.send(self._topic, value, key=key, timestamp_ms=now)
