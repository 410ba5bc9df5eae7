"""One Kafka node on this machine: format, start, wait until it answers, stop, kill, restart."""

import base64
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from local_kafka_jars import KafkaInstallation, KafkaUnavailable, prepare
from local_kafka_probe import LOCAL, answers, free_port, is_free

HERE = Path(__file__).parent
HEAP_MB = 512  # a test machine runs more than this broker; 16 MB of it are the log cleaner's
START_PATIENCE = 180.0  # seconds; 3 to 4 on an idle machine with two cores, 60 under ten times its load
STOP_PATIENCE = 20.0  # seconds for an orderly stop (about one), before it is killed
SETTLE_S = 5.0  # seconds after its first answer until a broker has loaded nearly all it runs on
ATTEMPTS = 3  # when a port chosen at random is taken before the broker has it

# What differs from Kafka's own defaults, and why. Times in ms, sizes in bytes.
SETTINGS: Mapping[str, str] = {
    # One node: one copy of Kafka's own topics, and few partitions of them, for a quick start.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Topics come from trustfold's catalogue, with the right partitions and clean-up, or not at all.
    "auto.create.topics.enable": "false",
    # A group forms at once, and a test may have a dead member noticed within a second (Kafka: 3000 and 6000).
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Recorded runs carry old timestamps; with Kafka's 7 days they would vanish minutes after they were
    # published.
    "log.retention.ms": "-1",
    # Compaction shows within seconds (Kafka: 15000), and does not take a quarter of the heap (Kafka: 128 MB).
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    # A third of the start and of what an idle node costs: threads for a server's load, and a record to the metadata
    # twice a second that tells other nodes of nothing new.
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "metadata.max.idle.interval.ms": "0",
    # After kill -9 the node must wait until its former self counts as dead (Kafka: 9000 and 2000).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class ClusterMember(NamedTuple):
    """Which node of which cluster this is (local_kafka_cluster.py)."""

    number: int  # `node.id`, from 1
    controllers: Sequence[int]  # Ports of every node's controller, by number; this node's own among them
    cluster: str  # Id of the cluster, in Kafka's spelling


def new_cluster_id() -> str:
    """Give a random id of a cluster in Kafka's spelling."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


# Options for Java of a broker that runs for seconds: 40 % of the CPU of a start goes into optimising compilation
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)


# Files beside the jars, kept from a broker that ran before: what a start needs of Java, and the tool that formats
CLASSES, FEATURES = "classes.jsa", "bootstrap.checkpoint"


def keep_start(installation: KafkaInstallation) -> None:
    """Keep what makes later starts cheap, 4 of 8 seconds of CPU; it is what one broker loads until it has stopped."""
    folder = installation.libs.parent
    if (folder / CLASSES).exists():
        return
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as made:
        dump = f"-XX:ArchiveClassesAtExit={made}/{CLASSES}"
        with LocalKafka(java_options=(*SHORT_LIVED, dump)) as kafka:
            shutil.copy(kafka.data / "log" / FEATURES, folder)
            time.sleep(SETTLE_S)
            kafka.stop()
        if Path(made, CLASSES).exists():  # a Java that cannot share them starts as before
            Path(made, CLASSES).rename(folder / CLASSES)


class LocalKafka:
    """A real, durable Kafka node that lives no longer than the process that started it; a cluster of its own.

    `with LocalKafka() as kafka: connect(kafka.bootstrap)`. Without `port` it listens on a free one of
    127.0.0.1, which it keeps over restarts; without `data` it writes to a folder under the temporary
    directory, deleted in the end. `settings` are broker settings that override ours. `listeners` are ports
    of 127.0.0.1 that clients may use too, by the name of the protocol (SSL, SASL_SSL …). `member` makes it a
    node of a cluster, and its start then waits for the others. `say` hears what takes long, one line each.
    Raises KafkaUnavailable where Java or the jars are missing, the port is taken, or the
    broker does not come up.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, int] | None = None,
        member: ClusterMember | None = None,
        heap_mb: int = HEAP_MB,
        java_options: Sequence[str] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._wanted_port = port
        self._port = port
        self._controller_port: int | None = None
        self._given_data = data
        self._data = data
        self._settings = dict(settings or {})
        self._listeners = dict(listeners or {})
        self._member = member
        self._heap_mb = heap_mb
        self._java_options = java_options
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._installation: KafkaInstallation | None = None
        self.version = ""
        """Kafka's version, known once started."""
        self.seconds_to_start = 0.0
        """How long the last start took, from nothing to the first answer."""

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Where clients connect, `127.0.0.1:PORT`."""
        if self._port is None:
            raise RuntimeError("this broker has no address before start()")
        return f"{LOCAL}:{self._port}"

    @property
    def data(self) -> Path:
        """The folder with its data (`log`), settings (`server.properties`) and messages (`broker.log`)."""
        if self._data is None:
            raise RuntimeError("this broker has no folder before start()")
        return self._data

    @property
    def process_id(self) -> int:
        """The number of the broker's process, for signals that this class does not send."""
        if self._process is None:
            raise RuntimeError("this broker does not run")
        watcher = self._process.pid
        return int(Path(f"/proc/{watcher}/task/{watcher}/children").read_text(encoding="ascii").split()[0])

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    # --- what it does ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, on the data it has if it ran before, and come back when it answers."""
        if self.running:
            return self
        began = time.monotonic()
        self._installation = prepare(self._say)
        self.version = self._installation.version
        for attempt in range(ATTEMPTS):
            self._choose_ports()
            try:
                self._format()
                self._launch()
                self._await_answer()
            except _PortTaken:
                if self._wanted_port is not None or attempt == ATTEMPTS - 1:
                    raise
                self._port = None
            except BaseException:  # a Ctrl-C while waiting must not leave it running either
                self.kill()
                raise
            else:
                break
        self.seconds_to_start = time.monotonic() - began
        return self

    def stop(self) -> None:
        """Stop it in order; its data stays for a restart."""
        self._end("stop", STOP_PATIENCE + 5)

    def kill(self) -> None:
        """End it as `kill -9` does, in the middle of whatever it does; its data stays as it then is."""
        self._end("kill", 10)

    def restart(self) -> Self:
        """Stop it if it runs, and start it on the same port with the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop it, and delete its data unless they were put into a folder of the caller's."""
        if self._given_data is None:
            self.kill()  # nobody will read them again: no need to flush
            if self._data is not None:
                shutil.rmtree(self._data, ignore_errors=True)
                self._data = None
        else:
            self.stop()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until it ends by itself; gives its exit code, or None when `timeout` seconds passed first."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def complaints(self, lines: int = 12) -> str:
        """The last errors in broker.log, or its last lines where it has none."""
        log = self.data / "broker.log"
        written = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        errors = [line for line in written if " ERROR " in line or " FATAL " in line or "Exception" in line]
        return "\n".join((errors or written)[-lines:])

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()  # its temporary data, too
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- how ------------------------------------------------------------------------------------------------

    def _choose_ports(self) -> None:
        if self._wanted_port is not None and not is_free(self._wanted_port):
            raise _PortTaken(
                f"port {self._wanted_port} of {LOCAL} is taken by another program (perhaps a broker that runs"
                " already): stop that, or choose another port"
            )
        try:
            if self._port is None:
                self._port = self._wanted_port or free_port()
            if self._member is not None:
                self._controller_port = self._member.controllers[self._member.number - 1]
            else:
                self._controller_port = free_port(self._port)
        except OSError as error:
            raise KafkaUnavailable(str(error)) from error

    def _format(self) -> None:
        """Write the settings, and a cluster id into a data folder that has none."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="trustfold-kafka-"))
        settings = self._properties()
        log = Path(settings["log.dirs"])
        properties = self.data / "server.properties"
        try:
            log.mkdir(parents=True, exist_ok=True)
            properties.write_text("".join(f"{k}={_escaped(v)}\n" for k, v in settings.items()), encoding="ascii")
        except OSError as error:
            raise KafkaUnavailable(
                f"cannot write to {self.data} ({error}): make room or give the right to write there, or"
                " choose another folder for the data"
            ) from error
        if (log / "meta.properties").exists():
            return
        cluster = new_cluster_id() if self._member is None else self._member.cluster
        features = self._jars.libs.parent / FEATURES
        if features.exists():  # all that Kafka's own tool would write, without a Java for it
            shutil.copy(features, log)
            ids = f"cluster.id={cluster}\nnode.id={settings['node.id']}\ndirectory.id={new_cluster_id()}\n"
            (log / "meta.properties").write_text(f"version=1\n{ids}", encoding="ascii")
            return
        done = subprocess.run(
            [
                *self._java(128),
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster}",
                "-c",
                str(properties),
            ],
            capture_output=True,
            text=True,
            timeout=START_PATIENCE,
            check=False,
        )
        if done.returncode:
            raise KafkaUnavailable(
                f"Kafka {self.version} could not format {log}: {(done.stderr or done.stdout).strip()[-800:]}"
            )

    def _properties(self) -> dict[str, str]:
        number = 1 if self._member is None else self._member.number
        controllers = [self._controller_port] if self._member is None else self._member.controllers
        open_to_clients = {"PLAINTEXT": self._port, **self._listeners}
        clients = ",".join(f"{name}://{LOCAL}:{port}" for name, port in open_to_clients.items())
        return {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": ",".join(f"{node}@{LOCAL}:{port}" for node, port in enumerate(controllers, 1)),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{clients},CONTROLLER://{LOCAL}:{self._controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in open_to_clients)]
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data.absolute() / "log"),
            **SETTINGS,
            **self._settings,
        }

    def _launch(self) -> None:
        """Start the broker under a watcher that ends it when this process dies."""
        remove = "-" if self._given_data is not None else str(self.data)
        command = [*self._java(self._heap_mb), "kafka.Kafka", str(self.data / "server.properties")]
        watcher = [sys.executable, "-I", str(HERE / "local_kafka_watch.py"), str(STOP_PATIENCE), remove]
        with (self.data / "broker.log").open("wb") as log:
            # A session of its own: a Ctrl-C in the terminal is ours to handle, not the broker's.
            self._process = subprocess.Popen(
                [*watcher, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def _jars(self) -> KafkaInstallation:
        if self._installation is None:  # start() sets it first
            raise RuntimeError("the jars are not known before start()")
        return self._installation

    def _java(self, heap_mb: int) -> list[str]:
        classes = self._jars.libs.parent / CLASSES
        return [
            self._jars.java,
            f"-Xmx{heap_mb}m",
            *([f"-XX:SharedArchiveFile={classes}"] if classes.exists() else []),
            *self._java_options,
            "-Djava.awt.headless=true",
            "-Dlog4j2.disable.jmx=true",
            f"-Dlog4j2.configurationFile={(HERE / 'log4j2.xml').absolute().as_uri()}",
            "-cp",
            f"{self._jars.libs}/*",
        ]

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_PATIENCE
        port = int(self.bootstrap.rpartition(":")[2])
        while not answers(LOCAL, port):
            code = self.wait(timeout=0.05)
            if code is not None:
                complaints = self.complaints()
                self.kill()  # nothing is left to kill; it lets go of what is left of the process
                if "Address already in use" in complaints or "BindException" in complaints:
                    raise _PortTaken(f"another program took port {port} of {LOCAL} meanwhile: choose another port")
                raise KafkaUnavailable(f"Kafka {self.version} ended with code {code} as it started:\n{complaints}")
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"Kafka {self.version} does not answer on {self.bootstrap} after {START_PATIENCE:.0f} s;"
                    f" the machine may be too busy. Its last words, from {self.data / 'broker.log'}:\n"
                    f"{self.complaints()}"
                )

    def _end(self, word: str, patience: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.stdin is not None:
                process.stdin.write(f"{word}\n".encode())
                process.stdin.flush()
                process.wait(patience)
        except (BrokenPipeError, subprocess.TimeoutExpired):  # it has ended already, or does not listen
            process.kill()  # the broker dies with its watcher
            process.wait()
        finally:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()


class _PortTaken(KafkaUnavailable):
    """Somebody listens on the port; another may be free."""


def _escaped(value: str) -> str:
    """Write a value as Java's properties files want it."""
    return value.replace("\\", "\\\\").encode("ascii", "backslashreplace").decode().replace("\\x", "\\u00")
