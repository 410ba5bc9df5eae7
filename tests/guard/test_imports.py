"""What it costs to have the guard: modules and time."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trustfold.guard as public

HEAVY = (
    "aiokafka", "click", "duckdb", "faust", "langgraph", "mcp", "opentelemetry", "prometheus_client", "redis", "rich",
    "rocksdict", "starlette", "uvicorn",
)  # fmt: skip
TIMES_ASYNCIO = 12
"""Most processor time of importing what a guarded call needs, in imports of asyncio, a part of it; it takes six."""


def run(code: str) -> str:
    """Run code in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    "what", ["import trustfold.guard", "from trustfold.guard import ToolGuard; ToolGuard.in_memory()"]
)
def test_the_guard_loads_nothing_heavy(what: str) -> None:
    """Neither by itself nor with a guard in memory: no stream engine, no database, no extra."""
    loaded = run(f"import sys; {what}; print(*{{name.split('.')[0] for name in sys.modules}})").split()
    assert not set(loaded) & set(HEAVY)


def test_the_bare_import_loads_next_to_nothing() -> None:
    """`import trustfold.guard` loads no other module of ours; each name comes when it is used."""
    loaded = run("import sys, trustfold.guard; print(*(n for n in sys.modules if n.startswith('trustfold')))").split()
    assert loaded == ["trustfold", "trustfold.guard"]


def test_the_import_is_quick() -> None:
    """Both are measured in one process, and the best of three counts: the machine may be slow or busy."""
    code = (
        "from time import process_time as now; t = now(); import asyncio; own = now() - t;"
        "from trustfold.guard import ToolGuard; print((now() - t) / own)"
    )
    assert any(float(run(code)) < TIMES_ASYNCIO for _ in range(3))


def test_a_library_says_nothing_unasked() -> None:
    """Where nobody has set up logging, a warning of the guard's is not printed."""
    code = "import logging; from trustfold.guard.log import log_event; log_event(logging.WARNING, 'something')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")


def test_public_names_resolve() -> None:
    """Every name that the package announces can be had, and is listed by `dir`."""
    for name in public.__all__:
        assert getattr(public, name) is not None
        assert name in dir(public)
    with pytest.raises(AttributeError, match="ToolGard"):
        public.ToolGard  # noqa: B018 - the access is the test
