"""Asking the port of a worker or a recorder for its health and metrics."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of an endpoint; 0 while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def status(port: int, path: str) -> tuple[int, str]:
    """Status code and the word for it."""
    code, body = get(port, path)
    return code, json.loads(body)["status"] if body else ""


def samples(port: int) -> dict[tuple[str, ...], float]:
    """Every sample of the metrics, by name and values of its labels in the order of their names."""
    return {
        (sample.name, *[sample.labels[name] for name in sorted(sample.labels)]): sample.value
        for family in text_string_to_metric_families(get(port, "/metrics")[1])
        for sample in family.samples
    }


def check_with_promtool(text: str) -> None:
    """Fail unless Prometheus' own linter is content; skip where it is not installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here to check the exposition with (Debian: apt-get install prometheus)")
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
