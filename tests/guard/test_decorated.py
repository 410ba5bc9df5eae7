"""A decorated function is the function: it gives back, raises, recurses, forks and ends as before, but for refusals."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from trustfold.guard import SyncToolGuard, ToolGuard, nesting

REPORTS = [
    {"exit_code": 1}, {"returncode": 2}, {"error": "none found"}, {"http_status": 404}, {"isError": True},
    {"status_code": 503},
]  # fmt: skip


@pytest.mark.parametrize("nature", [{}, {"dedupe": True, "scope": "global"}, {"read_only": True, "retry": None}])
@pytest.mark.parametrize("report", REPORTS, ids=str)
async def test_a_failure_that_was_returned_is_given_back(guard: ToolGuard, report: Any, nature: Any) -> None:
    """Whatever the guard makes of it; a repetition of a remembered one, too."""

    async def runs() -> Any:
        return report

    def blocks() -> Any:
        return report

    guarded, blocking = guard.tool(runs, **nature), guard.tool(blocks, **nature)
    for _ in range(2):
        if (await guard.call("runs", runs)).refused:
            break
        assert await guarded() == report
    assert await asyncio.to_thread(blocking) == report


DEPTH = 200


def test_recursion_is_as_deep_as_without_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends as it ends there, in place of the interpreter or the machine's memory."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("deepest", default=0)
    guard = ToolGuard.in_memory()
    monkeypatch.setattr(nesting, "MOST_NESTED", DEPTH + 10)

    @guard.tool
    async def sinks(left: int) -> int:
        variable.set(max(variable.get(), left))
        return 1 + await sinks(left - 1) if left else 0

    @guard.tool
    def falls(left: int) -> int:
        return 1 + falls(left - 1) if left else 0

    async def sink() -> tuple[int, int]:
        return await sinks(DEPTH), variable.get()

    def recurse() -> None:
        assert asyncio.run(sink()) == (DEPTH, DEPTH)
        assert falls(DEPTH) == DEPTH
        for endless in (lambda: asyncio.run(sinks(-1)), lambda: falls(-1)):
            with pytest.raises(RecursionError):
                endless()
        assert sys.getrecursionlimit() == DEPTH + 60

    limit = sys.getrecursionlimit()
    with ThreadPoolExecutor(1) as shallow:  # whose stack holds nothing of the test's runner
        try:
            sys.setrecursionlimit(DEPTH + 60)
            shallow.submit(recurse).result()
        finally:
            sys.setrecursionlimit(limit)


FORKS = """
import os, signal
from trustfold.guard import ToolGuard
guard = ToolGuard.in_memory()

@guard.tool
def pid():
    return os.getpid()

assert pid() == os.getpid()
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if pid() == os.getpid() else 1)
assert os.waitpid(child, 0)[1] == 0
print("fine")
"""

LEAVES = """
import sys, traceback
from trustfold.guard import SyncToolGuard, ToolGuard
guards = ToolGuard.in_memory(), SyncToolGuard.in_memory()

def release(number):
    return number

guarded = [guard.tool(release, name="release") for guard in guards]

class Held:
    def __del__(self):
        try:
            print([one(3) for one in guarded], guards[1].call("release", release, {"number": 3}).output, flush=True)
        except BaseException:
            traceback.print_exc()

if BEFORE:
    guarded[0](1), guarded[1](1)
held = Held()
held.itself = held
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [(FORKS, "fine"), (f"BEFORE = True\n{LEAVES}", "[3, 3] 3"), (f"BEFORE = False\n{LEAVES}", "[3, 3] 3")],
    ids=["fork", "exit", "exit, never called before"],
)
def test_forked_children_and_the_interpreters_end(program: str, said: str) -> None:
    """A function works in a child of the process that called it, and in a `__del__` after the last line."""
    threads = ("-W", "ignore::DeprecationWarning")  # of forks beside threads, from Python 3.12 on
    done = subprocess.run(
        [sys.executable, *threads, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == (said, "")


def test_a_guard_that_is_closed_leaves_no_task(capfd: pytest.CaptureFixture[str]) -> None:
    """Calls that run then end with an error, and the loop with them."""
    guard = SyncToolGuard.in_memory()
    entered = threading.Event()

    async def hangs() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)

    def call() -> None:
        with pytest.raises(Exception, match="closed"):
            guard.call("hangs", hangs)

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait(60)
    guard.close()
    thread.join()
    assert "destroyed" not in capfd.readouterr().err
