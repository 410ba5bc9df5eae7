"""A producer that is given up: nothing of it fails behind our back, so nothing stands in the log."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerClosed
from aiokafka.structs import BrokerMetadata
from trustfold.streams.kafka.lane import _abandon


def test_a_producer_with_a_batch_that_is_tried_again_is_given_up_in_silence() -> None:
    """Its sender may end with an error, and a batch that waits for its second try fails, as closed."""
    told: list[dict[str, Any]] = []

    async def give_up() -> BaseException | None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        producer = AIOKafkaProducer(enable_idempotence=True)
        producer.client.cluster._brokers = {1: BrokerMetadata(1, "localhost", 1, None)}
        place, accumulator = TopicPartition("events", 0), producer._message_accumulator
        producer._txn_manager.set_pid_and_epoch(1, 0)
        batch = producer.create_batch()
        batch.append(timestamp=1, key=None, value=b"x")
        sent = await accumulator.add_batch(batch, place, 1)
        accumulator.reenqueue(accumulator._pop_batch(place))
        producer._sender._sender_task = asyncio.ensure_future(ends_with_an_error())
        producer._sender._sender_task.add_done_callback(producer._sender._fail_all)
        await asyncio.sleep(0)
        await _abandon(producer)
        await asyncio.sleep(0)
        return sent.exception()

    assert isinstance(asyncio.run(give_up()), ProducerClosed)
    assert told == []


async def ends_with_an_error() -> None:
    """A sender that is cut off in the middle of a request."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError as error:
        raise ConnectionError("cut off") from error
