"""Log setup of the worker: one line per event that operators need, as text or JSON."""

from __future__ import annotations

import logging
import time
import traceback
from datetime import UTC, datetime

import orjson
from aiokafka.errors import KafkaError

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

REPEAT_S = 60.0  # Seconds in which a message of the Kafka client is logged once

# Loggers that report every attempt to reach a broker; the broker watch reports the outage
CONNECTIVITY = ("aiokafka", "aiokafka.conn", "aiokafka.client", "aiokafka.cluster", "aiokafka.consumer.fetcher",
                "aiokafka.producer.sender", "aiokafka.consumer.group_coordinator")  # fmt: skip

_LIBRARIES = ("aiokafka", "faust", "mode")


class JsonFormatter(logging.Formatter):
    """Formats one JSON object per line: time, level, logger, message, and the error with its stack."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["stack"] = "".join(traceback.format_exception(record.exc_info[1]))
        return orjson.dumps(line).decode()


class ClientNoise(logging.Filter):
    """Filters the messages that the Kafka client and Faust log for every attempt; DEBUG shows all of them."""

    def __init__(self) -> None:
        """Create a filter."""
        super().__init__()
        self._logged_at: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if logging.getLogger().level <= logging.DEBUG:
            return True
        error = record.exc_info[1] if record.exc_info else None
        if record.name == "asyncio":  # a future that the client abandoned
            return not isinstance(error, KafkaError)
        if record.name.partition(".")[0] not in _LIBRARIES:
            return True
        if error is None and record.name in CONNECTIVITY and record.levelno < logging.CRITICAL:
            return False
        now, key = time.monotonic(), (record.name, str(record.msg))
        if now - self._logged_at.get(key, -REPEAT_S) < REPEAT_S:
            return False
        self._logged_at[key] = now
        return True


def start_log(level: str, form: str) -> None:
    """Log to standard error, unless the embedding program has configured logging."""
    root = logging.getLogger()
    if not root.handlers:
        ours = logging.StreamHandler()
        ours.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT))
        root.addHandler(ours)
    for handler in root.handlers:
        if not any(isinstance(known, ClientNoise) for known in handler.filters):
            handler.addFilter(ClientNoise())
    quieten(level)


def quieten(level: str) -> None:
    """Restore log levels: Faust sets the root logger to DEBUG, so that every debug record of the client is built."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if "Spinner" in type(handler).__name__:
            root.removeHandler(handler)
    root.setLevel(level)
    for name in ("aiokafka", "faust", "mode"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(max(root.level, logging.WARNING) if root.level > logging.DEBUG else root.level)
    # "Timer commit is overlapping": a commit may take longer than its interval, the next one then waits for it.
    logging.getLogger("mode.timers").setLevel(logging.ERROR)
