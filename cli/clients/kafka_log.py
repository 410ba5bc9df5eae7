"""Runs a command's Kafka reads and writes; turns aiokafka's errors into trustfold's."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

from ...errors import ConfigError, TargetUnreachable, TookTooLong, TrustfoldError
from ...streams.kafka.access import RIGHTS_ERRORS, BrokerDenied, missing_right_error, run_client, unreachable
from ...streams.kafka.kafka_settings import KafkaSettings
from ...streams.kafka.lag import standing_of
from ...streams.kafka.records import TIMEOUT_S, OutgoingRecord, StoredRecord, command_key, places_at, read, write
from ..render import told_waits

__all__ = [
    "TIMEOUT_S",
    "KafkaSettings",
    "OutgoingRecord",
    "StoredRecord",
    "command_key",
    "places_at",
    "read",
    "run",
    "run_client",
    "standing_of",
    "write",
]

T = TypeVar("T")


@contextmanager
def reaching_kafka(settings: KafkaSettings) -> Iterator[None]:
    """Turn aiokafka's errors into trustfold's: unreachable, too slow, refused. Use it outside of event loops."""
    quiet = logging.getLogger("aiokafka")
    if not logging.getLogger().handlers:
        quiet.setLevel(logging.CRITICAL)  # aiokafka logs the error that is raised here
    try:
        yield
    except BrokerDenied:
        raise
    except ConfigError as error:
        if isinstance(error.__cause__, KafkaConnectionError):
            raise TargetUnreachable(str(error)) from error
        raise
    except (TimeoutError, KafkaTimeoutError) as error:
        raise TookTooLong(
            f"Kafka did not answer in time ({str(error) or f'{TIMEOUT_S:.0f} s'}); look at its log"
        ) from error
    except KafkaConnectionError as error:
        reason = run_client(unreachable(settings))
        if isinstance(reason, BrokerDenied):
            raise reason from error
        raise TargetUnreachable(str(reason)) from error
    except RIGHTS_ERRORS as error:
        raise missing_right_error(settings, error) from error
    except KafkaError as error:
        raise TrustfoldError(f"Kafka refused: {error}") from error


def run(settings: KafkaSettings, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses Kafka to its end, with a note if that takes long; errors become trustfold's."""
    with reaching_kafka(settings), told_waits(settings.bootstrap):
        return run_client(work)
