"""Runs of pytest in forked processes: to see which test runs which line, and whether a test notices a mutant.

The process that forks has imported pytest and what the tests need of others, but nothing of trustfold: a child finds
trustfold in a tree of links to the checkout, in which one file is changed. So the checkout is never touched, and
programs that a test starts see the mutant as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import msgspec  # noqa: F401 - so that a child need not import it
import orjson  # noqa: F401
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "trustfold"
MAX_MEMORY = 8 << 30
OPTIONS = (
    "-q", "-p", "no:cacheprovider", "-m", "not slow and not broker and not durable_broker",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


class Recorder:
    """Pytest plugin that notes how long each test takes and, by coverage, which lines it runs."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the context of what runs now."""
        self._measured.switch_context(item.nodeid)
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.perf_counter() - began
            self._measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note tests that did not pass: they can notice nothing."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)


class Chosen:
    """Pytest plugin that runs given tests only, in the given order, within limits, and writes down which one runs."""

    def __init__(self, limits: dict[str, float], running: Path) -> None:
        self._order = {test: place for place, test in enumerate(limits)}
        self._limits = limits
        self._running = running

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let Hypothesis look for no smaller example of a failure: nobody reads it."""
        settings, phase = hypothesis.settings, hypothesis.Phase
        settings.register_profile("mutants", settings(), phases=(phase.explicit, phase.generate))
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out all others."""
        items[:] = sorted((one for one in items if one.nodeid in self._order), key=lambda one: self._order[one.nodeid])
        for item in items:
            item.add_marker(pytest.mark.timeout(self._limits[item.nodeid]), append=False)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write down a test that begins, so that one that hangs or ends the process is known as well."""
        self._running.write_text(nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write down a file that cannot even be imported."""
        if report.failed:
            self._running.write_text(report.nodeid)


def record(test_file: str, limit_s: float) -> dict[str, Any]:
    """Run a file's tests: seconds of each test that passes, and for each source file and line the tests that run it.

    Tests are numbered in the order of `seconds`; -1 stands for what runs when a module is imported.
    """

    def run() -> dict[str, Any]:
        measured = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{ROOT}/guard/*", f"{ROOT}/projections/*"]
        )
        recorder = Recorder(measured)
        measured.start()
        pytest.main([test_file, *OPTIONS], plugins=[recorder])
        measured.stop()
        passed = {test: seconds for test, seconds in recorder.seconds.items() if test not in recorder.failed}
        number = {test: place for place, test in enumerate(passed)} | {"": -1}
        data = measured.get_data()
        lines = {}
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            lines[str(Path(file).relative_to(ROOT))] = {
                line: [number[one] for one in contexts if one in number] for line, contexts in by_line.items()
            }
        return {"seconds": passed, "lines": lines, "failed": sorted(recorder.failed)}

    result = _forked(run, limit_s)
    if result is None:
        raise RuntimeError(f"{test_file} did not end well within {limit_s:.0f} s; run it by itself to see why")
    return result


def noticed(file: str, source: str, seconds: dict[str, float], passed: Path) -> tuple[str | None, list[str]]:
    """The test that notices a changed file, None where all pass; and tests that failed, but not for the change.

    Some tests fail by themselves on a busy machine or after others. So a failure counts only where the test fails alone
    as well, and passes alone on the file as it is. One that hangs has to hang again, with three times the limit.

    Args:
        file: the changed file.
        source: its new text.
        seconds: the tests in the order in which they run, and how long each took with the file as it is.
        passed: folder that keeps which tests pass alone on the file as it is.
    """
    left, not_for_it = dict(seconds), []
    with _tree(file, source) as tree:
        while left and (test := _first_failure(tree, left)) is not None:
            alone = {test: left[test]}
            if _first_failure(tree, alone, slack=3) is not None and _pass_unchanged(file, alone, passed):
                return test, not_for_it
            not_for_it.append(test)
            tests = list(left)
            left = {one: left[one] for one in tests[tests.index(test) + 1 :]}
    return None, not_for_it


def _pass_unchanged(file: str, seconds: dict[str, float], passed: Path) -> bool:
    """Whether tests pass on a file as it is, in a tree like that of a mutant; asked once for as long as they do."""
    known = passed / hashlib.sha256(" ".join(seconds).encode()).hexdigest()[:16]
    if not known.exists():
        with _tree(file, (ROOT / file).read_text()) as tree:
            if _first_failure(tree, seconds, slack=3) is not None:
                return False
        passed.mkdir(parents=True, exist_ok=True)
        known.touch()
    return True


def _first_failure(tree: Path, seconds: dict[str, float], slack: int = 1) -> str | None:
    """The first of some tests that fails, cannot be imported, ends the process, or takes longer than it may."""
    running = tree / "running"
    running.write_text("")
    # Measured on a machine that may have been less busy than it is now.
    limits = {test: slack * (20 + 10 * took_s) for test, took_s in seconds.items()}

    def run() -> dict[str, Any]:
        files = dict.fromkeys(test.partition("::")[0] for test in seconds)
        return {"code": int(pytest.main([*files, "-x", *OPTIONS], plugins=[Chosen(limits, running)]))}

    result = _forked(run, slack * (90 + 10 * sum(seconds.values())), tree)
    if result is not None and result["code"] in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return None
    last = running.read_text()
    of_file = [test for test in seconds if test.startswith(f"{last}::")]
    return last if last in seconds else next(iter(of_file or seconds))


@contextlib.contextmanager
def _tree(file: str, source: str) -> Iterator[Path]:
    """A folder with a package `trustfold` of links to the checkout, but for one file."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        there = Path(folder, PACKAGE)
        here = ROOT
        for part in Path(file).parts:
            there.mkdir()
            for entry in here.iterdir():
                if entry.name != part and (
                    entry.is_dir() or entry.suffix in {".py", ".typed", ".sql", ".json", ".ndjson"}
                ):
                    if entry.name == "__pycache__":
                        _link_compiled(entry, there, part)
                    elif not entry.name.startswith("."):
                        (there / entry.name).symlink_to(entry)
            here, there = here / part, there / part
        there.write_text(source)
        yield Path(folder)


def _link_compiled(cache: Path, there: Path, part: str) -> None:
    """Links to compiled files, so that siblings of the changed file are not compiled again."""
    (there / cache.name).mkdir()
    for compiled in cache.iterdir():
        if not compiled.name.startswith(f"{part.removesuffix('.py')}."):
            (there / cache.name / compiled.name).symlink_to(compiled)


def _forked(run: Callable[[], dict[str, Any]], limit_s: float, tree: Path | None = None) -> dict[str, Any] | None:
    """Run a function in a child process with its own group; returns its result, None if it hangs or dies."""
    if any(name == PACKAGE or name.startswith(f"{PACKAGE}.") for name in sys.modules):
        raise RuntimeError(f"{PACKAGE} must not be imported before the fork")
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        answer = Path(folder, "answer")
        child = os.fork()
        if child == 0:
            _in_child(run, folder, answer, tree)
        ended = _wait(child, limit_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)
        if not ended or not answer.exists():
            return None
        result = dict(json.loads(answer.read_bytes()))
        if "error" in result:
            raise RuntimeError(f"pytest could not be run:\n{result['error']}")
        return result


def _in_child(run: Callable[[], dict[str, Any]], folder: str, answer: Path, tree: Path | None) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    sys.dont_write_bytecode = False  # compiled files are found again by the next child
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    if tree is not None:
        os.environ["PYTHONPATH"] = str(tree)
        sys.path.insert(0, str(tree))
    output = os.open(Path(folder, "output"), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        result = run()
    except BaseException:  # noqa: BLE001 - the parent raises it
        result = {"error": traceback.format_exc()}
    answer.write_text(json.dumps(result))
    os._exit(0)


def _wait(child: int, limit_s: float) -> bool:
    """Whether a process has ended before the limit."""
    ended = os.pidfd_open(child)
    try:
        if not select.select([ended], [], [], limit_s)[0]:
            return False
        os.waitpid(child, 0)
        return True
    finally:
        os.close(ended)
