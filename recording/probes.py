"""HTTP server for health and metrics of a running recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..streams.kafka.kafka_settings import KafkaSettings
from ..streams.probe_server import HealthProbe, ProbeServer
from .status import RecordingStatus


@contextmanager
def probed(status: RecordingStatus, settings: KafkaSettings, *, once: bool) -> Iterator[None]:
    """Serve a recording's health and metrics while the block runs, if the recording is continuous and a port is set.

    Raises:
        ConfigError: the address is taken or not this machine's.
    """
    if once or settings.web_port is None:
        yield
        return
    probe = HealthProbe(status.alive, status.ready, status.body, _metrics_of(status))
    server = ProbeServer(probe, settings.web_bind, settings.web_port)
    try:
        yield
    finally:
        server.close()


def _metrics_of(status: RecordingStatus) -> Callable[[], bytes] | None:
    try:
        from ..streams.metric_families import exposition
        from .recording_metrics import RecordingCollector
    except ImportError:
        return None
    return exposition(RecordingCollector(status))
