"""A broker that is stopped where it is."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from local_kafka import LocalKafka


@contextlib.contextmanager
def paused(kafka: LocalKafka) -> Iterator[None]:
    """A broker that takes connections and says nothing."""
    watcher = kafka._process.pid
    number = int(Path(f"/proc/{watcher}/task/{watcher}/children").read_text().split()[0])
    os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(number, signal.SIGCONT)
