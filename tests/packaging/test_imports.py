"""One identity for each class, nothing heavy behind a light import, and layers that hold."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustfold
from trustfold.schemas.events import ToolCallStarted

ROOT = Path(__file__).parents[2]
HEAVY = ["aiokafka", "duckdb", "faust", "mcp", "opentelemetry", "redis", "rocksdict", "starlette", "uvicorn"]


def run_python(code: str) -> str:
    """Run code in a fresh interpreter, outside the checkout, and give back what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_class_has_one_identity() -> None:
    """A class of the contract knows itself by its installed name, under pytest as elsewhere."""
    assert ToolCallStarted.__module__ == "trustfold.schemas.events"
    twins = [name for name in sys.modules if name.endswith("schemas.events")]
    assert twins == ["trustfold.schemas.events"]


def test_tests_cannot_be_imported_as_part_of_the_package() -> None:
    """The strict editable install shows the package and nothing else of the checkout."""
    if Path(trustfold.__file__).parent == ROOT:
        pytest.fail("trustfold is imported from the checkout itself: run `make install`, then `make test`")
    assert importlib.util.find_spec("trustfold.tests") is None


@pytest.mark.parametrize(
    "module",
    [
        "trustfold",
        "trustfold.errors",
        "trustfold.schemas",
        "trustfold.projections",
        "trustfold.cli.main",
        "trustfold.guard",
        "trustfold.streams.embedded",
    ],
)
def test_light_imports_load_nothing_heavy(module: str) -> None:
    """The package, its contract, its folds and its command line load no engine, database or server."""
    loaded = run_python(f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))").split()
    assert not set(loaded) & set(HEAVY)


def test_importing_the_package_loads_none_of_its_parts() -> None:
    """`import trustfold` by itself loads no other module of ours."""
    loaded = run_python("import sys, trustfold; print(*[n for n in sys.modules if n.startswith('trustfold')])").split()
    assert loaded == ["trustfold"]


def test_public_names_resolve() -> None:
    """Every name that the package announces can be had, and is listed by `dir`."""
    for name in trustfold.__all__:
        assert getattr(trustfold, name) is not None
        assert name in dir(trustfold)


def test_unknown_names_are_attribute_errors() -> None:
    """A misspelt public name fails as on any module."""
    with pytest.raises(AttributeError, match="no attribute 'ToolCallStraded'"):
        trustfold.ToolCallStraded  # noqa: B018 - the access is the test


def test_layers_hold() -> None:
    """The direction of dependencies in pyproject.toml is the direction in the code."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
