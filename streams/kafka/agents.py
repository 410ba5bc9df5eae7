"""One agent per source topic: hands each batch to the engine.

Agents are plain functions made by name, never discovered. They take events without Faust's acknowledgement: Faust acks
an event whose agent raised, which would lose it. Here a fault fails the worker instead and the event is read again.
"""

from __future__ import annotations

from typing import Any

from .engine import Engine
from .lane import BUFFERED_BATCHES, BatchSchema


def add_agents(app: Any, engine: Engine) -> None:
    """Make an agent for every source topic of the topology."""
    for real_name, (name, stage) in engine.sources.items():
        topic = app.topic(
            real_name, schema=BatchSchema(), partitions=engine.settings.partitions, maxsize=BUFFERED_BATCHES
        )
        app.agent(topic, name=f"{stage.name}.{name}")(_agent(engine))


def _agent(engine: Engine) -> Any:
    async def consume(stream: Any) -> None:
        async for event in stream.noack().events():
            try:
                await engine.on_batch(event)
            except Exception as error:  # noqa: BLE001 - reported by failing the worker
                await engine.fail(error)
                return

    return consume
