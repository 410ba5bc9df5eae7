"""The fixtures in a run of their own: what is started, skipped and said without Java and without Docker."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import broker_kit
import pytest
from broker_kit.mock import Mock

SUITE = '''
import pytest

def test_plain():
    """Needs no broker."""

def test_any(broker):
    """Needs a broker of whichever kind."""
    assert broker.kind == "mock"

@pytest.mark.durable_broker
def test_marked():
    """Needs one that keeps its log, and says so by the mark alone."""

def test_own(own_kafka):
    """Needs one to itself."""
'''

CONFIG = """
[pytest]
addopts = -p broker_kit.plugin -p no:cacheprovider -ra --strict-markers
markers =
    broker: any
    durable_broker: durable
"""


@pytest.fixture
def bare_machine(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run pytest over the suite above on a machine with nothing to start a real broker with."""
    if (reason := Mock().missing()) is not None:
        pytest.skip(reason)
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text(CONFIG)

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        ours = {
            "PATH": str(tmp_path),
            "DOCKER_HOST": f"unix://{tmp_path}/docker.sock",
            "HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(Path(broker_kit.__file__).parents[1]), *sys.path]),
        }
        return subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=tmp_path,
            env=ours | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


IN_ONE_PROCESS, IN_TWO = (), ("-n", "2", "--dist", "loadfile")


@pytest.mark.parametrize("processes", [IN_ONE_PROCESS, IN_TWO], ids=["in one process", "in parallel"])
def test_on_the_mock(bare_machine, processes) -> None:
    """Durability tests are skipped by name and reason; the report says which broker it was, and why."""
    done = bare_machine(*processes)
    assert "2 passed, 2 skipped" in done.stdout
    assert "\nbroker: mock, when a test asks for it (no given: TRUSTFOLD_TEST_BROKER is not set; " in done.stdout
    assert "test_marked needs a broker that keeps its log, and here is only librdkafka's mock" in done.stdout
    assert "needs a Kafka of its own: no `java` on the path" in done.stdout
    assert "\nmock: librdkafka's mock at 127.0.0.1:" in done.stdout
    assert "\n  not local: no Java here" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize("processes", [IN_ONE_PROCESS, IN_TWO], ids=["in one process", "in parallel"])
def test_a_required_broker_that_is_missing_fails(bare_machine, processes) -> None:
    """With TRUSTFOLD_REQUIRE_BROKER whatever needs a broker fails, and the rest still runs."""
    done = bare_machine(*processes, TRUSTFOLD_REQUIRE_BROKER="1")
    assert "1 passed, 3 errors" in done.stdout
    assert "TRUSTFOLD_REQUIRE_BROKER asks for a real broker, and none can be had here" in done.stdout
    assert done.returncode == 1


def test_nothing_is_started_unasked(bare_machine) -> None:
    """Tests that ask for no broker start none, and one expression leaves out all that do."""
    done = bare_machine("-m", "not broker")
    assert "1 passed, 3 deselected" in done.stdout
    assert "\nmock: " not in done.stdout
    assert done.returncode == 0
