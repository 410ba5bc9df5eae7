"""One agent per source topic: hands each poll to the engine.

Agents are plain functions made by name, never discovered. What they take moves no offset: Faust acks an event whose
agent raised, which would lose it. Here a fault fails the worker instead and the records are read again.
"""

from __future__ import annotations

from typing import Any

from .engine import Engine
from .gate import BUFFERED_POLLS
from .lane import PollSchema


def add_agents(app: Any, engine: Engine) -> None:
    """Make an agent for every source topic of the topology."""
    for real_name, (name, stage) in engine.sources.items():
        topic = app.topic(
            real_name, schema=PollSchema(), partitions=engine.settings.partitions, maxsize=2 * BUFFERED_POLLS
        )
        app.agent(topic, name=f"{stage.name}.{name}")(_agent(engine))


def _agent(engine: Engine) -> Any:
    async def consume(stream: Any) -> None:
        async for event in stream.noack().events():
            try:
                await engine.on_poll(event.value)
                event.ack()
            except Exception as error:  # noqa: BLE001 - reported by failing the worker
                await engine.fail(error)
                return

    return consume
