"""The worker as it is deployed: a process of its own with a log and metrics."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from bench_result import CannotMeasure
from trustfold.streams.kafka.kafka_settings import KafkaSettings

Metric = tuple[str, str, float]
"""Name, labels as they are written, and value."""


class DeployedWorker:
    """A worker process.

    Attributes:
        log: file that its log goes to.
        process: it.
    """

    def __init__(self, settings: KafkaSettings, log: Path, *arguments: str, **variables: str) -> None:
        """Start it, with default settings but for names.

        Args:
            settings: give broker, names and partitions.
            log: file for its log.
            arguments: of the command `worker`.
            variables: added to its environment.
        """
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        environment = os.environ | {
            "TRUSTFOLD_BROKER": settings.bootstrap,
            "TRUSTFOLD_APP_ID": settings.app_id,
            "TRUSTFOLD_TOPIC_PREFIX": settings.topic_prefix,
            "TRUSTFOLD_PARTITIONS": str(settings.partitions),
            "TRUSTFOLD_WEB_PORT": str(self._port),
        }
        self.log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trustfold", "worker", *arguments],
                env=environment | variables,
                stderr=sink,
                cwd=log.parent,
            )

    def ready(self) -> bool:
        """Whether it has taken an assignment.

        Raises:
            CannotMeasure: it has ended.
        """
        told = self.log.read_text()
        if self.process.poll() is not None:
            raise CannotMeasure(f"a worker ended: {told[-500:]}")
        return "ready in generation" in told

    def metrics(self) -> list[Metric]:
        """Every metric; none while it starts."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return []
        found = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
        return [(name, labels, float(value)) for name, labels, value in found]

    def stop(self) -> int:
        """Ask it to stop; gives its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """End it with -9, if it runs, and wait for its end."""
        self.process.kill()
        self.process.wait()


def labelled(metrics: list[Metric], wanted: str) -> dict[str, float]:
    """Values of a metric by its labels' values, joined by `/`."""
    return {"/".join(re.findall('"(.*?)"', labels)): value for name, labels, value in metrics if name == wanted}
