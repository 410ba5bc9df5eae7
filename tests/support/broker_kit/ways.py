"""The four ways to a broker, in the order they are tried (tests/brokers/README.md)."""

import os
import shutil
import time
from collections.abc import Callable, Mapping

from local_kafka import KafkaUnavailable, LocalKafka
from local_kafka_jars import home, installed, pinned_version
from local_kafka_probe import answers

from .choice import Broker, NoBroker, Unavailable, Way, choose, required
from .container import Container
from .mock import Mock

GIVEN_VARIABLE = "TRUSTFOLD_TEST_BROKER"
GIVEN_PATIENCE = 15.0  # seconds; the broker may have been started a moment ago


class Given:
    """A broker that somebody runs and names in TRUSTFOLD_TEST_BROKER; if it is silent, the search ends."""

    kind = "given"
    durable = True

    def __init__(self, environment: Mapping[str, str], patience: float = GIVEN_PATIENCE) -> None:
        self._bootstrap = environment.get(GIVEN_VARIABLE, "").strip()
        self._patience = patience

    def missing(self) -> str | None:
        """Look at the variable."""
        return None if self._bootstrap else f"{GIVEN_VARIABLE} is not set"

    def open(self) -> Broker:
        """Wait until it answers, and take it as it is."""
        addresses = [_address(part.strip()) for part in self._bootstrap.split(",")]
        deadline = time.monotonic() + self._patience
        while not any(answers(host, port) for host, port in addresses):
            if time.monotonic() > deadline:
                raise NoBroker(
                    f"{GIVEN_VARIABLE}={self._bootstrap}, and no Kafka answers there after {self._patience:g}"
                    " s: start it, correct the address, or unset the variable"
                )
            time.sleep(0.1)
        return Broker(self._bootstrap, self.kind, f"the broker at {self._bootstrap} ({GIVEN_VARIABLE})")


class Local:
    """A real Kafka run from its jars on this machine's Java (ops/kafka)."""

    kind = "local"
    durable = True

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say

    def missing(self) -> str | None:
        """Look for Java, and for the jars or a Maven that gets them."""
        java_home = os.environ.get("JAVA_HOME")
        if shutil.which("java", path=os.path.join(java_home, "bin") if java_home else None) is None:  # noqa: PTH118
            return "no Java here (Debian and Ubuntu: apt-get install openjdk-17-jre-headless)"
        try:
            if installed(home()) is None and shutil.which("mvn") is None:
                return "no Maven here to fetch Kafka with (Debian and Ubuntu: apt-get install maven)"
        except KafkaUnavailable as error:
            return str(error)
        return None

    def open(self) -> Broker:
        """Start one, fetching its jars first if need be."""
        kafka = LocalKafka(say=self._say)
        try:
            kafka.start()
        except KafkaUnavailable as error:
            kafka.close()
            raise Unavailable(str(error)) from error
        return Broker(
            kafka.bootstrap,
            self.kind,
            f"Apache Kafka {kafka.version} from its jars at {kafka.bootstrap}, up in {kafka.seconds_to_start:.1f} s",
            close=kafka.close,
        )


def all_ways(environment: Mapping[str, str], say: Callable[[str], None] = lambda _: None) -> list[Way]:
    """Give the ways in their order: named by the environment, a container, the jars, librdkafka's mock."""
    return [Given(environment), Container(environment, pinned_version()), Local(say), Mock()]


def open_broker(say: Callable[[str], None] = lambda _: None) -> Broker:
    """Get a broker as the tests do, for a program that is no test; close() it in the end. Raises NoBroker."""
    return choose(all_ways(os.environ, say), require=required(os.environ))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise NoBroker(f"{GIVEN_VARIABLE} holds {text!r}, which is no HOST:PORT: correct it, e.g. localhost:9092")
    return host.strip("[]"), int(port)
