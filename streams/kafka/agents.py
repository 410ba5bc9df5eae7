"""The agent: hands what the lane delivers to the engine.

One agent for all source topics, for they are folded in one order. It is a plain function made by name, never
discovered. What it takes moves no offset: Faust acks an event whose agent raised, which would lose it. Here a fault
fails the worker instead and the records are read again.
"""

from __future__ import annotations

from typing import Any

from .backpressure import POLLS
from .engine import Engine
from .lane import PollSchema


def add_agent(app: Any, engine: Engine) -> None:
    """Make the agent of all source topics of the topology."""
    topic = app.topic(*engine.sources, schema=PollSchema(), partitions=engine.settings.partitions, maxsize=2 * POLLS)

    async def consume(stream: Any) -> None:
        async for event in stream.noack().events():
            try:
                await engine.on_poll(event.value)
                event.ack()
            except Exception as error:  # noqa: BLE001 - reported by failing the worker
                await engine.fail(error)
                return

    app.agent(topic, name="fold")(consume)
