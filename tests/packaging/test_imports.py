"""One identity for each class, nothing heavy behind a light import, and layers that hold."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustfold
from trustfold.errors import EXTRAS
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


def run_without(extras: set[str], words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where the modules of these extras are not installed."""
    absent = {name: None for name, extra in EXTRAS.items() if extra in extras}
    code = f"import sys; sys.modules.update({absent}); from trustfold.cli.main import main; main({words.split()})"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("lag", "kafka"),
        ("status --bootstrap 127.0.0.1:1", "kafka"),
        ("worker", "kafka"),
        ("record", "history"),
        ("report", "history"),
        ("story s-1 --history .", "history"),
        ("whatif --rules rules.toml", "history"),
        ("up", "web"),
        ("mcp-proxy --server http://127.0.0.1:1/mcp", "mcp"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(words: str, extra: str, tmp_path: Path) -> None:
    """In one line, where the base alone is installed."""
    (tmp_path / "rules.toml").touch()
    done = run_without(set(EXTRAS.values()), words, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"; add the extra {extra}: https://" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", ["lag", "status", "doctor"])
def test_kafka_alone_serves_its_operator(words: str, tmp_path: Path) -> None:
    """No library of another extra is asked for; nothing listens there."""
    done = run_without(set(EXTRAS.values()) - {"kafka"}, f"{words} --bootstrap 127.0.0.1:1", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (1 if words == "doctor" else 3, False), done.stderr
