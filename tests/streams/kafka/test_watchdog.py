"""The watchdog: the process ends in time whatever its event loop does."""

import os
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys, threading, time
from trustfold.streams.kafka.watchdog import ProcessWatchdog
logging.basicConfig(format="%(message)s")
asked = threading.Event()
dog = ProcessWatchdog(float(sys.argv[2]), failed=1)
dog.start(asked.set)
print("up", flush=True)
{body}
"""

BODIES = {
    "loop blocked": "threading.Lock().acquire(); lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "busy": "\nwhile True: pass",
    "thread that never ends": "asked.wait(); dog.settle(0); threading.Thread(target=time.sleep, args=(60,)).start()",
    "orderly": "asked.wait(); dog.close()",
}


class Process:
    """A process that does one of BODIES."""

    def __init__(self, body: str, limit: float = 0.5) -> None:
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", SCRIPT.format(body=BODIES[body]), "-", str(limit)]
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n", self.process.communicate()[1]

    def end(self, *signals: signal.Signals) -> tuple[int, str]:
        """Send signals; gives exit code and log."""
        for number in signals:
            self.process.send_signal(number)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@pytest.mark.parametrize("body", ["loop blocked", "busy"])
def test_a_stuck_process_ends_after_its_limit(body: str) -> None:
    """Nothing of Python's main thread is needed; the last line says what happened."""
    code, log = Process(body).end(signal.SIGTERM)
    assert code == 1
    assert log.strip().endswith("worker failed: it was asked to stop and had not ended after 0.5 s")


def test_clean_up_that_hangs_keeps_the_exit_code() -> None:
    """What was settled before the clean-up is what the operator sees."""
    assert Process("thread that never ends").end(signal.SIGINT) == (0, "")


def test_an_orderly_end_is_left_alone() -> None:
    """After `close` nothing ends the process but itself."""
    assert Process("orderly").end(signal.SIGTERM) == (0, "")


def test_a_second_signal_ends_it_at_once() -> None:
    """Somebody who asks twice does not want to wait."""
    code, log = Process("loop blocked", limit=60).end(signal.SIGTERM, signal.SIGINT)
    assert code == 1
    assert "ended it at once" in log
