"""A real Redis for tests: the machine's own `redis-server`, in a temporary folder, on a free port."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import redis
from probing import free_port
from waiting import wait_until

REQUIRED = "TRUSTFOLD_REQUIRE_REDIS"
"""Set where a missing Redis is a failure and not a skip."""

GIVEN = "TRUSTFOLD_TEST_REDIS"
"""URL of a Redis to use instead; its keys below `trustfold-test:` are ours."""


PATIENT = {"socket_timeout": 120.0, "socket_connect_timeout": 120.0}
"""Options of a client in tests whose subject is not a slow Redis: a busy machine fails none of them."""


class RedisUnavailable(Exception):
    """There is no Redis here; the message says how to get one."""


class LocalRedis:
    """A Redis that lives as long as this object."""

    def __init__(self, folder: Path, replica_of: LocalRedis | None = None) -> None:
        """Start it; a replica only reads. Raises RedisUnavailable: it is not installed, or does not start."""
        program = shutil.which("redis-server")
        if program is None:
            raise RedisUnavailable("no redis-server on this machine: apt-get install redis-server")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        if replica_of is not None:
            options += ["--replicaof", f"127.0.0.1 {replica_of.port}"]
        self.process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        wait_until(self._answers, what="redis-server answers")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RedisUnavailable(f"redis-server ended with {self.process.returncode}")
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def required() -> bool:
    """Whether tests must have a Redis."""
    return os.environ.get(REQUIRED, "") not in {"", "0"}
