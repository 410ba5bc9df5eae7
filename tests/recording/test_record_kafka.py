"""Recording of Kafka: what a stop leaves behind while no broker answers."""

from __future__ import annotations

import asyncio
import gc
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError
from trustfold.history.recorder import PartitionRecorder
from trustfold.recording import kafka_recorder
from trustfold.recording.kafka_recorder import KafkaRecording
from trustfold.streams.kafka.kafka_settings import KafkaSettings


async def test_a_stop_without_a_broker_leaves_nothing_to_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is cancelled may report the lost connection: that is no error of a recorder that was told to stop.

    asyncio would log it as an exception that was never retrieved.
    """
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context["message"]))
    stopped = asyncio.Event()

    async def fails_when_cancelled(*_: object) -> None:
        stopped.set()
        try:
            await asyncio.sleep(600)
        finally:
            raise KafkaConnectionError("no broker answers")

    monkeypatch.setattr(kafka_recorder, "_described", fails_when_cancelled)
    said: list[str] = []
    with closing(PartitionRecorder(tmp_path)) as recorder:
        settings = KafkaSettings(bootstrap="127.0.0.1:1", stop_timeout=0.1)
        await KafkaRecording(recorder, settings, say=said.append).run(stopped)
    gc.collect()
    assert complaints == []
    assert said == ["stopped before everything was written and committed; the next start reads it again"]
