"""Kafka in a container, by testcontainers, where Docker answers."""

import socket
import time
import warnings
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from local_kafka_node import SETTINGS
from local_kafka_probe import answers

from .choice import Broker, Unavailable

SOCKET = "/var/run/docker.sock"
PING_PATIENCE = 2.0  # seconds for Docker to say that it is there
START_PATIENCE = 90.0  # seconds from the container's start to the broker's first answer
PORT = 9092
SCRIPT = "/tmp/advertise.sh"  # inside the container

# The broker must tell its clients an address that they can reach, and that is known only once the container
# runs: it waits for a script that sets it, then starts as the image would.
COMMAND = ["sh", "-c", f"while [ ! -s {SCRIPT} ]; do sleep 0.1; done; . {SCRIPT}; exec /etc/kafka/docker/run"]


def ping(environment: Mapping[str, str]) -> str | None:
    """Ask Docker whether it is there, waiting two seconds at most; gives None when it is, else what is wrong.

    Testcontainers itself tries many times over before it gives up, which is no way to find out.
    """
    where = environment.get("DOCKER_HOST", "").strip() or f"unix://{SOCKET}"
    url = urlsplit(where)
    try:
        if url.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as docker:
                docker.settimeout(PING_PATIENCE)
                docker.connect(url.path)
                docker.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
                reply = docker.recv(64)
                if reply.partition(b"\r\n")[0].split(b" ")[1:2] != [b"200"]:
                    return f"what listens on {where} does not answer as Docker does"
        elif url.scheme in {"tcp", "http", "https"} and url.hostname:
            # It may want TLS from here on: that it listens is all that can be asked simply.
            socket.create_connection((url.hostname, url.port or 2375), timeout=PING_PATIENCE).close()
        # Any other scheme (ssh, npipe): only Docker's client knows how; let it try.
    except TimeoutError:
        return f"Docker does not answer at {where} within {PING_PATIENCE:g} s"
    except OSError as error:
        return f"Docker is not running at {where} ({error.strerror or error})"
    return None


def settings() -> dict[str, str]:
    """Give the environment that makes the image's broker like the local one, but for where it listens."""
    listen = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@localhost:29093",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://:29093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in (listen | dict(SETTINGS)).items()}


class Container:
    """The official image `apache/kafka` of the version that ops/kafka/pom.xml names."""

    kind = "container"
    durable = True

    def __init__(self, environment: Mapping[str, str], version: str, patience: float = START_PATIENCE) -> None:
        self._environment = environment
        self._image = f"apache/kafka:{version}"
        self._patience = patience

    def missing(self) -> str | None:
        """Ask Docker whether it is there."""
        return ping(self._environment)

    def open(self) -> Broker:
        """Start the container and wait for the broker in it."""
        try:
            with warnings.catch_warnings():  # theirs are not ours to fix, and ours are errors
                warnings.simplefilter("ignore")
                return self._open()
        except ImportError as error:
            raise Unavailable(f"testcontainers is not installed ({error}): pip install testcontainers") from error

    def _open(self) -> Broker:
        from testcontainers.core.container import DockerContainer  # slow, and seldom needed

        container: Any = None
        try:
            container = DockerContainer(self._image).with_exposed_ports(PORT).with_command(COMMAND)
            container.with_envs(**settings())
            container.start()
            host, port = container.get_container_host_ip(), int(container.get_exposed_port(PORT))
            advertise = f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{host}:{port}\n"
            container.copy_into_container(advertise.encode(), SCRIPT, 0o644)
            self._await_answer(container, host, port)
        except Unavailable:
            container.stop()
            raise
        except Exception as error:  # Docker's client has dozens: no image, no network, no rights, no space
            if container is not None:
                container.stop()
            raise Unavailable(f"Docker runs, but {self._image} does not start: {error}") from error
        return Broker(
            f"{host}:{port}",
            self.kind,
            f"container {self._image} at {host}:{port}",
            close=_once(container.stop),
        )

    def _await_answer(self, container: Any, host: str, port: int) -> None:
        deadline = time.monotonic() + self._patience
        while not answers(host, port):
            if time.monotonic() > deadline:
                said = b"".join(container.get_logs()).decode(errors="replace")[-1000:]
                raise Unavailable(f"{self._image} does not answer within {self._patience:g} s. Its last words: {said}")
            time.sleep(0.1)


def _once(act: Any) -> Any:
    """Let only the first call through."""
    acts = [act]
    return lambda: acts.pop()() if acts else None
