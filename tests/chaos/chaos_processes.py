"""Processes of a campaign: workers and a recorder that are started again whenever they end, as production does it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chaos_report import Report
from lane_harness import LaneHarness, Worker
from warm_process import WarmProcess

STOP_S = 10.0
"""What operators are promised."""

REMEDIED = re.compile("worker failed: |not started: ")
OURS = "a fault of trustfold"
"""Words of a worker that met what it did not expect."""


class Kept:
    """A process that is started again when it ends, `again_s` later.

    Attributes:
        name: for the report.
        process: the one that runs, or ran last.
        paused: whether it is stopped by a signal now.
    """

    def __init__(self, name: str, start: Callable[[], Worker | Recorder], report: Report, again_s: float = 4.0) -> None:
        """Start it."""
        self.name, self._start, self._report, self._again_s = name, start, report, again_s
        self.process = start()
        self.paused = False
        self.wanted = True
        self._ended_at: float | None = None

    @property
    def lives(self) -> bool:
        """Whether its process runs."""
        return self.process.process.poll() is None

    @property
    def works(self) -> bool:
        """Whether its process runs and has taken partitions."""
        return self.lives and not self.paused and "ready in generation" in self.process.text()

    def tend(self) -> None:
        """Notice that it has ended by itself; start it again."""
        if self.lives or not self.wanted:
            return
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._judge()
        elif time.monotonic() - self._ended_at >= self._again_s:
            self._ended_at = None
            self.process = self._start()

    def _judge(self) -> None:
        code, text = self.process.process.returncode, self.process.text()
        last = text.strip().rpartition("\n")[2]
        told = re.sub(r"^[-\d]+ [\d:,]+ |\d{4,}", "", last)[:200]
        self._report.endings[f"{self.name} with {code}: {told}"] += 1
        if code not in {1, 2, 3, 4} or "Traceback" in text or OURS in last or not self.process.remedied(last):
            self._report.problems.append(f"{self.process.log} ended with {code}: {last[-400:]}")

    def kill(self) -> None:
        """Kill -9, and start again at once."""
        if self.lives:
            self.process.process.kill()
        self.process.process.wait(10)
        self.paused, self._ended_at = False, None
        self.process = self._start()

    def stop(self) -> None:
        """SIGTERM; it must end in time and in order."""
        self.wanted = False
        if not self.lives:
            return
        self.process.process.terminate()
        try:
            code = self.process.process.wait(STOP_S)
            # Before the worker runs, in the imports, the signal ends the interpreter by itself.
            if code and not (code == -signal.SIGTERM and not self.process.text()):
                self._report.problems.append(f"{self.process.log} ended with {code} after SIGTERM")
        except subprocess.TimeoutExpired:
            self._report.problems.append(f"{self.process.log} had not ended {STOP_S:g} s after SIGTERM")
            self.process.process.kill()
            self.process.process.wait(10)

    def come_back(self) -> None:
        """Start again after `stop`."""
        self.wanted = True
        self._ended_at = None
        self.process = self._start()


class KeptWorker(Worker):
    """A worker with the words by which it may end."""

    def remedied(self, last: str) -> bool:
        """Whether a last line is one that says what to do."""
        return bool(REMEDIED.search(last))


class Recorder:
    """A process of `trustfold record`; what it says is in `log`."""

    def __init__(self, harness: LaneHarness, root: Path, log: Path, *more: str) -> None:
        """Start it."""
        self.log = log
        command = [sys.executable, "-m", "trustfold", "record", "--bootstrap", harness.settings.bootstrap]
        with log.open("ab") as out:
            self.process = WarmProcess(
                [*command, "--history", str(root), "--flush", "0.5", *more],
                env=harness.environ,
                stdout=subprocess.DEVNULL,
                stderr=out,
            )

    def text(self) -> str:
        """What it has said."""
        return self.log.read_text(errors="replace")

    def remedied(self, last: str) -> bool:
        """Whether a last line is one of ours."""
        return last.startswith("trustfold: ")
