"""Fixtures of every test (a Kafka broker), coroutine functions as tests, and which tests run in what order."""

import asyncio
import gc
import inspect
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from warm_process import be_patient, end_started, started

# Tests start hundreds of processes: each would compile the package anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = ["broker_kit.plugin"]

# The same inputs in every run, and no limit of time for one: luck and load decide nothing. `make explore` draws anew,
# and ten times as many. A test that needs more or fewer takes a multiple of its profile's number.
NO_HEALTH_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]
settings.register_profile("ci", settings.get_profile("ci"), max_examples=30, suppress_health_check=NO_HEALTH_CHECKS)
settings.register_profile("explore", max_examples=300, deadline=None, suppress_health_check=NO_HEALTH_CHECKS)
settings.load_profile("ci")


@pytest.fixture
def fixed_rules_file(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and servers of a test run under `fixed_rules`, whatever is shipped."""
    from command_line import SETTINGS  # not above: nothing of the package is imported before a run of mutants forks
    from fixed_rules import Rules
    from trustfold.rules.parser import as_toml

    file = tmp_path_factory.mktemp("rules") / "fixed.toml"
    file.write_text(as_toml(Rules(), everything=True))
    monkeypatch.setitem(SETTINGS, "TRUSTFOLD_RULES", str(file))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--slow`."""
    parser.addoption("--slow", action="store_true", help="run the tests marked `slow` as well")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say that slow tests are left out."""
    return "slow tests: left out; --slow runs them as well" if _quick(config) else None


def pytest_collection(session: pytest.Session) -> None:
    """Compile a share of the tests: the processes of a parallel run would each compile all of them at the same time."""
    gc.disable()  # until all is imported: a third of the time of a collection goes into it otherwise
    number, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if number is not None:
        for file in sorted(Path(__file__).parent.rglob("test_*.py"))[int(number[2:]) :: count]:
            made = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
            if not made.exists():
                made.parent.mkdir(parents=True, exist_ok=True)
                source, code = rewrite._rewrite_test(file, session.config)
                rewrite._write_pyc(session.config.stash[rewrite.assertstate_key], code, source, made)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests and scenes of chaos unless asked for; begin with the files that take longest."""
    left_out = ["slow"] if _quick(config) else []
    left_out += ["chaos"] if "chaos" not in config.getoption("markexpr") else []
    deselected = [item for item in items if any(map(item.get_closest_marker, left_out))]
    config.hook.pytest_deselected(items=deselected)
    gone = set(deselected)
    items[:] = [item for item in items if item not in gone]
    for name in ("broker", "slow"):
        first = {item.path for item in items if item.get_closest_marker(name)}
        items.sort(key=lambda item: item.path not in first)


def pytest_collection_finish() -> None:
    """Look for garbage again; what is tested has been imported."""
    gc.enable()
    be_patient()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Processes of `-n auto`: one more than cores, since tests on Kafka wait half of their time."""
    return len(os.sched_getaffinity(0)) + 1


def _quick(config: pytest.Config) -> bool:
    """Whether slow tests are left out: neither `--slow` nor an expression of marks speaks of them."""
    return not config.getoption("slow") and "slow" not in config.getoption("markexpr")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Leave no process of a failed test to the next one; those of wider fixtures were started before the call."""
    started.clear()
    try:
        yield
    except BaseException:
        end_started()
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
