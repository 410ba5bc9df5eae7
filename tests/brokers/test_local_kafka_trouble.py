"""Whose fault it is when the local broker cannot run: each message names the trouble and the way out."""

import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import local_kafka
import local_kafka_jars as jars
import pytest
from local_kafka import KafkaUnavailable, LocalKafka
from local_kafka_probe import free_port

KAFKA_JAR = "kafka_2.13-4.3.1.jar"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a machine with only these programs (name: shell script); gives its Kafka folder, not yet there."""

    def make(**programs: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, script in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("TRUSTFOLD_KAFKA_HOME", str(tmp_path / "kafka"))
        return tmp_path / "kafka"

    return make


JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""
# What Maven would do, as far as we look: the jars in the folder asked for.
MAVEN = f"""
for word; do case $word in -DoutputDirectory=*) libs=${{word#*=}};; esac; done
/bin/mkdir -p "$libs"; : > "$libs/{KAFKA_JAR}"; echo once >> "$COUNT"
"""


# --- what is missing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("programs", "java_home", "told"),
    [
        ({}, None, r"no `java` on the path.*openjdk-17-jre-headless"),
        ({"java": JAVA_17}, "/nowhere", "no Java in JAVA_HOME=/nowhere: correct it"),
        ({"java": """echo 'java version "11.0.2"' >&2"""}, None, "is Java 11 and Kafka needs Java 17"),
        ({"java": """echo 'java version "1.8.0_402"' >&2"""}, None, "is Java 8 and Kafka needs Java 17"),
        ({"java": "echo 'no JVM' >&2; exit 1"}, None, r"does not tell its version \('no JVM'\): repair"),
        ({"java": JAVA_17}, None, r"no `mvn`.*apt-get install maven.*TRUSTFOLD_KAFKA_HOME"),
    ],
    ids=["no Java", "a wrong JAVA_HOME", "Java 11", "Java 8", "a broken Java", "no Maven"],
)
def test_what_is_missing_is_named(
    machine: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    programs: dict[str, str],
    java_home: str | None,
    told: str,
) -> None:
    """With the way out; the path's Java is not used behind the back of who has set JAVA_HOME."""
    machine(**programs)
    if java_home is not None:
        monkeypatch.setenv("JAVA_HOME", java_home)
    with pytest.raises(KafkaUnavailable, match=told):
        jars.prepare()


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("Could not transfer artifact a:b:1: Unknown host repo", "cannot be reached from here .network"),
        ("Could not find artifact a:b:jar:1 in central", r"has no such version: correct kafka\.version"),
        ("Checksum validation failed, expected 1", "not what was published"),
        ("the moon is in the way", "run it by hand"),
    ],
)
def test_maven_fails(machine: Callable[..., Path], printed: str, told: str) -> None:
    """Pages of errors become a sentence with a way out and the first line; nothing is left half done."""
    folder = machine(java=JAVA_17, mvn=f"echo '[ERROR] {printed}'; echo '[ERROR] more'; exit 1")
    with pytest.raises(KafkaUnavailable, match=rf"{told}.*Maven said: \[ERROR\] {re.escape(printed)}$"):
        jars.prepare()
    assert [path.name for path in folder.parent.glob("kafka*")] == ["kafka.lock"]


def test_a_folder_of_something_else(machine: Callable[..., Path]) -> None:
    """A folder that holds somebody's files is not touched."""
    folder = machine(java=JAVA_17, mvn=MAVEN)
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(KafkaUnavailable, match="holds something, but no Kafka"):
        jars.prepare()
    assert (folder / "thesis.txt").exists()


def test_a_folder_that_cannot_be_written(machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be made is named, with another way."""
    folder = machine(java=JAVA_17, mvn=MAVEN)
    folder.write_text("a file where the folder's parent should be")
    monkeypatch.setenv("TRUSTFOLD_KAFKA_HOME", str(folder / "below"))
    with pytest.raises(KafkaUnavailable, match=r"cannot write Kafka's jars to .* name another folder"):
        jars.prepare()


# --- the jars -----------------------------------------------------------------------------------------------


def test_jars_are_fetched_once(machine: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight that want them at once wait for one fetch, and later runs need no Maven at all."""
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    folder = machine(java=JAVA_17, mvn=MAVEN)
    with ThreadPoolExecutor(8) as pool:
        found = [future.result() for future in [pool.submit(jars.prepare) for _ in range(8)]]
    assert (tmp_path / "count").read_text() == "once\n"
    assert set(found) == {jars.KafkaInstallation(str(tmp_path / "bin" / "java"), folder / "libs", "4.3.1")}
    (tmp_path / "bin" / "mvn").unlink()
    assert jars.prepare() == found[0]


def test_jars_of_another_pom_are_replaced(
    machine: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched for other coordinates is fetched anew."""
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    folder = machine(java=JAVA_17, mvn=MAVEN)
    jars.prepare()
    (folder / "ready").write_text("another pom.xml\n")
    (folder / "libs" / "old.jar").touch()
    jars.prepare()
    assert [path.name for path in (folder / "libs").iterdir()] == [KAFKA_JAR]


def test_an_unpacked_distribution_does_unless_it_is_old(machine: Callable[..., Path]) -> None:
    """A Kafka that was copied there by hand is used as it is, without Maven; Kafka 3 would not take the settings."""
    libs = machine(java=JAVA_17) / "libs"
    libs.mkdir(parents=True)
    (libs / "kafka_2.13-4.1.0.jar").touch()
    assert jars.prepare().version == "4.1.0"
    (libs / "kafka_2.13-4.1.0.jar").rename(libs / "kafka_2.13-3.9.1.jar")
    with pytest.raises(KafkaUnavailable, match=r"holds Kafka 3\.9\.1, and this needs Kafka 4"):
        jars.prepare()


def test_the_cache_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME counts when it is an absolute path; else it is ~/.cache."""
    monkeypatch.delenv("TRUSTFOLD_KAFKA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    name = f"kafka-{jars.pinned_version()}"
    for value, folder in [
        ("/caches", "/caches"),
        ("", "/home/somebody/.cache"),
        ("odd", "/home/somebody/.cache"),
    ]:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert jars.home() == Path(folder, "trustfold", name)


# --- the broker ---------------------------------------------------------------------------------------------


@pytest.fixture
def broken_broker(machine: Callable[..., Path], tmp_path: Path) -> Callable[[str], Path]:
    """Make a machine whose Kafka says this and ends; gives the file that counts its starts."""

    def make(says: str) -> Path:
        broker = f'echo once >> {tmp_path}/starts; echo "{says}"; exit 3'
        folder = machine(java=f'case "$*" in *Tool*) ;; *kafka.Kafka*) {broker};; *) {JAVA_17};; esac')
        (folder / "libs").mkdir(parents=True)
        (folder / "libs" / KAFKA_JAR).touch()
        return tmp_path / "starts"

    return make


def test_a_taken_port_is_told(broken_broker: Callable[[str], Path], tmp_path: Path) -> None:
    """The port is named before anything is started."""
    starts = broken_broker("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        kafka = LocalKafka(port=port, data=tmp_path / "data")
        with pytest.raises(KafkaUnavailable, match=f"port {port} of 127.0.0.1 is taken by another program"):
            kafka.start()
    assert not kafka.running
    assert not starts.exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("port", "times"), [(None, 3), (free_port(), 1)], ids=["ours", "theirs"])
def test_a_port_lost_at_the_last_moment(
    broken_broker: Callable[[str], Path], tmp_path: Path, port: int | None, times: int
) -> None:
    """Another port is tried when the choice was ours; one that was asked for is not exchanged for another."""
    starts = broken_broker("x ERROR java.net.BindException: Address already in use")
    with pytest.raises(KafkaUnavailable, match=r"another program took port \d+ of 127\.0\.0\.1 meanwhile"):
        LocalKafka(port=port, data=tmp_path / "data").start()
    assert starts.read_text() == "once\n" * times


def test_a_broker_that_ends_at_once_is_told(
    broken_broker: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors are shown, not a timeout, and its temporary folder goes, too."""
    broken_broker("x ERROR the disk is full")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    ended = pytest.raises(KafkaUnavailable, match=r"ended with code 3 as it started:\nx ERROR the disk is full")
    with ended, LocalKafka():
        pytest.fail("it cannot run")
    assert list((tmp_path / "tmp").iterdir()) == []


# --- the command line ---------------------------------------------------------------------------------------


def test_the_command_tells_what_is_missing(machine: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback: a sentence, and exit code 2."""
    machine()
    assert local_kafka.main(["prepare"]) == 2
    assert capsys.readouterr().err.startswith("local_kafka.py: no `java` on the path")
