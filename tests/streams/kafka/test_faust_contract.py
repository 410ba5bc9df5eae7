"""The private names of Faust and aiokafka that the lane leans on. A version that moves one fails here first."""

import importlib.metadata
import inspect

import aiokafka
import faust
import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher as KafkaFetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, TopicPartitionState
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator
from aiokafka.producer.sender import Sender
from faust.app import App
from faust.stores.base import SerializedStore
from faust.tables.base import Collection
from faust.tables.manager import TableManager
from faust.transport.consumer import Consumer, Fetcher
from faust.transport.drivers import aiokafka as driver
from faust.types.tuples import ConsumerMessage

PINNED = "0.15.3"

USED = [
    (driver.Consumer, "_new_consumer_thread", "the lane's thread, with a shorter fetch wait", []),
    (Consumer, "_drain_messages", "replaced by the lane", ["fetcher"]),
    (Consumer, "on_buffer_full", "replaced: the gate counts waiting polls", ["tp"]),
    (Consumer, "on_buffer_drop", "replaced: the gate counts waiting polls", ["tp"]),
    (Consumer, "ack", "closes Faust's books without moving offsets", ["message"]),
    (Consumer, "_new_offset", "offsets come from mark_done", ["tp"]),
    (Consumer, "commit", "called after the checkpoint of a revocation and of a stop", ["topics"]),
    (Consumer, "on_partitions_revoked", "checkpoint before Faust clears its queues", ["revoked"]),
    (Consumer, "resume_flow", "after a recovery", []),
    (driver.AIOKafkaConsumerThread, "_create_worker_consumer", "where the fetch wait is set", ["transport"]),
    (driver.AIOKafkaConsumerThread, "_ensure_consumer", "the aiokafka consumer, in its thread", []),
    (driver.AIOKafkaConsumerThread, "getmany", "the poll", ["active_partitions", "timeout"]),
    (driver.AIOKafkaConsumerThread, "call_thread", "seeks run in the consumer's thread", ["fun"]),
    (driver.AIOKafkaConsumerThread, "_commit", "replaced: bounded, and a refusal fails the worker", ["offsets"]),
    (driver.AIOKafkaConsumerThread, "verify_event_path", "replaced: the monitor judges progress", ["now", "tp"]),
    (driver.AIOKafkaConsumerThread, "on_thread_stop", "leaves the group within a bound", []),
    (Consumer, "_commit_offsets", "replaced: counts only what was committed", ["offsets", "start_new_transaction"]),
    (App, "_producer_flush", "replaced: checkpoints wait for acknowledgements", ["logger"]),
    (driver.Producer, "_new_producer", "takes the age from batches", ["transactional_id"]),
    (driver.Producer, "on_stop", "stops without waiting for brokers", []),
    (MessageAccumulator, "fail_all", "abandons a producer", ["exception"]),
    (GroupCoordinator, "check_errors", "lets the coordination go on after an error that passes", []),
    (driver.Producer, "_settings_extra", "makes the producer idempotent", []),
    (driver.Producer, "_ensure_producer", "the aiokafka producer", []),
    (Fetcher, "_fetcher", "runs _drain_messages", []),
    (TableManager, "_update_channels", "replaced: changelogs are not subscribed to", []),
    (TableManager, "on_rebalance", "starts the recovery", ["assigned", "revoked", "newly_assigned", "generation_id"]),
    (TableManager, "on_actives_ready", "after a recovery", []),
    (TableManager, "on_standbys_ready", "after a recovery", []),
    (TableManager, "on_partitions_revoked", "replaced: nothing to flush", ["revoked"]),
    (Collection, "_new_store", "gives the partitioned store", []),
    (SerializedStore, "_get", "reads for Faust's views", ["key"]),
    (App, "_fetcher", "started after a recovery", []),
    (App, "_create_directories", "replaced: none are made", []),
    (App, "on_rebalance_end", "after a recovery", []),
    (App, "on_stop", "extended by the last checkpoint", []),
    (App, "crash", "how the worker fails", ["reason"]),
    (BatchBuilder, "append", "batches of our own making", ["timestamp", "key", "value", "headers"]),
    (aiokafka.AIOKafkaProducer, "create_batch", "batches of our own making", []),
    (aiokafka.AIOKafkaProducer, "send_batch", "batches of our own making", ["batch", "topic", "partition"]),
    (aiokafka.AIOKafkaProducer, "partitions_for", "how many partitions a topic has", ["topic"]),
    (KafkaFetcher, "fetched_records", "what getmany ends in", ["partitions", "timeout", "max_records"]),
    (Assignment, "state_value", "position and log end of a partition", ["tp"]),
]


@pytest.mark.parametrize(
    ("owner", "name", "use", "parameters"), USED, ids=lambda value: str(getattr(value, "__name__", value))
)
def test_private_name_is_as_the_lane_knows_it(owner: type, name: str, use: str, parameters: list[str]) -> None:
    """A name the lane replaces, extends or calls exists and takes what the lane gives it."""
    version = importlib.metadata.version("faust-streaming")
    where = (
        f"{owner.__module__}.{owner.__name__}.{name} (faust-streaming {version}, written for {PINNED}; used for: {use})"
    )
    assert hasattr(owner, name), f"{where} is gone: see what replaced it, then change streams/kafka and raise the pin"
    found = inspect.getattr_static(owner, name)
    if not parameters:
        return
    function = inspect.unwrap(getattr(found, "__func__", found))
    have = list(inspect.signature(function).parameters)
    missing = [parameter for parameter in parameters if parameter not in have]
    assert not missing, (
        f"{where} takes {have}, the lane gives {missing} too: compare the sources and adapt streams/kafka"
    )


def test_the_pin_is_the_version_these_tests_read() -> None:
    """The installed Faust is the one that was read line by line; another needs the same reading."""
    version = importlib.metadata.version("faust-streaming")
    assert version == PINNED, (
        f"faust-streaming {version} is installed, the lane was written against {PINNED}: read the changes of "
        "transport/consumer.py, transport/drivers/aiokafka.py, tables/ and app/base.py, run the crash tests, raise both"
    )


def test_faust_acks_what_it_skips() -> None:
    """Faust acks events it skips in a rebalance; if it stops doing so, BatchConsumer.ack may become simpler."""
    source = inspect.getsource(faust.Stream._py_aiter)
    assert "do_ack or value is skipped_value" in source


def test_assignment_sets_the_generation_before_the_callback() -> None:
    """The generation of an assignment is known on the app when the recovery of it begins."""
    source = inspect.getsource(driver.ConsumerRebalanceListener.on_partitions_assigned)
    assert source.index("consumer_generation_id = generation") < source.index("on_partitions_assigned(ensure")


def test_the_coordinator_keeps_the_generation_through_a_revocation() -> None:
    """During a revocation the member still is of its old generation, so the last checkpoint is allowed."""
    source = inspect.getsource(GroupCoordinator.ensure_active_group)
    assert source.index("_on_join_prepare(prev_assignment)") < source.index("_do_rejoin_group(subscription)")
    assert "generation" in vars(GroupCoordinator)["reset_generation"].__code__.co_names


def test_position_and_log_end_are_where_the_ticks_look() -> None:
    """A partition's state knows its position, whether that is valid, and the log end of the last fetch."""
    for name in ("position", "has_valid_position"):
        assert hasattr(TopicPartitionState, name), (
            f"aiokafka's TopicPartitionState.{name} is gone; see BatchConsumer.place"
        )
    assert "highwater" in inspect.getsource(TopicPartitionState)


def test_a_poll_travels_in_a_consumer_message() -> None:
    """Faust's message takes the fields the lane fills in, by these names."""
    wanted = {"topic", "partition", "offset", "timestamp", "value", "tp", "generation_id", "checksum"}
    have = set(inspect.signature(ConsumerMessage.__init__).parameters)
    assert wanted <= have, f"ConsumerMessage lost {wanted - have}; see BatchConsumer._message_of"


def test_an_empty_set_of_partitions_means_all_to_aiokafka() -> None:
    """The lane never polls with an empty set: aiokafka would give records of every partition."""
    assert "if partitions and tp not in partitions" in inspect.getsource(KafkaFetcher.fetched_records)


def test_where_aiokafka_keeps_what_the_monitor_looks_at() -> None:
    """Background tasks, the parked error of a group, and the age of a batch have these names."""
    for owner, names in {
        GroupCoordinator: ("_coordination_task", "_pending_exception", "_error_consumed_fut"),
        KafkaFetcher: ("_fetch_task",),
        AIOKafkaClient: ("_sync_task",),
        Sender: ("_sender_task",),
        MessageAccumulator: ("_batch_ttl", "_closed"),
        aiokafka.AIOKafkaProducer: ("_request_timeout_ms", "_sender", "_message_accumulator"),
    }.items():
        source = inspect.getsource(owner)
        missing = [name for name in names if f"self.{name} = " not in source]
        assert not missing, f"{owner.__name__} has no {missing} any more; see streams/kafka/lane.py"


def test_stale_fetches_are_thrown_away_after_a_seek() -> None:
    """What was fetched before a seek is not delivered after it; recovery relies on it."""
    source = inspect.getsource(inspect.getmodule(KafkaFetcher))
    assert "Not returning fetched records" in source
