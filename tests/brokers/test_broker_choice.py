"""Which broker the tests get, in which order, and what is said where there is none."""

import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_kit import Broker, NoBroker, Unavailable, all_ways, choose, outlook, required
from broker_kit.container import SCRIPT, Container, ping
from broker_kit.ways import Given


class FakeWay:
    """A way that is there or is not, and remembers whether it was opened."""

    def __init__(self, kind: str, *, missing: str | None = None, fails: Exception | None = None, durable: bool = True):
        self.kind, self.durable = kind, durable
        self._missing, self._fails = missing, fails
        self.opened = False

    def missing(self) -> str | None:
        """Say what the test wants."""
        return self._missing

    def open(self) -> Broker:
        """Give a broker, or fail as the test wants."""
        self.opened = True
        if self._fails is not None:
            raise self._fails
        return Broker("host:1", self.kind, "a fake", durable=self.durable)


def test_the_order() -> None:
    """The environment's, a container, the jars, the mock; only the mock is not durable."""
    ways = all_ways({})
    assert [way.kind for way in ways] == ["given", "container", "local", "mock"]
    assert [way.durable for way in ways] == [True, True, True, False]


def test_the_first_way_that_works_is_taken() -> None:
    """What comes after it is not even started."""
    ways = [FakeWay("given", missing="not set"), FakeWay("container"), FakeWay("local")]
    broker = choose(ways, require=False)
    assert broker.kind == "container"
    assert broker.passed_over == ["given: not set"]
    assert [way.opened for way in ways] == [False, True, False]


def test_a_way_that_fails_leads_to_the_next() -> None:
    """Docker may run and the image may not be had; the reason is kept."""
    ways = [FakeWay("container", fails=Unavailable("no image")), FakeWay("local")]
    broker = choose(ways, require=False)
    assert broker.kind == "local"
    assert broker.passed_over == ["container: no image"]


def test_a_named_broker_that_is_dead_ends_the_search() -> None:
    """Testing on another broker than the one asked for would be a surprise."""
    ways = [FakeWay("given", fails=NoBroker("does not answer")), FakeWay("local")]
    with pytest.raises(NoBroker, match="does not answer"):
        choose(ways, require=False)
    assert not ways[1].opened


def test_a_required_broker_is_never_the_mock() -> None:
    """Continuous integration fails, with every reason, rather than test on less."""
    ways = [FakeWay("local", missing="no Java"), FakeWay("mock", durable=False)]
    assert choose(ways, require=False).kind == "mock"
    ways[1].opened = False
    with pytest.raises(NoBroker, match=r"TRUSTFOLD_REQUIRE_BROKER.*\n  local: no Java\n  mock: does not count"):
        choose(ways, require=True)
    assert not ways[1].opened


def test_no_way_at_all() -> None:
    """Without any broker the reasons of all ways are told."""
    with pytest.raises(NoBroker, match=r"local: no Java\n  mock: no wheel"):
        choose([FakeWay("local", missing="no Java"), FakeWay("mock", missing="no wheel")], require=False)


@pytest.mark.parametrize(
    ("value", "meant"),
    [("1", True), ("yes", True), ("true", True), ("0", False), ("", False), ("no", False), ("False", False)],
)
def test_what_counts_as_required(value: str, meant: bool) -> None:
    """The variable is a switch, and 0 is off."""
    assert required({"TRUSTFOLD_REQUIRE_BROKER": value}) is meant
    assert required({}) is False


def test_the_outlook_starts_nothing() -> None:
    """The report's header says what is likely, at no cost."""
    ways = [FakeWay("given", missing="not set"), FakeWay("local"), FakeWay("mock", durable=False)]
    assert outlook(ways, require=False) == "local, when a test asks for it (no given: not set)"
    assert not any(way.opened for way in ways)
    assert "no mock: does not count" in outlook(ways[2:], require=True)


def test_the_header_says_where_a_broker_would_come_from(pytestconfig: pytest.Config) -> None:
    """Every run's report begins with it."""
    lines = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=Path.cwd())
    flat = [line for part in lines for line in ([part] if isinstance(part, str) else part)]
    assert any(line.startswith("broker: ") for line in flat)


@pytest.mark.parametrize("text", ["localhost", "localhost:", ":9092", "localhost:kafka"])
def test_a_malformed_address_is_told(text: str) -> None:
    """The variable is quoted, with an example of what it should hold."""
    with pytest.raises(NoBroker, match=r"no HOST:PORT: correct it, e\.g\. localhost:9092"):
        Given({"TRUSTFOLD_TEST_BROKER": text}).open()


def test_a_named_broker_that_does_not_answer_is_told() -> None:
    """The address is quoted, with what to do."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(NoBroker, match=f"{address}, and no Kafka answers there after 0 s: start it"):
            Given({"TRUSTFOLD_TEST_BROKER": address}, patience=0).open()


def test_a_named_broker_is_taken_as_it_is(broker: Broker) -> None:
    """Whatever broker answers there is used, and is not closed by us."""
    bootstrap = f"127.0.0.1:1, {broker.bootstrap}"  # one of several may be down
    given = Given({"TRUSTFOLD_TEST_BROKER": bootstrap}).open()
    assert (given.kind, given.bootstrap, given.durable) == ("given", bootstrap, True)
    given.close()


# --- Docker -------------------------------------------------------------------------------------------------


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Callable[[bytes | None], dict[str, str]]]:
    """Start a fake Docker that replies so to a ping (None: never); gives the environment for it."""
    servers: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(server: socket.socket, reply: bytes) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(reply)

    def start(reply: bytes | None) -> dict[str, str]:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(tmp_path / "docker.sock"))
        server.listen()
        servers.append(server)
        if reply is not None:
            threads.append(threading.Thread(target=serve, args=(server, reply)))
            threads[-1].start()
        return {"DOCKER_HOST": f"unix://{tmp_path / 'docker.sock'}"}

    yield start
    for thread in threads:
        thread.join(5)
    for server in servers:
        server.close()


def test_docker_answers(docker: Callable[[bytes | None], dict[str, str]]) -> None:
    """A daemon that says OK is there."""
    assert ping(docker(b"HTTP/1.0 200 OK\r\n\r\nOK")) is None


def test_docker_is_not_well(docker: Callable[[bytes | None], dict[str, str]]) -> None:
    """A daemon that says anything else is not."""
    assert "does not answer as Docker does" in str(ping(docker(b"HTTP/1.0 500 Oh\r\n\r\n")))


def test_docker_hangs(docker: Callable[[bytes | None], dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that accepts and says nothing costs two seconds, no more."""
    monkeypatch.setattr("broker_kit.container.PING_PATIENCE", 0.05)
    assert "does not answer" in str(ping(docker(None)))


@pytest.mark.parametrize("where", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
def test_docker_is_not_there(where: str) -> None:
    """Without a daemon the answer is immediate, and names the address."""
    assert str(ping({"DOCKER_HOST": where})).startswith(f"Docker is not running at {where}")


class FakeContainer:
    """Stands in for testcontainers' DockerContainer; what it does when started is set per test."""

    made: "list[FakeContainer]" = []
    port = 1
    refuses: Exception | None = None

    def __init__(self, image: str) -> None:
        self.image, self.environment, self.files, self.stopped = image, {}, {}, 0
        self.made.append(self)

    def with_exposed_ports(self, *ports: int) -> "FakeContainer":
        """Note the ports."""
        self.ports = ports
        return self

    def with_command(self, command: list[str]) -> "FakeContainer":
        """Note the command."""
        self.command = command
        return self

    def with_envs(self, **variables: str) -> "FakeContainer":
        """Note the environment."""
        self.environment = variables
        return self

    def start(self) -> "FakeContainer":
        """Start, or refuse to."""
        if self.refuses:
            raise self.refuses
        return self

    def get_container_host_ip(self) -> str:
        """Where Docker runs."""
        return "127.0.0.1"

    def get_exposed_port(self, port: int) -> int:
        """The port that Docker chose."""
        assert (port,) == self.ports
        return self.port

    def copy_into_container(self, content: bytes, path: str, mode: int) -> None:
        """Note the file."""
        self.files[path] = content

    def get_logs(self) -> tuple[bytes, bytes]:
        """Standard output and standard error."""
        return b"I am ill", b""

    def stop(self) -> None:
        """Count."""
        self.stopped += 1


@pytest.fixture
def fake_container(monkeypatch: pytest.MonkeyPatch) -> type[FakeContainer]:
    """Put the fake in testcontainers' place."""
    module = types.ModuleType("testcontainers.core.container")
    fresh = type("Fresh", (FakeContainer,), {"made": []})
    module.DockerContainer = fresh
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", module)
    return fresh


def test_a_container_tells_clients_an_address_they_reach(fake_container: type[FakeContainer], broker: Broker) -> None:
    """The broker in the container waits for the port that Docker chose, and advertises it."""
    host, _, port = broker.bootstrap.rpartition(":")  # any Kafka answers for the one in the container
    fake_container.port = int(port)
    opened = Container({}, "4.3.1").open()
    [container] = fake_container.made
    assert container.image == "apache/kafka:4.3.1"
    assert container.files == {SCRIPT: f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{host}:{port}\n".encode()}
    assert container.environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert container.environment["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "1"
    assert (opened.kind, opened.bootstrap, opened.durable) == ("container", f"127.0.0.1:{port}", True)
    opened.close()
    opened.close()
    assert container.stopped == 1


def test_a_container_that_cannot_start_is_told(fake_container: type[FakeContainer]) -> None:
    """No image, no room, no rights: Docker's words are passed on and the next way is tried."""
    fake_container.refuses = RuntimeError("pull access denied")
    with pytest.raises(Unavailable, match=r"apache/kafka:4\.3\.1 does not start: pull access denied"):
        Container({}, "4.3.1").open()
    assert [container.stopped for container in fake_container.made] == [1]


def test_a_container_that_does_not_answer_is_told(fake_container: type[FakeContainer]) -> None:
    """Its last words are shown, and it does not stay behind."""
    with pytest.raises(Unavailable, match=r"does not answer within 0 s.*I am ill"):
        Container({}, "4.3.1", patience=0).open()
    assert [container.stopped for container in fake_container.made] == [1]
