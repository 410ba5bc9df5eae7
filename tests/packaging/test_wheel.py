"""What users install: sdist and wheel, built as for a release from a clean copy of the tree."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from trustfold import __version__
from trustfold.errors import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
TOP_FOLDERS = sorted({package.split(".")[1] for package in PACKAGES if "." in package})


def shipped_files() -> set[str]:
    """Every file that a user should find below `trustfold/`: root modules, `py.typed`, code folders."""
    below = (path for top in TOP_FOLDERS for path in (ROOT / top).rglob("*") if path.is_file())
    files = [*ROOT.glob("*.py"), ROOT / "py.typed", *below]
    return {f"trustfold/{path.relative_to(ROOT).as_posix()}" for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(dist: tuple[Path, Path]) -> Path:
    """The wheel."""
    return dist[1]


@pytest.fixture(scope="module")
def description(wheel: Path) -> str:
    """README as the package index shows it."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode().partition("\n\n")[2]


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


def test_sdist_holds_what_a_packager_needs(dist: tuple[Path, Path]) -> None:
    """Every file of the repository that git follows, tests and documents included."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    followed = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    with tarfile.open(dist[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert followed - names == set()


def test_the_index_shows_pages_and_pictures(description: str) -> None:
    """README there has absolute links alone; each names a file of this repository at the version's tag."""
    project = PROJECT["project"]
    led = re.findall(r"\]\(([^)\s]+)\)", description)
    ours = [link for link in led if link.startswith(project["urls"]["Source"])]
    assert [link for link in led if not link.startswith("https://")] == []
    assert len(ours) > 10
    for link in ours:
        kind, tag, path = link.removeprefix(f"{project['urls']['Source']}/").split("/", 2)
        assert (kind, tag) == ("raw" if path.endswith((".png", ".svg")) else "blob", f"v{__version__}")
        assert (ROOT / path.partition("#")[0]).exists(), link


def test_pages_of_the_project_exist() -> None:
    """Links of the metadata that name a file name one of this repository."""
    urls = PROJECT["project"]["urls"]
    paths = [url.partition("/blob/main/")[2] for url in urls.values() if "/blob/" in url]
    assert len(paths) >= 3
    assert [path for path in paths if not (ROOT / path).is_file()] == []


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
    assert sorted(base) == ["ahocorasick-rs", "click", "msgspec", "orjson", "rapidfuzz", "rich", "urllib3"]


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


def test_every_module_of_an_extra_names_it() -> None:
    """An import error says which extra brings the module."""
    (whole,) = PROJECT["project"]["optional-dependencies"]["all"]
    assert set(EXTRAS.values()) == Requirement(whole).extras


def test_wheel_brings_its_demo(installed: Path) -> None:
    """`trustfold demo` finds its recorded runs in the wheel, not in the checkout."""
    assert run_installed(installed, "demo")
