"""What users install: the wheel, built from a clean copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
TOP_FOLDERS = sorted({package.split(".")[1] for package in PACKAGES if "." in package})

BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


def shipped_files() -> set[str]:
    """Every file that a user should find below `trustfold/`: root modules, `py.typed`, code folders."""
    below = (path for top in TOP_FOLDERS for path in (ROOT / top).rglob("*") if path.is_file())
    files = [*ROOT.glob("*.py"), ROOT / "py.typed", *below]
    return {f"trustfold/{path.relative_to(ROOT).as_posix()}" for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network and without the leftovers of earlier builds."""
    home = tmp_path_factory.mktemp("wheel")
    source = home / "source"
    ignore = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "node_modules", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=ignore)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(home)],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return home / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel installs, and none of the sources."""
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run_installed(installed: Path, *arguments: str) -> str:
    """Run the unpacked wheel as `python -m trustfold`, away from the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "trustfold", *arguments],
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the code folders ships, data included; no test, script or document does."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    ours = {name for name in names if ".dist-info/" not in name}
    assert ours == shipped_files()


def test_wheel_carries_types_and_licence(wheel: Path) -> None:
    """Type checkers see the annotations, and the licence travels along."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    assert "trustfold/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_base_install_is_small(wheel: Path) -> None:
    """Without an extra, six libraries are needed; Kafka, DuckDB and servers are a choice."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))).decode()
    base = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, flags=re.MULTILINE)
    assert sorted(base) == ["click", "msgspec", "orjson", "rapidfuzz", "rich", "urllib3"]


def test_wheel_runs_without_the_sources(installed: Path) -> None:
    """The unpacked wheel is what gets imported, and it answers for its version."""
    where = "import trustfold; print(trustfold.__file__, trustfold.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", where],
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    file, version = done.stdout.split()
    assert Path(file) == installed / "trustfold" / "__init__.py"
    assert version in run_installed(installed, "--version")


def test_wheel_brings_its_demo(installed: Path) -> None:
    """`trustfold demo` finds its recorded runs in the wheel, not in the checkout."""
    assert run_installed(installed, "demo")
