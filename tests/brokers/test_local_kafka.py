"""The local broker keeps out of the way, and leaves nothing behind however it ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import local_kafka
import local_kafka_jars as jars
import pytest
from local_kafka_node import SHORT_LIVED
from local_kafka_probe import PORTS, answers, free_port, is_free
from waiting import wait_until

SCRIPTS = Path(local_kafka.__file__).parent
WATCH = [sys.executable, SCRIPTS / "local_kafka_watch.py"]


def alive(pid: int) -> bool:
    """Whether a process of this number runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- ports --------------------------------------------------------------------------------------------------


def test_ports_are_free_and_out_of_the_way() -> None:
    """A chosen port is none that the system would give to an outgoing connection, and nobody has it."""
    port = free_port()
    assert port in PORTS
    assert is_free(port)


def test_only_a_kafka_answers() -> None:
    """Something that listens and says nothing is not taken for a broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert not answers("127.0.0.1", port, timeout=0.05)
    assert not answers("127.0.0.1", port, timeout=0.05)


# --- nothing stays behind -----------------------------------------------------------------------------------

# Stand in for the broker: say who they are; the second takes no notice of a polite request to end.
POLITE = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + POLITE


# Stands in for the tests: asks for a broker, and has a forked child.
PARENT = """
import os, signal, subprocess, sys
watcher = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
if os.fork() == 0:
    print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Callable[..., tuple["subprocess.Popen[bytes]", int]]]:
    """Start a program under the watcher; gives the watcher and the program's process number."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str, grace: float = 20, remove: str = "-") -> tuple["subprocess.Popen[bytes]", int]:
        command = [*WATCH, str(grace), remove, sys.executable, "-c", program]
        watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(watcher)
        return watcher, int(watcher.stdout.readline())

    yield start
    for watcher in started:
        with watcher:  # closes its pipes
            watcher.kill()


@pytest.mark.parametrize(
    ("program", "grace", "word", "code"),
    [
        (POLITE, 20, b"stop\n", 128 + signal.SIGTERM),
        (DEAF, 0.1, b"stop\n", 128 + signal.SIGKILL),
        (DEAF, 20, b"kill\n", 128 + signal.SIGKILL),
    ],
    ids=["stops when asked", "is killed when it does not stop", "is killed at once"],
)
def test_the_watcher_ends_the_program(watched, program: str, grace: float, word: bytes, code: int) -> None:
    """A broker stops when asked, is killed when it does not, and can be killed at once."""
    watcher, pid = watched(program, grace)
    watcher.stdin.write(word)
    watcher.stdin.flush()
    assert watcher.wait(60) == code
    assert not alive(pid)


def test_the_watcher_passes_on_how_it_ended(watched) -> None:
    """A broker that ends by itself ends its watcher, with the same code."""
    watcher, _ = watched("import os; print(os.getpid(), flush=True); raise SystemExit(7)")
    assert watcher.wait(60) == 7


def test_end_of_input_ends_it_and_its_data(watched, tmp_path: Path) -> None:
    """When the one who asked is gone, the broker is stopped and its temporary data are deleted."""
    (tmp_path / "data" / "log").mkdir(parents=True)
    watcher, pid = watched(POLITE, 20, str(tmp_path / "data"))
    watcher.stdin.close()
    assert watcher.wait(60) == 128 + signal.SIGTERM
    assert not alive(pid)
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can promise this")
def test_killing_the_watcher_kills_the_program(watched) -> None:
    """Even a kill -9 of the watcher leaves no broker behind."""
    watcher, pid = watched(DEAF)
    watcher.kill()
    wait_until(lambda: not alive(pid), what="the program dies with its watcher")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_killing_the_parent_ends_the_program(tmp_path: Path) -> None:
    """A kill -9 of the tests leaves no broker, even while a forked child of theirs holds the pipe open."""
    watched = [*WATCH, "20", "-", sys.executable, "-c", POLITE]
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *watched], stdout=subprocess.PIPE)
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    try:
        parent.kill()
        parent.wait()
        wait_until(lambda: sum(map(alive, pids)) == 1, what="the program ends, the forked child goes on")
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        parent.stdout.close()


# --- the command line ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_in_the_foreground(kafka_jars: jars.KafkaInstallation, tmp_path: Path) -> None:
    """`make kafka` prints the address, keeps its data where told, and ends on Ctrl-C with exit code 0.

    Java refuses to start where it cannot use the classes that are kept beside the jars.
    """
    port = free_port()
    run = subprocess.Popen(
        [sys.executable, SCRIPTS / "local_kafka.py", "run", f"--port={port}", f"--data={tmp_path / 'data'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAVA_TOOL_OPTIONS": f"-Xshare:on {SHORT_LIVED[0]}"},
    )
    try:
        assert run.stdout.readline() == f"127.0.0.1:{port}\n"
        assert answers("127.0.0.1", port)
        run.send_signal(signal.SIGINT)
        _, told = run.communicate(timeout=60)
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 0, told
    assert "stopping Kafka" in told
    assert is_free(port)
    assert (tmp_path / "data" / "log" / "meta.properties").exists()
