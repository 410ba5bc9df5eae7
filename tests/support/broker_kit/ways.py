"""The four ways to a broker, in the order in which they are tried: the first that works here is taken."""

import contextlib
import ctypes
import dataclasses
import importlib.metadata
import os
import socket
import time
import warnings
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from aiokafka.admin import AIOKafkaAdminClient
from local_kafka import KafkaUnavailable, LocalKafka
from local_kafka_jars import pinned_version
from local_kafka_node import SETTINGS, SHORT_LIVED
from local_kafka_probe import answers

GIVEN_VARIABLE = "TRUSTFOLD_TEST_BROKER"
REQUIRE_VARIABLE = "TRUSTFOLD_REQUIRE_BROKER"
GIVEN_PATIENCE = 15.0  # seconds; the broker may have been started a moment ago
DOCKER_PATIENCE = 2.0  # seconds for Docker to say that it is there; testcontainers tries many times over
CONTAINER_PATIENCE = 90.0  # seconds from the container's start to the broker's first answer
PORT = 9092

# The broker must tell its clients an address that they can reach, and that is known only once the container
# runs: it waits for a script that sets it, then starts as the image would.
SCRIPT = "/tmp/advertise.sh"  # inside the container
COMMAND = ["sh", "-c", f"while [ ! -s {SCRIPT} ]; do sleep 0.1; done; . {SCRIPT}; exec /etc/kafka/docker/run"]
LISTENERS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@localhost:29093",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"PLAINTEXT://:{PORT},CONTROLLER://:29093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}

Say = Callable[[str], None]


class Unavailable(Exception):
    """This way gives no broker here; the message says why. The next way is tried."""


class NoBroker(Exception):
    """No way gives a broker, or the one asked for by name does not answer; the message says what to do."""


@dataclasses.dataclass
class Broker:
    """A broker to test with."""

    bootstrap: str
    """Where clients connect: `host:port`, or several with commas."""
    kind: str
    """`given`, `container`, `local` or `mock`."""
    description: str
    """For people, e.g. "Apache Kafka 4.3.1 from its jars at 127.0.0.1:25001"."""
    durable: bool = True
    """Whether it is a real Kafka that keeps its log; the mock is none and keeps nothing."""
    close: Callable[[], None] = lambda: None
    """End it, if it is ours. May be called twice."""
    passed_over: list[str] = dataclasses.field(default_factory=list)
    """Why each way that comes before this one was not taken."""


def given(_say: Say) -> Broker:
    """The broker named in TRUSTFOLD_TEST_BROKER; if it is silent, the search ends."""
    bootstrap = os.environ.get(GIVEN_VARIABLE, "").strip()
    if not bootstrap:
        raise Unavailable(f"{GIVEN_VARIABLE} is not set")
    addresses = [part.strip().rpartition(":") for part in bootstrap.split(",")]
    if wrong := [host + colon + port for host, colon, port in addresses if not host or not port.isdigit()]:
        raise NoBroker(f"{GIVEN_VARIABLE} holds {wrong[0]!r}, which is no HOST:PORT: correct it, e.g. localhost:9092")
    if not _answers_within(GIVEN_PATIENCE, [(host.strip("[]"), int(port)) for host, _, port in addresses]):
        raise NoBroker(
            f"{GIVEN_VARIABLE}={bootstrap}, and no Kafka answers there after {GIVEN_PATIENCE:g} s: start it,"
            " correct the address, or unset the variable"
        )
    return Broker(bootstrap, "given", f"the broker at {bootstrap} ({GIVEN_VARIABLE})")


def container(_say: Say) -> Broker:
    """The official image of the version that ops/kafka/pom.xml names, by testcontainers."""
    _ask_docker(os.environ.get("DOCKER_HOST", "").strip() or "unix:///var/run/docker.sock")
    image = f"apache/kafka:{pinned_version()}"
    settings = {
        "KAFKA_" + name.upper().replace(".", "_"): value for name, value in (LISTENERS | dict(SETTINGS)).items()
    }
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")  # theirs are not ours to fix, and ours are errors
        try:
            from testcontainers.core.container import DockerContainer  # slow, and seldom needed

            made: Any = DockerContainer(image).with_exposed_ports(PORT).with_command(COMMAND).with_envs(**settings)
            stack.callback(made.stop)
            made.start()
            host, port = made.get_container_host_ip(), int(made.get_exposed_port(PORT))
            advertise = f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{host}:{port}\n"
            made.copy_into_container(advertise.encode(), SCRIPT, 0o644)
        except Exception as error:  # Docker's client has dozens: no package, image, network, rights or space
            raise Unavailable(f"Docker runs, but {image} does not start: {error}") from error
        if not _answers_within(CONTAINER_PATIENCE, [(host, port)]):
            said = b"".join(made.get_logs()).decode(errors="replace")[-1000:]
            raise Unavailable(f"{image} does not answer within {CONTAINER_PATIENCE:g} s. Its last words: {said}")
        close = stack.pop_all().close
    return Broker(f"{host}:{port}", "container", f"container {image} at {host}:{port}", close=close)


def local(say: Say) -> Broker:
    """A real Kafka run from its jars on this machine's Java (ops/kafka)."""
    kafka = LocalKafka(java_options=SHORT_LIVED, say=say)
    try:
        kafka.start()
    except KafkaUnavailable as error:
        kafka.close()
        raise Unavailable(str(error)) from error
    told = f"Apache Kafka {kafka.version} from its jars at {kafka.bootstrap}, up in {kafka.seconds_to_start:.1f} s"
    return Broker(kafka.bootstrap, "local", told, close=kafka.close)


def mock(_say: Say) -> Broker:
    """A mock cluster of librdkafka in this process: Kafka's protocol with nothing behind it.

    Driven by ctypes, because confluent-kafka's own setting (`test.mock.num.brokers`) cannot tell the address. What it
    lacks next to a real broker: a log that survives it, compaction, transactions that isolate, creation of topics over
    the wire, groups that behave under failure.
    """
    try:
        with contextlib.ExitStack() as stack:
            bootstrap = _start_mock(stack)
            close = stack.pop_all().close
    except (ImportError, StopIteration, OSError, AttributeError, RuntimeError) as error:
        raise Unavailable(f"no librdkafka with a mock cluster ({error!r}): pip install -U confluent-kafka") from error
    told = f"librdkafka's mock at {bootstrap}: keeps nothing, tests marked durable_broker are skipped"
    return Broker(bootstrap, "mock", told, durable=False, close=close)


def required() -> bool:
    """Whether a real broker must be there: TRUSTFOLD_REQUIRE_BROKER is set, and not to 0, no or false."""
    return os.environ.get(REQUIRE_VARIABLE, "").strip().lower() not in {"", "0", "no", "false"}


def open_broker(say: Say = lambda _: None, *, durable: bool = False) -> Broker:
    """Open the first way that works; with `durable`, or where a real broker is required, the mock does not count.

    Close it in the end. Raises NoBroker with the reason of every way.
    """
    must = durable or required()
    reasons: list[str] = []
    for way in (given, container, local) if must else (given, container, local, mock):
        try:
            return dataclasses.replace(way(say), passed_over=reasons)
        except Unavailable as reason:
            reasons.append(f"{way.__name__}: {reason}")
    what = f"no broker that keeps its log ({REQUIRE_VARIABLE})" if must else "no broker"
    raise NoBroker("\n  ".join([f"{what} can be had here. Remove one of these obstacles:", *reasons]))


async def delete_topics(broker: Broker, prefix: str) -> None:
    """Delete every topic whose name begins with this prefix; the mock keeps them until it ends."""
    if not broker.durable:
        return
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        if names := [name for name in await admin.list_topics() if name.startswith(prefix)]:
            await admin.delete_topics(names)
    finally:
        await admin.close()


def _answers_within(seconds: float, addresses: list[tuple[str, int]]) -> bool:
    deadline = time.monotonic() + seconds
    while not any(answers(host, port) for host, port in addresses):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _ask_docker(where: str) -> None:
    """Ask Docker whether it is there, where it listens on a socket; else its client finds out. Raises Unavailable."""
    url = urlsplit(where)
    if url.scheme != "unix":
        return
    with socket.socket(socket.AF_UNIX) as docker:
        docker.settimeout(DOCKER_PATIENCE)
        try:
            docker.connect(url.path)
            docker.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            reply = docker.recv(64)
        except OSError as error:
            raise Unavailable(f"Docker is not running at {where} ({error.strerror or error})") from error
    if b" 200 " not in reply:
        raise Unavailable(f"what listens on {where} does not answer as Docker does")


def _start_mock(stack: contextlib.ExitStack) -> str:
    """Start a cluster of one broker, which ends with `stack`; gives its address (rdkafka.h, rdkafka_mock.h)."""
    files = importlib.metadata.files("confluent-kafka") or []
    # auditwheel and delocate add a hash: librdkafka-1a2b3c.so.1, librdkafka.1.dylib
    found = next(one for one in files if one.name.startswith("librdkafka") and {".so", ".dylib"} & set(one.suffixes))
    library = ctypes.CDLL(str(found.locate()))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    message = ctypes.create_string_buffer(512)
    size, settings = ctypes.c_size_t(len(message)), ctypes.c_void_p(library.rd_kafka_conf_new())
    producer = 0  # rd_kafka_type_t; the mock needs a client to live in, of any type
    client = ctypes.c_void_p(library.rd_kafka_new(producer, settings, message, size))
    if not client:
        raise RuntimeError(f"librdkafka gives no client: {message.value.decode(errors='replace')}")
    stack.callback(library.rd_kafka_destroy, client)
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
    if not cluster:
        raise RuntimeError("librdkafka gives no mock cluster")
    stack.callback(library.rd_kafka_mock_cluster_destroy, cluster)
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0)  # as with the local broker
    return library.rd_kafka_mock_cluster_bootstraps(cluster).decode()  # type: ignore[no-any-return]
