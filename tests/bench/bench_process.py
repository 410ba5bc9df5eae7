"""Contestants are processes of their own: how they are started, what they are told, and what they say at the end.

A contestant gets its task as JSON in its only argument and prints its result as JSON in the last line of its output.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_machine
import msgspec
from bench_result import CannotMeasure
from bench_timed import TimedProcessor

HERE = Path(__file__).parent
SHOWN = 1_500


class Task(msgspec.Struct, kw_only=True):
    """What a contestant is asked to do.

    Attributes:
        core: the core to run on; None where cores cannot be given.
        limit_s: seconds after which it gives up.
        bootstrap: the broker.
        prefix: of its topics.
        partitions: of each topic.
        preloaded: records on the events topic, which the rate is counted in.
        events: records it will have read from the events topic at the end, those appended by the session stage too.
        outcomes: records it will have read from the outcomes topic.
        folder: recorded traces, for the folds alone.
        runs: repetitions inside the process, for the folds alone.
        most: most events of a trace, for the folds alone; 0 is all.
        keys: live keys, for the memory of a key.
    """

    core: int | None = None
    limit_s: float = 120.0
    bootstrap: str = ""
    prefix: str = ""
    partitions: int = 12
    preloaded: int = 0
    events: int = 0
    outcomes: int = 0
    folder: str = ""
    runs: int = 1
    most: int = 0
    keys: int = 0


def run(script: str, task: Task) -> dict[str, Any]:
    """Run a contestant and give back its result.

    Raises:
        CannotMeasure: it failed or took too long; the message holds its last words.
    """
    command = [sys.executable, str(HERE / script), msgspec.json.encode(task).decode()]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL)
        try:
            output, _ = process.communicate(timeout=task.limit_s + 60)
        except subprocess.TimeoutExpired:
            raise CannotMeasure(f"{script} was not done after {task.limit_s + 60:.0f} s. {_words(errors)}") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            raise CannotMeasure(f"{script} ended with code {process.returncode}. {_words(errors)}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result


def _words(errors: Any) -> str:
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip()
    return f"Its last words: {said[-SHOWN:]}" if said else "It said nothing"


# --- inside a contestant ----------------------------------------------------------------------------------------------


def begin() -> Task:
    """The task of this process, which is on its core from now on."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    bench_machine.take(task.core)
    return task


def finish(result: dict[str, Any]) -> None:
    """Say the result."""
    print(json.dumps(result), flush=True)


def tune_collector() -> None:
    """What the worker does about garbage, for those that are compared with it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


class Stopwatch:
    """Time since it was made: on the wall, what this process worked, and what of that its folds."""

    def __init__(self) -> None:
        self._wall, self._work, self._folds = time.perf_counter(), time.process_time(), TimedProcessor.spent

    def read(self) -> dict[str, float]:
        """Seconds, by kind."""
        return {
            "seconds": time.perf_counter() - self._wall,
            "cpu_seconds": time.process_time() - self._work,
            "fold_seconds": TimedProcessor.spent - self._folds,
        }
