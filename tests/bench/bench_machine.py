"""The machine: what it is, and which core each side of a measurement gets.

The broker and what is measured must not take time from each other. Where there are at least two cores and the system
lets us, the contestant has the last core to itself and everything else, the broker among it, has the others.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

LOOK_S = 0.5
QUIET_LOOKS = 4
QUIET = 0.1
"""Quiet is: four looks of half a second in a row at which less than a tenth of all cores was in use."""

LIBRARIES = ("aiokafka", "faust-streaming", "msgspec", "orjson")


CAN_PIN = hasattr(os, "sched_setaffinity")
CORES = sorted(os.sched_getaffinity(0)) if CAN_PIN else list(range(os.cpu_count() or 1))
"""The cores this process might use when it began."""


def contestant_core() -> int | None:
    """The core that contestants get; None where cores cannot be given."""
    return CORES[-1] if CAN_PIN and len(CORES) > 1 else None


def keep_off(core: int | None) -> None:
    """Leave a core to the contestants: move this process, and what it starts from now on, to the others."""
    if core is not None:
        os.sched_setaffinity(0, set(CORES) - {core})


def pinning(core: int | None, *, ours: bool) -> str:
    """Say where everything runs; `ours`: the broker is one that we started."""
    if core is None:
        return "not pinned: the contestant and the broker share what cores there are"
    others = ", ".join(str(number) for number in CORES if number != core)
    broker = f"the broker to core {others}" if ours else "the broker where it is"
    return f"pinned: contestants to core {core}, {broker}"


def take(core: int | None) -> None:
    """Move this process to a core; called by contestants before they start threads."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def load() -> float:
    """How many processes wanted to run over the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def await_quiet(patience_s: float) -> float:
    """Wait until hardly anything else runs, at most so many seconds; gives the seconds waited."""
    started = time.monotonic()
    quiet = 0
    while quiet < QUIET_LOOKS and time.monotonic() - started < patience_s:
        quiet = quiet + 1 if _busy_share(LOOK_S) < QUIET else 0
    return time.monotonic() - started


def _busy_share(seconds: float) -> float:
    """How much of all cores was used over the next seconds; 0 where the system does not say."""
    before = _ticks()
    time.sleep(seconds)
    idle, total = (after - earlier for after, earlier in zip(_ticks(), before, strict=True))
    return 1 - idle / total if total else 0.0


def _ticks() -> tuple[int, int]:
    """Ticks spent idle and altogether since the machine started, of all cores."""
    try:
        counts = [*map(int, Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:9])]
    except OSError:
        return 0, 0
    return counts[3] + counts[4], sum(counts)


def describe() -> dict[str, Any]:
    """What the figures were measured on."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    return {
        "processor": _processor(),
        "cores": len(CORES),
        "python": platform.python_version(),
        "load before": load(),
        **versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
